"""Auxiliary tasks on the segments and halves of a record (On Losses, section 3.2): sentence order, adjacent segments,
same document, quick thoughts, FastSent.

What is asked of two segments must not be told by their form. The builder's first segments begin and end with a line and
are the longer ones, its second ones begin with a line and are cut within one; `rearranged_segments` therefore parts
their text anew.
"""

import math
from collections.abc import Sequence

import tensorflow as tf

from electra_tf2.model.other_heads import ContrastHead
from electra_tf2.papers.on_losses.config import Config
from electra_tf2.papers.on_losses.tasks import Auxiliary, Changed, Classification
from electra_tf2.pretrain.masking import Batch, Draw, MaskedBatch
from electra_tf2.pretrain.objectives.coco_lm import View
from electra_tf2.pretrain.objectives.contrast import Contrast, normalised, without_padding
from electra_tf2.pretrain.objectives.objective import Forward, LossTerm, Metrics, Networks, weighted_mean

_MOST_LEFT_OUT = 8  # tokens at a place, and at most a quarter of the text


class SentenceOrder(Classification):
    """Sentence order (SO; ALBERT, Lan et al. 2020, section 3.1): half of the records have their segments swapped.

    The builder's second segment follows the first in its document, so records need no change. A record of one segment
    has no label. Ours: the text of both is parted anew, so that their form does not tell the order.
    """

    task, loss_name, classes, head_name = "so", "so_loss", 2, "sentence_order"

    def change_text(self, batch: Batch, candidates: tf.Tensor, draw: Draw, active: tf.Tensor) -> Changed:
        second = tf.reduce_sum(batch["segment_ids"] * batch["input_mask"], -1)
        swapped = (draw(0, []) < 0.5) & (second > 0) & active
        labels = tf.where((second > 0) & active, tf.cast(swapped, tf.int32), -1)
        return Changed(rearranged_segments(batch, draw(1, [3]), labels), labels)


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

    def change_text(self, batch: Batch, candidates: tf.Tensor, draw: Draw, active: tf.Tensor) -> Changed:
        possible = active & tf.reduce_any(batch["segment_ids"] * batch["input_mask"] > 0, -1)
        for name in self.texts:
            possible &= batch[name][:, 0] > 0
        drawn = tf.minimum(tf.cast(draw(0, []) * self.classes, tf.int32), self.classes - 1)
        labels = tf.where(possible, drawn, -1)
        return Changed(self.rearranged(batch, draw, labels), labels)

    def rearranged(self, batch: Batch, draw: Draw, labels: tf.Tensor) -> Batch:
        """The batch with segments of the relation that labels, int32 [B], say; -1: untouched."""
        raise NotImplementedError


class AdjacentSegments(SegmentRelation):
    """ASP: does the second segment follow the first (0), precede it (1), or is it of another document (2)?"""

    task, loss_name, head_name, texts = "asp", "asp_loss", "asp", ("other_document_ids",)

    def rearranged(self, batch: Batch, draw: Draw, labels: tf.Tensor) -> Batch:
        other = begun_later(batch["other_document_ids"], draw(2, [1]))
        longest = tf.reduce_sum(tf.cast(other > 0, tf.int32), -1, keepdims=True)  # whatever the label
        order = tf.where(labels == 2, 0, labels)
        batch = rearranged_segments(batch, draw(1, [3]), order, longest)
        return replaced_segment(batch, other, labels == 2)


