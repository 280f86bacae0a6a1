"""MPA: where a prediction went wrong, attend less to the tokens that the wrong token goes together with.

"Learning from Mistakes: Using Mis-predictions as Harm Alerts in Language Pre-Training"
(Xing, Liu, Xiong 2020), known from a poster only. A wrong token that the generator sampled shows which context misled
it: the tokens that often occur near it. A penalty on the main network's attention, from the positions of wrong tokens
to such context, is added to the loss of ELECTRA or BERT.

Shapes: B rows, L length, N masked positions, K neighbours of a token in the table.
"""

import functools
from collections.abc import Mapping

import tensorflow as tf

from electra_tf2.model.kernels.compilation import compiled
from electra_tf2.papers.counts import read_table
from electra_tf2.papers.mpa.config import Config
from electra_tf2.papers.mpa.observed_encoder import AttentionMap, ObservedEncoder, ObservedOutput
from electra_tf2.papers.mpa.tables import KIND, CooccurrenceTable
from electra_tf2.pretrain.networks import Networks, make_encoder, make_generator
from electra_tf2.pretrain.objectives.contrast import holds_sequence
from electra_tf2.pretrain.objectives.objective import Forward, LossTerm, Metrics, Objective, weighted_mean
from electra_tf2.pretrain.pretraining_model import PretrainingModel


class Model(PretrainingModel):
    """ELECTRA or BERT with the penalty; the encoder keeps the attention maps that are penalised."""

    config: Config

    def make_networks(self) -> Networks:
        if not self.config.mpa_objective:
            return super().make_networks()
        observing = functools.partial(ObservedEncoder, observed=self.config.observed_heads)
        main = make_encoder(self.config, observing)
        return Networks(main, make_generator(self.config, main))

    def make_objectives(self, networks: Networks) -> list[Objective]:
        objectives = super().make_objectives(networks)
        if self.config.mpa_objective:
            objectives.append(AttentionRegulariser(self.config, networks))
        return objectives

    def loss_weights(self, step: tf.Tensor | None) -> dict[str, float | tf.Tensor]:
        weights = super().loss_weights(step)
        warmup_steps = self.config.mpa_warmup_steps
        if warmup_steps is None:
            warmup_steps = self.config.num_warmup_steps
        if self.config.mpa_objective and step is not None and warmup_steps:
            share = tf.cast(step, tf.float32) / warmup_steps
            weights[AttentionRegulariser.loss_name] *= tf.minimum(share, 1.0)
        return weights


def attention_maps(forward: Forward) -> Mapping[tuple[int, int], AttentionMap]:
    """(layer, head) -> map, from the pass of the network that is pre-trained."""
    assert isinstance(forward.pretrained, ObservedOutput)
    return forward.pretrained.attention


class AttentionRegulariser(Objective):
    """The penalty L_A (MPA, "attention regulariser"), with the weight gamma.

    S(t, j) is the co-occurrence score of the wrong token at t and the token at j. For each wrong token t and selected
    head the penalty is sum_j (a_tj - g_tj)^2 with g = a (1 - S) and a = q_t k_j / sqrt(d) (the poster's equation).
    Scaling by 1 - S raises scores below 0. Most position biases are below 0, so a is without them.

    The sum is divided by the number of heads and by N_M, taken as the number of masked tokens: that is known before the
    forward pass, so the loss is the same on any number of devices and micro-batches.

    BERT samples no tokens. Its own most likely tokens are wrong or right, and the attention is that of its one pass
    (ours).
    """

    config: Config
    loss_name = "mpa_loss"
    weight = "mpa_gamma"
    initial_loss = 0.0

    def __init__(self, config: Config, networks: Networks) -> None:
        super().__init__(config, networks)
        self._heads = config.observed_heads
        arrays = read_table(config.cooccurrence_file, "cooccurrence_file", KIND, config.vocab_file)
        self._table = CooccurrenceTable(**arrays)

    def predicted(self, forward: Forward) -> tf.Tensor:
        """int32 [B, N]: the predictions at the masked positions: ELECTRA's samples, BERT's most likely tokens."""
        if forward.corrupted is None:
            return tf.argmax(forward.generator.softmax.logits, -1, tf.int32)
        return tf.gather(forward.corrupted.input_ids, forward.masked.positions, batch_dims=1)

    def cooccurrence(self, forward: Forward, predicted: tf.Tensor) -> tf.Tensor:
        """float32 [B, N, L]: S; 0 at padding and at the masked position itself."""
        masked = forward.masked
        tokens = masked.masked_input_ids  # [B, L], what the network read
        if forward.corrupted is not None:
            tokens = forward.corrupted.input_ids
        neighbours = tf.gather(tf.constant(self._table.neighbours), predicted)  # [B, N, K]
        scores = tf.gather(tf.constant(self._table.scores), predicted)
        scores = tf.cast(scores, tf.float32)  # [B, N, K]
        places = tf.range(tokens.shape[1])
        is_other = tf.cast(places != masked.positions[..., tf.newaxis], tf.float32)  # [B, N, L]
        is_real = tf.cast(masked.input_mask, tf.float32)[:, tf.newaxis]  # [B, 1, L]
        return scores_in_context(neighbours, scores, tokens) * is_other * is_real

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        masked = forward.masked
        predicted = self.predicted(forward)
        wrong = tf.cast(predicted != masked.masked_lm_ids, tf.float32) * masked.masked_lm_weights  # [B, N]
        misled_by = self.cooccurrence(forward, predicted) * wrong[..., tf.newaxis]  # [B, N, L]
        is_real = tf.cast(masked.input_mask, tf.float32)[:, tf.newaxis]
        losses = tf.zeros_like(wrong)
        attention_on_harm = tf.zeros_like(wrong)
        for layer_and_head in self._heads:
            attention = attention_maps(forward)[layer_and_head]
            scores = tf.gather(attention.scores, masked.positions, batch_dims=1)  # [B, N, L], a
            probabilities = tf.gather(attention.probabilities, masked.positions, batch_dims=1)
            target = scores * (1.0 - misled_by)  # g
            if self.config.mpa_stop_gradient:
                target = tf.stop_gradient(target)
            losses += tf.reduce_sum(tf.math.squared_difference(scores, target) * is_real, -1)
            attention_on_harm += tf.reduce_sum(probabilities * misled_by, -1)
        heads = float(len(self._heads))
        rows = tf.cast(holds_sequence(masked), tf.float32)
        metrics: Metrics = {
            "mispredictions": (tf.reduce_sum(wrong), tf.reduce_sum(rows)),  # per sequence
            "harm_in_context": weighted_mean(tf.reduce_sum(misled_by, -1), wrong),
            "attention_on_harm": weighted_mean(attention_on_harm / heads, wrong),
        }
        return self.output(forward, losses / heads, metrics)


@compiled
def scores_in_context(neighbours: tf.Tensor, scores: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
    """float32 [B, N, L]: the score of each token [B, L] as a neighbour of each prediction; 0 if it is none.

    Args:
      neighbours: int32 [B, N, K].
      scores: float32 [B, N, K].
      tokens: int32 [B, L].
    """
    same = neighbours[:, :, tf.newaxis, :] == tokens[:, tf.newaxis, :, tf.newaxis]
    return tf.reduce_sum(tf.where(same, scores[:, :, tf.newaxis, :], 0.0), -1)
