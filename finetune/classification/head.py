"""The head of classification and regression: classes, or a number, of a text."""

import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.finetune.classification.distillation import TEACHER, soft_losses
from electra_tf2.finetune.task import HeadInput, HeadOutput
from electra_tf2.finetune.text_head import TextHead
from electra_tf2.model.layers import SeedStream


class ClassificationHead(TextHead):
    """Classes of a softmax, or a number with squared error.

    Args:
      scope: "task_specific/<task>".
      num_classes: None for regression.
    """

    def __init__(
        self, scope: str, hidden_size: int, num_classes: int | None, config: FinetuningConfig, seed: int
    ) -> None:
        super().__init__(scope, hidden_size, num_classes or 1, config, seed)
        self.num_classes = num_classes
        self.distill_weight, self.distill_temperature = config.distill_weight, config.distill_temperature

    def call(self, inputs: HeadInput, seeds: SeedStream | None, training: bool) -> HeadOutput:
        """Labels: int32 [B] `label_ids`, or float32 [B] `targets`; with distill_from float32 [B, C] `teacher`.

        Predictions: logits [B, C] and label [B], or the number [B].
        """
        logits = self.logits(inputs, seeds)
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