class SameDocument(SegmentRelation):
    """SDP: does the second segment follow the first (0), is it from elsewhere in its document (1) or of another (2)?"""

    task, loss_name, head_name, texts = "sdp", "sdp_loss", "sdp", ("same_document_ids", "other_document_ids")

    def rearranged(self, batch: Batch, draw: Draw, labels: tf.Tensor) -> Batch:
        for label, name in enumerate(self.texts, start=1):
            batch = replaced_segment(batch, batch[name], labels == label)
        return batch


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
        weights = tf.cast(real, tf.float32)
        return {"qt_retrieval_at_1": (tf.reduce_sum(tf.cast(found, tf.float32) * weights), tf.reduce_sum(weights))}


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

    def views(self, masked: MaskedBatch) -> tuple[View, View]:
        return halves(self.config, masked)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        """float32 [B, 2, C], of the words of the second and of the first half."""
        first, second = (word_weights(half.input_mask) for half in self.views(masked))
        both = tf.reduce_any(first > 0, -1) & tf.reduce_any(second > 0, -1)
        return tf.stack([second, first], 1) * tf.cast(both, tf.float32)[:, tf.newaxis, tf.newaxis]

    def vectors(self, forward: Forward) -> tuple[tf.Tensor, tf.Tensor]:
        """float32 unit vectors: [B, 2, H] of both halves, [B, 2, C, H] of the words of the second and of the first."""
        first, second = (encoded.sequence for encoded in forward.views[self.loss_name])
        sentences = self.sentence_head(tf.stack([first[:, 0], second[:, 0]], 1))
        return normalised(sentences), normalised(self.word_head(tf.stack([second, first], 1)))

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        weights = self.token_weights(forward.masked)
        sentences, words = self.vectors(forward)
        cosines = _cosines(sentences, words)
        strangers = tf.roll(weights, 1, 0) * tf.reduce_max(weights, -1, keepdims=True)
        if weights.shape[0] == 1:
            strangers = tf.zeros_like(strangers)  # a row's neighbour is itself
        metrics = {
            "fs_positive_cosine": weighted_mean(cosines, weights),
            "fs_negative_cosine": weighted_mean(_cosines(sentences, tf.roll(words, 1, 0)), strangers),
        }
        return self.output(forward, tf.square(1.0 - cosines), metrics)


def word_weights(mask: tf.Tensor) -> tf.Tensor:
    """float32 [B, C]: 1 between the [CLS] and the last [SEP] of sequences with this input mask, int32 [B, C]."""
    return tf.cast(tf.pad(mask[:, 2:], [[0, 0], [1, 1]]), tf.float32)


def _cosines(sentences: tf.Tensor, words: tf.Tensor) -> tf.Tensor:
    """float32 [B, 2, C] of unit vectors [B, 2, H] and [B, 2, C, H]."""
    return tf.einsum("bsh,bsch->bsc", sentences, words)


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


def rearranged_segments(batch: Batch, draws: tf.Tensor, order: tf.Tensor, longest: tf.Tensor | None = None) -> Batch:
    """The text of both segments, parted anew: in order where `order`, int32 [B], is 0, swapped where it is 1, untouched
    where it is -1.

    The first 1 to 8 tokens are left out, so that neither segment begins with a line, and as many at the new border, so
    that no word goes on behind it. The length of the segment that is shown first is drawn whatever the order, uniformly
    from a quarter to three quarters of the tokens.

    Args:
      draws: float32 [B, 3], uniform in [0, 1): tokens left out at the beginning and at the border, and the length.
      longest: int32 [B, 1], tokens of the segment that is shown second, at most.
    """
    ids, mask, segments = (batch[name] for name in ("input_ids", "input_mask", "segment_ids"))
    places = tf.range(ids.shape[1])[tf.newaxis]
    length = tf.reduce_sum(mask, -1, keepdims=True)
    second = tf.reduce_sum(segments * mask, -1, keepdims=True)
    first = length - second - 2  # tokens of the old first segment, behind which there is a [SEP]
    before, gap = tf.split(_left_out(draws[:, :2], first + second - 1), 2, 1)
    kept = first + second - 1 - before - gap
    least = tf.maximum(kept // 4, 1)
    lower = least if longest is None else tf.maximum(least, kept - longest)
    shown_first = lower + _drawn(draws[:, 2:], tf.maximum(kept - least - lower, 0) + 1)
    swapped = order[:, tf.newaxis] == 1
    number = places - 1  # of a token of the new text; `shown_first` is the [SEP] between its parts
    in_first = tf.where(swapped, kept - shown_first + gap, 0)
    in_second = tf.where(swapped, -1 - shown_first, gap - 1)
    old = number + before + tf.where(number < shown_first, in_first, in_second)
    source = 1 + old + tf.cast(old >= first, tf.int32)
    source = tf.where((number == shown_first) | (number == kept + 1), length - 1, source)
    source = tf.clip_by_value(tf.where(number < 0, places, source), 0, ids.shape[1] - 1)
    real = tf.cast(number <= kept + 1, tf.int32)
    chosen = (order >= 0)[:, tf.newaxis]
    return batch | {
        "input_ids": tf.where(chosen, tf.gather(ids, source, batch_dims=1) * real, ids),
        "input_mask": tf.where(chosen, real, mask),
        "segment_ids": tf.where(chosen, tf.cast(number > shown_first, tf.int32) * real, segments),
    }


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


def replaced_segment(batch: Batch, text: tf.Tensor, replaced: tf.Tensor) -> Batch:
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
