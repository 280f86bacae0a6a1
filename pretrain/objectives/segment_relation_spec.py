"""Relations of segments, as the configuration knows them (pretrain.objectives.segment_relation computes them)."""

from collections.abc import Iterator
from functools import partial

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.flops import pooled_classes
from electra_tf2.pretrain.objectives.spec import TAKE_TURNS, Needs, auxiliary_task, trained_together

# Task -> fields of the records without which there is no label.
TEXTS = {"asp": ("other_document_ids",), "sdp": ("same_document_ids", "other_document_ids")}


def _problems(c: PretrainingConfig, task: str) -> Iterator[str]:
    tasks = trained_together(c, "so", *TEXTS)
    if task != next((name for name in tasks if name in TEXTS), None):
        return
    if len(tasks) > 1:
        yield f"aux_tasks {', '.join(tasks)} rearrange the same two segments: {TAKE_TURNS}"
    halves = trained_together(c, "qt", "fs")
    if halves:
        yield f"aux_tasks {', '.join(halves)} want halves of one text, {task} puts text of others there: {TAKE_TURNS}"


def _needs(c: PretrainingConfig, task: str) -> Needs:
    del c
    return Needs(two_segments=True, other_segments=frozenset(TEXTS[task]))


SPECS = tuple(
    auxiliary_task(
        task=task,
        objectives=(f"electra_tf2.pretrain.objectives.segment_relation:{name}",),
        problems=partial(_problems, task=task),
        parts=lambda c: [pooled_classes("relation of segments", c.architecture, 3)],
        needs=partial(_needs, task=task),
    )
    for task, name in (("asp", "AdjacentSegments"), ("sdp", "SameDocument"))
)
