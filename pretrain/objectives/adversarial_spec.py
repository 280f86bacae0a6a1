"""The adversarial generator, as the configuration knows it (pretrain.objectives.adversarial computes it)."""

from collections.abc import Iterator

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.flops import Part
from electra_tf2.pretrain.objectives.spec import ObjectiveSpec


def _problems(c: PretrainingConfig) -> Iterator[str]:
    why = "adversarial_generator needs"
    if not c.electra_objective:
        yield f"{why} electra_objective"
    if c.uniform_generator or c.two_tower_generator:
        yield f"{why} a masked language model as generator"
    if not c.untied_generator:
        yield f"{why} untied_generator: one network cannot play both sides"
    if c.freeze_generator:
        yield f"{why} a generator that is trained: freeze_generator must be false"
    if c.generator_sample_mode == "eval":
        yield f"{why} the sampled pass to be trained: not generator_sample_mode eval"
    if c.temperature != 1.0 or c.initial_temperature not in (None, 1.0) or c.disallow_correct:
        yield (
            f"{why} samples of the distribution whose log-probability it weighs, else its gradient is biased: "
            "temperature must be 1 and disallow_correct false"
        )


def _parts(c: PretrainingConfig) -> list[Part]:
    width, masked = c.generator_architecture.hidden_size, c.max_predictions_per_seq
    return [Part("generator's baseline", width + 1, 2 * masked * width, masked)]


SPECS = (
    ObjectiveSpec(
        flag="adversarial_generator",
        title="an adversarial generator",
        role="generator",
        objectives=("electra_tf2.pretrain.objectives.adversarial:AdversarialGenerator",),
        problems=_problems,
        parts=_parts,
    ),
)
