"""ELECTRA's other ways to learn (Clark et al. 2020): an adversarial generator (appendix F), Replace MLM and All-Tokens
MLM (section 3.5). ELECTRA 15 % is pretrain.objectives.electra with disc_tokens masked.
"""

import math

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.coco_lm_heads import CopyHead, vocabulary_head
from electra_tf2.model.initializers import truncated_normal
from electra_tf2.model.layers import Dense
from electra_tf2.model.softmax import token_log_probs
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.networks import Networks
from electra_tf2.pretrain.objectives.bert import masked_lm_metrics
from electra_tf2.pretrain.objectives.electra import ReplacedTokenDetection
from electra_tf2.pretrain.objectives.objective import Forward, LossTerm, Metrics, Objective, weighted_mean

# The adversarial generator (appendix F).


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
    weight = "gen_weight"
    initial_loss = math.log(2)

    def __init__(self, config: PretrainingConfig, networks: Networks, detection: ReplacedTokenDetection) -> None:
        super().__init__(config, networks)
        self.detection = detection
        width = config.generator_architecture.hidden_size
        initializer = truncated_normal(config.architecture.initializer_range)
        self.baseline = Dense("generator_baseline/dense", width, 1, initializer, config.seed)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        masked = forward.masked
        generator = forward.generator
        weights = masked.masked_lm_weights
        detection = tf.stop_gradient(self.detection.logits(forward))
        reward = rewards(
            tf.gather(detection, masked.positions, batch_dims=1),
            tf.gather(self.detection.labels(forward), masked.positions, batch_dims=1),
        )
        assert generator.states is not None
        guess = tf.cast(tf.squeeze(self.baseline(tf.stop_gradient(generator.states)), -1), tf.float32)
        log_probs = generator.softmax.log_probs(forward.replaced.sampled_ids)
        policy = policy_losses(log_probs, reward, tf.nn.softplus(-guess))
        baseline = tf.nn.sigmoid_cross_entropy_with_logits(tf.exp(-reward), guess)
        losses = -generator.softmax.log_probs(masked.masked_lm_ids)
        metrics = masked_lm_metrics(forward, losses, training) | {
            "reward": weighted_mean(reward, weights),
            "baseline_loss": weighted_mean(baseline, weights),
        }
        return self.output(forward, policy + baseline, metrics)


# Language models of the main network (section 3.5).


def is_original(forward: Forward) -> tf.Tensor:
    """bool [B, L]: the main network's input token is the original one."""
    return tf.equal(forward.replaced.input_ids, forward.masked.input_ids)


def copy_log_prob(copy_logits: tf.Tensor, log_probs: tf.Tensor, copied: tf.Tensor) -> tf.Tensor:
    """log p(original token) of a model that copies or predicts, finite at any logit.

    p(x) = 1[x is the input token] p_copy + (1 - p_copy) softmax(x), never formed as probabilities.

    Args:
      copy_logits: positive means copy; p_copy = sigmoid.
      log_probs: log softmax of the original token.
      copied: bool, whether the input token is the original one.
    """
    predicted = -tf.nn.softplus(copy_logits) + log_probs
    copy = -tf.nn.softplus(-copy_logits)
    return tf.where(copied, tf.reduce_logsumexp(tf.stack([copy, predicted], -1), -1), predicted)


def copy_metrics(copy_logits: tf.Tensor, original: tf.Tensor, weights: tf.Tensor) -> Metrics:
    """Accuracy of copying, of float32 logits and bool [B, L], on replaced and on original tokens, and their share."""
    replaced = weights * tf.cast(~original, tf.float32)
    copies = tf.equal(copy_logits >= 0, original)
    return {
        "copy_accuracy_replaced": weighted_mean(copies, replaced),
        "copy_accuracy_original": weighted_mean(copies, weights - replaced),
        "replaced_rate": weighted_mean(~original, weights),
    }


class MainLanguageModel(Objective):
    """Base of losses with a head over the vocabulary on the main network: with a transform as in BERT, or tied."""

    weight = "clm_weight"

    def __init__(self, config: PretrainingConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        transform = config.clm_head == "transform"
        self.head = vocabulary_head("clm_predictions", networks.encoder, transform, config.seed)


class ReplaceMLM(MainLanguageModel):
    """Cross-entropy of the originals at masked positions, which hold the generator's samples instead of [MASK]."""

    loss_name = "replace_mlm_loss"

    def __init__(self, config: PretrainingConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        self.initial_loss = math.log(config.vocab_size)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        masked = forward.masked
        logits = self.head(tf.gather(forward.states, masked.positions, batch_dims=1))
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(masked.masked_lm_ids, logits)
        metrics: Metrics = {}
        if not training:
            correct = tf.equal(tf.argmax(logits, -1, tf.int32), masked.masked_lm_ids)
            metrics["replace_mlm_accuracy"] = weighted_mean(correct, masked.masked_lm_weights)
        return self.output(forward, losses, metrics)


class AllTokensMLM(MainLanguageModel):
    """The original at every real token, by a model that copies or predicts (section 3.5, All-Tokens MLM)."""

    loss_name = "all_tokens_mlm_loss"

    def __init__(self, config: PretrainingConfig, networks: Networks) -> None:
        self.gate = CopyHead("copy_predictions", config.architecture, config.seed)  # first in checkpoints
        super().__init__(config, networks)
        share = config.mask_prob
        self.initial_loss = share * math.log(2 * config.vocab_size) + (1 - share) * math.log(2)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return tf.cast(masked.input_mask, tf.float32)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        masked = forward.masked
        hidden = self.head.hidden(forward.states)
        log_probs = token_log_probs(
            tf.reshape(hidden, [-1, hidden.shape[-1]]),
            self.head.table,
            self.head.output_bias,
            tf.reshape(masked.input_ids, [-1]),
        )
        original = is_original(forward)
        gate = self.gate(forward.states)
        losses = -copy_log_prob(gate, tf.reshape(log_probs, masked.input_ids.shape), original)
        metrics = copy_metrics(gate, original, self.token_weights(masked))
        return self.output(forward, losses, metrics)
