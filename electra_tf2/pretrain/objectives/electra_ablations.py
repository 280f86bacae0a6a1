"""ELECTRA's other ways to learn (Clark et al. 2020): an adversarial generator (appendix F), Replace MLM and All-Tokens
MLM (section 3.5). ELECTRA 15 % is pretrain.objectives.electra with disc_tokens masked.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import TypeVar

from electra_tf2.model.flops import Part, language_model_head, token_unit
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.objectives.bert import masked_lm_metrics
from electra_tf2.pretrain.objectives.electra import ElectraHparams, ReplacedTokenDetection
from electra_tf2.pretrain.objectives.objective import Forward, LossTerm, Metrics, Networks, Objective, weighted_mean
from electra_tf2.util.hparams import hparam
from electra_tf2.util.lazy import tf


@dataclasses.dataclass(frozen=True)
class AblationHparams(ElectraHparams):
    """The adversarial generator, and language models of the main network."""

    adversarial_generator: bool = hparam(
        False, "the generator maximises the discriminator's loss, by REINFORCE", heading="ELECTRA's ablations"
    )
    replace_mlm_objective: bool = hparam(False, "masked positions predicted from replacements")
    all_tokens_mlm_objective: bool = hparam(False, "every token predicted, with a copy gate")
    clm_weight: float = hparam(1.0, "weight of the main network's language-modelling loss", at_least=0)
    clm_head: str = hparam(
        "transform",
        "output layer of the main network's language model: tied: the word table alone; transform: BERT's dense layer "
        "before it",
        choices=("tied", "transform"),
    )


A = TypeVar("A", bound=AblationHparams, contravariant=True)


# The adversarial generator (appendix F).


def rewards(disc_logits: tf.Tensor, is_fake: tf.Tensor) -> tf.Tensor:
    """float32: the discriminator's cross-entropy at each token; no gradient."""
    return tf.stop_gradient(tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(is_fake, tf.float32), disc_logits))


def policy_losses(log_probs: tf.Tensor, reward: tf.Tensor, baseline: tf.Tensor) -> tf.Tensor:
    """-(R - b) log p_G(sample); its gradient is an unbiased estimate of that of -E[R], whatever b is."""
    return -tf.stop_gradient(reward - baseline) * log_probs


class AdversarialGenerator(Objective[AblationHparams]):
    """Policy-gradient loss of the generator, in place of its masked LM, and its learned baseline b = -log sigmoid(w h).

    The baseline is trained with the cross-entropy between sigmoid(w h) and exp(-R), whose optimum is b = R for a
    constant reward; the reward of a token is the discriminator's loss there.
    """

    flag = "adversarial_generator"
    title = "an adversarial generator"
    role = "generator"
    loss_name = "adversarial_loss"
    weight = "gen_weight"
    initial_loss = math.log(2)

    @classmethod
    def problems(cls, config: AblationHparams) -> Iterator[str]:
        why = "adversarial_generator needs"
        if not config.electra_objective:
            yield f"{why} electra_objective"
        if config.uniform_generator or config.two_tower_generator:
            yield f"{why} a masked language model as generator"
        if not config.untied_generator:
            yield f"{why} untied_generator: one network cannot play both sides"
        if config.freeze_generator:
            yield f"{why} a generator that is trained: freeze_generator must be false"
        if config.generator_sample_mode == "eval":
            yield f"{why} the sampled pass to be trained: not generator_sample_mode eval"
        if config.temperature != 1.0 or config.initial_temperature not in (None, 1.0) or config.disallow_correct:
            yield (
                f"{why} samples of the distribution whose log-probability it weighs, else its gradient is biased: "
                "temperature must be 1 and disallow_correct false"
            )

    @classmethod
    def parts(cls, config: AblationHparams) -> list[Part]:
        width, masked = config.generator_architecture.hidden_size, config.max_predictions_per_seq
        return [Part("generator's baseline", width + 1, 2 * masked * width, masked)]

    def __init__(self, config: AblationHparams, networks: Networks) -> None:
        from electra_tf2.model.layers import Dense, truncated_normal

        super().__init__(config, networks)
        self.detection = networks.first(ReplacedTokenDetection)
        width = config.generator_architecture.hidden_size
        initializer = truncated_normal(config.architecture.initializer_range)
        self.baseline = Dense("generator_baseline/dense", width, 1, initializer, config.seed)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        masked, generator = forward.masked, forward.generator
        weights = masked.masked_lm_weights
        detection = tf.stop_gradient(self.detection.logits(forward))
        reward = rewards(
            tf.gather(detection, masked.positions, batch_dims=1),
            tf.gather(self.detection.labels(forward), masked.positions, batch_dims=1),
        )
        assert generator.states is not None
        guess = tf.cast(tf.squeeze(self.baseline(tf.stop_gradient(generator.states)), -1), tf.float32)
        log_probs = generator.log_probs(forward.replaced.sampled_ids)
        policy = policy_losses(log_probs, reward, tf.nn.softplus(-guess))
        baseline = tf.nn.sigmoid_cross_entropy_with_logits(tf.exp(-reward), guess)
        losses = -generator.log_probs(masked.masked_lm_ids)
        metrics = masked_lm_metrics(forward, losses, training) | {
            "reward": weighted_mean(reward, weights),
            "baseline_loss": weighted_mean(baseline, weights),
        }
        return self.output(forward, policy + baseline, metrics)


