"""Heads over the state of [CLS], or the mean of all states: classes, or a number."""

import tensorflow as tf

from configure_finetuning import FinetuningConfig
from finetune.classification.distillation import TEACHER, soft_losses
from finetune.task import Head, HeadInput, HeadOutput
from model.layers import Dense, SeedStream, activation, dropout, glorot_uniform


class ClassificationHead(Head):
    """Dropout and a dense layer on the [CLS] state, without a pooler (ELECTRA, section 3.1).

    Args:
      scope: "task_specific/<task>".
      num_classes: of a softmax; None for regression with squared error.
      config: `classifier`: "tanh" or "gelu" puts dropout and a dense layer with that activation before (COCO-LM);
        `classifier_pooling`: "mean" takes the mean of all tokens' states for [CLS]'s.
    """

    def __init__(
        self, scope: str, hidden_size: int, num_classes: int | None, config: FinetuningConfig, seed: int
    ) -> None:
        super().__init__(scope, seed)
        self.num_classes, self.dropout_rate = num_classes, config.classifier_dropout
        self.distill_weight, self.distill_temperature = config.distill_weight, config.distill_temperature
        self.averages = config.classifier_pooling == "mean"
        self.inner = None
        if config.classifier != "linear":
            self.inner = Dense(f"{scope}/inner", hidden_size, hidden_size, glorot_uniform, seed)
            self.activation = activation(config.classifier)
        self.dense = Dense(f"{scope}/dense", hidden_size, num_classes or 1, glorot_uniform, seed)

    def call(self, inputs: HeadInput, seeds: SeedStream | None, training: bool) -> HeadOutput:
        """Labels: int32 [B] `label_ids`, or float32 [B] `targets`; with distill_from float32 [B, C] `teacher`.

        Predictions: logits [B, C] and label [B], or the number [B].
        """
        state = mean_state(inputs) if self.averages else inputs.sequence[:, 0]
        state = dropout(state, self.dropout_rate, seeds)
        if self.inner is not None:
            state = dropout(self.activation(self.inner(state)), self.dropout_rate, seeds)
        logits = tf.cast(self.dense(state), tf.float32)
        if self.num_classes is None:
            numbers = tf.squeeze(logits, -1)
            losses = tf.square(numbers - inputs.labels["targets"])
            if training and TEACHER in inputs.labels:
                losses = self._shared(losses, tf.square(numbers - inputs.labels[TEACHER][:, 0]))
            return HeadOutput(losses, {} if training else {"predictions": numbers})
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(inputs.labels["label_ids"], logits)
        if training and TEACHER in inputs.labels:
            losses = self._shared(losses, soft_losses(logits, inputs.labels[TEACHER], self.distill_temperature))
        if training:
            return HeadOutput(losses, {})
        return HeadOutput(losses, {"logits": logits, "predictions": tf.argmax(logits, -1, tf.int32)})

    def _shared(self, losses: tf.Tensor, soft: tf.Tensor) -> tf.Tensor:
        """Losses of the labels and of the teacher's outputs, in their shares."""
        return (1.0 - self.distill_weight) * losses + self.distill_weight * soft


def mean_state(inputs: HeadInput) -> tf.Tensor:
    """The mean of the states of all tokens that are no padding, [CLS] and [SEP] among them: [B, H]."""
    mask = tf.cast(inputs.input_mask, tf.float32)[:, :, tf.newaxis]
    total = tf.reduce_sum(tf.cast(inputs.sequence, tf.float32) * mask, 1)
    return tf.cast(total / tf.maximum(tf.reduce_sum(mask, 1), 1.0), inputs.sequence.dtype)
