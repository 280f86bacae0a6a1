"""Sentence order, as the configuration knows it (pretrain.objectives.sentence_order computes it)."""

from model.flops import pooled_classes
from pretrain.objectives.spec import Needs, auxiliary_task

SPECS = (
    auxiliary_task(
        task="so",
        objectives=("pretrain.objectives.sentence_order:SentenceOrder",),
        parts=lambda c: [pooled_classes("sentence order", c.architecture, 2)],
        needs=lambda c: Needs(two_segments=True),
    ),
)
