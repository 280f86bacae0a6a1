"""FastSent: is a half of a record near the words of the other half? ("On Losses", FS; after Hill et al. 2016)

The network that is kept reads both halves of every original sequence by themselves, as for quick thoughts; the [CLS]
state of each is compared with the other's tokens. The paper speaks of the cross-entropy of a cosine and 1, its code
squares the difference; so does this. There are no other halves to be told from, so the heads could make everything
alike: `fs_negative_cosine`, of words of another record, says whether they do.
"""

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.heads import ContrastHead
from electra_tf2.pretrain.cropping import CroppedBatch, halves
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.objectives.auxiliary import Auxiliary
from electra_tf2.pretrain.objectives.base import Built, Forward, ObjectiveOutput, weighted_mean
from electra_tf2.pretrain.objectives.sequence_contrast import normalised


def word_weights(mask: tf.Tensor) -> tf.Tensor:
    """float32 [B, C]: 1 between the [CLS] and the last [SEP] of sequences with this input mask, int32 [B, C]."""
    return tf.cast(tf.pad(mask[:, 2:], [[0, 0], [1, 1]]), tf.float32)


class FastSent(Auxiliary):
    """(1 - cosine)^2 of each half's [CLS] state and every token between [CLS] and [SEP] of the other half."""

    task, loss_name = "fs", "fs_loss"
    initial_loss = 1.0  # of vectors at right angles; states of a young network are closer
    shown = ("fs_positive_cosine", "fs_negative_cosine")

    def __init__(self, config: PretrainingConfig, built: Built | None = None) -> None:
        super().__init__(config, built)
        self.sentence_head = ContrastHead("fast_sent_sentence", config.architecture, config.seed)
        self.word_head = ContrastHead("fast_sent_words", config.architecture, config.seed)

    def views(self, masked: MaskedBatch) -> tuple[CroppedBatch, CroppedBatch]:
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

    def call(self, forward: Forward, training: bool) -> ObjectiveOutput:
        del training
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


def _cosines(sentences: tf.Tensor, words: tf.Tensor) -> tf.Tensor:
    """float32 [B, 2, C] of unit vectors [B, 2, H] and [B, 2, C, H]."""
    return tf.einsum("bsh,bsch->bsc", sentences, words)
