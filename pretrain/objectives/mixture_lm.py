"""Language modelling by a mixture of generators: every exit of the one network predicts the masked tokens (AMOS)."""

import math

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.objectives.base import Built, Forward, Objective, ObjectiveOutput, weighted_mean
from electra_tf2.pretrain.objectives.masked_lm import masked_lm_metrics


class MixtureLM(Objective):
    """Cross-entropy of the original tokens at the drawn positions, the exits' added up (AMOS, Meng et al. 2022).

    It trains all of the generator but the shares of the mixture, which learn from the main network's losses
    (pretrain.corruption.sample_mixture). The original's metrics are those of the mixture, of which samples are.
    """

    loss_name = "exits_loss"
    of_generator = True

    def __init__(self, config: PretrainingConfig, built: Built | None = None) -> None:
        super().__init__("mixture_lm_objective", config, built)
        self.loss_weight = config.gen_weight
        self.initial_loss = len(config.generator_exits) * math.log(config.vocab_size)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return masked.masked_lm_weights

    def call(self, forward: Forward, training: bool) -> ObjectiveOutput:
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
