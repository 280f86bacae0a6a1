"""Replaced-token detection and Electric, as the configuration knows them (pretrain.objectives.detection computes)."""

from collections.abc import Iterator

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.flops import Part
from electra_tf2.pretrain.objectives.spec import ObjectiveSpec


def _electric_problems(c: PretrainingConfig) -> Iterator[str]:
    why = "electric_objective needs the probabilities of its two-tower generator"
    if c.uniform_generator:
        yield f"{why}: uniform_generator must be false"
    if not c.untied_generator:
        yield f"{why}: untied_generator must be true"
    if c.disallow_correct:
        yield f"{why} as sampled: disallow_correct must be false"
    if c.disc_tokens != "all":
        yield f"electric_objective tells noise from data: disc_tokens must be all, got {c.disc_tokens}"
    if c.temperature != 1.0:
        yield f"{why} as sampled: temperature must be 1, got {c.temperature:g}"
    if c.generator_sample_mode == "eval":
        yield f"{why} as sampled, dropout included: not generator_sample_mode eval"
    if c.initial_mask_prob not in (None, c.mask_prob) or c.initial_temperature not in (None, c.temperature):
        yield "electric_objective needs the same noise at every step: no initial_mask_prob, no initial_temperature"


def _parts(c: PretrainingConfig) -> list[Part]:
    hidden, length = c.architecture.hidden_size, c.max_seq_length
    flops = 2 * length * (hidden * hidden + hidden)
    return [Part("detection head", hidden * hidden + hidden + hidden + 1, flops, length * (hidden + 1))]


SPECS = (
    ObjectiveSpec(
        flag="electra_objective",
        title="replaced-token detection (ELECTRA)",
        role="main",
        objectives=("electra_tf2.pretrain.objectives.detection:ReplacedTokenDetection",),
        parts=_parts,
    ),
    ObjectiveSpec(
        flag="electric_objective",
        title="noise-contrastive estimation (Electric)",
        role="main",
        objectives=("electra_tf2.pretrain.objectives.detection:NoiseContrastive",),
        problems=_electric_problems,
        parts=_parts,
    ),
)
