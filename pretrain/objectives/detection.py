"""Detection by the main network: replaced tokens (ELECTRA) and noise against data (Electric)."""

import math

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.heads import ReplacedTokenHead
from electra_tf2.pretrain.masking import MaskedBatch, update_positions
from electra_tf2.pretrain.metrics import logit_histogram, probability_histogram
from electra_tf2.pretrain.objectives.base import (
    Built,
    Forward,
    Metrics,
    Objective,
    ObjectiveOutput,
    corrupted,
    weighted_mean,
)


class ReplacedTokenDetection(Objective):
    """Was this token replaced? Binary cross-entropy over all real tokens (ELECTRA, section 2, L_Disc)."""

    loss_name = "disc_loss"
    shown = ("disc_recall",)

    def __init__(self, config: PretrainingConfig, built: Built | None = None) -> None:
        super().__init__("replaced_token_detection", config, built)
        self.loss_weight = config.disc_weight
        self.initial_loss = math.log(2)
        self.head = ReplacedTokenHead("discriminator_predictions", config.architecture, config.seed)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        """float32 [B, L]: which tokens count; only the drawn positions in ELECTRA 15 % (ELECTRA, section 3.5)."""
        if self.config.disc_tokens == "masked":
            _, drawn = update_positions(masked.input_ids, masked.masked_lm_ids, masked.positions)
            return tf.cast(drawn, tf.float32)
        return tf.cast(masked.input_mask, tf.float32)

    def labels(self, forward: Forward) -> tf.Tensor:
        """int32 [B, L]: 1 at tokens that the main network should call fake."""
        return corrupted(forward).is_replaced

    def logits(self, forward: Forward) -> tf.Tensor:
        """float32 [B, L]: positive means fake."""
        return self.head(forward.states)

    def call(self, forward: Forward, training: bool) -> ObjectiveOutput:
        logits, labels, weights = self.logits(forward), self.labels(forward), self.token_weights(forward.masked)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(labels, tf.float32), logits)
        metrics = self.detection_metrics(forward, logits, labels, weights, weights * losses)
        histograms = {}
        if not training:
            histograms["disc_auc"] = self.auc_histogram(forward, logits, labels, weights)
        return self.output(forward, losses, metrics, histograms)

    def detection_metrics(
        self, forward: Forward, logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, losses: tf.Tensor
    ) -> Metrics:
        """The original's metrics, and the shares against which to read them."""
        predictions = tf.cast(logits > 0, tf.int32)
        correct = tf.equal(predictions, labels)
        tokens = tf.reduce_sum(weights, -1)
        per_example = tf.reduce_sum(losses, -1) / (tokens + 1e-6)
        sampled_correctly = corrupted(forward).was_sampled * (1 - corrupted(forward).is_replaced)

        def among(subset: tf.Tensor) -> tf.Tensor:
            return tf.cast(subset, tf.float32) * weights

        return {
            "disc_loss": weighted_mean(per_example, tokens > 0),
            "disc_accuracy": weighted_mean(correct, weights),
            "disc_precision": weighted_mean(correct, among(predictions)),
            "disc_recall": weighted_mean(correct, among(labels)),
            "disc_sampled_correctly_accuracy": weighted_mean(correct, among(sampled_correctly)),
            "replaced_rate": weighted_mean(labels, weights),
            "majority_baseline": weighted_mean(1 - labels, weights),
        }

    def auc_histogram(self, forward: Forward, logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        if self.config.compat == "original":  # 200 linear thresholds, and every pad is an easy true negative
            probs = tf.sigmoid(logits)
            real = tf.cast(forward.masked.input_mask, tf.float32)
            return probability_histogram(probs * real, tf.cast(labels, tf.float32) * real, tf.ones_like(probs))
        return logit_histogram(logits, labels, weights)


class NoiseContrastive(ReplacedTokenDetection):
    """Noise-contrastive estimation of an energy model of text (Electric, section 2.3, equation 4).

    The head's output is the energy E; a token is noise if its position was re-sampled, even to the same token. The
    classifier's logit is E + log q + log(a / (1 - a)), q the two-tower model's probability of the token and a the
    share of noise, `mask_prob`. A perfect E is -log p(token | rest).
    """

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return masked.candidates if self.config.electric_candidates_only else super().token_weights(masked)

    def labels(self, forward: Forward) -> tf.Tensor:
        return corrupted(forward).was_sampled

    def logits(self, forward: Forward) -> tf.Tensor:
        noise_share = self.config.mask_prob
        return self.head(forward.states) + self.log_q(forward) + math.log(noise_share / (1 - noise_share))

    def log_q(self, forward: Forward) -> tf.Tensor:
        """float32 [B, L]: log-probability of the corrupted input's tokens given the uncorrupted others; no gradient."""
        assert forward.generator.cloze is not None  # Electric's generator has two towers
        return tf.stop_gradient(forward.generator.cloze.log_probs(corrupted(forward).input_ids))
