"""Corrupted tokens, as the configuration knows them (pretrain.objectives.token_corruption computes them)."""

from collections.abc import Iterator

from configure_pretraining import PretrainingConfig
from model.flops import pooled_classes, state_classes
from pretrain.objectives.spec import TAKE_TURNS, auxiliary_task, trained_together


def _problems(c: PretrainingConfig) -> Iterator[str]:
    if len(trained_together(c, "tcp", "scp")) > 1:
        yield f"aux_tasks tcp tampers with every sequence, so none would be left as it was for scp: {TAKE_TURNS}"


SPECS = (
    auxiliary_task(
        task="tcp",
        objectives=("pretrain.objectives.token_corruption:TokenCorruption",),
        problems=_problems,
        parts=lambda c: [state_classes("corrupted tokens", c.architecture, c.max_seq_length, 2)],
    ),
    auxiliary_task(
        task="scp",
        objectives=("pretrain.objectives.token_corruption:SequenceCorruption",),
        parts=lambda c: [pooled_classes("corrupted sequences", c.architecture, 2)],
    ),
)
