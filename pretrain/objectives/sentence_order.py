"""Sentence order: were the two segments of a record swapped? (ALBERT, Lan et al. 2020, section 3.1; "On Losses", SO)

The builder's second segment follows the first in its document, so records need no change. A record of one segment has
no label.
"""

import tensorflow as tf

from configure_pretraining import PretrainingConfig
from pretrain.masking import Arranged, Draw
from pretrain.objectives.auxiliary import Classification, PooledHead
from pretrain.objectives.base import Built


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
        return swapped_segments(batch, candidates, swapped), {self.task: labels}


def swapped_segments(batch: dict[str, tf.Tensor], candidates: tf.Tensor, swapped: tf.Tensor) -> dict[str, tf.Tensor]:
    """[CLS] A [SEP] B [SEP] becomes [CLS] B [SEP] A [SEP] in the rows of `swapped`, bool [B]; segment ids follow.

    A token between [CLS] and A that marks a source is no candidate, float32 [B, L], and stays: else it would give the
    order away.
    """
    places = tf.range(batch["input_ids"].shape[1])[tf.newaxis]
    start = tf.maximum(1, tf.argmax(candidates, -1, tf.int32))[:, tf.newaxis]
    body = tf.reduce_sum(batch["input_mask"], -1, keepdims=True) - start
    second = tf.reduce_sum(batch["segment_ids"] * batch["input_mask"], -1, keepdims=True)
    inside = (places >= start) & (places < start + body) & swapped[:, tf.newaxis]
    turned = start + tf.math.floormod(places - start + body - second, tf.maximum(body, 1))
    source = tf.where(inside, turned, tf.broadcast_to(places, tf.shape(inside)))
    return batch | {
        "input_ids": tf.gather(batch["input_ids"], source, batch_dims=1),
        "segment_ids": tf.where(inside, tf.cast(places - start >= second, tf.int32), batch["segment_ids"]),
    }
