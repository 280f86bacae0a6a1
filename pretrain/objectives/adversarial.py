"""An adversarial generator: it maximises the discriminator's loss, by REINFORCE (ELECTRA, appendix F)."""

import math

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.layers import Dense, truncated_normal
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.objectives.base import (
    Built,
    Forward,
    Objective,
    ObjectiveOutput,
    built_before,
    corrupted,
    weighted_mean,
)
from electra_tf2.pretrain.objectives.detection import ReplacedTokenDetection
from electra_tf2.pretrain.objectives.masked_lm import masked_lm_metrics


def rewards(disc_logits: tf.Tensor, is_fake: tf.Tensor) -> tf.Tensor:
    """float32: the discriminator's cross-entropy at each token; no gradient."""
    return tf.stop_gradient(tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(is_fake, tf.float32), disc_logits))


def policy_losses(log_probs: tf.Tensor, reward: tf.Tensor, baseline: tf.Tensor) -> tf.Tensor:
    """-(R - b) log p_G(sample); its gradient is an unbiased estimate of that of -E[R], whatever b is."""
    return -tf.stop_gradient(reward - baseline) * log_probs


class AdversarialGenerator(Objective):
    """Policy-gradient loss of the generator, in place of its masked LM, and its learned baseline b = -log sigmoid(w h).

    The baseline is trained with the cross-entropy between sigmoid(w h) and exp(-R), whose optimum is b = R for a
    constant reward; the reward of a token is the discriminator's loss there.
    """

    loss_name = "adversarial_loss"
    of_generator = True

    def __init__(self, config: PretrainingConfig, built: Built | None = None) -> None:
        super().__init__("adversarial_generator", config, built)
        self.detection = built_before(built, ReplacedTokenDetection)
        self.loss_weight = config.gen_weight
        self.initial_loss = math.log(2)
        width = config.generator_architecture.hidden_size
        initializer = truncated_normal(config.architecture.initializer_range)
        self.baseline = Dense("generator_baseline/dense", width, 1, initializer, config.seed)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return masked.masked_lm_weights

    def call(self, forward: Forward, training: bool) -> ObjectiveOutput:
        masked, generator = forward.masked, forward.generator
        weights = masked.masked_lm_weights
        detection = tf.stop_gradient(self.detection.logits(forward))
        reward = rewards(
            tf.gather(detection, masked.positions, batch_dims=1),
            tf.gather(self.detection.labels(forward), masked.positions, batch_dims=1),
        )
        assert generator.states is not None
        guess = tf.cast(tf.squeeze(self.baseline(tf.stop_gradient(generator.states)), -1), tf.float32)
        sampled = corrupted(forward).sampled_ids
        log_probs = generator.log_probs(sampled)
        policy = policy_losses(log_probs, reward, tf.nn.softplus(-guess))
        baseline = tf.nn.sigmoid_cross_entropy_with_logits(tf.exp(-reward), guess)
        losses = -generator.log_probs(masked.masked_lm_ids)
        metrics = masked_lm_metrics(forward, losses, training) | {
            "reward": weighted_mean(reward, weights),
            "baseline_loss": weighted_mean(baseline, weights),
        }
        return self.output(forward, policy + baseline, metrics)
