"""Auxiliary tasks on the segments and halves of a record (On Losses, section 3.2): sentence order, adjacent segments,
same document, quick thoughts, FastSent.

What is asked of two segments must not be told by their form. The builder's first segments begin and end with a line and
are the longer ones, its second ones begin with a line and are cut within one; `parted` therefore parts their text anew.
A `Span` is (start, length) of a part of a text, int32 [B, 1] each.
"""

import math
from collections.abc import Sequence
from typing import TypeAlias

import tensorflow as tf

from electra_tf2.model.other_heads import ContrastHead
from electra_tf2.papers.on_losses.config import Config
from electra_tf2.papers.on_losses.tasks import Auxiliary, Changed, Classification, integers
from electra_tf2.pretrain.masking import Batch, Draw, MaskedBatch
from electra_tf2.pretrain.objectives.coco_lm import View
from electra_tf2.pretrain.objectives.contrast import Contrast, normalised, without_padding
from electra_tf2.pretrain.objectives.objective import Forward, LossTerm, Metrics, Networks, weighted_mean

Span: TypeAlias = tuple[tf.Tensor, tf.Tensor]
_MOST_LEFT_OUT = 8  # tokens at a place, and at most a quarter of the text


class SentenceOrder(Classification):
    """Sentence order (SO; ALBERT, Lan et al. 2020, section 3.1): half of the records have their segments swapped.

    The builder's second segment follows the first in its document, so records need no change. A record of one segment
    has no label. Ours: the text of both is parted anew, so that their form does not tell the order.
    """

    task, loss_name, classes, head_name = "so", "so_loss", 2, "sentence_order"

    def change_text(self, batch: Batch, candidates: tf.Tensor, draw: Draw) -> Changed:
        text, (_, first), (_, second) = segments_of(batch)
        possible = second[:, 0] >= 0
        labels = tf.where(possible, tf.cast(draw(0, []) < 0.5, tf.int32), -1)
        segments = parted(draw(1, [3]), first + second, labels == 1)
        return Changed(put_together(batch, text, *segments, possible), labels)


class SegmentRelation(Classification):
    """Relation of the second segment to the first: cross-entropy over three from the [CLS] state.

    Records hold the text that follows, text from elsewhere in the document and text of another one
    (papers.on_losses.records). Which of them a record shows is drawn at every step, each with the same chance, so a row
    depends on no other row. A record that lacks one of those that its task needs has no label and stays as it is.

    Class attributes:
      texts: fields of the records without which there is no label.
    """

    classes = 3
    texts: tuple[str, ...]

    def change_text(self, batch: Batch, candidates: tf.Tensor, draw: Draw) -> Changed:
        text, first, second = segments_of(batch)
        possible = second[1][:, 0] >= 0
        for name in self.texts:
            possible &= batch[name][:, 0] > 0
        label = integers(draw(0, []), self.classes)
        spans = [first, second]
        for name in self.texts:
            spans.append((text.shape[1], _length(batch[name])))
            text = tf.concat([text, batch[name]], 1)
        batch = put_together(batch, text, *self.segments(draw, label[:, tf.newaxis], spans), possible)
        return Changed(batch, tf.where(possible, label, -1))

    def segments(self, draw: Draw, label: tf.Tensor, spans: Sequence[Span]) -> tuple[Span, Span]:
        """The spans that are shown as first and second segment, of the spans of both segments and of each of `texts`.

        Args:
          label: int32 [B, 1], the relation.
        """
        raise NotImplementedError


class AdjacentSegments(SegmentRelation):
    """ASP: does the second segment follow the first (0), precede it (1), or is it of another document (2)?"""

    task, loss_name, head_name, texts = "asp", "asp_loss", "asp", ("other_document_ids",)

    def segments(self, draw: Draw, label: tf.Tensor, spans: Sequence[Span]) -> tuple[Span, Span]:
        (_, first), (_, second), (start, length) = spans
        skipped = _left_out(draw(2, [1]), length)
        start, length = start + skipped, length - skipped  # whatever the label, the second is no longer
        shown, other = parted(draw(1, [3]), first + second, label[:, 0] == 1, length)
        return shown, _where(label == 2, (start, tf.minimum(length, other[1])), other)


class SameDocument(SegmentRelation):
    """SDP: does the second segment follow the first (0), is it from elsewhere in its document (1) or of another (2)?"""

    task, loss_name, head_name, texts = "sdp", "sdp_loss", "sdp", ("same_document_ids", "other_document_ids")

    def segments(self, draw: Draw, label: tf.Tensor, spans: Sequence[Span]) -> tuple[Span, Span]:
        first, shown = second = spans[0], spans[1]
        for number, (start, length) in enumerate(spans[2:], start=1):
            shown = _where(label == number, (start, tf.minimum(length, second[1][1])), shown)
        return first, shown


