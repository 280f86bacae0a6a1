"""ELECTRA's ablations (Clark et al. 2020): an adversarial generator (appendix F), Replace MLM, All-Tokens MLM (section
3.5). ELECTRA 15 %, the third of section 3.5, is pretrain.objectives.electra with disc_tokens masked.

Shapes: B rows, L length, N masked positions, H hidden, Hg the generator's hidden, V vocabulary.
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
    """float32, R: the discriminator's cross-entropy at each token; no gradient."""
    cross_entropy = tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(is_fake, tf.float32), disc_logits)
    return tf.stop_gradient(cross_entropy)


def policy_losses(log_probs: tf.Tensor, reward: tf.Tensor, baseline: tf.Tensor) -> tf.Tensor:
    """-(R - b) log p_G(sample). Its gradient is an unbiased estimate of the gradient of -E[R], whatever b is."""
    return -tf.stop_gradient(reward - baseline) * log_probs


class AdversarialGenerator(Objective):
    """REINFORCE in place of the generator's masked LM: the reward R of a sample is the discriminator's loss there.

    A baseline b = -log sigmoid(w h) of the generator's state h is learned beside it, by the cross-entropy between
    sigmoid(w h) and exp(-R); for a constant reward its optimum is b = R.
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
        detection = tf.stop_gradient(self.detection.logits(forward))  # [B, L]
        reward = rewards(
            tf.gather(detection, masked.positions, batch_dims=1),
            tf.gather(self.detection.labels(forward), masked.positions, batch_dims=1),
        )  # [B, N]
        assert generator.states is not None
        states = tf.stop_gradient(generator.states)  # [B, N, Hg]
        baseline_logits = tf.cast(tf.squeeze(self.baseline(states), -1), tf.float32)  # [B, N], w h
        log_probs = generator.softmax.log_probs(forward.main_input.sampled_ids)  # [B, N]
        policy = policy_losses(log_probs, reward, tf.nn.softplus(-baseline_logits))
        baseline = tf.nn.sigmoid_cross_entropy_with_logits(tf.exp(-reward), baseline_logits)
        masked_lm_losses = -generator.softmax.log_probs(masked.masked_lm_ids)
        metrics = masked_lm_metrics(forward, masked_lm_losses, training) | {
            "reward": weighted_mean(reward, weights),
            "baseline_loss": weighted_mean(baseline, weights),
        }
        return self.output(forward, policy + baseline, metrics)


# Language models of the main network (section 3.5).


def is_original(forward: Forward) -> tf.Tensor:
    """bool [B, L]: whether the main network's input token is the original one."""
    return tf.equal(forward.main_input.input_ids, forward.masked.input_ids)


def copy_log_prob(copy_logits: tf.Tensor, log_probs: tf.Tensor, copied: tf.Tensor) -> tf.Tensor:
    """log p(original token) of a model that copies or predicts, finite at any logit.

    p(x) = 1[x is the input token] p_copy + (1 - p_copy) softmax(x), computed in logarithms throughout.

    Args:
      copy_logits: positive means copy; p_copy = sigmoid(copy_logits).
      log_probs: log softmax of the original token.
      copied: bool, whether the input token is the original one.
    """
    log_predicted = -tf.nn.softplus(copy_logits) + log_probs  # log((1 - p_copy) softmax)
    log_copied = -tf.nn.softplus(-copy_logits)  # log p_copy
    log_either = tf.reduce_logsumexp(tf.stack([log_copied, log_predicted], -1), -1)
    return tf.where(copied, log_either, log_predicted)


def copy_metrics(copy_logits: tf.Tensor, original: tf.Tensor, weights: tf.Tensor) -> Metrics:
    """Accuracy of copying on replaced and on original tokens, and the share of replaced ones.

    Args:
      copy_logits: float32 [B, L], positive means copy.
      original: bool [B, L], `is_original`.
      weights: float32 [B, L].
    """
    replaced = weights * tf.cast(~original, tf.float32)
    copies = tf.equal(copy_logits >= 0, original)
    return {
        "copy_accuracy_replaced": weighted_mean(copies, replaced),
        "copy_accuracy_original": weighted_mean(copies, weights - replaced),
        "replaced_rate": weighted_mean(~original, weights),
    }


class MainLanguageModel(Objective):
    """Base of losses with a language model's head on the main network, whose form the hparam clm_head chooses."""

    weight = "clm_weight"

    def __init__(self, config: PretrainingConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        transform = config.clm_head == "transform"
        self.head = vocabulary_head("clm_predictions", networks.encoder, transform, config.seed)


class ReplaceMLM(MainLanguageModel):
    """Cross-entropy of the original tokens at masked positions, which hold the generator's samples instead of [MASK].

    ELECTRA, section 3.5, Replace MLM.
    """

    loss_name = "replace_mlm_loss"

    def __init__(self, config: PretrainingConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        self.initial_loss = math.log(config.vocab_size)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        masked = forward.masked
        states = tf.gather(forward.states, masked.positions, batch_dims=1)  # [B, N, H]
        logits = self.head(states)  # [B, N, V]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(masked.masked_lm_ids, logits)  # [B, N]
        metrics: Metrics = {}
        if not training:
            correct = tf.equal(tf.argmax(logits, -1, tf.int32), masked.masked_lm_ids)
            metrics["replace_mlm_accuracy"] = weighted_mean(correct, masked.masked_lm_weights)
        return self.output(forward, losses, metrics)


class AllTokensMLM(MainLanguageModel):
    """The original of every real token, by a model that copies or predicts (ELECTRA, section 3.5, All-Tokens MLM)."""

    loss_name = "all_tokens_mlm_loss"

    def __init__(self, config: PretrainingConfig, networks: Networks) -> None:
        # Before the language model: the order of variables in checkpoints.
        self.gate = CopyHead("copy_predictions", config.architecture, config.seed)
        super().__init__(config, networks)
        share = config.mask_prob
        self.initial_loss = share * math.log(2 * config.vocab_size) + (1 - share) * math.log(2)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return tf.cast(masked.input_mask, tf.float32)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        masked = forward.masked
        hidden = self.head.hidden(forward.states)  # [B, L, E]
        log_probs = token_log_probs(
            tf.reshape(hidden, [-1, hidden.shape[-1]]),
            self.head.table,
            self.head.output_bias,
            tf.reshape(masked.input_ids, [-1]),
        )
        log_probs = tf.reshape(log_probs, masked.input_ids.shape)  # [B, L]
        original = is_original(forward)  # [B, L]
        copy_logits = self.gate(forward.states)  # [B, L]
        losses = -copy_log_prob(copy_logits, log_probs, original)
        metrics = copy_metrics(copy_logits, original, self.token_weights(masked))
        return self.output(forward, losses, metrics)
