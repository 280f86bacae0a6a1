"""Sentence order: were the two segments of a record swapped? (ALBERT, Lan et al. 2020, section 3.1; "On Losses", SO)

The builder's second segment follows the first in its document, so records need no change. A record of one segment has
no label. Ours: the text of both is parted anew, so that their form does not tell the order (pretrain.segments).
"""

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.masking import Arranged, Draw
from electra_tf2.pretrain.objectives.auxiliary import Classification, PooledHead
from electra_tf2.pretrain.objectives.base import Built
from electra_tf2.pretrain.segments import rearranged_segments


class SentenceOrder(Classification):
    """Cross-entropy over (in order, swapped) from the [CLS] state; half of the records are swapped."""

    task, loss_name, classes = "so", "so_loss", 2

    def __init__(self, config: PretrainingConfig, built: Built | None = None) -> None:
        super().__init__(config, built)
        self.head = PooledHead("sentence_order_predictions", config, self.classes)

    def arrange(self, batch: dict[str, tf.Tensor], candidates: tf.Tensor, draw: Draw, active: tf.Tensor) -> Arranged:
        second = tf.reduce_sum(batch["segment_ids"] * batch["input_mask"], -1)
        swapped = (draw(0, []) < 0.5) & (second > 0) & active
        labels = tf.where((second > 0) & active, tf.cast(swapped, tf.int32), -1)
        return rearranged_segments(batch, candidates, draw(1, [3]), labels), {self.task: labels}
