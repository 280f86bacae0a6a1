"""Distillation: a smaller network learns what a teacher says, beside its own objective (DistilBERT, Sanh et al. 2019).

DistilBERT's three terms are the masked language model's own loss, soft targets at masked positions and the cosine of
the last states. For ELECTRA, whose main network has no language model, the soft targets are the teacher's opinion of
which tokens were replaced in the same corrupted sequence (ours). A student that is its teacher has loss 0.
"""

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.objectives.base import Built, Forward, Objective, ObjectiveOutput, built_before, weighted_mean
from electra_tf2.pretrain.objectives.detection import ReplacedTokenDetection
from electra_tf2.pretrain.teacher import TeacherOutput


def token_divergence(teacher: tf.Tensor, student: tf.Tensor, temperature: float) -> tf.Tensor:
    """T^2 KL(softmax(teacher / T) || softmax(student / T)) over the last axis of float32 logits (Hinton et al. 2015).

    T^2 keeps the size of the gradient when T changes.
    """
    theirs, ours = (tf.nn.log_softmax(logits / temperature) for logits in (teacher, student))
    return temperature**2 * tf.reduce_sum(tf.exp(theirs) * (theirs - ours), -1)


def binary_divergence(teacher: tf.Tensor, student: tf.Tensor, temperature: float) -> tf.Tensor:
    """The same of two classes, of which one has the logit and the other 0."""
    theirs, ours = (tf.stack([logits, tf.zeros_like(logits)], -1) for logits in (teacher, student))
    return token_divergence(theirs, ours, temperature)


def taught(forward: Forward) -> TeacherOutput:
    assert forward.teacher is not None
    return forward.teacher


class SoftTokens(Objective):
    """L_ce of DistilBERT: the teacher's distribution at masked positions."""

    loss_name = "distill_token_loss"
    initial_loss = 0.0

    def __init__(self, config: PretrainingConfig, built: Built | None = None) -> None:
        super().__init__("distill_tokens", config, built)
        self.loss_weight = config.distill_token_weight

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return masked.masked_lm_weights

    def call(self, forward: Forward, training: bool) -> ObjectiveOutput:
        theirs, ours = taught(forward).token_logits, forward.generator.logits
        metrics = {}
        if not training:
            agrees = tf.argmax(theirs, -1) == tf.argmax(ours, -1)
            metrics["teacher_agreement"] = weighted_mean(agrees, self.token_weights(forward.masked))
        return self.output(forward, token_divergence(theirs, ours, self.config.distill_temperature), metrics)


class SoftDetection(Objective):
    """The teacher's probability that a token was replaced, at every real token."""

    loss_name = "distill_detection_loss"
    initial_loss = 0.0

    def __init__(self, config: PretrainingConfig, built: Built | None = None) -> None:
        super().__init__("distill_detection", config, built)
        self.loss_weight = config.distill_detection_weight
        self.detection = built_before(built, ReplacedTokenDetection)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return tf.cast(masked.input_mask, tf.float32)

    def call(self, forward: Forward, training: bool) -> ObjectiveOutput:
        del training
        theirs, ours = taught(forward).replaced_logits, self.detection.logits(forward)
        assert theirs is not None
        agrees = weighted_mean(tf.equal(theirs > 0, ours > 0), self.token_weights(forward.masked))
        losses = binary_divergence(theirs, ours, self.config.distill_temperature)
        return self.output(forward, losses, {"teacher_agreement": agrees})


class StateCosine(Objective):
    """L_cos of DistilBERT: 1 - cosine of the student's and the teacher's last states, at every real token."""

    loss_name = "distill_hidden_loss"
    initial_loss = 1.0

    def __init__(self, config: PretrainingConfig, built: Built | None = None) -> None:
        super().__init__("distill_hidden", config, built)
        self.loss_weight = config.distill_hidden_weight

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return tf.cast(masked.input_mask, tf.float32)

    def call(self, forward: Forward, training: bool) -> ObjectiveOutput:
        del training
        encoded = forward.encoded or forward.generator.encoded
        assert encoded is not None
        pair = (taught(forward).encoded.sequence, encoded.sequence)
        theirs, ours = (tf.math.l2_normalize(tf.cast(states, tf.float32), -1, 1e-12) for states in pair)
        return self.output(forward, 1.0 - tf.reduce_sum(theirs * ours, -1), {})
