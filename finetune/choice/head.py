"""The head of multiple choice: one number for each candidate, a softmax over the candidates of a question."""

import tensorflow as tf

from configure_finetuning import FinetuningConfig
from finetune.task import Head, HeadInput, HeadOutput
from model.layers import Dense, SeedStream, dropout, glorot_uniform


class ChoiceHead(Head):
    """Dropout and a dense layer to one number on [CLS] (GPT, section 3.3; as every encoder since does for RACE).

    Args:
      scope: "task_specific/<task>".
      choices: candidates of a question; rows that lie together are one question's.
    """

    def __init__(self, scope: str, hidden_size: int, choices: int, config: FinetuningConfig, seed: int) -> None:
        super().__init__(scope, seed)
        self.choices, self.dropout_rate = choices, config.classifier_dropout
        self.dense = Dense(f"{scope}/choice", hidden_size, 1, glorot_uniform, seed)

    def call(self, inputs: HeadInput, seeds: SeedStream | None, training: bool) -> HeadOutput:
        """Labels: int32 [B] `right`, the number of the question's right candidate on each of its rows.

        Losses: the question's, in equal parts on its rows. Predictions: float32 [B] log-probability of each candidate.
        """
        states = dropout(inputs.sequence[:, 0], self.dropout_rate, seeds)
        logits = tf.reshape(tf.cast(self.dense(states), tf.float32), [-1, self.choices])
        right = tf.reshape(inputs.labels["right"], [-1, self.choices])[:, 0]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(right, logits)
        losses = tf.repeat(losses / self.choices, self.choices)
        if training:
            return HeadOutput(losses, {})
        return HeadOutput(losses, {"log_probs": tf.reshape(tf.nn.log_softmax(logits), [-1])})
