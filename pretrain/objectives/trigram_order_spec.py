"""Trigram shuffling, as the configuration knows it (pretrain.objectives.trigram_order computes it)."""

from configure_pretraining import PretrainingConfig
from model.flops import Part, state_classes
from pretrain.objectives.spec import auxiliary_task


def _parts(c: PretrainingConfig) -> list[Part]:
    width, threes = c.architecture.hidden_size, (c.max_seq_length - 1) // 3
    return [state_classes("trigram shuffling", c.architecture, threes, 6, 3 * width)]


SPECS = (
    auxiliary_task(
        task="tgs",
        objectives=("pretrain.objectives.trigram_order:TrigramOrder",),
        parts=_parts,
    ),
)
