"""What heads that classify a text on the whole have in common: classification, multiple choice, and spans beside it.

`classifier_pooling` says which state of the text they read, `classifier` what is between it and their outputs.
"""

import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.finetune.task import Head, HeadInput
from electra_tf2.model.layers import Dense, SeedStream, activation, dropout, glorot_uniform


class TextHead(Head):
    """Dropout and a dense layer on the [CLS] state, without a pooler (ELECTRA, section 3.1).

    Args:
      scope: "task_specific/<task>".
      outputs: numbers for each text.
      config: `classifier`: "tanh" or "gelu" puts dropout and a dense layer with that activation before (COCO-LM);
        `classifier_pooling`: "mean" takes the mean of all tokens' states for [CLS]'s.
    """

    output_name = "dense"  # of the last layer's variables
    beside = 0  # states that are read beside that of the text

    def __init__(self, scope: str, hidden_size: int, outputs: int, config: FinetuningConfig, seed: int) -> None:
        super().__init__(scope, seed)
        self.dropout_rate = config.classifier_dropout
        self.averages = config.classifier_pooling == "mean"
        width = (1 + self.beside) * hidden_size
        self.inner = None
        if config.classifier != "linear":
            self.inner = Dense(f"{scope}/inner", width, hidden_size, glorot_uniform, seed)
            self.activation, width = activation(config.classifier), hidden_size
        self.dense = Dense(f"{scope}/{self.output_name}", width, outputs, glorot_uniform, seed)

    def logits(self, inputs: HeadInput, seeds: SeedStream | None, *beside: tf.Tensor) -> tf.Tensor:
        """float32 [B, outputs]; `beside` are further states, [B, H] each."""
        of_text = mean_state(inputs.sequence, inputs.input_mask) if self.averages else inputs.sequence[:, 0]
        state = tf.concat([of_text, *beside], -1) if beside else of_text
        state = dropout(state, self.dropout_rate, seeds)
        if self.inner is not None:
            state = dropout(self.activation(self.inner(state)), self.dropout_rate, seeds)
        return tf.cast(self.dense(state), tf.float32)


def mean_state(sequence: tf.Tensor, marks: tf.Tensor) -> tf.Tensor:
    """The mean of the states [B, L, H] whose mark, int32 [B, L], is 1: [B, H]; zeros where none is."""
    weights = tf.cast(marks, tf.float32)[:, :, tf.newaxis]
    total = tf.reduce_sum(tf.cast(sequence, tf.float32) * weights, 1)
    return tf.cast(total / tf.maximum(tf.reduce_sum(weights, 1), 1.0), sequence.dtype)
