"""Auxiliary tasks on the halves of a record, each read by itself (On Losses, section 3.2): quick thoughts, FastSent.

Shapes: B rows, L length, C = config.half_length, H hidden.
"""

import math
from collections.abc import Sequence

import tensorflow as tf

from electra_tf2.model.coco_lm_heads import ContrastHead
from electra_tf2.model.kernels.products import matmul
from electra_tf2.papers.on_losses.auxiliary import Auxiliary
from electra_tf2.papers.on_losses.config import Config
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.networks import Networks
from electra_tf2.pretrain.objectives.contrast import Contrast, normalised, without_padding
from electra_tf2.pretrain.objectives.objective import Forward, LossTerm, Metrics, View, weighted_mean


def halves(config: Config, masked: MaskedBatch) -> tuple[View, View]:
    """The text between the first [CLS] and the last [SEP], cut in two; each half gets both around it.

    Each half is one segment. An odd token belongs to the second half.
    """
    length = tf.reduce_sum(masked.input_mask, -1, keepdims=True)  # [B, 1]
    tokens = tf.maximum(length - 2, 0)
    first_tokens = tokens // 2
    second_tokens = tokens - first_tokens
    # The half's token at `place` is the sequence's token at the source. Both halves begin with [CLS], at 0, and end
    # with the last [SEP], which follows the second half anyway.
    place = tf.range(config.half_length)[tf.newaxis]  # [1, C]
    last_separator = length - 1
    first_source = tf.where(place == first_tokens + 1, last_separator, place)  # [B, C]
    second_source = tf.where(place == 0, 0, place + first_tokens)  # [B, C]
    first = _view(masked, first_source, first_tokens, length)
    second = _view(masked, second_source, second_tokens, length)
    return first, second


def _view(masked: MaskedBatch, source: tf.Tensor, tokens: tf.Tensor, length: tf.Tensor) -> View:
    """Gathers so many tokens and two special ones from the places `source`, int32 [B, C]; of empty rows nothing."""
    place = tf.range(source.shape[1])[tf.newaxis]
    mask = tf.cast((place < tokens + 2) & (length > 0), tf.int32)
    source = tf.clip_by_value(source, 0, masked.input_ids.shape[1] - 1)
    ids = tf.gather(masked.input_ids, source, batch_dims=1) * mask
    return View(ids, mask, tf.zeros_like(ids))


class QuickThoughts(Auxiliary, Contrast):
    """Quick thoughts (QT; Logeswaran & Lee 2018): which second half belongs to each first half.

    The network reads both halves of every original sequence by themselves. As in the paper there is no temperature, and
    only one direction: for first halves.
    """

    task = "qt"
    loss_name = "qt_loss"
    shown = ("qt_retrieval_at_1",)

    def __init__(self, config: Config, networks: Networks) -> None:
        super().__init__(config, networks)
        self.initial_loss = math.log(config.train_batch_size)
        self.head = ContrastHead("quick_thoughts_predictions", config.architecture, config.seed)

    def views(self, masked: MaskedBatch) -> Sequence[View]:
        return halves(self.config, masked)

    def pair(self, forward: Forward) -> tuple[tf.Tensor, tf.Tensor]:
        first, second = forward.views[self.loss_name]
        return self.cls_vectors(first.sequence, second.sequence)

    def losses(self, first: tf.Tensor, second: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
        """Cross-entropy of the cosines of each first half with all second halves."""
        similarity = without_padding(matmul(first, second, transpose_b=True), real)  # [W, W]
        return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(tf.shape(first)[0]), similarity)

    def contrast_metrics(self, first: tf.Tensor, second: tf.Tensor, real: tf.Tensor) -> Metrics:
        below_any_cosine = -2.0
        similarity = tf.where(real, matmul(first, second, transpose_b=True), below_any_cosine)
        is_right = tf.equal(tf.argmax(similarity, -1, tf.int32), tf.range(tf.shape(first)[0]))
        return {"qt_retrieval_at_1": weighted_mean(is_right, real)}


class FastSent(Auxiliary):
    """FastSent (FS; after Hill et al. 2016): a half of a record is near the words of the other half.

    (1 - cosine)^2 between the [CLS] state of a half and every token between [CLS] and [SEP] of the other; the network
    reads both by themselves. The paper speaks of the cross-entropy of a cosine and 1; the authors' code squares the
    difference, as is done here. Nothing pulls different records apart, so the heads could make everything alike:
    `fs_negative_cosine`, with words of another record, shows whether they do.
    """

    task = "fs"
    loss_name = "fs_loss"
    initial_loss = 1.0  # of vectors at right angles; states of a young network are closer
    shown = ("fs_positive_cosine", "fs_negative_cosine")

    def __init__(self, config: Config, networks: Networks) -> None:
        super().__init__(config, networks)
        self.sentence_head = ContrastHead("fast_sent_sentence", config.architecture, config.seed)
        self.word_head = ContrastHead("fast_sent_words", config.architecture, config.seed)

    def views(self, masked: MaskedBatch) -> Sequence[View]:
        return halves(self.config, masked)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        """float32 [B, 2, C]: 1 at words of the second and of the first half; 0 in rows in which a half has no words."""
        first, second = halves(self.config, masked)
        words_of_first = _words(first)
        words_of_second = _words(second)
        has_both = tf.reduce_any(words_of_first > 0, -1) & tf.reduce_any(words_of_second > 0, -1)
        words_of_other_half = tf.cast(tf.stack([words_of_second, words_of_first], 1), tf.float32)
        return words_of_other_half * tf.cast(has_both, tf.float32)[:, tf.newaxis, tf.newaxis]

    def vectors(self, forward: Forward) -> tuple[tf.Tensor, tf.Tensor]:
        """float32 unit vectors: [B, 2, H] of both halves; [B, 2, C, H] of the words of the second and of the first."""
        first_output, second_output = forward.views[self.loss_name]
        first = first_output.sequence
        second = second_output.sequence
        sentences = self.sentence_head(tf.stack([first[:, 0], second[:, 0]], 1))
        words = self.word_head(tf.stack([second, first], 1))
        return normalised(sentences), normalised(words)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        weights = self.token_weights(forward.masked)
        sentences, words = self.vectors(forward)
        cosines = tf.einsum("bsh,bsch->bsc", sentences, words)  # [B, 2, C]
        # With the words of the row before, as a metric.
        cosines_with_strangers = tf.einsum("bsh,bsch->bsc", sentences, tf.roll(words, 1, 0))
        strangers = tf.roll(weights, 1, 0) * tf.reduce_max(weights, -1, keepdims=True)
        if weights.shape[0] == 1:
            strangers = tf.zeros_like(strangers)  # a row's neighbour is itself
        metrics = {
            "fs_positive_cosine": weighted_mean(cosines, weights),
            "fs_negative_cosine": weighted_mean(cosines_with_strangers, strangers),
        }
        return self.output(forward, tf.square(1.0 - cosines), metrics)


def _words(half: View) -> tf.Tensor:
    """int32 [B, C]: 1 at tokens between [CLS] and [SEP], the first and the last of the mask."""
    return tf.pad(half.input_mask[:, 2:], [[0, 0], [1, 1]])
