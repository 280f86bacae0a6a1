"""AMOS: an ELECTRA whose replacements come from a mixture of generators (Meng et al. 2022).

Several exits of one generator's layers are language models of their own, all trained to predict the masked tokens. The
replacements are drawn from a mixture of their logits, whose shares learn, through straight-through Gumbel-softmax
samples, to make the main network's task harder (model.other_generators.MixtureOfGenerators holds exits and shares).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from electra_tf2.model.flops import Part, language_model_head
from electra_tf2.pretrain.masking import MaskedBatch, sampled_logits
from electra_tf2.pretrain.objectives.bert import masked_lm_metrics
from electra_tf2.pretrain.objectives.electra_ablations import AblationHparams
from electra_tf2.pretrain.objectives.objective import Forward, LossTerm, Networks, Objective, weighted_mean
from electra_tf2.util.hparams import hparam
from electra_tf2.util.lazy import tf

if TYPE_CHECKING:
    from electra_tf2.model.generator import GeneratorOutput


@dataclasses.dataclass(frozen=True)
class AmosHparams(AblationHparams):
    """The mixture of generators."""

    generator_exits: list[int] = hparam(
        [],
        "layers of the generator, from 1, after each of which it is a language model of its own, whose logits are "
        "mixed (AMOS: [4, 6, 8] of 8); none given: the last layer alone, not mixed",
        heading="AMOS",
    )
    mixture_temperature: float = hparam(0.3, "temperature of the straight-through softmax of samples", above=0)
    mixture_gradient: float = hparam(
        -1.0,
        "factor of the main network's gradient where it reaches the shares of generator_exits: -1: samples become "
        "harder (AMOS); 0: the shares are not trained",
    )


class MixtureLM(Objective[AmosHparams]):
    """Cross-entropy of the original tokens at the drawn positions, the exits' added up.

    It trains all of the generator but the shares of the mixture, which learn from the main network's losses (`sample`).
    The original's metrics are those of the mixture, of which samples are.
    """

    title = "a mixture of generators (AMOS)"
    role = "generator"
    loss_name = "exits_loss"
    weight = "gen_weight"

    @classmethod
    def is_chosen(cls, config: AmosHparams) -> bool:
        return bool(config.generator_exits)

    @classmethod
    def problems(cls, config: AmosHparams) -> Iterator[str]:
        exits, layers = config.generator_exits, config.generator_architecture.num_hidden_layers
        rising = all(type(layer) is int for layer in exits) and exits == sorted(set(exits))
        if len(exits) < 2 or not rising or exits[0] < 1 or exits[-1] != layers:
            yield (
                f"generator_exits must be two layers or more of the generator, from 1, rising to its uppermost, "
                f"{layers} (generator_layers), got {exits}"
            )
        if not config.has_own_generator or config.uniform_generator or config.two_tower_generator:
            yield "generator_exits needs a masked language model of its own as generator"
        if config.adversarial_generator:
            yield "generator_exits and adversarial_generator are two ways to train an adversary: choose one"
        if config.freeze_generator:
            yield "generator_exits needs a generator that is trained: freeze_generator must be false"
        if config.architecture.norm_style != "post":
            yield "generator_exits needs norm_style post: its exits read layers that are normalised"
        if config.mask_sampling != "without_replacement":
            yield "generator_exits needs mask_sampling without_replacement: a position has one sample"

    @classmethod
    def parts(cls, config: AmosHparams) -> list[Part]:
        """Beside the uppermost exit: the others, the shares, and the products with the word table that train them."""
        generator, masked = config.generator_architecture, config.max_predictions_per_seq
        others = masked * (len(config.generator_exits) - 1)
        head = language_model_head("other exits", generator.hidden_size, generator, others)
        width = config.architecture.embedding_size
        back = 2 * 2 * masked * width * config.architecture.vocab_size
        return [
            head._replace(parameters=generator.hidden_size),
            Part("mixture's gradient", 0, back, masked * width, backward=False),
        ]

    def __init__(self, config: AmosHparams, networks: Networks) -> None:
        super().__init__(config, networks)
        self.initial_loss = len(config.generator_exits) * math.log(config.vocab_size)

    def sample(
        self, masked: MaskedBatch, generated: GeneratorOutput, words: tf.Tensor, temperature: float | tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Samples of the mixture, and a way back to its shares for the main network's gradient.

        The samples are the maxima of logits + Gumbel noise. Where their embeddings are the main network's input, the
        gradient is that of a softmax of the same sums at a low temperature (straight-through Gumbel-softmax, Jang et
        al. 2017), times `mixture_gradient`. The offsets are zeros with that gradient.
        """
        logits = sampled_logits(self.config, masked, generated, temperature)
        noise = masked.row_noise(logits.shape[1:].as_list())
        noisy = logits - tf.math.log(-tf.math.log(noise))
        chosen = tf.cast(tf.nn.softmax(noisy / self.config.mixture_temperature), words.dtype)
        chosen = tf.cast(tf.tensordot(chosen, tf.stop_gradient(words), 1), tf.float32)  # [B, N, E]
        places = tf.one_hot(masked.positions, masked.input_ids.shape[1]) * masked.masked_lm_weights[..., tf.newaxis]
        pull = self.config.mixture_gradient * tf.matmul(places, chosen, transpose_a=True)
        return tf.argmax(noisy, -1, tf.int32), pull - tf.stop_gradient(pull)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        from electra_tf2.papers.amos.generator import MixtureOutput

        assert isinstance(forward.generator, MixtureOutput)
        masked, mixture = forward.masked, forward.generator.mixture
        assert mixture is not None
        exits = self.config.generator_exits
        token_ids = tf.repeat(masked.masked_lm_ids[..., tf.newaxis], len(exits), -1)
        losses = -mixture.softmax.log_probs(token_ids)  # [B, N, K]
        metrics = masked_lm_metrics(forward, -forward.generator.log_probs(masked.masked_lm_ids), training)
        for number, layer in enumerate(exits):
            metrics[f"exit_{layer}_loss"] = weighted_mean(losses[..., number], masked.masked_lm_weights)
            metrics[f"exit_{layer}_share"] = weighted_mean(mixture.shares[..., number], masked.masked_lm_weights)
        return self.output(forward, tf.reduce_sum(losses, -1), metrics)
