"""MPA: where a prediction went wrong, attend less to the tokens that the wrong token goes together with.

"Learning to focus where it matters: mis-predictions as harm alerts" is known from a poster alone. A wrong token that
the generator sampled tells which context misled it: tokens that often occur near it. A penalty on the main network's
attention, from the positions of wrong tokens to such context, is added to the loss of ELECTRA, or of BERT.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from electra_tf2.pretrain.hparams import PretrainingHparams
from electra_tf2.pretrain.objectives.objective import (
    Forward,
    LossTerm,
    Metrics,
    Needs,
    Networks,
    Objective,
    StepValues,
    weighted_mean,
)
from electra_tf2.util.hparams import free_hparam, hparam
from electra_tf2.util.lazy import tf

if TYPE_CHECKING:
    from electra_tf2.corpus.cooccurrence import CooccurrenceTable


@dataclasses.dataclass(frozen=True)
class MpaHparams(PretrainingHparams):
    """The attention regulariser."""

    mpa_objective: bool = hparam(False, "penalise attention from mis-predictions to what misled them", heading="MPA")
    mpa_gamma: float = hparam(0.1, "weight of MPA's penalty (gamma)", at_least=0)
    mpa_warmup_steps: int | None = hparam(None, "steps in which mpa_gamma rises; null: num_warmup_steps", at_least=0)
    mpa_target: str = hparam(
        "scaled_logits",
        "what MPA penalises: scaled_logits: scores of attention (the poster); prob_mass: the attention itself (ours)",
        choices=("scaled_logits", "prob_mass"),
    )
    mpa_stop_gradient: bool = hparam(True, "the smaller scores that mpa_target scaled_logits aims at are constants")
    mpa_layers: list[int] = hparam([-1], "layers whose attention MPA penalises, from 0, or from -1, the last")
    mpa_heads: list[int] = hparam([], "heads of mpa_layers, from 0; none given: the first quarter")
    mpa_table: str = hparam(
        "sparse",
        "how MPA looks up scores of co-occurrence: sparse: among a token's neighbours; dense: in a table of "
        "vocab_size squared float16",
        choices=("sparse", "dense"),
    )
    cooccurrence_file: str = free_hparam(
        "", "file of mpa_objective's table, of electra build-table; default <data_dir>/cooccurrence.npz", place="read"
    )

    def derived(self) -> dict[str, Any]:
        default = os.path.join(self.data_dir, "cooccurrence.npz")
        return super().derived() | {"cooccurrence_file": self.cooccurrence_file or default}

    @property
    def mpa_attention(self) -> frozenset[tuple[int, int]]:
        """(layer, head) that are regularised, from 0; by default a quarter of the last layer's heads."""
        sizes = self.architecture
        heads = self.mpa_heads or list(range(-(-sizes.num_attention_heads // 4)))
        layers = [layer % sizes.num_hidden_layers for layer in self.mpa_layers if type(layer) is int]
        return frozenset((layer, head) for layer in layers for head in heads if type(head) is int)


class AttentionRegulariser(Objective[MpaHparams]):
    """The penalty L_A (MPA, "attention regulariser"), with its own factor gamma.

    S(t, j) is the co-occurrence score of the wrong token at t and the token at j. Per wrong token and selected head:
    "scaled_logits": sum_j (a_tj - g_tj)^2 with g = a (1 - S), a = q_t k_j / sqrt(d) (the poster's equation; a score
    below 0 is raised by it, so position biases, most of which are, are left out); "prob_mass": sum_j p_tj S_tj of the
    attention p itself, which only ever falls with it (ours). Both are divided by heads and by N_M, read as the number
    of masked tokens: it is known before the forward pass, so the loss is the same on any number of devices and
    micro-batches.

    BERT has no sampled tokens: wrong are its own most likely tokens, attention is that of its one pass (ours).
    """

    flag = "mpa_objective"
    title = "a penalty of attention to what misled (MPA)"
    without_main = True
    loss_name = "mpa_loss"
    weight = "mpa_gamma"
    initial_loss = 0.0

    @classmethod
    def problems(cls, config: MpaHparams) -> Iterator[str]:
        sizes = config.architecture
        layers = range(-sizes.num_hidden_layers, sizes.num_hidden_layers)
        if not config.mpa_layers or not all(type(layer) is int and layer in layers for layer in config.mpa_layers):
            yield (
                f"mpa_layers must name some of {sizes.num_hidden_layers} layers, from 0 or from -1, "
                f"got {config.mpa_layers}"
            )
        if not all(type(head) is int and 0 <= head < sizes.num_attention_heads for head in config.mpa_heads):
            yield f"mpa_heads must name some of {sizes.num_attention_heads} heads, from 0, got {config.mpa_heads}"
        if config.mpa_target == "prob_mass" and not config.mpa_stop_gradient:
            yield "mpa_stop_gradient false has no effect: mpa_target prob_mass aims at no smaller scores"
        if not config.trains_main_network and config.uniform_generator:
            yield "mpa_objective needs the attention of a network"

    @classmethod
    def needs(cls, config: MpaHparams) -> Needs:
        return Needs(attention=config.mpa_attention)

    def __init__(self, config: MpaHparams, networks: Networks) -> None:
        from electra_tf2.corpus.cooccurrence import read_cooccurrence

        super().__init__(config, networks)
        self._heads = sorted(config.mpa_attention)
        table = read_cooccurrence(config.cooccurrence_file, config.vocab_file)
        self._scores = lookup(table, config.mpa_table == "dense")

    def weight_at(self, values: StepValues) -> float | tf.Tensor:
        config, weight = self.config, super().weight_at(values)
        steps = config.num_warmup_steps if config.mpa_warmup_steps is None else config.mpa_warmup_steps
        if values.step is None or not steps:
            return weight * 1.0
        return weight * tf.minimum(values.step / steps, 1.0)

    def predicted(self, forward: Forward) -> tf.Tensor:
        """int32 [B, N]: the tokens that stand, or would stand, at the drawn positions."""
        if forward.corrupted is None:
            return tf.argmax(forward.generator.logits, -1, tf.int32)
        return tf.gather(forward.corrupted.input_ids, forward.masked.positions, batch_dims=1)

    def cooccurrence(self, forward: Forward, predicted: tf.Tensor) -> tf.Tensor:
        """float32 [B, N, L]: S; 0 at padding and at the drawn position itself."""
        masked = forward.masked
        tokens = masked.masked_input_ids if forward.corrupted is None else forward.corrupted.input_ids
        found = self._scores(predicted, tokens)
        places = tf.range(tokens.shape[1])
        other = tf.cast(places != masked.positions[..., tf.newaxis], tf.float32)
        return found * other * tf.cast(masked.input_mask, tf.float32)[:, tf.newaxis]

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        masked = forward.masked
        predicted = self.predicted(forward)
        wrong = tf.cast(predicted != masked.masked_lm_ids, tf.float32) * masked.masked_lm_weights
        misled_by = self.cooccurrence(forward, predicted) * wrong[..., tf.newaxis]
        real = tf.cast(masked.input_mask, tf.float32)[:, tf.newaxis]
        losses = mass = tf.zeros_like(wrong)
        for place in self._heads:
            maps = forward.pretrained.attention[place]
            scores, attended = (tf.gather(one, masked.positions, batch_dims=1) for one in maps)
            on_misleading = tf.reduce_sum(attended * misled_by, -1)
            mass += on_misleading
            if self.config.mpa_target == "prob_mass":
                losses += on_misleading
            else:
                target = scores * (1.0 - misled_by)
                target = tf.stop_gradient(target) if self.config.mpa_stop_gradient else target
                losses += tf.reduce_sum(tf.math.squared_difference(scores, target) * real, -1)
        heads = float(len(self._heads))
        rows = tf.cast(masked.holds_sequence, tf.float32)
        metrics: Metrics = {
            "mispredictions": (tf.reduce_sum(wrong), tf.reduce_sum(rows)),  # of a sequence
            "harm_in_context": weighted_mean(tf.reduce_sum(misled_by, -1), wrong),
            "attention_on_harm": weighted_mean(mass / heads, wrong),
        }
        return self.output(forward, losses / heads, metrics)


def lookup(table: CooccurrenceTable, dense: bool) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """(int32 [B, N] tokens, int32 [B, L] context) -> float32 [B, N, L], the score of every pair."""
    if dense:
        # No constant, which a graph could hold 2 GB of. Only the function knows it, so no checkpoint has it.
        whole = tf.Variable(table.dense(), trainable=False, name="cooccurrence")
        return lambda tokens, context: tf.cast(
            tf.gather(tf.gather(whole, tokens), tf.tile(context[:, tf.newaxis], [1, tokens.shape[1], 1]), batch_dims=2),
            tf.float32,
        )
    from electra_tf2.model.kernels.compilation import compiled

    @compiled
    def found_among(neighbours: tf.Tensor, scores: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
        """float32 [B, N, L]: the score of each token [B, L] among the neighbours [B, N, K] of each draw, or 0."""
        same = neighbours[:, :, tf.newaxis, :] == tokens[:, tf.newaxis, :, tf.newaxis]
        return tf.reduce_sum(tf.where(same, scores[:, :, tf.newaxis, :], 0.0), -1)

    return lambda tokens, context: found_among(
        tf.gather(tf.constant(table.neighbours), tokens),
        tf.cast(tf.gather(tf.constant(table.scores), tokens), tf.float32),
        context,
    )
