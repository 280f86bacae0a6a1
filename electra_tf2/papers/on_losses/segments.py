"""Auxiliary tasks on the two segments of a record (On Losses, section 3.2): sentence order, adjacent sentences.

Both tasks rearrange the text before it is masked, so everything else sees the new text. The form of two segments must
not give the answer away. The builder's first segments begin and end with a line and are longer; its second segments
begin with a line and end within one. Therefore `parted` divides the text of both into two new parts.

Shapes: B rows, L length, T tokens of a text.
"""

import math
from typing import NamedTuple

import tensorflow as tf

from electra_tf2.papers.on_losses.auxiliary import Auxiliary, TaskHead, task_labels
from electra_tf2.papers.on_losses.config import Config
from electra_tf2.pretrain.masking import Batch, Draw, MaskedBatch
from electra_tf2.pretrain.networks import Networks
from electra_tf2.pretrain.objectives.objective import Forward, LossTerm, weighted_mean

_MOST_LEFT_OUT = 8  # tokens that are left out at one place, and at most a quarter of the text


class TextPart(NamedTuple):
    """A part of the text of each row.

    start: int32 [B, 1], index of its first token.
    tokens: int32 [B, 1], how many tokens it has.
    """

    start: tf.Tensor
    tokens: tf.Tensor


class Rearranged(NamedTuple):
    """Rearranged records.

    batch: int32 [B, L] for each field of records.
    labels: int32 [B], how they were rearranged; -1 in rows that the task does not ask about.
    """

    batch: Batch
    labels: tf.Tensor


class Rearrangement(Auxiliary):
    """Base of tasks that rearrange segments and ask how: cross-entropy over some classes, from the [CLS] state.

    Class attributes:
      classes: how many classes there are.
      head_name: first part of the names of the head's variables.
    """

    classes: int
    head_name: str

    def __init__(self, config: Config, networks: Networks) -> None:
        super().__init__(config, networks)
        self.initial_loss = math.log(self.classes)
        scope = f"{self.head_name}_predictions"
        self.head = TaskHead(scope, config.architecture, self.classes, config.seed, reads_cls=True)

    def rearrange(self, batch: Batch, draw: Draw) -> Rearranged:
        """Rearranges records, with `draw` for random numbers."""
        raise NotImplementedError

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return tf.cast(task_labels(masked, self.task) >= 0, tf.float32)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        labels = tf.maximum(task_labels(forward.masked, self.task), 0)
        logits = self.head(forward.states)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        is_right = tf.equal(tf.argmax(logits, -1, tf.int32), labels)
        accuracy = weighted_mean(is_right, self.token_weights(forward.masked))
        return self.output(forward, losses, {f"{self.task}_accuracy": accuracy})


class SentenceOrder(Rearrangement):
    """Sentence order (SO; ALBERT, Lan et al. 2020, section 3.1): half of the records have their segments swapped.

    The builder's second segment follows the first in its document. Records of one segment have no label. Ours: the text
    of both is divided into two new parts, so that their form does not show the order.
    """

    task = "so"
    loss_name = "so_loss"
    classes = 2
    head_name = "sentence_order"

    def rearrange(self, batch: Batch, draw: Draw) -> Rearranged:
        text, first, second = split_segments(batch)
        has_two = second[:, 0] >= 0
        is_swapped = tf.cast(draw(0, []) < 0.5, tf.int32)
        labels = tf.where(has_two, is_swapped, -1)
        shown_first, shown_second = parted(draw(1, [3]), first + second, labels == 1)
        return Rearranged(put_together(batch, text, shown_first, shown_second, has_two), labels)


