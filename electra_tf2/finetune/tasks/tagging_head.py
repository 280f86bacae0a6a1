"""The head of tagging, which scores the labels of every token."""

import math

import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.finetune.tasks.head import Classifier, Head, HeadInput, HeadOutput
from electra_tf2.model.layers import SeedStream


class TaggingHead(Head):
    """Softmax over the labels at words' first pieces (BERT, section 5.3), always of one dense layer."""

    def __init__(self, scope: str, hidden_size: int, outputs: int, config: FinetuningConfig, seed: int) -> None:
        super().__init__(scope, seed)
        self.expected_loss = f"{math.log(outputs):.2f} (ln {outputs}) times the words of a text"
        self.classifier = Classifier(scope, hidden_size, outputs, config, seed, deep=False)

    def logits(self, inputs: HeadInput, seeds: SeedStream | None) -> tf.Tensor:
        """float32 [B, L, labels], at every token."""
        return self.classifier(inputs.sequence, seeds)

    def call(self, inputs: HeadInput, seeds: SeedStream | None, training: bool) -> HeadOutput:
        """Losses are sums over a row's words.

        Labels: int32 [B, L] `labels` and `labeled_positions`, float32 [B, L] `labels_mask`, entry i of word i.
        Predictions at every token: float32 [B, L, labels] `logits`.
        """
        labels = inputs.labels
        positions = labels["labeled_positions"]
        if training:
            # Only words have a loss, so the logits of other tokens are not computed.
            word_states = tf.gather(inputs.sequence, positions, batch_dims=1)
            return HeadOutput(_losses(self.classifier(word_states, seeds), labels), {})
        logits = self.logits(inputs, seeds)
        losses = _losses(tf.gather(logits, positions, batch_dims=1), labels)
        return HeadOutput(losses, {"logits": logits})


def _losses(logits: tf.Tensor, labels: dict[str, tf.Tensor]) -> tf.Tensor:
    """Sums the losses of each row's words, float32 [B]. logits: [B, L, labels], entry i of word i."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels["labels"], logits)
    return tf.reduce_sum(losses * labels["labels_mask"], -1)
