"""The head of tasks about parts of a text: a class from the states of the text and of the parts."""

import tensorflow as tf

from electra_tf2.finetune.task import HeadInput, HeadOutput
from electra_tf2.finetune.text_head import TextHead, mean_state
from electra_tf2.model.layers import SeedStream

NUM_SPANS = 2


def span_label(number: int) -> str:
    """Name of the label that marks the tokens of a span."""
    return f"span_{number + 1}"


class SpanHead(TextHead):
    """Classes of the text's state and the mean state of each span, one beside the other; zeros for a span cut off.

    As the baselines of SuperGLUE classify the two words of WiC and the two mentions of WSC (Wang et al. 2019, 4.1).
    """

    output_name = "spans"
    beside = NUM_SPANS

    def call(self, inputs: HeadInput, seeds: SeedStream | None, training: bool) -> HeadOutput:
        """Labels: int32 [B] `label_ids`; int32 [B, L] `span_1`, `span_2`, 1 at the span's tokens.

        Predictions: float32 logits [B, C], int32 label [B].
        """
        marks = [inputs.labels[span_label(number)] for number in range(NUM_SPANS)]
        logits = self.logits(inputs, seeds, *(mean_state(inputs.sequence, of_span) for of_span in marks))
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(inputs.labels["label_ids"], logits)
        if training:
            return HeadOutput(losses, {})
        return HeadOutput(losses, {"logits": logits, "predictions": tf.argmax(logits, -1, tf.int32)})
