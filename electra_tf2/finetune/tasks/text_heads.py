"""Heads that classify a text as a whole: classification, multiple choice, and two spans beside the text.

`classifier_pooling` says which state of the text they read, `classifier` what is between it and their outputs.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.finetune.tasks.targets import TEACHER
from electra_tf2.finetune.tasks.task import Head, HeadInput, HeadOutput
from electra_tf2.model.heads import PredictionHead
from electra_tf2.model.initializers import glorot_uniform
from electra_tf2.model.layers import Dense, SeedStream, activation, dropout
from electra_tf2.model.pooling import mean_state, text_state
from electra_tf2.model.softmax import soft_losses

NUM_SPANS = 2


class TextHead(Head):
    """Dropout and a dense layer on the [CLS] state, without a pooler (ELECTRA, section 3.1).

    Args:
      config: `classifier`: "tanh" or "gelu" puts dropout and a dense layer with that activation before (COCO-LM);
        `classifier_pooling`: "mean" takes the mean of all tokens' states for [CLS]'s. With head_style modernbert a
        head as in pre-training is before the dropout.
    """

    output_name = "dense"  # of the last layer's variables
    spans = 0  # whose mean states are read beside that of the text
    reads_classifier = True  # whether config.classifier counts

    def __init__(self, scope: str, hidden_size: int, outputs: int, config: FinetuningConfig, seed: int) -> None:
        super().__init__(scope, seed)
        self.dropout_rate, self.pooling = config.classifier_dropout, config.classifier_pooling
        width = (1 + self.spans) * hidden_size
        self.inner = self.prediction_head = None
        if config.architecture.head_style == "modernbert":
            self.prediction_head = PredictionHead(f"{scope}/head", config.architecture, seed, width)
            width = hidden_size
        elif self.reads_classifier and config.classifier != "linear":
            self.inner = Dense(f"{scope}/inner", width, hidden_size, glorot_uniform, seed)
            self.activation, width = activation(config.classifier), hidden_size
        self.dense = Dense(f"{scope}/{self.output_name}", width, outputs, glorot_uniform, seed)

    def states(self, inputs: HeadInput) -> tf.Tensor:
        """[B, width], what it reads; [B, L, width] of heads on words."""
        marks = [inputs.labels[span_label(number)] for number in range(self.spans)]
        state = text_state(inputs.sequence, inputs.input_mask, self.pooling)
        return tf.concat([state, *(mean_state(inputs.sequence, of_span) for of_span in marks)], -1)

    def logits(self, inputs: HeadInput, seeds: SeedStream | None) -> tf.Tensor:
        """float32 [B, outputs], or [B, L, outputs]."""
        state = self.states(inputs)
        if self.prediction_head is not None:
            state = self.prediction_head(state)
        state = dropout(state, self.dropout_rate, seeds)
        if self.inner is not None:
            state = dropout(self.activation(self.inner(state)), self.dropout_rate, seeds)
        return tf.cast(self.dense(state), tf.float32)


class ClassificationHead(TextHead):
    """Classes of a softmax, or a number with squared error.

    Args:
      num_classes: None for regression.
      weights: of the classes' losses in training; None: all 1.
      value: of what is learned of a number, on the task's scale.
    """

    def __init__(
        self,
        scope: str,
        hidden_size: int,
        num_classes: int | None,
        config: FinetuningConfig,
        seed: int,
        weights: Sequence[float] | None = None,
        value: Callable[[tf.Tensor], tf.Tensor] = tf.identity,
    ) -> None:
        super().__init__(scope, hidden_size, num_classes or 1, config, seed)
        self.class_weights, self.num_classes, self.value = weights, num_classes, value
        self.distill_weight, self.distill_temperature = config.distill_weight, config.distill_temperature

    def call(self, inputs: HeadInput, seeds: SeedStream | None, training: bool) -> HeadOutput:
        """Labels: int32 [B] `label_ids`, or float32 [B] `targets`; with distill_from float32 [B, C] `teacher`.

        Predictions: float32 `logits` [B, C], or `value` [B].
        """
        logits = self.logits(inputs, seeds)
        if self.num_classes is None:
            numbers = tf.squeeze(logits, -1)
            losses = tf.square(numbers - inputs.labels["targets"])
            if training and TEACHER in inputs.labels:
                losses = self._shared(losses, tf.square(numbers - inputs.labels[TEACHER][:, 0]))
            return HeadOutput(losses, {} if training else {"value": self.value(numbers)})
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(inputs.labels["label_ids"], logits)
        if training and TEACHER in inputs.labels:
            losses = self._shared(losses, soft_losses(inputs.labels[TEACHER], logits, self.distill_temperature))
        if training and self.class_weights is not None:
            losses *= tf.gather(tf.constant(self.class_weights, tf.float32), inputs.labels["label_ids"])
        return HeadOutput(losses, {} if training else {"logits": logits})

    def _shared(self, losses: tf.Tensor, soft: tf.Tensor) -> tf.Tensor:
        """Losses of the labels and of the teacher's outputs, in their shares."""
        return (1.0 - self.distill_weight) * losses + self.distill_weight * soft


class ChoiceHead(TextHead):
    """One number of each text (GPT, section 3.3; as every encoder since does for RACE).

    Args:
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


def span_label(number: int) -> str:
    """Name of the label that marks the tokens of a span."""
    return f"span_{number + 1}"


class SpanHead(ClassificationHead):
    """Classes of the text's state and the mean state of each span, one beside the other; zeros for a span cut off.

    As the baselines of SuperGLUE classify the two words of WiC and the two mentions of WSC (Wang et al. 2019, 4.1).
    Further labels: int32 [B, L] `span_1`, `span_2`, 1 at the span's tokens.
    """

    output_name, spans = "spans", NUM_SPANS
