"""Makes the objectives of a run from its configuration."""

from collections.abc import Sequence

from electra_tf2.configure_pretraining import GeneratorKind, PretrainingConfig
from electra_tf2.pretrain.networks import Networks
from electra_tf2.pretrain.objectives.ablations import AdversarialGenerator, AllTokensMLM, ReplaceMLM
from electra_tf2.pretrain.objectives.bert import MaskedLM
from electra_tf2.pretrain.objectives.coco_lm import CopyDetection, CorrectiveLM, SequenceContrast
from electra_tf2.pretrain.objectives.electra import ReplacedTokenDetection
from electra_tf2.pretrain.objectives.electric import ClozeLM, NoiseContrastive
from electra_tf2.pretrain.objectives.objective import Objective


def make_objectives(config: PretrainingConfig, networks: Networks) -> list[Objective]:
    """Makes the run's loss terms: first the generator's, then the main network's, then sequence contrast.

    Their order is that of their variables in checkpoints.
    """
    main = _main_objectives(config, networks)
    objectives = [_generator_objective(config, networks, main), *main]
    if config.sequence_contrast_objective:
        objectives.append(SequenceContrast(config, networks))
    return objectives


def _generator_objective(config: PretrainingConfig, networks: Networks, main: Sequence[Objective]) -> Objective:
    """Makes the loss term of the generator, or of BERT's only network."""
    if config.adversarial_generator:
        detection = next(objective for objective in main if isinstance(objective, ReplacedTokenDetection))
        return AdversarialGenerator(config, networks, detection)
    if config.generator_kind is GeneratorKind.TWO_TOWERS:
        return ClozeLM(config, networks)
    return MaskedLM(config, networks)


def _main_objectives(config: PretrainingConfig, networks: Networks) -> list[Objective]:
    """Makes the loss terms of the main network; none for BERT."""
    if config.corrective_lm_objective:
        copy = CopyDetection(config, networks)
        return [copy, CorrectiveLM(config, networks, copy)]
    classes: dict[str, type[Objective]] = {
        "electra_objective": ReplacedTokenDetection,
        "electric_objective": NoiseContrastive,
        "replace_mlm_objective": ReplaceMLM,
        "all_tokens_mlm_objective": AllTokensMLM,
    }
    return [classes[name](config, networks) for name in config.main_objectives if name in classes]
