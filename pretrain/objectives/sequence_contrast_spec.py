"""Sequence contrast, as the configuration knows it (pretrain.objectives.sequence_contrast computes it)."""

from collections.abc import Iterator

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.flops import Part
from electra_tf2.pretrain.objectives.spec import Needs, ObjectiveSpec


def _problems(c: PretrainingConfig) -> Iterator[str]:
    if c.crop_fraction <= 1 and c.crop_fraction * (c.max_seq_length - 2) < 1:
        yield "crop_fraction leaves no token"
    if c.scl_gather and c.gradient_accumulation_steps > 1:
        yield "scl_gather needs whole batches: gradient_accumulation_steps must be 1"


def _parts(c: PretrainingConfig) -> list[Part]:
    hidden = c.architecture.hidden_size
    square = hidden * hidden
    return [Part("contrast head", square + 3 * hidden, 2 * 2 * square, 2 * hidden)] if c.scl_head == "mlp_ln" else []


SPECS = (
    ObjectiveSpec(
        flag="sequence_contrast_objective",
        title="sequence contrast (COCO-LM)",
        role="beside",
        objectives=("electra_tf2.pretrain.objectives.sequence_contrast:SequenceContrast",),
        problems=_problems,
        parts=_parts,
        needs=lambda c: Needs(views=(c.crop_length,), whole_batch=True),
    ),
)
