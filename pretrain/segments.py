"""Changes of a record's two segments before it is masked, for the auxiliary tasks that ask how they belong together.

What is asked must not be told by the segments' form. The builder's first segments begin and end with a line and are the
longer ones, its second ones begin with a line and are cut within one; `rearranged_segments` therefore parts their text
anew.
"""

import tensorflow as tf

_MOST_LEFT_OUT = 8  # tokens at a place, and at most a quarter of the text


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


def rearranged_segments(
    batch: dict[str, tf.Tensor],
    candidates: tf.Tensor,
    draws: tf.Tensor,
    order: tf.Tensor,
    longest: tf.Tensor | None = None,
) -> dict[str, tf.Tensor]:
    """The text of both segments, parted anew: in order where `order`, int32 [B], is 0, swapped where it is 1, untouched
    where it is -1.

    The first 1 to 8 tokens are left out, so that neither segment begins with a line, and as many at the new border, so
    that no word goes on behind it. The length of the segment that is shown first is drawn whatever the order, uniformly
    from a quarter to three quarters of the tokens.

    Args:
      candidates: float32 [B, L], 1 at tokens that are not special.
      draws: float32 [B, 3], uniform in [0, 1): tokens left out at the beginning and at the border, and the length.
      longest: int32 [B, 1], tokens of the segment that is shown second, at most.
    """
    ids, mask, segments = (batch[name] for name in ("input_ids", "input_mask", "segment_ids"))
    places = tf.range(ids.shape[1])[tf.newaxis]
    start, length = _start(candidates), tf.reduce_sum(mask, -1, keepdims=True)
    second = tf.reduce_sum(segments * mask, -1, keepdims=True)
    first = length - second - 1 - start  # tokens of the old first segment, behind which there is a [SEP]
    before, gap = tf.split(_left_out(draws[:, :2], first + second - 1), 2, 1)
    kept = first + second - 1 - before - gap
    least = tf.maximum(kept // 4, 1)
    lower = least if longest is None else tf.maximum(least, kept - longest)
    shown_first = lower + _drawn(draws[:, 2:], tf.maximum(kept - least - lower, 0) + 1)
    swapped = order == 1
    border = tf.where(swapped[:, tf.newaxis], kept - shown_first, shown_first)
    number = places - start  # of a token of the new text; `border` is the [SEP] between its parts
    old = number + before + tf.where(number > border, gap - 1, 0)
    source = start + old + tf.cast(old >= first, tf.int32)
    source = tf.where((number == border) | (number == kept + 1), length - 1, source)
    source = tf.clip_by_value(tf.where(number < 0, places, source), 0, ids.shape[1] - 1)
    real = tf.cast(number <= kept + 1, tf.int32)
    chosen = (order >= 0)[:, tf.newaxis]
    parted = batch | {
        "input_ids": tf.where(chosen, tf.gather(ids, source, batch_dims=1) * real, ids),
        "input_mask": tf.where(chosen, real, mask),
        "segment_ids": tf.where(chosen, tf.cast(number > border, tf.int32) * real, segments),
    }
    return swapped_segments(parted, candidates, swapped)


def begun_later(text: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
    """int32 [B, L]: text, filled up with zeros, without its first 1 to 8 tokens; `draws` as those of
    `rearranged_segments`, [B, 1]."""
    skipped = _left_out(draws, tf.reduce_sum(tf.cast(text > 0, tf.int32), -1, keepdims=True))
    source = tf.range(text.shape[1])[tf.newaxis] + skipped
    inside = tf.cast(source < text.shape[1], tf.int32)
    return tf.gather(text, tf.minimum(source, text.shape[1] - 1), batch_dims=1) * inside


def _left_out(draws: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
    """int32: how many of so many tokens are left out at a place, of draws in [0, 1)."""
    most = tf.clip_by_value(tokens // 4, 0, _MOST_LEFT_OUT)
    return tf.minimum(1 + _drawn(draws, most), most)


def _drawn(draws: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """int32 in [0, number) of draws in [0, 1)."""
    return tf.minimum(tf.cast(draws * tf.cast(number, tf.float32), tf.int32), number - 1)


def replaced_segment(batch: dict[str, tf.Tensor], text: tf.Tensor, replaced: tf.Tensor) -> dict[str, tf.Tensor]:
    """[CLS] A [SEP] B [SEP] becomes [CLS] A [SEP] text [SEP] in the rows of `replaced`, bool [B]; the mask follows.

    Args:
      text: int32 [B, L], filled up with zeros; what is longer than B is cut off.
    """
    ids, mask, segments = (batch[name] for name in ("input_ids", "input_mask", "segment_ids"))
    places = tf.range(ids.shape[1])[tf.newaxis]
    length = tf.reduce_sum(mask, -1, keepdims=True)
    start = length - tf.reduce_sum(segments * mask, -1, keepdims=True)
    end = start + tf.reduce_sum(tf.cast(text > 0, tf.int32), -1, keepdims=True)
    end = tf.minimum(end, length - 1)  # where the last [SEP] goes
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
