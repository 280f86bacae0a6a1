"""Multiple choice among a generator's candidates, with a reject option (MC-BERT, Xu et al. 2020)."""

import math

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.generator import MaskedLanguageModel
from electra_tf2.model.heads import LanguageModelHead
from electra_tf2.model.kernels.compilation import wide
from electra_tf2.model.layers import truncated_normal, zeros
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.objectives.base import Built, Forward, Objective, ObjectiveOutput, corrupted, weighted_mean


class MultipleChoice(Objective):
    """At every token: leave it, or which of a few words stood there? Cross-entropy over all real tokens (MC-BERT).

    Class 0 rejects all candidates, and is right where a token was not replaced. The others are words that the generator
    draws for that position, as it reads the masked sequence; where a token was replaced, class 1 is the original one.
    As in the authors' code a word may be drawn twice.
    """

    loss_name = "choice_loss"
    shown = ("choice_accuracy_replaced",)

    def __init__(self, config: PretrainingConfig, built: Built | None = None) -> None:
        super().__init__("multiple_choice", config, built)
        assert built is not None and built.encoder is not None and isinstance(built.generator, MaskedLanguageModel)
        self.loss_weight = config.disc_weight
        self.initial_loss = math.log(config.choice_candidates)
        self.generator_head = built.generator.head
        sizes, embeddings = config.architecture, built.encoder.embeddings
        self.head = LanguageModelHead("choice_predictions", sizes.hidden_size, sizes, embeddings, config.seed)
        initializer = truncated_normal(sizes.initializer_range)
        self.rejection = self.head.weight("rejection_embedding", [sizes.embedding_size], initializer)
        self.rejection_bias = self.head.weight("rejection_bias", [1], zeros, decay=False)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return tf.cast(masked.input_mask, tf.float32)

    def candidates(self, forward: Forward) -> tf.Tensor:
        """int32 [B, L, K - 1]: the words to choose from. Rows are sampled one after the other, so that the generator's
        logits of all tokens never exist together; from the pass and at the temperature that replacements are of."""
        masked = forward.masked
        assert forward.sampled is not None and forward.sampled.encoded is not None
        count, length = self.config.choice_candidates - 1, masked.input_ids.shape[1]

        def of_row(row: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
            states, noise = row
            softmax = self.generator_head.softmax(tf.stop_gradient(states)[tf.newaxis])
            draws = [softmax.sample(draw[tf.newaxis], forward.temperature)[0] for draw in tf.unstack(noise)]
            return tf.stack(draws, -1)

        rows = (forward.sampled.encoded.sequence, masked.row_noise([count, length, 2]))
        drawn = tf.ensure_shape(tf.map_fn(of_row, rows, fn_output_signature=tf.int32), [None, length, count])
        replaced = corrupted(forward).is_replaced[..., tf.newaxis] > 0
        return tf.concat([tf.where(replaced, masked.input_ids[..., tf.newaxis], drawn[..., :1]), drawn[..., 1:]], -1)

    def logits(self, forward: Forward, candidates: tf.Tensor) -> tf.Tensor:
        """float32 [B, L, K]: of the rejection and of each candidate, int32 [B, L, K - 1]."""
        hidden = self.head.hidden(forward.states)
        words = tf.gather(tf.cast(self.head.embeddings.word_embeddings, hidden.dtype), candidates)  # [B, L, K - 1, E]
        scores = wide(tf.einsum("ble,blke->blk", hidden, words)) + tf.gather(self.head.output_bias, candidates)
        rejection = tf.tensordot(wide(hidden), self.rejection[:, tf.newaxis], 1) + self.rejection_bias
        return tf.concat([rejection, scores], -1)

    def call(self, forward: Forward, training: bool) -> ObjectiveOutput:
        del training
        weights, answers = self.token_weights(forward.masked), corrupted(forward).is_replaced
        logits = self.logits(forward, self.candidates(forward))
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(answers, logits)
        chosen = tf.argmax(logits, -1, tf.int32)
        replaced = weights * tf.cast(answers, tf.float32)
        metrics = {
            "choice_accuracy_replaced": weighted_mean(tf.equal(chosen, 1), replaced),
            "choice_accuracy_original": weighted_mean(tf.equal(chosen, 0), weights - replaced),
            "choice_recall": weighted_mean(chosen > 0, replaced),
            "replaced_rate": weighted_mean(answers, weights),
        }
        return self.output(forward, losses, metrics)
