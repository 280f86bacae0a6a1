"""Changes of a record's two segments before it is masked, for the auxiliary tasks that ask how they belong together."""

import tensorflow as tf


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


def replaced_segment(batch: dict[str, tf.Tensor], text: tf.Tensor, replaced: tf.Tensor) -> dict[str, tf.Tensor]:
    """[CLS] A [SEP] B [SEP] becomes [CLS] A [SEP] text [SEP] in the rows of `replaced`, bool [B]; the mask follows.

    Args:
      text: int32 [B, L], filled up with zeros and no longer than B.
    """
    ids, mask, segments = (batch[name] for name in ("input_ids", "input_mask", "segment_ids"))
    places = tf.range(ids.shape[1])[tf.newaxis]
    length = tf.reduce_sum(mask, -1, keepdims=True)
    start = length - tf.reduce_sum(segments * mask, -1, keepdims=True)
    end = start + tf.reduce_sum(tf.cast(text > 0, tf.int32), -1, keepdims=True)  # where the last [SEP] goes
    last = tf.gather(ids, tf.maximum(length - 1, 0), batch_dims=1)
    inside = (places >= start) & (places < end)
    new = tf.where(
        inside, tf.gather(text, tf.maximum(places - start, 0), batch_dims=1), tf.where(places < start, ids, 0)
    )
    new = tf.where(places == end, last, new)
    real = tf.cast(places <= end, tf.int32)
    chosen = replaced[:, tf.newaxis]
    return batch | {
        "input_ids": tf.where(chosen, new, ids),
        "input_mask": tf.where(chosen, real, mask),
        "segment_ids": tf.where(chosen, segments * real, segments),
    }
