"""A language-model head that scores the label words at the [MASK] of a prompt."""

import tensorflow as tf

from finetune.task import Head, HeadInput, HeadOutput
from model.encoder import Encoder
from model.heads import LanguageModelHead, TiedHead
from model.layers import SeedStream


class LabelWordHead(Head):
    """Softmax over the label words (LM-BFF, equation 1): the pre-trained head, restricted to a few rows.

    For corrective language modelling p(word) at [MASK] is (1 - p_copy) times the softmax, since no label word is
    [MASK] itself; the factor cancels among the words, and the head's logits are all it takes (COCO-LM, section 3.1).

    Args:
      scope: of the pre-trained head's variables.
      transform: whether it has a dense layer and a layer norm (BERT's) or is tied softmax and bias only (COCO-LM's).
      word_ids: one per label; the two ends of a regression.
    """

    def __init__(
        self, scope: str, encoder: Encoder, transform: bool, word_ids: list[int], regression: bool, seed: int
    ) -> None:
        super().__init__("", seed)
        architecture = encoder.architecture
        self.language_model: LanguageModelHead | TiedHead
        if transform:
            self.language_model = LanguageModelHead(
                scope, architecture.hidden_size, architecture, encoder.embeddings, seed
            )
        else:
            self.language_model = TiedHead(scope, architecture, encoder.embeddings, seed)
        self.word_ids, self.regression = tf.constant(word_ids), regression

    def call(self, inputs: HeadInput, seeds: SeedStream | None, training: bool) -> HeadOutput:
        """Labels: int32 [B] `mask_positions`; int32 [B] `label_ids`, or float32 [B] `targets` in [0, 1].

        Predictions: float32 [B, words] logits.
        """
        states = tf.gather(inputs.sequence, inputs.labels["mask_positions"][:, tf.newaxis], batch_dims=1)
        hidden = tf.cast(self.language_model.hidden(states), tf.float32)[:, 0]
        words = tf.gather(self.language_model.embeddings.word_embeddings, self.word_ids)
        logits = tf.matmul(hidden, words, transpose_b=True)
        logits += tf.gather(self.language_model.output_bias, self.word_ids)
        if self.regression:
            # Cross-entropy with a mixture of the two words: the KL divergence up to a constant.
            targets = inputs.labels["targets"]
            losses = tf.nn.softmax_cross_entropy_with_logits(tf.stack([1.0 - targets, targets], -1), logits)
        else:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(inputs.labels["label_ids"], logits)
        return HeadOutput(losses, {} if training else {"logits": logits})
