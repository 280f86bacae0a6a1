"""DistilBERT: a smaller network learns from a teacher's outputs, beside its own objective (Sanh et al. 2019).

The loss has three terms: the objective's, soft targets at masked positions (L_ce), and the cosine of the last states
(L_cos). ELECTRA's main network has no language model; there the soft targets are the teacher's probabilities that
tokens of the same corrupted sequence were replaced (ours). A student equal to its teacher has loss 0 in both terms.

Shapes: B rows, L length, N masked positions, H hidden, V vocabulary.
"""

import dataclasses
from typing import Any, NamedTuple

import tensorflow as tf

from electra_tf2.formats.readers import open_model
from electra_tf2.formats.stored_model import DETECTOR, MASKED_LM, check_shared_vocabulary
from electra_tf2.formats.warm_start import LoadReport, warm_start
from electra_tf2.inference.network import main_network
from electra_tf2.model.layers import Layer
from electra_tf2.model.softmax import soft_losses
from electra_tf2.papers.distilbert.config import Config
from electra_tf2.pretrain.initial_weights import Start, from_other_depth, main_network_names
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.networks import Networks
from electra_tf2.pretrain.objectives.electra import ReplacedTokenDetection
from electra_tf2.pretrain.objectives.objective import Forward, LossTerm, Objective, weighted_mean
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from electra_tf2.pretrain.pretraining_task import PretrainingTask
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import say


class TeacherOutput(NamedTuple):
    """Outputs of a teacher; no gradient.

    states: [B, L, H], the encoder's last layer.
    logits: float32; BERT's [B, N, V] at the masked positions, or ELECTRA's [B, L], positive means replaced; None if no
      logits are compared.
    """

    states: tf.Tensor
    logits: tf.Tensor | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaughtForward(Forward):
    """A forward pass of the student, and the teacher's on the same sequences."""

    teacher: TeacherOutput


class Model(PretrainingModel):
    """ELECTRA or BERT with a teacher."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._learn_from(Teacher(config) if config.teacher else None)

    @tf.__internal__.tracking.no_automatic_dependency_tracking
    def _learn_from(self, teacher: "Teacher | None") -> None:
        """Keeps the teacher untracked: the optimizer does not train it, checkpoints do not hold it.

        A resumed run reads it again from the teacher's folder.
        """
        self._teacher = teacher

    def make_objectives(self, networks: Networks) -> list[Objective]:
        config = self.config
        objectives = super().make_objectives(networks)
        if config.compares_tokens:
            objectives.append(SoftTokens(config, networks))
        if config.compares_detection:
            detection = next(term for term in objectives if isinstance(term, ReplacedTokenDetection))
            objectives.append(SoftDetection(config, networks, detection))
        if config.compares_states:
            objectives.append(StateCosine(config, networks))
        return objectives

    def forward(self, masked: MaskedBatch, *arguments: Any, **named: Any) -> Forward:
        forward = super().forward(masked, *arguments, **named)
        if self._teacher is None:
            return forward
        # The teacher reads the student's input: BERT's is the masked text, the main network's the corrupted one.
        input_ids = masked.masked_input_ids
        if forward.corrupted is not None:
            input_ids = forward.corrupted.input_ids
        return TaughtForward(**vars(forward), teacher=self._teacher(input_ids, masked))


class Task(PretrainingTask):
    """Training that may start from the teacher's weights."""

    config: Config

    def load_initial_weights(self) -> Start:
        from_teacher = Start.RANDOM
        if self.config.init_from_teacher and self.config.teacher:
            report = start_from_teacher(self.model, self.config.teacher)
            say("\n".join(report.lines(f"the teacher, {self.config.teacher}")))
            from_teacher = Start.PARTLY
        # init_checkpoint and init_generator_checkpoint win over the teacher.
        return super().load_initial_weights() or from_teacher


# The teacher.


