"""Term frequency: how often does a token occur in its document, weighed by how rare it is elsewhere for TF-IDF? ("On
Losses", TF and TF-IDF)

The document is the record, so nothing has to be stored in it. As the paper says, values are scaled to [0, 10] between
the lowest and the highest of the document; its code scales per sentence, cuts them to integers and counts padding.
"""

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.document_frequency import inverse_frequencies
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.objectives.auxiliary import Auxiliary, StateHead
from electra_tf2.pretrain.objectives.base import Built, Forward, ObjectiveOutput, weighted_mean

HIGHEST = 10.0


def frequencies(ids: tf.Tensor, candidates: tf.Tensor) -> tf.Tensor:
    """float32 [B, L]: how many of a row's candidates have the id of each token of it."""
    same = tf.cast(ids[:, :, tf.newaxis] == ids[:, tf.newaxis, :], tf.float32)
    return tf.reduce_sum(same * candidates[:, tf.newaxis], -1)


def scaled(values: tf.Tensor, candidates: tf.Tensor) -> tf.Tensor:
    """Values [B, L] moved to [0, 10] between the lowest and the highest of a row's candidates; 0 if all are alike."""
    inside = candidates > 0
    lowest = tf.reduce_min(tf.where(inside, values, values.dtype.max), -1, keepdims=True)
    highest = tf.reduce_max(tf.where(inside, values, values.dtype.min), -1, keepdims=True)
    span = highest - lowest
    return tf.where(inside & (span > 0), HIGHEST * (values - lowest) / tf.where(span > 0, span, 1.0), 0.0)


class TermFrequency(Auxiliary):
    """Squared error at every token that is not special, of the original tokens; their states may be of others."""

    task, loss_name = "tf", "tf_loss"
    initial_loss = 10.0  # a guess: between 0 and 100, as the text has it

    def __init__(self, config: PretrainingConfig, built: Built | None = None) -> None:
        super().__init__(config, built)
        self.head = StateHead(f"{self.task}_predictions", config, 1)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return masked.candidates

    def values(self, masked: MaskedBatch) -> tf.Tensor:
        """float32 [B, L], before they are scaled."""
        return frequencies(masked.input_ids, masked.candidates)

    def call(self, forward: Forward, training: bool) -> ObjectiveOutput:
        del training
        masked = forward.masked
        wanted = scaled(self.values(masked), masked.candidates)
        losses = tf.math.squared_difference(self.head(forward.trained)[..., 0], wanted)
        mean = weighted_mean(wanted, masked.candidates)
        return self.output(forward, losses, {f"{self.task}_mean": mean})


class TermFrequencyInverse(TermFrequency):
    """The same times log(documents / documents that hold the token), of build_table.py."""

    task, loss_name = "tf_idf", "tf_idf_loss"

    def __init__(self, config: PretrainingConfig, built: Built | None = None) -> None:
        super().__init__(config, built)
        self._inverse = inverse_frequencies(config.document_frequency_file, config.vocab_file)

    def values(self, masked: MaskedBatch) -> tf.Tensor:
        return super().values(masked) * tf.gather(tf.constant(self._inverse), masked.input_ids)
