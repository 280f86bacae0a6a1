"""The objectives of a run, chosen by its configuration."""

from collections.abc import Sequence

from electra_tf2.configure_pretraining import GeneratorKind, PretrainingConfig
from electra_tf2.pretrain.objectives.ablations import AdversarialGenerator, AllTokensMLM, ReplaceMLM
from electra_tf2.pretrain.objectives.bert import MaskedLM
from electra_tf2.pretrain.objectives.coco_lm import CopyDetection, CorrectiveLM, SequenceContrast
from electra_tf2.pretrain.objectives.electra import ReplacedTokenDetection
from electra_tf2.pretrain.objectives.electric import ClozeLM, NoiseContrastive
from electra_tf2.pretrain.objectives.objective import Networks, Objective


def make_objectives(
    config: PretrainingConfig,
    networks: Networks,
    generator: Objective | None = None,
) -> list[Objective]:
    """The run's loss terms: the generator's, the main network's, sequence contrast.

    Their order is that of their variables in checkpoints.

    Args:
      generator: a paper's, in place of the one that the configuration chooses.
    """
    main = _of_main_network(config, networks)
    contrast = [SequenceContrast(config, networks)] if config.sequence_contrast_objective else []
    return [generator or _of_generator(config, networks, main), *main, *contrast]


def _of_generator(config: PretrainingConfig, networks: Networks, main: Sequence[Objective]) -> Objective:
    """The loss term of the generator, or of BERT's only network."""
    if config.adversarial_generator:
        detection = next(objective for objective in main if isinstance(objective, ReplacedTokenDetection))
        return AdversarialGenerator(config, networks, detection)
    if config.generator_kind is GeneratorKind.TWO_TOWERS:
        return ClozeLM(config, networks)
    return MaskedLM(config, networks)


def _of_main_network(config: PretrainingConfig, networks: Networks) -> list[Objective]:
    """The loss terms of the main network; none for BERT."""
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
