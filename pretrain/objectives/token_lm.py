"""Language modelling by the main network over the corrupted input: the ablations of ELECTRA, section 3.5."""

import math

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.heads import CopyHead
from electra_tf2.model.vocabulary import token_log_probs
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.objectives.base import Built, Forward, Metrics, Objective, ObjectiveOutput, weighted_mean
from electra_tf2.pretrain.objectives.corrective_lm import is_original, language_model_head, mixture_log_prob


class ReplaceMLM(Objective):
    """Predict the originals at masked positions, which hold the generator's samples instead of [MASK]."""

    loss_name = "replace_mlm_loss"

    def __init__(self, config: PretrainingConfig, built: Built | None = None) -> None:
        super().__init__("replace_mlm", config, built)
        self.loss_weight = config.clm_weight
        self.initial_loss = math.log(config.vocab_size)
        self.head = language_model_head(config, built)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return masked.masked_lm_weights

    def call(self, forward: Forward, training: bool) -> ObjectiveOutput:
        masked = forward.masked
        logits = self.head(tf.gather(forward.states, masked.positions, batch_dims=1))
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(masked.masked_lm_ids, logits)
        metrics: Metrics = {}
        if not training:
            correct = tf.equal(tf.argmax(logits, -1, tf.int32), masked.masked_lm_ids)
            metrics["replace_mlm_accuracy"] = weighted_mean(correct, masked.masked_lm_weights)
        return self.output(forward, losses, metrics)


class AllTokensMLM(Objective):
    """Predict the original at every real token with a learned copy gate (ELECTRA, section 3.5, All-Tokens MLM)."""

    loss_name = "all_tokens_mlm_loss"

    def __init__(self, config: PretrainingConfig, built: Built | None = None) -> None:
        super().__init__("all_tokens_mlm", config, built)
        self.loss_weight = config.clm_weight
        share = config.mask_prob
        self.initial_loss = share * math.log(2 * config.vocab_size) + (1 - share) * math.log(2)
        self.gate = CopyHead("copy_predictions", config.architecture, config.seed)
        self.head = language_model_head(config, built)
        self.embeddings = self.head.embeddings

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return tf.cast(masked.input_mask, tf.float32)

    def call(self, forward: Forward, training: bool) -> ObjectiveOutput:
        del training
        masked = forward.masked
        assert forward.states is not None
        hidden = self.head.hidden(forward.states)
        log_probs = token_log_probs(
            tf.reshape(hidden, [-1, hidden.shape[-1]]),
            self.embeddings.word_embeddings,
            self.head.output_bias,
            tf.reshape(masked.input_ids, [-1]),
        )
        original = is_original(forward)
        gate = self.gate(forward.states)
        losses = -mixture_log_prob(gate, tf.reshape(log_probs, masked.input_ids.shape), original)
        weights = self.token_weights(masked)
        replaced = weights * tf.cast(~original, tf.float32)
        copies = tf.equal(gate >= 0, original)
        metrics = {
            "copy_accuracy_replaced": weighted_mean(copies, replaced),
            "copy_accuracy_original": weighted_mean(copies, weights - replaced),
            "replaced_rate": weighted_mean(replaced, weights),
        }
        return self.output(forward, losses, metrics)