# Language models of the main network (section 3.5).


def head_part(config: AblationHparams, positions: int) -> Part:
    """The main network's head over the vocabulary, at so many positions of a sequence."""
    sizes = config.architecture
    if config.clm_head == "tied":
        flops = 2 * positions * sizes.hidden_size * sizes.vocab_size
        return Part("language-model head", sizes.vocab_size, flops, positions * sizes.vocab_size)
    return language_model_head("language-model head", sizes.hidden_size, sizes, positions)


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


class MainLanguageModel(Objective[A]):
    """Base of losses with a head over the vocabulary on the main network: with a transform as in BERT, or tied."""

    role = "main"
    weight = "clm_weight"

    @classmethod
    def problems(cls, config: A) -> Iterator[str]:
        sizes = config.architecture
        if config.clm_head == "tied" and sizes.embedding_size != sizes.hidden_size:
            yield f"clm_head tied needs embedding_size {sizes.hidden_size}, the hidden size"

    @classmethod
    def parts(cls, config: A) -> list[Part]:
        return [head_part(config, config.max_predictions_per_seq)]

    def __init__(self, config: A, networks: Networks) -> None:
        from electra_tf2.model.auxiliary_heads import vocabulary_head

        super().__init__(config, networks)
        assert networks.encoder is not None
        transform = config.clm_head == "transform"
        self.head = vocabulary_head("clm_predictions", networks.encoder, transform, config.seed)


class ReplaceMLM(MainLanguageModel[AblationHparams]):
    """Cross-entropy of the originals at masked positions, which hold the generator's samples instead of [MASK]."""

    flag = "replace_mlm_objective"
    title = "Replace MLM"
    loss_name = "replace_mlm_loss"

    def __init__(self, config: AblationHparams, networks: Networks) -> None:
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


class AllTokensMLM(MainLanguageModel[AblationHparams]):
    """The original at every real token, by a model that copies or predicts (section 3.5, All-Tokens MLM)."""

    flag = "all_tokens_mlm_objective"
    title = "All-Tokens MLM"
    loss_name = "all_tokens_mlm_loss"

    @classmethod
    def parts(cls, config: AblationHparams) -> list[Part]:
        head = head_part(config, config.max_seq_length)  # its logits are computed a second time for the gradient
        again = head._replace(name="language-model head, recomputed", parameters=0, backward=False)
        return [token_unit("copy head", config.architecture, config.max_seq_length), head, again]

    def __init__(self, config: AblationHparams, networks: Networks) -> None:
        from electra_tf2.model.heads import CopyHead

        self.gate = CopyHead("copy_predictions", config.architecture, config.seed)  # the first in checkpoints
        super().__init__(config, networks)
        share = config.mask_prob
        self.initial_loss = share * math.log(2 * config.vocab_size) + (1 - share) * math.log(2)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return tf.cast(masked.input_mask, tf.float32)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        from electra_tf2.model.softmax import token_log_probs

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