class Teacher(Layer):
    """Encoder and heads of a pre-trained model, without dropout and gradient.

    Raises:
      UserError: there is no model, or one of another vocabulary or casing, or one that lacks a head.
    """

    def __init__(self, config: Config) -> None:
        super().__init__("")
        name = config.teacher
        assert name is not None
        model = open_model(name)
        run_vocabulary = {
            "vocab_size": config.vocab_size,
            "vocab_file": config.vocab_file,
            "do_lower_case": config.do_lower_case,
        }
        check_shared_vocabulary(f"the teacher {name}", model.network, run_vocabulary)
        if config.compares_tokens and model.language_model != MASKED_LM:
            raise UserError(
                f"the teacher {name} has no masked language model but in a generator: a masked language "
                "model learns from another one, such as bert_base"
            )
        heads = []
        if config.compares_detection:
            heads = [DETECTOR]
        elif config.compares_tokens:
            heads = [MASKED_LM]
        try:
            self.network = main_network(model, heads, config.precision)
        except UserError as error:
            raise UserError(f"the teacher {name}: {error}") from None

    def call(self, input_ids: tf.Tensor, masked: MaskedBatch) -> TeacherOutput:
        """Reads int32 [B, L] ids."""
        network = self.network
        states = tf.stop_gradient(network.encoder(input_ids, masked.input_mask, masked.segment_ids).sequence)
        if network.detector is not None:
            return TeacherOutput(states, tf.stop_gradient(network.detector(states)))
        if network.language_model is not None:
            at_masked = tf.gather(states, masked.positions, batch_dims=1)  # [B, N, H]
            return TeacherOutput(states, tf.stop_gradient(network.language_model(at_masked)))
        return TeacherOutput(states, None)


def start_from_teacher(model: PretrainingModel, teacher: str) -> LoadReport:
    """Gives a shallower model the teacher's weights: of twice as many layers 0, 2, 4, ... (section 3).

    Raises:
      UserError: the teacher differs in other sizes than the depth, or lacks a part of the main network.
    """
    start = open_model(teacher)
    names = main_network_names(model, start)
    names = from_other_depth(model, start, names, lambda layer, depth, stored_depth: layer * stored_depth // depth)
    report = warm_start(model, start, names)
    lacking = [name for name in report.missing if name.startswith("electra/")]
    if lacking:
        raise UserError(f"init_from_teacher: {teacher} lacks {', '.join(lacking[:5])}")
    return report


# What is learned from the teacher.


def binary_divergence(teacher: tf.Tensor, student: tf.Tensor, temperature: float) -> tf.Tensor:
    """`soft_losses` of binary logits, as those of two classes of which the second has logit 0."""
    teacher_logits = tf.stack([teacher, tf.zeros_like(teacher)], -1)  # [..., 2]
    student_logits = tf.stack([student, tf.zeros_like(student)], -1)
    return soft_losses(teacher_logits, student_logits, temperature)


class Distillation(Objective):
    """Base of losses that compare the student with its teacher."""

    config: Config
    initial_loss = 0.0

    @staticmethod
    def teacher_output(forward: Forward) -> TeacherOutput:
        assert isinstance(forward, TaughtForward)
        return forward.teacher

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return tf.cast(masked.input_mask, tf.float32)


class SoftTokens(Distillation):
    """L_ce: the teacher's distribution at masked positions."""

    loss_name = "distill_token_loss"
    weight = "distill_token_weight"

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return masked.masked_lm_weights

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        theirs = self.teacher_output(forward).logits  # [B, N, V]
        ours = forward.generator.softmax.logits
        metrics = {}
        if not training:
            agrees = tf.argmax(theirs, -1) == tf.argmax(ours, -1)
            metrics["teacher_agreement"] = weighted_mean(agrees, self.token_weights(forward.masked))
        losses = soft_losses(theirs, ours, self.config.distill_temperature)  # [B, N]
        return self.output(forward, losses, metrics)


class SoftDetection(Distillation):
    """The teacher's probability that a token was replaced, at every real token (ours)."""

    loss_name = "distill_detection_loss"
    weight = "distill_detection_weight"

    def __init__(self, config: Config, networks: Networks, detection: ReplacedTokenDetection) -> None:
        super().__init__(config, networks)
        self.detection = detection

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        theirs = self.teacher_output(forward).logits  # [B, L]
        ours = self.detection.logits(forward)
        assert theirs is not None
        agrees = weighted_mean(tf.equal(theirs > 0, ours > 0), self.token_weights(forward.masked))
        losses = binary_divergence(theirs, ours, self.config.distill_temperature)
        return self.output(forward, losses, {"teacher_agreement": agrees})


class StateCosine(Distillation):
    """L_cos: 1 - cosine of the student's and the teacher's last states, at every real token."""

    loss_name = "distill_hidden_loss"
    weight = "distill_hidden_weight"
    initial_loss = 1.0

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        theirs = unit_vectors(self.teacher_output(forward).states)  # [B, L, H]
        ours = unit_vectors(forward.states)
        cosines = tf.reduce_sum(theirs * ours, -1)  # [B, L]
        return self.output(forward, 1.0 - cosines, {})


def unit_vectors(states: tf.Tensor) -> tf.Tensor:
    """float32 vectors of length 1."""
    return tf.math.l2_normalize(tf.cast(states, tf.float32), -1, 1e-12)
