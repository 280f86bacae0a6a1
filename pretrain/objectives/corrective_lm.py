"""Corrective language modelling: copy what is original, predict what was replaced (COCO-LM, section 3.2).

Two objectives that share the copy head: `CopyDetection` trains it, `CorrectiveLM` reads it through a stop-gradient.
"""

import math

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.heads import CopyHead, LanguageModelHead, TiedHead
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.objectives.base import (
    Built,
    Forward,
    Metrics,
    Objective,
    ObjectiveOutput,
    built_before,
    corrupted,
    weighted_mean,
)


def mixture_log_prob(copy_logits: tf.Tensor, log_probs: tf.Tensor, copied: tf.Tensor) -> tf.Tensor:
    """log p_LM of the original token (COCO-LM, equation 2), finite at any logit.

    p_LM(x) = 1[x is the input token] p_copy + (1 - p_copy) softmax(x), never formed as probabilities.

    Args:
      copy_logits: positive means copy; p_copy = sigmoid.
      log_probs: log softmax of the original token.
      copied: bool, whether the input token is the original one.
    """
    predicted = -tf.nn.softplus(copy_logits) + log_probs
    copy = -tf.nn.softplus(-copy_logits)
    return tf.where(copied, tf.reduce_logsumexp(tf.stack([copy, predicted], -1), -1), predicted)


def corrective_losses(
    config: PretrainingConfig, copy_logits: tf.Tensor, logits: tf.Tensor, token_ids: tf.Tensor, copied: tf.Tensor
) -> tf.Tensor:
    """float32 [B, N] from copy logits [B, N], logits [B, N, V], original ids and whether they are the input's."""
    if config.clm_stop_gradient:
        copy_logits = tf.stop_gradient(copy_logits)
    cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(token_ids, logits)
    if config.clm_loss == "plain_ce":
        return cross_entropy
    if config.clm_loss == "weighted_ce":
        return tf.sigmoid(-copy_logits) * cross_entropy
    return -mixture_log_prob(copy_logits, -cross_entropy, copied)


def is_original(forward: Forward) -> tf.Tensor:
    """bool [B, L]: the main network's input token is the original one."""
    return tf.equal(corrupted(forward).input_ids, forward.masked.input_ids)


class CopyDetection(Objective):
    """Is this token the original? Binary cross-entropy over all real tokens (COCO-LM, L_copy)."""

    loss_name = "copy_loss"
    shown = ("copy_accuracy_replaced",)

    def __init__(self, config: PretrainingConfig, built: Built | None = None) -> None:
        super().__init__("copy_detection", config, built)
        self.loss_weight = config.copy_weight
        self.initial_loss = math.log(2)
        self.head = CopyHead("copy_predictions", config.architecture, config.seed)

    def logits(self, forward: Forward) -> tf.Tensor:
        """float32 [B, L]: positive means original."""
        return self.head(forward.states)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return tf.cast(masked.input_mask, tf.float32)

    def call(self, forward: Forward, training: bool) -> ObjectiveOutput:
        del training
        logits, original = self.logits(forward), is_original(forward)
        weights = self.token_weights(forward.masked)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(original, tf.float32), logits)
        correct = tf.equal(logits >= 0, original)
        replaced_weights = weights * tf.cast(~original, tf.float32)
        metrics = {
            "copy_accuracy_replaced": weighted_mean(correct, replaced_weights),
            "copy_accuracy_original": weighted_mean(correct, weights - replaced_weights),
            "replaced_rate": weighted_mean(~original, weights),
        }
        return self.output(forward, losses, metrics)


class CorrectiveLM(Objective):
    """The original token at every masked position, by copying or predicting (COCO-LM, L_LM).

    clm_loss "mixture" is the paper's equation 2; "weighted_ce" the authors' code, cross-entropy weighted by 1 - p_copy;
    "plain_ce" the ablation "w/o copy". The copy probability is a constant unless clm_stop_gradient is off.
    """

    loss_name = "clm_loss"

    def __init__(self, config: PretrainingConfig, built: Built | None = None) -> None:
        super().__init__("corrective_lm", config, built)
        self.copy = built_before(built, CopyDetection)
        self.loss_weight = config.clm_weight
        self.initial_loss = math.log(2 * config.vocab_size)
        self.head = language_model_head(config, built)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return masked.masked_lm_weights

    def call(self, forward: Forward, training: bool) -> ObjectiveOutput:
        masked = forward.masked
        copied = tf.gather(is_original(forward), masked.positions, batch_dims=1)
        copy_logits = tf.gather(self.copy.logits(forward), masked.positions, batch_dims=1)
        logits = self.head(tf.gather(forward.states, masked.positions, batch_dims=1))
        losses = corrective_losses(self.config, copy_logits, logits, masked.masked_lm_ids, copied)
        return self.output(forward, losses, {} if training else self._accuracy(forward))

    def _accuracy(self, forward: Forward) -> Metrics:
        """Accuracy of argmax p_LM on replaced tokens, and on original ones of an evenly spread subset."""
        masked = forward.masked
        length, count = masked.input_ids.shape[1], masked.positions.shape[1]
        spread = tf.range(count) * length // count
        spread = tf.tile(spread[tf.newaxis], [tf.shape(masked.positions)[0], 1])
        real = tf.cast(masked.input_mask, tf.float32)
        metrics: Metrics = {}
        for name, positions, wanted in (("replaced", masked.positions, False), ("original", spread, True)):

            def at(field: tf.Tensor, positions: tf.Tensor = positions) -> tf.Tensor:
                return tf.gather(field, positions, batch_dims=1)

            weights = masked.masked_lm_weights if name == "replaced" else at(real)
            weights *= tf.cast(tf.equal(at(is_original(forward)), wanted), tf.float32)
            predicted = predictions(
                at(self.copy.logits(forward)), self.head(at(forward.states)), at(corrupted(forward).input_ids)
            )
            metrics[f"clm_accuracy_{name}"] = weighted_mean(tf.equal(predicted, at(masked.input_ids)), weights)
        return metrics


def predictions(copy_logits: tf.Tensor, logits: tf.Tensor, input_ids: tf.Tensor) -> tf.Tensor:
    """int32 [B, N]: argmax of p_LM. Copying wins if p_copy + (1 - p_copy) s(input) exceeds (1 - p_copy) max s."""
    log_probs = tf.nn.log_softmax(logits)
    best = tf.argmax(log_probs, -1, tf.int32)
    own = tf.gather(log_probs, input_ids, batch_dims=2)
    copy = mixture_log_prob(copy_logits, own, tf.ones_like(input_ids, tf.bool))
    predict = -tf.nn.softplus(copy_logits) + tf.reduce_max(log_probs, -1)
    return tf.where(copy >= predict, input_ids, best)


def language_model_head(config: PretrainingConfig, built: Built | None) -> LanguageModelHead | TiedHead:
    """The main network's head over the vocabulary: with a transform as in BERT, or tied softmax and bias only."""
    assert built is not None and built.encoder is not None
    embeddings = built.encoder.embeddings
    if config.clm_head == "tied":
        return TiedHead("clm_predictions", config.architecture, embeddings, config.seed)
    hidden = config.architecture.hidden_size
    return LanguageModelHead("clm_predictions", hidden, config.architecture, embeddings, config.seed)
