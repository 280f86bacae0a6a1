"""The head of multiple choice: one number for each candidate, a softmax over the candidates of a question."""

import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.finetune.task import HeadInput, HeadOutput
from electra_tf2.finetune.text_head import TextHead
from electra_tf2.model.layers import SeedStream


class ChoiceHead(TextHead):
    """One number of each text (GPT, section 3.3; as every encoder since does for RACE).

    Args:
      scope: "task_specific/<task>".
      choices: candidates of a question; rows that lie together are one question's.
    """

    output_name = "choice"

    def __init__(self, scope: str, hidden_size: int, choices: int, config: FinetuningConfig, seed: int) -> None:
        super().__init__(scope, hidden_size, 1, config, seed)
        self.choices = choices

    def call(self, inputs: HeadInput, seeds: SeedStream | None, training: bool) -> HeadOutput:
        """Labels: int32 [B] `right`, the number of the question's right candidate on each of its rows.

        Losses: the question's, in equal parts on its rows. Predictions: float32 [B] log-probability of each candidate.
        """
        logits = tf.reshape(self.logits(inputs, seeds), [-1, self.choices])
        right = tf.reshape(inputs.labels["right"], [-1, self.choices])[:, 0]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(right, logits)
        losses = tf.repeat(losses / self.choices, self.choices)
        if training:
            return HeadOutput(losses, {})
        return HeadOutput(losses, {"log_probs": tf.reshape(tf.nn.log_softmax(logits), [-1])})
