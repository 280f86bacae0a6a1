"""Changes of a record's two segments before it is masked, for the auxiliary tasks that ask how they belong together."""

import tensorflow as tf

_MOST_REMOVED = 8


def swapped_segments(batch: dict[str, tf.Tensor], candidates: tf.Tensor, swapped: tf.Tensor) -> dict[str, tf.Tensor]:
    """[CLS] A [SEP] B [SEP] becomes [CLS] B [SEP] A [SEP] in the rows of `swapped`, bool [B]; segment ids follow.

    A token between [CLS] and A that marks a source is no candidate, float32 [B, L], and stays: else it would give the
    order away.
    """
    places = tf.range(batch["input_ids"].shape[1])[tf.newaxis]
    start = _start(candidates)
    body = tf.reduce_sum(batch["input_mask"], -1, keepdims=True) - start
    second = tf.reduce_sum(batch["segment_ids"] * batch["input_mask"], -1, keepdims=True)
    inside = (places >= start) & (places < start + body) & swapped[:, tf.newaxis]
    turned = start + tf.math.floormod(places - start + body - second, tf.maximum(body, 1))
    source = tf.where(inside, turned, tf.broadcast_to(places, tf.shape(inside)))
    return batch | {
        "input_ids": tf.gather(batch["input_ids"], source, batch_dims=1),
        "segment_ids": tf.where(inside, tf.cast(places - start >= second, tf.int32), batch["segment_ids"]),
    }


def _start(candidates: tf.Tensor) -> tf.Tensor:
    """int32 [B, 1], the place of the first segment's first token."""
    return tf.maximum(1, tf.argmax(candidates, -1, tf.int32))[:, tf.newaxis]


def parted_segments(
    batch: dict[str, tf.Tensor], candidates: tf.Tensor, draws: tf.Tensor, parted: tf.Tensor
) -> dict[str, tf.Tensor]:
    """The rows of `parted`, bool [B], without some tokens on both sides of the border of their two segments.

    The builder's first segments end with a line and second ones begin with one, while text is cut within lines at the
    other ends: a full stop before [SEP] would tell which of the two came first.

    Args:
      candidates: float32 [B, L], 1 at tokens that are not special.
      draws: float32 [B, 2], uniform: 1 to 8 tokens are taken off either segment, but at most half of it.
    """
    ids, mask, segments = (batch[name] for name in ("input_ids", "input_mask", "segment_ids"))
    places = tf.range(ids.shape[1])[tf.newaxis]
    length = tf.reduce_sum(mask, -1, keepdims=True)
    second = tf.reduce_sum(segments * mask, -1, keepdims=True)
    border = length - second  # where the second segment begins, behind a [SEP]
    sizes = tf.concat([border - 1 - _start(candidates), second - 1], 1)
    most = tf.where(parted[:, tf.newaxis], tf.clip_by_value(sizes // 2, 0, _MOST_REMOVED), 0)
    drawn = 1 + tf.cast(draws * tf.cast(most, tf.float32), tf.int32)
    before, behind = tf.split(tf.minimum(drawn, most), 2, 1)
    separator = border - 1 - before
    moved = tf.where(places <= separator, before, before + behind)
    source = tf.where(places < separator, places, tf.minimum(places + moved, ids.shape[1] - 1))
    real = tf.cast(places < length - before - behind, tf.int32)
    chosen = parted[:, tf.newaxis]
    return batch | {
        "input_ids": tf.where(chosen, tf.gather(ids, source, batch_dims=1) * real, ids),
        "input_mask": tf.where(chosen, real, mask),
        "segment_ids": tf.where(chosen, tf.cast(places > separator, tf.int32) * real, segments),
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
