"""ELECTRA: replaced-token detection (Clark et al. 2020, section 2).

A generator, trained by masked language modelling (bert.MaskedLM), replaces the masked tokens by its samples
(equation 1). The main network tells of every token whether it was replaced (equation 2).

Shapes: B rows, L length, K buckets of a histogram.
"""

import math

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.heads import ReplacedTokenHead
from electra_tf2.pretrain.evaluation_metrics import logit_histogram, probability_histogram
from electra_tf2.pretrain.masking import MaskedBatch, update_positions
from electra_tf2.pretrain.networks import Networks
from electra_tf2.pretrain.objectives.objective import Forward, LossTerm, Metrics, Objective, weighted_mean


class Detection(Objective):
    """Base of losses that classify every token as fake or not: binary cross-entropy of one logit for each token."""

    loss_name = "disc_loss"
    weight = "disc_weight"
    initial_loss = math.log(2)
    shown = ("disc_auc", "disc_recall")

    def __init__(self, config: PretrainingConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        self.head = ReplacedTokenHead("discriminator_predictions", config.architecture, config.seed)

    def labels(self, forward: Forward) -> tf.Tensor:
        """int32 [B, L]: 1 at tokens that are fake."""
        raise NotImplementedError

    def logits(self, forward: Forward) -> tf.Tensor:
        """float32 [B, L]: positive means fake."""
        return self.head(forward.states)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        """float32 [B, L]: 1 at tokens that count: all, or in ELECTRA 15 % the masked ones (ELECTRA, section 3.5)."""
        if self.config.disc_tokens == "masked":
            _, is_masked = update_positions(masked.input_ids, masked.masked_lm_ids, masked.positions)
            return tf.cast(is_masked, tf.float32)
        return tf.cast(masked.input_mask, tf.float32)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        logits = self.logits(forward)  # [B, L]
        labels = self.labels(forward)  # [B, L]
        weights = self.token_weights(forward.masked)  # [B, L]
        losses = tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(labels, tf.float32), logits)  # [B, L]
        metrics = self.detection_metrics(forward, logits, labels, weights, weights * losses)
        histograms = {}
        if not training:
            histograms["disc_auc"] = self.auc_histogram(forward, logits, labels, weights)
        return self.output(forward, losses, metrics, histograms)

    def detection_metrics(
        self,
        forward: Forward,
        logits: tf.Tensor,
        labels: tf.Tensor,
        weights: tf.Tensor,
        losses: tf.Tensor,
    ) -> Metrics:
        """The original's metrics, and two shares to compare with: replaced_rate (of fakes) and majority_baseline."""
        predictions = tf.cast(logits > 0, tf.int32)
        correct = tf.equal(predictions, labels)
        tokens = tf.reduce_sum(weights, -1)  # [B]
        loss_per_example = tf.reduce_sum(losses, -1) / (tokens + 1e-6)  # [B]
        sampled_correctly = forward.main_input.was_sampled * (1 - forward.main_input.is_replaced)

        def among(subset: tf.Tensor) -> tf.Tensor:
            return tf.cast(subset, tf.float32) * weights

        return {
            "disc_loss": weighted_mean(loss_per_example, tokens > 0),
            "disc_accuracy": weighted_mean(correct, weights),
            "disc_precision": weighted_mean(correct, among(predictions)),
            "disc_recall": weighted_mean(correct, among(labels)),
            "disc_sampled_correctly_accuracy": weighted_mean(correct, among(sampled_correctly)),
            "replaced_rate": weighted_mean(labels, weights),
            "majority_baseline": weighted_mean(1 - labels, weights),
        }

    def auc_histogram(self, forward: Forward, logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """float32 [2, K]: counts from which evaluation_metrics.auc computes the area under the ROC curve."""
        if self.config.compat == "original":
            # 200 linear thresholds, and padding counts as negatives, which are easily told.
            probs = tf.sigmoid(logits)
            real = tf.cast(forward.masked.input_mask, tf.float32)
            return probability_histogram(probs * real, tf.cast(labels, tf.float32) * real, tf.ones_like(probs))
        return logit_histogram(logits, labels, weights)


class ReplacedTokenDetection(Detection):
    """Was this token replaced? (ELECTRA, section 2, L_Disc.) A sample that equals the original token was not."""

    def labels(self, forward: Forward) -> tf.Tensor:
        return forward.main_input.is_replaced
