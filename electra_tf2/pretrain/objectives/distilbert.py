"""DistilBERT: a smaller network learns what a teacher says, beside its own objective (Sanh et al. 2019).

Its three terms are the masked language model's own loss, soft targets at masked positions (L_ce) and the cosine of the
last states (L_cos). For ELECTRA, whose main network has no language model, the soft targets are the teacher's opinion
of which tokens were replaced in the same corrupted sequence (ours). A student that is its teacher has loss 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from electra_tf2.formats.folders import network_hparams
from electra_tf2.model.flops import Part, language_model_head
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.objectives.electra import ElectraHparams, ReplacedTokenDetection
from electra_tf2.pretrain.objectives.objective import (
    Forward,
    LossTerm,
    Needs,
    Networks,
    Objective,
    TeacherNeed,
    TeacherOutput,
    weighted_mean,
)
from electra_tf2.util.hparams import hparam
from electra_tf2.util.lazy import tf


@dataclasses.dataclass(frozen=True)
class DistilHparams(ElectraHparams):
    """The teacher, and what is learned from it."""

    teacher: str | None = hparam(
        None,
        "folder of a model to learn from, beside ELECTRA's or BERT's objective (DistilBERT); any that "
        "init_checkpoint takes",
        place="read",
        heading="Distillation",
    )
    distill_temperature: float = hparam(2.0, "temperature of teacher and student when they are compared", above=0)
    distill_token_weight: float = hparam(5.0, "weight of the teacher's distribution at masked tokens", at_least=0)
    distill_detection_weight: float = hparam(50.0, "weight of the teacher's verdict on replacements (ours)", at_least=0)
    distill_hidden_weight: float = hparam(1.0, "weight of the cosine of last states and the teacher's", at_least=0)
    init_from_teacher: bool = hparam(False, "start from the teacher's weights; layers 0, 2, 4, ... of twice as many")


def teacher_of(config: DistilHparams) -> TeacherNeed:
    """The teacher, with all that the run's terms ask of it."""
    assert config.teacher
    return TeacherNeed(
        config.teacher,
        reads="corrupted" if config.trains_main_network else "masked",
        detection=SoftDetection.is_chosen(config),
        tokens=SoftTokens.is_chosen(config),
    )


def distillation_problems(config: DistilHparams) -> Iterator[str]:
    """Reasons why a run cannot have this teacher, whatever it learns from it."""
    if not config.teacher:
        return
    if config.trains_main_network and not config.electra_objective:
        yield "teacher needs electra_objective, or BERT's masked language model"
    if not config.trains_main_network and config.uniform_generator:
        yield "teacher needs a network that learns from it: not uniform_generator alone"
    if not network_hparams(config.teacher):
        yield f"teacher: {config.teacher} holds no configuration of a model"
        return
    theirs, ours = teacher_of(config).architecture, config.architecture
    if theirs.hidden_size != ours.hidden_size and StateCosine.is_chosen(config):
        yield (
            f"distill_hidden_weight compares states: the teacher's are {theirs.hidden_size} wide, here it is "
            f"{ours.hidden_size}; set it to 0"
        )
    if config.init_from_teacher and ours.num_hidden_layers > theirs.num_hidden_layers:
        yield f"init_from_teacher: there are {ours.num_hidden_layers} layers, and {theirs.num_hidden_layers} to take"
    if config.max_seq_length > theirs.max_position_embeddings and theirs.positions.embedded:
        yield f"the teacher reads {theirs.max_position_embeddings} tokens, max_seq_length is {config.max_seq_length}"


def binary_divergence(teacher: tf.Tensor, student: tf.Tensor, temperature: float) -> tf.Tensor:
    """`soft_losses` of two classes, of which one has the logit and the other 0."""
    from electra_tf2.model.softmax import soft_losses

    theirs, ours = (tf.stack([logits, tf.zeros_like(logits)], -1) for logits in (teacher, student))
    return soft_losses(theirs, ours, temperature)


class Distillation(Objective[DistilHparams]):
    """A term that compares the student with its teacher."""

    flag = "teacher"
    title = "distillation from a teacher (DistilBERT)"
    initial_loss = 0.0

    @classmethod
    def needs(cls, config: DistilHparams) -> Needs:
        return Needs(teacher=teacher_of(config))

    @staticmethod
    def taught(forward: Forward) -> TeacherOutput:
        assert forward.teacher is not None
        return forward.teacher

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return tf.cast(masked.input_mask, tf.float32)


class SoftTokens(Distillation):
    """L_ce: the teacher's distribution at masked positions."""

    without_main = True
    loss_name = "distill_token_loss"
    weight = "distill_token_weight"

    @classmethod
    def is_chosen(cls, config: DistilHparams) -> bool:
        return bool(config.teacher and config.distill_token_weight and not config.trains_main_network)

    @classmethod
    def parts(cls, config: DistilHparams) -> list[Part]:
        sizes = teacher_of(config).architecture
        head = language_model_head("teacher's masked-LM head", sizes.hidden_size, sizes, config.max_predictions_per_seq)
        return [head._replace(parameters=0, backward=False)]

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return masked.masked_lm_weights

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        from electra_tf2.model.softmax import soft_losses

        theirs, ours = self.taught(forward).token_logits, forward.generator.logits
        metrics = {}
        if not training:
            agrees = tf.argmax(theirs, -1) == tf.argmax(ours, -1)
            metrics["teacher_agreement"] = weighted_mean(agrees, self.token_weights(forward.masked))
        return self.output(forward, soft_losses(theirs, ours, self.config.distill_temperature), metrics)


class SoftDetection(Distillation):
    """The teacher's probability that a token was replaced, at every real token (ours)."""

    loss_name = "distill_detection_loss"
    weight = "distill_detection_weight"

    @classmethod
    def is_chosen(cls, config: DistilHparams) -> bool:
        return bool(config.teacher and config.distill_detection_weight and config.electra_objective)

    def __init__(self, config: DistilHparams, networks: Networks) -> None:
        super().__init__(config, networks)
        self.detection = networks.first(ReplacedTokenDetection)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        theirs, ours = self.taught(forward).replaced_logits, self.detection.logits(forward)
        assert theirs is not None
        agrees = weighted_mean(tf.equal(theirs > 0, ours > 0), self.token_weights(forward.masked))
        losses = binary_divergence(theirs, ours, self.config.distill_temperature)
        return self.output(forward, losses, {"teacher_agreement": agrees})


class StateCosine(Distillation):
    """L_cos: 1 - cosine of the student's and the teacher's last states, at every real token."""

    without_main = True
    loss_name = "distill_hidden_loss"
    weight = "distill_hidden_weight"
    initial_loss = 1.0

    @classmethod
    def is_chosen(cls, config: DistilHparams) -> bool:
        return bool(config.teacher and config.distill_hidden_weight)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        pair = (self.taught(forward).encoded.sequence, forward.states)
        theirs, ours = (tf.math.l2_normalize(tf.cast(states, tf.float32), -1, 1e-12) for states in pair)
        return self.output(forward, 1.0 - tf.reduce_sum(theirs * ours, -1), {})
