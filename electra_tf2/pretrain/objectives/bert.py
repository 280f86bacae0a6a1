"""BERT: the masked language model (Devlin et al. 2019), which trains ELECTRA's generator too."""

import math

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.networks import Networks
from electra_tf2.pretrain.objectives.objective import Forward, LossTerm, Metrics, Objective, weighted_mean


class MaskedLM(Objective):
    """Cross-entropy of the original tokens at the masked positions (BERT, section 3.1; ELECTRA, section 2, L_MLM).

    It trains the generator, or in runs of BERT the only network. A position that was drawn twice counts twice.
    """

    loss_name = "masked_lm_loss"
    weight = "gen_weight"

    def __init__(self, config: PretrainingConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        self.initial_loss = math.log(config.vocab_size)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        losses = -forward.generator.softmax.log_probs(forward.masked.masked_lm_ids)  # [B, N]
        return self.output(forward, losses, masked_lm_metrics(forward, losses, training))


def masked_lm_metrics(forward: Forward, losses: tf.Tensor, training: bool) -> Metrics:
    """The original's metrics of the language model at the masked positions.

    Metrics called hidden_... leave out masked positions that kept their token: the model can see the answer there.

    Args:
      losses: float32 [B, N].
      training: leaves out metrics that cost a pass over the vocabulary.
    """
    masked = forward.masked
    softmax = forward.generator.softmax
    weights = masked.masked_lm_weights
    metrics = {"masked_lm_loss": weighted_mean(losses, weights)}
    if forward.corrupted is not None:
        sampled_correctly = tf.equal(forward.corrupted.sampled_ids, masked.masked_lm_ids)
        metrics["sampled_masked_lm_accuracy"] = weighted_mean(sampled_correctly, weights)
    if not training:
        correct = softmax.are_likeliest(masked.masked_lm_ids)  # bool [B, N]
        metrics["masked_lm_accuracy"] = weighted_mean(correct, weights)
        seen = tf.gather(masked.masked_input_ids, masked.positions, batch_dims=1)  # [B, N]
        hidden = weights * tf.cast(tf.not_equal(seen, masked.masked_lm_ids), tf.float32)
        metrics["hidden_masked_lm_loss"] = weighted_mean(losses, hidden)
        metrics["hidden_masked_lm_accuracy"] = weighted_mean(correct, hidden)
        metrics["generator_entropy"] = weighted_mean(softmax.entropies(), weights)
    return metrics
