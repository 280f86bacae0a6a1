"""Language modelling by the generator: at masked positions (BERT, ELECTRA) or at every candidate (Electric's cloze)."""

import math

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.objectives.base import Built, Forward, Metrics, Objective, ObjectiveOutput, weighted_mean


class MaskedLM(Objective):
    """Cross-entropy of the original tokens at the drawn positions, each draw counted (ELECTRA, section 2, L_MLM)."""

    loss_name = "masked_lm_loss"
    of_generator = True

    def __init__(self, config: PretrainingConfig, built: Built | None = None) -> None:
        super().__init__("masked_lm_objective", config, built)
        self.loss_weight = config.gen_weight
        self.initial_loss = math.log(config.vocab_size)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return masked.masked_lm_weights

    def call(self, forward: Forward, training: bool) -> ObjectiveOutput:
        losses = -forward.generator.log_probs(forward.masked.masked_lm_ids)
        return self.output(forward, losses, masked_lm_metrics(forward, losses, training))


class ClozeLM(Objective):
    """Cross-entropy of every candidate token given all others (Electric, section 2.4)."""

    loss_name = "cloze_loss"
    of_generator = True

    def __init__(self, config: PretrainingConfig, built: Built | None = None) -> None:
        super().__init__("cloze_objective", config, built)
        self.loss_weight = config.gen_weight
        self.initial_loss = math.log(config.vocab_size)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return masked.candidates

    def call(self, forward: Forward, training: bool) -> ObjectiveOutput:
        masked, generator = forward.masked, forward.generator
        assert generator.cloze is not None  # ClozeLM goes with a two-tower generator
        losses = -generator.cloze.log_probs(masked.input_ids)
        metrics = masked_lm_metrics(forward, tf.gather(losses, masked.positions, batch_dims=1), training)
        if not training:
            correct = generator.cloze.are_likeliest(masked.input_ids)
            metrics["cloze_accuracy"] = weighted_mean(correct, masked.candidates)
        return self.output(forward, losses, metrics)


def masked_lm_metrics(forward: Forward, losses: tf.Tensor, training: bool) -> Metrics:
    """The original's metrics of the language model at the drawn positions; `losses` is float32 [B, N].

    Those called hidden leave out the positions that masking kept, whose tokens the model can see.
    """
    masked, generator = forward.masked, forward.generator
    weights = masked.masked_lm_weights
    metrics = {"masked_lm_loss": weighted_mean(losses, weights)}
    if forward.corrupted is not None:
        sampled_correctly = tf.equal(forward.corrupted.sampled_ids, masked.masked_lm_ids)
        metrics["sampled_masked_lm_accuracy"] = weighted_mean(sampled_correctly, weights)
    if not training:
        correct = generator.are_likeliest(masked.masked_lm_ids)
        metrics["masked_lm_accuracy"] = weighted_mean(correct, weights)
        seen = tf.gather(masked.masked_input_ids, masked.positions, batch_dims=1)
        hidden = weights * tf.cast(tf.not_equal(seen, masked.masked_lm_ids), tf.float32)
        metrics["hidden_masked_lm_loss"] = weighted_mean(losses, hidden)
        metrics["hidden_masked_lm_accuracy"] = weighted_mean(correct, hidden)
        metrics["generator_entropy"] = weighted_mean(generator.entropies(), weights)
    return metrics
