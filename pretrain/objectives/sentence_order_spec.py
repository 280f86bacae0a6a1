"""Sentence order, as the configuration knows it (pretrain.objectives.sentence_order computes it)."""

from electra_tf2.model.flops import pooled_classes
from electra_tf2.pretrain.objectives.spec import Needs, auxiliary_task

SPECS = (
    auxiliary_task(
        task="so",
        objectives=("electra_tf2.pretrain.objectives.sentence_order:SentenceOrder",),
        parts=lambda c: [pooled_classes("sentence order", c.architecture, 2)],
        needs=lambda c: Needs(two_segments=True),
    ),
)
