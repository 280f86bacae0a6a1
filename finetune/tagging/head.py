"""A label for every word, from the state of its first wordpiece."""

import tensorflow as tf

from electra_tf2.finetune.task import Head, HeadInput, HeadOutput
from electra_tf2.model.layers import Dense, SeedStream, dropout, glorot_uniform


class TaggingHead(Head):
    """Dropout and a dense layer on the states of first wordpieces (BERT, section 5.3).

    Args:
      scope: "task_specific/<task>".
    """

    def __init__(self, scope: str, hidden_size: int, num_labels: int, dropout_rate: float, seed: int) -> None:
        super().__init__(scope, seed)
        self.dropout_rate = dropout_rate
        self.dense = Dense(f"{scope}/dense", hidden_size, num_labels, glorot_uniform, seed)

    def call(self, inputs: HeadInput, seeds: SeedStream | None, training: bool) -> HeadOutput:
        """Losses are sums over a row's words.

        Labels: int32 [B, L] `labels` and `labeled_positions`, float32 [B, L] `labels_mask`, entry i of word i.
        Predictions: int32 [B, L] `predictions`, float32 [B, L] `scores`, their probabilities.
        """
        labels = inputs.labels
        states = tf.gather(inputs.sequence, labels["labeled_positions"], batch_dims=1)
        logits = tf.cast(self.dense(dropout(states, self.dropout_rate, seeds)), tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels["labels"], logits)
        losses = tf.reduce_sum(losses * labels["labels_mask"], -1)
        if training:
            return HeadOutput(losses, {})
        predictions = tf.argmax(logits, -1, tf.int32)
        return HeadOutput(losses, {"predictions": predictions, "scores": tf.reduce_max(tf.nn.softmax(logits), -1)})
