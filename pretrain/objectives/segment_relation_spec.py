"""Relations of segments, as the configuration knows them (pretrain.objectives.segment_relation computes them)."""

from collections.abc import Iterator
from functools import partial

from configure_pretraining import PretrainingConfig
from model.flops import pooled_classes
from pretrain.objectives.spec import Needs, auxiliary_task

# Task -> fields of the records without which there is no label.
TEXTS = {"asp": ("other_document_ids",), "sdp": ("same_document_ids", "other_document_ids")}


def _problems(c: PretrainingConfig, task: str) -> Iterator[str]:
    tasks = [name for name in c.aux_tasks if name in ("so", *TEXTS)]
    if c.aux_combination not in ("sum", "inc") or task != next(name for name in tasks if name in TEXTS):
        return
    turns = "choose one, or an aux_combination that trains one at a time (alt, alt+, cmtl, cmtl+)"
    if len(tasks) > 1:
        yield f"aux_tasks {', '.join(tasks)} rearrange the same two segments: {turns}"
    halves = [name for name in c.aux_tasks if name in ("qt", "fs")]
    if halves:
        yield f"aux_tasks {', '.join(halves)} want halves of one text, {task} puts text of others there: {turns}"


def _needs(c: PretrainingConfig, task: str) -> Needs:
    del c
    return Needs(two_segments=True, other_segments=frozenset(TEXTS[task]))


SPECS = tuple(
    auxiliary_task(
        task=task,
        objectives=(f"pretrain.objectives.segment_relation:{name}",),
        problems=partial(_problems, task=task),
        parts=lambda c: [pooled_classes("relation of segments", c.architecture, 3)],
        needs=partial(_needs, task=task),
    )
    for task, name in (("asp", "AdjacentSegments"), ("sdp", "SameDocument"))
)
