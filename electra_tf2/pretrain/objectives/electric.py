"""Electric: noise-contrastive estimation of an energy model of text (Clark et al. 2020b).

A two-tower cloze model (section 2.4) learns to predict every token from all others. Its samples are the noise, which
the main network's energies tell from data (section 2.3).

Shapes: B rows, L length.
"""

import math

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.networks import Networks
from electra_tf2.pretrain.objectives.bert import masked_lm_metrics
from electra_tf2.pretrain.objectives.electra import Detection
from electra_tf2.pretrain.objectives.objective import Forward, LossTerm, Objective, weighted_mean


class ClozeLM(Objective):
    """Cross-entropy of every candidate token given all others, of a two-tower generator (Electric, section 2.4)."""

    loss_name = "cloze_loss"
    weight = "gen_weight"

    def __init__(self, config: PretrainingConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        self.initial_loss = math.log(config.vocab_size)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return masked.candidates

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        masked = forward.masked
        generator = forward.generator
        assert generator.cloze is not None
        losses = -generator.cloze.log_probs(masked.input_ids)  # [B, L]
        losses_at_masked = tf.gather(losses, masked.positions, batch_dims=1)
        metrics = masked_lm_metrics(forward, losses_at_masked, training)
        if not training:
            correct = generator.cloze.are_likeliest(masked.input_ids)
            metrics["cloze_accuracy"] = weighted_mean(correct, masked.candidates)
        return self.output(forward, losses, metrics)


class NoiseContrastive(Detection):
    """Is this token noise or data? (Electric, section 2.3, equation 4.)

    The head's output is the energy E. A token is noise if its position was sampled again, even if the sample is the
    same token. The classifier's logit is E + log q + log(a / (1 - a)), with q the two-tower model's probability of the
    token and a the share of noise, `mask_prob`. A perfect E is -log p(token | rest).
    """

    def __init__(self, config: PretrainingConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        # Before training energies are about 0, and every token's q is about 1 / V.
        noise_share = config.mask_prob
        logit = math.log(noise_share / (1 - noise_share)) - math.log(config.vocab_size)
        loss_of_noise = math.log1p(math.exp(-logit))
        loss_of_data = math.log1p(math.exp(logit))
        self.initial_loss = noise_share * loss_of_noise + (1 - noise_share) * loss_of_data

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        if self.config.electric_candidates_only:
            return masked.candidates
        return super().token_weights(masked)

    def labels(self, forward: Forward) -> tf.Tensor:
        return forward.main_input.was_sampled

    def logits(self, forward: Forward) -> tf.Tensor:
        energies = self.head(forward.states)  # [B, L]
        noise_share = self.config.mask_prob
        return energies + self.log_q(forward) + math.log(noise_share / (1 - noise_share))

    def log_q(self, forward: Forward) -> tf.Tensor:
        """float32 [B, L]: log-probability of the corrupted input's tokens given the uncorrupted others; no gradient."""
        assert forward.generator.cloze is not None
        return tf.stop_gradient(forward.generator.cloze.log_probs(forward.main_input.input_ids))
