"""Trigram shuffling, as the configuration knows it (pretrain.objectives.trigram_order computes it)."""

from collections.abc import Iterator

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.flops import Part, state_classes
from electra_tf2.pretrain.objectives.spec import TAKE_TURNS, auxiliary_task, trained_together


def _parts(c: PretrainingConfig) -> list[Part]:
    width, threes = c.architecture.hidden_size, (c.max_seq_length - 1) // 3
    return [state_classes("trigram shuffling", c.architecture, threes, 6, 3 * width)]


def _problems(c: PretrainingConfig) -> Iterator[str]:
    moved = trained_together(c, "tcp", "scp")
    if moved:
        yield f"aux_tasks tgs moves tokens of which {', '.join(moved)} says whether they were changed: {TAKE_TURNS}"


SPECS = (
    auxiliary_task(
        task="tgs",
        objectives=("electra_tf2.pretrain.objectives.trigram_order:TrigramOrder",),
        problems=_problems,
        parts=_parts,
    ),
)