class AdjacentSentences(Rearrangement):
    """Adjacent sentences (ASP): which of three the second segment does, each in a third of the records.

    It follows the first (0), precedes it (1), or is of another document (2). The text of another document is that of
    the record half a batch away. Neighbours in a file of held-out records, which are not shuffled, would often be of
    one document; in a corpus of very few documents some partners still are. Partners are rows of one replica, so they
    depend on the number of replicas. Records of one segment, and those with an empty partner, have no label.
    """

    task = "asp"
    loss_name = "asp_loss"
    classes = 3
    head_name = "asp"

    def rearrange(self, batch: Batch, draw: Draw) -> Rearranged:
        text, first, second = split_segments(batch)
        rows, length = text.shape
        tokens = tf.maximum(first + tf.maximum(second, 0), 0)
        other_text = tf.roll(text, rows // 2, 0)
        other_tokens = tf.roll(tokens, rows // 2, 0)
        is_possible = (second[:, 0] >= 0) & (other_tokens[:, 0] > 0)
        if rows == 1:
            # The row is its own partner.
            is_possible = tf.zeros_like(is_possible)
        label = integers(draw(0, []), self.classes)

        left_out = _left_out(draw(2, [1]), other_tokens)
        other_tokens -= left_out
        # Whatever the label, the second segment is at most as long as the other text.
        shown_first, shown_second = parted(draw(1, [3]), first + second, label == 1, longest=other_tokens)
        # The other text follows the row's, whose length is `length`.
        both_texts = tf.concat([text, other_text], 1)  # [B, 2L]
        is_other = label[:, tf.newaxis] == 2
        size = tf.minimum(other_tokens, shown_second.tokens)
        shown_second = TextPart(
            start=tf.where(is_other, length + left_out, shown_second.start),
            tokens=tf.where(is_other, size, shown_second.tokens),
        )
        rearranged = put_together(batch, both_texts, shown_first, shown_second, is_possible)
        return Rearranged(rearranged, tf.where(is_possible, label, -1))


# Two segments as parts of a text.


def split_segments(batch: Batch) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The text of both segments without special tokens, int32 [B, L]; how many tokens each segment has, int32 [B, 1].

    In records of one segment the second has -1.
    """
    ids = batch["input_ids"]
    mask = batch["input_mask"]
    second = tf.reduce_sum(batch["segment_ids"] * mask, -1, keepdims=True) - 1  # without its [SEP]
    first = tf.reduce_sum(mask, -1, keepdims=True) - second - 3
    places = tf.range(ids.shape[1])[tf.newaxis]
    source = 1 + places + tf.cast(places >= first, tf.int32)  # without [CLS], and the [SEP] between them
    text = tf.gather(ids, tf.minimum(source, ids.shape[1] - 1), batch_dims=1)
    return text, first, second


def parted(
    draws: tf.Tensor,
    tokens: tf.Tensor,
    swapped: tf.Tensor,
    longest: tf.Tensor | None = None,
) -> tuple[TextPart, TextPart]:
    """Divides a text into two parts. Returns them as they are shown: in order, or swapped.

    The first 1 to 8 tokens are left out, so that neither part begins with a line, and as many between the parts, so
    that no word goes on behind the border. The length of the part that is shown first is drawn in the same way for
    either order, uniformly from a quarter to three quarters of the tokens.

    Args:
      draws: float32 [B, 3], uniform in [0, 1): tokens left out at the beginning and at the border, and the length.
      tokens: int32 [B, 1], length of the text.
      swapped: bool [B].
      longest: int32 [B, 1], most tokens of the part that is shown second.
    """
    before, gap = tf.split(_left_out(draws[:, :2], tokens), 2, 1)
    kept = tokens - before - gap
    least = tf.maximum(kept // 4, 1)
    shortest = least
    if longest is not None:
        shortest = tf.maximum(least, kept - longest)
    choices = tf.maximum(kept - least - shortest, 0) + 1
    first_size = shortest + integers(draws[:, 2:], choices)
    second_size = kept - first_size
    # In order the text is: left out, first, left out, second. Swapped: left out, second, left out, first.
    swapped = swapped[:, tf.newaxis]
    first_start = tf.where(swapped, before + second_size + gap, before)
    second_start = tf.where(swapped, before, before + first_size + gap)
    return TextPart(first_start, first_size), TextPart(second_start, second_size)


def put_together(batch: Batch, text: tf.Tensor, first: TextPart, second: TextPart, chosen: tf.Tensor) -> Batch:
    """Makes the records [CLS] first [SEP] second [SEP] in the rows of `chosen`, bool [B]; other rows stay.

    Args:
      text: int32 [B, T], of which `first` and `second` are parts.
    """
    ids = batch["input_ids"]
    mask = batch["input_mask"]
    place = tf.range(ids.shape[1])[tf.newaxis] - 1  # [1, L], counted behind [CLS], which is at -1
    separator = first.tokens
    end = first.tokens + 1 + second.tokens
    # The record's token at `place` is the text's token at `source`.
    source = place + tf.where(place < separator, first.start, second.start - separator - 1)  # [B, L]
    source = tf.clip_by_value(source, 0, text.shape[1] - 1)
    new_ids = tf.gather(text, source, batch_dims=1)
    last = tf.maximum(tf.reduce_sum(mask, -1, keepdims=True) - 1, 0)
    sep_id = tf.gather(ids, last, batch_dims=1)  # [B, 1]: the record ends with [SEP]
    new_ids = tf.where((place == separator) | (place == end), sep_id, new_ids)
    new_mask = tf.cast(place <= end, tf.int32)
    new_ids = tf.where(place < 0, ids, new_ids * new_mask)  # [CLS] stays
    new_segments = tf.cast(place > separator, tf.int32) * new_mask
    chosen = chosen[:, tf.newaxis]
    return batch | {
        "input_ids": tf.where(chosen, new_ids, ids),
        "input_mask": tf.where(chosen, new_mask, mask),
        "segment_ids": tf.where(chosen, new_segments, batch["segment_ids"]),
    }


def integers(draws: tf.Tensor, below: int | tf.Tensor) -> tf.Tensor:
    """int32 in [0, below), from uniform draws in [0, 1)."""
    return tf.minimum(tf.cast(draws * tf.cast(below, tf.float32), tf.int32), below - 1)


def _left_out(draws: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
    """int32: draws how many tokens are left out at a place, of a text of so many; none of three tokens or fewer."""
    most = tf.clip_by_value(tokens // 4, 0, _MOST_LEFT_OUT)
    return tf.minimum(1 + integers(draws, most), most)
