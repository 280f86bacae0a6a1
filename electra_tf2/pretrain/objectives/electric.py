"""Electric: noise-contrastive estimation of an energy model of text (Clark et al. 2020b).

A two-tower cloze model (section 2.4) learns to predict every token from all others, and its samples are the noise; the
main network's energies tell them from data (section 2.3).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from types import MappingProxyType

from electra_tf2.pretrain.hparams import PretrainingHparams
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.objectives.bert import masked_lm_metrics
from electra_tf2.pretrain.objectives.electra import Detection, ElectraHparams
from electra_tf2.pretrain.objectives.objective import Forward, LossTerm, Networks, Objective, weighted_mean
from electra_tf2.util.hparams import hparam
from electra_tf2.util.lazy import tf


@dataclasses.dataclass(frozen=True)
class ElectricHparams(ElectraHparams):
    """Noise-contrastive estimation."""

    electric_objective: bool = hparam(False, "noise-contrastive estimation, two-tower generator", heading="Electric")
    electric_candidates_only: bool = hparam(False, "Electric's loss leaves out [CLS] and [SEP], which cannot be masked")


class ClozeLM(Objective[PretrainingHparams]):
    """Cross-entropy of every candidate token given all others, of a two-tower generator (Electric, section 2.4)."""

    role = "generator"
    loss_name = "cloze_loss"
    weight = "gen_weight"

    @classmethod
    def is_chosen(cls, config: PretrainingHparams) -> bool:
        return config.two_tower_generator

    @classmethod
    def problems(cls, config: PretrainingHparams) -> Iterator[str]:
        if NoiseContrastive in config.objective_classes:  # which says more of it
            return
        if config.uniform_generator:
            yield "two_tower_generator and uniform_generator are both true: choose one"
        if not config.trains_main_network:
            yield "two_tower_generator needs electra_objective or electric_objective"
        if not config.untied_generator:
            yield "two_tower_generator needs untied_generator: a causal tower cannot be the main network"

    def __init__(self, config: PretrainingHparams, networks: Networks) -> None:
        super().__init__(config, networks)
        self.initial_loss = math.log(config.vocab_size)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return masked.candidates

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        masked, generator = forward.masked, forward.generator
        assert generator.cloze is not None
        losses = -generator.cloze.log_probs(masked.input_ids)
        metrics = masked_lm_metrics(forward, tf.gather(losses, masked.positions, batch_dims=1), training)
        if not training:
            correct = generator.cloze.are_likeliest(masked.input_ids)
            metrics["cloze_accuracy"] = weighted_mean(correct, masked.candidates)
        return self.output(forward, losses, metrics)


class NoiseContrastive(Detection[ElectricHparams]):
    """Is this token noise or data? (Electric, section 2.3, equation 4).

    The head's output is the energy E; a token is noise if its position was re-sampled, even to the same token. The
    classifier's logit is E + log q + log(a / (1 - a)), q the two-tower model's probability of the token and a the
    share of noise, `mask_prob`. A perfect E is -log p(token | rest).
    """

    flag = "electric_objective"
    title = "noise-contrastive estimation (Electric)"
    implies = MappingProxyType({"two_tower_generator": True})

    @classmethod
    def problems(cls, config: ElectricHparams) -> Iterator[str]:
        why = "electric_objective needs the probabilities of its two-tower generator"
        if config.uniform_generator:
            yield f"{why}: uniform_generator must be false"
        if not config.untied_generator:
            yield f"{why}: untied_generator must be true"
        if config.disallow_correct:
            yield f"{why} as sampled: disallow_correct must be false"
        if config.disc_tokens != "all":
            yield f"electric_objective tells noise from data: disc_tokens must be all, got {config.disc_tokens}"
        if config.temperature != 1.0:
            yield f"{why} as sampled: temperature must be 1, got {config.temperature:g}"
        if config.generator_sample_mode == "eval":
            yield f"{why} as sampled, dropout included: not generator_sample_mode eval"
        same_mask = config.initial_mask_prob in (None, config.mask_prob)
        if not same_mask or config.initial_temperature not in (None, config.temperature):
            yield "electric_objective needs the same noise at every step: no initial_mask_prob, no initial_temperature"

    def __init__(self, config: ElectricHparams, networks: Networks) -> None:
        super().__init__(config, networks)
        noise = config.mask_prob  # energies are about 0, and every token's q about 1 / V
        logit = math.log(noise / (1 - noise)) - math.log(config.vocab_size)
        self.initial_loss = noise * math.log1p(math.exp(-logit)) + (1 - noise) * math.log1p(math.exp(logit))

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return masked.candidates if self.config.electric_candidates_only else super().token_weights(masked)

    def labels(self, forward: Forward) -> tf.Tensor:
        return forward.replaced.was_sampled

    def logits(self, forward: Forward) -> tf.Tensor:
        noise_share = self.config.mask_prob
        return self.head(forward.states) + self.log_q(forward) + math.log(noise_share / (1 - noise_share))

    def log_q(self, forward: Forward) -> tf.Tensor:
        """float32 [B, L]: log-probability of the corrupted input's tokens given the uncorrupted others; no gradient."""
        assert forward.generator.cloze is not None
        return tf.stop_gradient(forward.generator.cloze.log_probs(forward.replaced.input_ids))
