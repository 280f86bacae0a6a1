"""Corrupted tokens, as the configuration knows them (pretrain.objectives.token_corruption computes them)."""

from collections.abc import Iterator

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.flops import pooled_classes, state_classes
from electra_tf2.pretrain.objectives.spec import TAKE_TURNS, auxiliary_task, trained_together


def _problems(c: PretrainingConfig) -> Iterator[str]:
    if len(trained_together(c, "tcp", "scp")) > 1:
        yield f"aux_tasks tcp tampers with every sequence, so none would be left as it was for scp: {TAKE_TURNS}"


SPECS = (
    auxiliary_task(
        task="tcp",
        objectives=("electra_tf2.pretrain.objectives.token_corruption:TokenCorruption",),
        problems=_problems,
        parts=lambda c: [state_classes("corrupted tokens", c.architecture, c.max_seq_length, 2)],
    ),
    auxiliary_task(
        task="scp",
        objectives=("electra_tf2.pretrain.objectives.token_corruption:SequenceCorruption",),
        parts=lambda c: [pooled_classes("corrupted sequences", c.architecture, 2)],
    ),
)