# Two segments as parts of a text.


def segments_of(batch: Batch) -> tuple[tf.Tensor, Span, Span]:
    """The text of both segments without special tokens, int32 [B, L], and where they are in it.

    The second one's length is -1 in a record of one segment.
    """
    ids, mask = batch["input_ids"], batch["input_mask"]
    second = tf.reduce_sum(batch["segment_ids"] * mask, -1, keepdims=True) - 1  # without its [SEP]
    first = tf.reduce_sum(mask, -1, keepdims=True) - second - 3
    places = tf.range(ids.shape[1])[tf.newaxis]
    source = 1 + places + tf.cast(places >= first, tf.int32)  # the [SEP] between them is left out
    text = tf.gather(ids, tf.minimum(source, ids.shape[1] - 1), batch_dims=1)
    return text, (tf.zeros_like(first), first), (first, second)


def parted(
    draws: tf.Tensor, tokens: tf.Tensor, swapped: tf.Tensor, longest: tf.Tensor | None = None
) -> tuple[Span, Span]:
    """Two parts of a text of so many tokens, int32 [B, 1], shown in order or, where bool [B] says so, swapped.

    The first 1 to 8 tokens are left out, so that neither part begins with a line, and as many at the border, so that no
    word goes on behind it. The length of the part that is shown first is drawn whatever the order, uniformly from a
    quarter to three quarters of the tokens.

    Args:
      draws: float32 [B, 3], uniform in [0, 1): tokens left out at the beginning and at the border, and the length.
      longest: int32 [B, 1], tokens of the part that is shown second, at most.
    """
    before, gap = tf.split(_left_out(draws[:, :2], tokens), 2, 1)
    kept = tokens - before - gap
    least = tf.maximum(kept // 4, 1)
    lower = least if longest is None else tf.maximum(least, kept - longest)
    size = lower + integers(draws[:, 2:], tf.maximum(kept - least - lower, 0) + 1)
    rest, swapped = kept - size, swapped[:, tf.newaxis]
    shown_first = tf.where(swapped, before + rest + gap, before)
    shown_second = tf.where(swapped, before, before + size + gap)
    return (shown_first, size), (shown_second, rest)


def put_together(batch: Batch, text: tf.Tensor, first: Span, second: Span, chosen: tf.Tensor) -> Batch:
    """[CLS] first [SEP] second [SEP] of a text, int32 [B, T], in the rows of `chosen`, bool [B]; others stay."""
    ids, mask, segments = (batch[name] for name in ("input_ids", "input_mask", "segment_ids"))
    number = tf.range(ids.shape[1])[tf.newaxis] - 1  # of a token behind [CLS]
    separator, end = first[1], first[1] + 1 + second[1]
    source = number + tf.where(number < separator, first[0], second[0] - separator - 1)
    new = tf.gather(text, tf.clip_by_value(source, 0, text.shape[1] - 1), batch_dims=1)
    last = tf.maximum(tf.reduce_sum(mask, -1, keepdims=True) - 1, 0)
    new = tf.where((number == separator) | (number == end), tf.gather(ids, last, batch_dims=1), new)
    real, chosen = tf.cast(number <= end, tf.int32), chosen[:, tf.newaxis]
    return batch | {
        "input_ids": tf.where(chosen, tf.where(number < 0, ids, new * real), ids),
        "input_mask": tf.where(chosen, real, mask),
        "segment_ids": tf.where(chosen, tf.cast(number > separator, tf.int32) * real, segments),
    }


def _left_out(draws: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
    """int32: how many of so many tokens are left out at a place, of draws in [0, 1)."""
    most = tf.clip_by_value(tokens // 4, 0, _MOST_LEFT_OUT)
    return tf.minimum(1 + integers(draws, most), most)


def _length(text: tf.Tensor) -> tf.Tensor:
    """int32 [B, 1]: tokens of texts, int32 [B, T], that are filled up with zeros."""
    return tf.reduce_sum(tf.cast(text > 0, tf.int32), -1, keepdims=True)


def _where(condition: tf.Tensor, one: Span, other: Span) -> Span:
    return tf.where(condition, one[0], other[0]), tf.where(condition, one[1], other[1])


# Halves of a record.


def halves(config: Config, masked: MaskedBatch) -> tuple[View, View]:
    """The text between the first [CLS] and the last [SEP], cut in two, each with both around it; one segment each.

    C is config.half_length; an odd token belongs to the second half.
    """
    length = tf.reduce_sum(masked.input_mask, -1, keepdims=True)
    body = tf.maximum(length - 2, 0)
    first = body // 2
    place = tf.range(config.half_length)[tf.newaxis]
    parts = []
    for size, source in (
        (first, tf.where(place == first + 1, length - 1, place)),
        (body - first, tf.where(place == 0, 0, place + first)),
    ):
        mask = tf.cast((place < size + 2) & (length > 0), tf.int32)
        source = tf.clip_by_value(source, 0, masked.input_ids.shape[1] - 1)
        ids = tf.gather(masked.input_ids, source, batch_dims=1) * mask
        parts.append(View(ids, mask, tf.zeros_like(ids)))
    return parts[0], parts[1]


class QuickThoughts(Auxiliary, Contrast):
    """Quick thoughts (QT; Logeswaran & Lee 2018): the second half of a record that belongs to each first half.

    The pre-trained network reads both halves of every original sequence by themselves. As in the paper there is no
    temperature, and the halves are told from those of other records in one direction only.
    """

    task, loss_name = "qt", "qt_loss"
    shown = ("qt_retrieval_at_1",)

    def __init__(self, config: Config, networks: Networks) -> None:
        super().__init__(config, networks)
        self.initial_loss = math.log(config.train_batch_size)
        self.head = ContrastHead("quick_thoughts_predictions", config.architecture, config.seed)

    def views(self, masked: MaskedBatch) -> Sequence[View]:
        return halves(self.config, masked)

    def pair(self, forward: Forward) -> tuple[tf.Tensor, tf.Tensor]:
        return self.vectors(*(encoded.sequence for encoded in forward.views[self.loss_name]))

    def losses(self, first: tf.Tensor, second: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
        """Cross-entropy of the cosines of each first half with all second halves."""
        similarity = without_padding(tf.matmul(first, second, transpose_b=True), real)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(tf.shape(first)[0]), similarity)

    def metrics_of(self, first: tf.Tensor, second: tf.Tensor, real: tf.Tensor) -> Metrics:
        similarity = tf.where(real, tf.matmul(first, second, transpose_b=True), -2.0)
        found = tf.equal(tf.argmax(similarity, -1, tf.int32), tf.range(tf.shape(first)[0]))
        return {"qt_retrieval_at_1": weighted_mean(found, real)}


class FastSent(Auxiliary):
    """FastSent (FS; after Hill et al. 2016): a half of a record is near the words of the other half.

    (1 - cosine)^2 of each half's [CLS] state and every token between [CLS] and [SEP] of the other half, both read by
    themselves. The paper speaks of the cross-entropy of a cosine and 1, its code squares the difference; so does this.
    There are no other halves to be told from, so the heads could make everything alike: `fs_negative_cosine`, of words
    of another record, says whether they do.
    """

    task, loss_name = "fs", "fs_loss"
    initial_loss = 1.0  # of vectors at right angles; states of a young network are closer
    shown = ("fs_positive_cosine", "fs_negative_cosine")

    def __init__(self, config: Config, networks: Networks) -> None:
        super().__init__(config, networks)
        self.sentence_head = ContrastHead("fast_sent_sentence", config.architecture, config.seed)
        self.word_head = ContrastHead("fast_sent_words", config.architecture, config.seed)

    def views(self, masked: MaskedBatch) -> Sequence[View]:
        return halves(self.config, masked)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        """float32 [B, 2, C], of the words of the second and of the first half."""
        words = [tf.pad(half.input_mask[:, 2:], [[0, 0], [1, 1]]) for half in self.views(masked)]  # not [CLS], [SEP]
        both = tf.reduce_all([tf.reduce_any(half > 0, -1) for half in words], 0)
        return tf.cast(tf.stack(words[::-1], 1), tf.float32) * tf.cast(both, tf.float32)[:, tf.newaxis, tf.newaxis]

    def vectors(self, forward: Forward) -> tuple[tf.Tensor, tf.Tensor]:
        """float32 unit vectors: [B, 2, H] of both halves, [B, 2, C, H] of the words of the second and of the first."""
        first, second = (encoded.sequence for encoded in forward.views[self.loss_name])
        sentences = self.sentence_head(tf.stack([first[:, 0], second[:, 0]], 1))
        return normalised(sentences), normalised(self.word_head(tf.stack([second, first], 1)))

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        weights = self.token_weights(forward.masked)
        sentences, words = self.vectors(forward)
        cosines = tf.einsum("bsh,bsch->bsc", sentences, words)
        of_strangers = tf.einsum("bsh,bsch->bsc", sentences, tf.roll(words, 1, 0))  # of the row before
        strangers = tf.roll(weights, 1, 0) * tf.reduce_max(weights, -1, keepdims=True)
        if weights.shape[0] == 1:
            strangers = tf.zeros_like(strangers)  # a row's neighbour is itself
        metrics = {
            "fs_positive_cosine": weighted_mean(cosines, weights),
            "fs_negative_cosine": weighted_mean(of_strangers, strangers),
        }
        return self.output(forward, tf.square(1.0 - cosines), metrics)
