"""A language-model head that scores the label words at the [MASK] of a prompt, and what may fill that [MASK]."""

from collections.abc import Sequence

import tensorflow as tf

from electra_tf2.finetune.task import Head, HeadInput, HeadOutput
from electra_tf2.model.architecture import Architecture
from electra_tf2.model.auxiliary_heads import vocabulary_head
from electra_tf2.model.encoder import Encoder
from electra_tf2.model.generator import MaskedLanguageModel
from electra_tf2.model.heads import CopyHead
from electra_tf2.model.layers import Layer, SeedStream


class Filler(Layer):
    """COCO-LM's auxiliary network, which fills a prompt's [MASK], and the main network's copy head (ours).

    The auxiliary network is as pre-training left it, with embeddings of its own, so that training the main network does
    not change what it says.
    """

    def __init__(self, architecture: Architecture, main: Architecture, mask_id: int, compute_dtype: str) -> None:
        super().__init__("")
        self.auxiliary = MaskedLanguageModel(Encoder("generator", architecture, compute_dtype=compute_dtype))
        self.copy_head = CopyHead("copy_predictions", main)
        self.mask_id = mask_id

    def filled(self, input_ids: tf.Tensor, inputs: HeadInput) -> tf.Tensor:
        """int32 [B, L]: the ids with the likeliest word at `mask_positions`, wherever there is a [MASK]."""
        places = inputs.labels["mask_positions"][:, tf.newaxis]
        states = self.auxiliary.encoder(input_ids, inputs.input_mask, inputs.segment_ids).sequence
        words = tf.argmax(self.auxiliary.head(tf.gather(states, places, batch_dims=1)), -1, tf.int32)  # [B, 1]
        at_mask = tf.equal(tf.range(tf.shape(input_ids)[1]), places) & tf.equal(input_ids, self.mask_id)
        return tf.where(at_mask, words, input_ids)


class LabelWordHead(Head):
    """Softmax over the label words (LM-BFF, equation 1): the pre-trained head, restricted to a few rows.

    For corrective language modelling p(word) at [MASK] is (1 - p_copy) times the softmax, since no label word is
    [MASK] itself; the factor cancels among the words, and the head's logits are all it takes (COCO-LM, section 3.1).
    Where a word was filled in, its own p has p_copy besides (equation 2); divided by the same factor and the softmax's
    normaliser Z, that adds Z p_copy / (1 - p_copy) to the exponential of its logit.

    Args:
      transform: whether it has a dense layer and a layer norm (BERT's) or is tied softmax and bias only (COCO-LM's).
      word_ids: one per label; the two ends of a regression.
    """

    def __init__(
        self, scope: str, encoder: Encoder, transform: bool, word_ids: list[int], regression: bool, seed: int
    ) -> None:
        super().__init__("", seed)
        self.language_model = vocabulary_head(scope, encoder, transform, seed)
        self.word_ids, self.regression = tf.constant(word_ids), regression
        self.filler: Filler | None = None

    @property
    def frozen(self) -> Sequence[tf.Variable]:
        return () if self.filler is None else self.filler.auxiliary.trainable_variables

    def rewritten(self, input_ids: tf.Tensor, inputs: HeadInput) -> tf.Tensor:
        return input_ids if self.filler is None else self.filler.filled(input_ids, inputs)

    def call(self, inputs: HeadInput, seeds: SeedStream | None, training: bool) -> HeadOutput:
        """Labels: int32 [B] `mask_positions`; int32 [B] `label_ids`, or float32 [B] `targets` in [0, 1].

        Predictions: float32 [B, words] logits.
        """
        places = inputs.labels["mask_positions"][:, tf.newaxis]
        states = tf.gather(inputs.sequence, places, batch_dims=1)
        hidden = tf.cast(self.language_model.hidden(states), tf.float32)[:, 0]
        words = tf.gather(self.language_model.table, self.word_ids)
        logits = tf.matmul(hidden, words, transpose_b=True)
        logits += tf.gather(self.language_model.output_bias, self.word_ids)
        if self.filler is not None:
            copied = tf.equal(tf.gather(inputs.input_ids, places, batch_dims=1), self.word_ids)  # [B, words]
            log_normalizer = tf.reduce_logsumexp(self.language_model(states), -1)  # [B, 1]
            by_copying = self.filler.copy_head(states) + log_normalizer
            logits += tf.where(copied, tf.nn.softplus(by_copying - logits), 0.0)  # log(exp(a) + exp(b))
        if self.regression:
            # Cross-entropy with a mixture of the two words: the KL divergence up to a constant.
            targets = inputs.labels["targets"]
            losses = tf.nn.softmax_cross_entropy_with_logits(tf.stack([1.0 - targets, targets], -1), logits)
        else:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(inputs.labels["label_ids"], logits)
        return HeadOutput(losses, {} if training else {"logits": logits})
