"""MPA: where a prediction went wrong, attend less to the tokens that the wrong token goes together with.

"Learning to focus where it matters: mis-predictions as harm alerts" is known from a poster alone. A wrong token that
the generator sampled tells which context misled it: tokens that often occur near it. A penalty on the main network's
attention, from the positions of wrong tokens to such context, is added to the loss of ELECTRA, or of BERT.
"""

from collections.abc import Callable

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.cooccurrence import CooccurrenceTable, read_cooccurrence
from electra_tf2.model.kernels.compilation import xla
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.objectives.base import Built, Forward, Metrics, Objective, ObjectiveOutput, weighted_mean
from electra_tf2.pretrain.objectives.harm_alert_spec import attention_of
from electra_tf2.pretrain.ramps import Ramped


@xla
def found_among(neighbours: tf.Tensor, scores: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
    """float32 [B, N, L]: the score of each token [B, L] among the neighbours [B, N, K] of each draw, or 0."""
    same = neighbours[:, :, tf.newaxis, :] == tokens[:, tf.newaxis, :, tf.newaxis]
    return tf.reduce_sum(tf.where(same, scores[:, :, tf.newaxis, :], 0.0), -1)


def lookup(table: CooccurrenceTable, dense: bool) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """(int32 [B, N] tokens, int32 [B, L] context) -> float32 [B, N, L], the score of every pair."""
    if dense:
        # No constant, which a graph could hold 2 GB of. Only the function knows it, so no checkpoint has it.
        whole = tf.Variable(table.dense(), trainable=False, name="cooccurrence")
        return lambda tokens, context: tf.cast(
            tf.gather(
                tf.gather(whole, tokens),
                tf.tile(context[:, tf.newaxis], [1, tokens.shape[1], 1]),
                batch_dims=2,
            ),
            tf.float32,
        )
    return lambda tokens, context: found_among(
        tf.gather(tf.constant(table.neighbours), tokens),
        tf.cast(tf.gather(tf.constant(table.scores), tokens), tf.float32),
        context,
    )


class HarmAlert(Objective):
    """The penalty L_A (MPA, "attention regulariser"), with its own factor gamma.

    S(t, j) is the co-occurrence score of the wrong token at t and the token at j. Per wrong token and selected head:
    "scaled_logits": sum_j (a_tj - g_tj)^2 with g = a (1 - S), a = q_t k_j / sqrt(d) (the poster's equation; a score
    below 0 is raised by it, so position biases, most of which are, are left out); "prob_mass": sum_j p_tj S_tj of the
    attention p itself, which only ever falls with it (ours). Both are divided by heads and by N_M, read as the number
    of masked tokens: it is known before the forward pass, so the loss is the same on any number of devices and
    micro-batches.

    BERT has no sampled tokens: wrong are its own most likely tokens, attention is that of its one pass (ours).
    """

    loss_name = "mpa_loss"

    def __init__(self, config: PretrainingConfig, built: Built | None = None) -> None:
        super().__init__("harm_alert", config, built)
        self.loss_weight = config.mpa_gamma
        self.initial_loss = 0.0
        self._scores = lookup(
            read_cooccurrence(config.cooccurrence_file, config.vocab_file), config.mpa_table == "dense"
        )

    def weight_at(self, ramped: Ramped) -> float | tf.Tensor:
        c = self.config
        steps = c.num_warmup_steps if c.mpa_warmup_steps is None else c.mpa_warmup_steps
        return super().weight_at(ramped) * ramped.since_start(steps)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return masked.masked_lm_weights

    def predicted(self, forward: Forward) -> tf.Tensor:
        """int32 [B, N]: the tokens that stand, or would stand, at the drawn positions."""
        if forward.corrupted is None:
            return tf.argmax(forward.generator.logits, -1, tf.int32)
        return tf.gather(forward.corrupted.input_ids, forward.masked.positions, batch_dims=1)

    def harm(self, forward: Forward, predicted: tf.Tensor) -> tf.Tensor:
        """float32 [B, N, L]: S; 0 at padding and at the drawn position itself."""
        masked = forward.masked
        tokens = masked.masked_input_ids if forward.corrupted is None else forward.corrupted.input_ids
        found = self._scores(predicted, tokens)
        places = tf.range(tokens.shape[1])
        other = tf.cast(places != masked.positions[..., tf.newaxis], tf.float32)
        return found * other * tf.cast(masked.input_mask, tf.float32)[:, tf.newaxis]

    def call(self, forward: Forward, training: bool) -> ObjectiveOutput:
        del training
        masked, encoded = forward.masked, forward.encoded or forward.generator.encoded
        assert encoded is not None
        predicted = self.predicted(forward)
        wrong = tf.cast(predicted != masked.masked_lm_ids, tf.float32) * masked.masked_lm_weights
        harm = self.harm(forward, predicted) * wrong[..., tf.newaxis]
        real = tf.cast(masked.input_mask, tf.float32)[:, tf.newaxis]
        losses = mass = tf.zeros_like(wrong)
        places = sorted(attention_of(self.config))
        for place in places:
            scores, attended = (tf.gather(one, masked.positions, batch_dims=1) for one in encoded.attention[place])
            on_harm = tf.reduce_sum(attended * harm, -1)
            mass += on_harm
            if self.config.mpa_target == "prob_mass":
                losses += on_harm
            else:
                target = scores * (1.0 - harm)
                target = tf.stop_gradient(target) if self.config.mpa_stop_gradient else target
                losses += tf.reduce_sum(tf.math.squared_difference(scores, target) * real, -1)
        heads = float(len(places))
        rows = tf.cast(masked.holds_sequence, tf.float32)
        metrics: Metrics = {
            "mispredictions": (tf.reduce_sum(wrong), tf.reduce_sum(rows)),  # of a sequence
            "harm_in_context": weighted_mean(tf.reduce_sum(harm, -1), wrong),
            "attention_on_harm": weighted_mean(mass / heads, wrong),
        }
        return self.output(forward, losses / heads, metrics)
