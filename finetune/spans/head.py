"""The head of tasks about parts of a text: a class from the states of [CLS] and of the parts."""

import tensorflow as tf

from configure_finetuning import FinetuningConfig
from finetune.task import Head, HeadInput, HeadOutput
from model.layers import Dense, SeedStream, dropout, glorot_uniform

NUM_SPANS = 2


def span_label(number: int) -> str:
    """Name of the label that marks the tokens of a span."""
    return f"span_{number + 1}"


class SpanHead(Head):
    """Dropout and a dense layer on [CLS] and the mean state of each span, one beside the other.

    As the baselines of SuperGLUE classify the two words of WiC and the two mentions of WSC (Wang et al. 2019, 4.1).

    Args:
      scope: "task_specific/<task>".
    """

    def __init__(self, scope: str, hidden_size: int, num_classes: int, config: FinetuningConfig, seed: int) -> None:
        super().__init__(scope, seed)
        self.dropout_rate = config.classifier_dropout
        width = (1 + NUM_SPANS) * hidden_size
        self.dense = Dense(f"{scope}/spans", width, num_classes, glorot_uniform, seed)

    def call(self, inputs: HeadInput, seeds: SeedStream | None, training: bool) -> HeadOutput:
        """Labels: int32 [B] `label_ids`; int32 [B, L] `span_1`, `span_2`, 1 at the span's tokens.

        Predictions: float32 logits [B, C], int32 label [B].
        """
        states = [inputs.sequence[:, 0]]
        for number in range(NUM_SPANS):
            states.append(_mean(inputs.sequence, inputs.labels[span_label(number)]))
        logits = tf.cast(self.dense(dropout(tf.concat(states, -1), self.dropout_rate, seeds)), tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(inputs.labels["label_ids"], logits)
        if training:
            return HeadOutput(losses, {})
        return HeadOutput(losses, {"logits": logits, "predictions": tf.argmax(logits, -1, tf.int32)})


def _mean(sequence: tf.Tensor, marks: tf.Tensor) -> tf.Tensor:
    """The mean of the marked states, [B, H]; zeros where a span was cut off."""
    weights = tf.cast(marks, tf.float32)[:, :, tf.newaxis]
    total = tf.reduce_sum(tf.cast(sequence, tf.float32) * weights, 1)
    return tf.cast(total / tf.maximum(tf.reduce_sum(weights, 1), 1.0), sequence.dtype)
