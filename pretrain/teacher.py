"""A frozen network beside the trained ones, for objectives that learn from its outputs."""

import re
from typing import NamedTuple

import tensorflow as tf

from exchange.checkpoints import CheckpointVariables, LoadReport, warm_start
from model.encoder import Encoder, EncoderOutput
from model.heads import LanguageModelHead, ReplacedTokenHead
from model.layers import Layer
from pretrain.corruption import CorruptedBatch
from pretrain.masking import MaskedBatch
from pretrain.objectives.spec import TeacherNeed
from util.errors import UserError

_LAYER = re.compile(r"(.+/encoder/layer_)(\d+)(/.+)")


class TeacherOutput(NamedTuple):
    """What a teacher says; no gradient.

    encoded: its encoder's output. replaced_logits: float32 [B, L], positive means replaced; None unless asked for.
    token_logits: float32 [B, N, V] at the drawn positions; likewise.
    """

    encoded: EncoderOutput
    replaced_logits: tf.Tensor | None
    token_logits: tf.Tensor | None


class _Network(Layer):
    """The teacher's encoder and the heads that are asked for."""

    def __init__(self, need: TeacherNeed, compute_dtype: str) -> None:
        super().__init__("")
        sizes = need.architecture
        self.encoder = Encoder("electra", sizes, compute_dtype=compute_dtype)
        self.detector = ReplacedTokenHead("discriminator_predictions", sizes) if need.detection else None
        self.language_model = None
        if need.tokens:
            self.language_model = LanguageModelHead(
                "generator_predictions", sizes.hidden_size, sizes, self.encoder.embeddings
            )


class Teacher:
    """The encoder of a pre-trained model, and its heads, without dropout and gradient.

    No Keras layer and nothing that TensorFlow tracks, on purpose: so the optimizer does not train it, and a run's
    checkpoint holds the run's own weights alone. A resumed run reads it again from where it was.

    Args:
      need: which model, what it reads and which heads are asked for.
      vocab_size: of the run.

    Raises:
      UserError: no model there, one of another vocabulary, or one without such a head.
    """

    def __init__(self, need: TeacherNeed, vocab_size: int, compute_dtype: str) -> None:
        architecture = need.architecture
        if architecture.vocab_size != vocab_size:
            raise UserError(
                f"the teacher {need.checkpoint} has a vocabulary of {architecture.vocab_size}, "
                f"this run one of {vocab_size}"
            )
        if need.tokens and any(name.startswith("generator/") for name in CheckpointVariables(need.checkpoint).names()):
            raise UserError(
                f"the teacher {need.checkpoint} has a language model in its generator only: a masked language model "
                "learns from another one, such as bert_base"
            )
        self._reads = need.reads
        self._network = _Network(need, compute_dtype)
        missing = warm_start(self._network, need.checkpoint).missing
        if missing:
            raise UserError(f"the teacher {need.checkpoint} lacks {', '.join(missing[:5])}")

    def __call__(self, masked: MaskedBatch, corrupted: CorruptedBatch | None) -> TeacherOutput:
        ids = masked.masked_input_ids if self._reads == "masked" else masked.input_ids
        if self._reads == "corrupted":
            assert corrupted is not None
            ids = corrupted.input_ids
        network = self._network
        encoded = network.encoder(ids, masked.input_mask, masked.segment_ids)
        output = TeacherOutput(
            encoded,
            None if network.detector is None else network.detector(encoded.sequence),
            None
            if network.language_model is None
            else network.language_model(tf.gather(encoded.sequence, masked.positions, batch_dims=1)),
        )
        return tf.nest.map_structure(lambda value: None if value is None else tf.stop_gradient(value), output)


def start_from_teacher(model: tf.Module, teacher: str) -> LoadReport:
    """Gives a shallower model the teacher's weights: layers 0, 2, 4, ... for half of its depth (DistilBERT, Sanh et al.
    2019, section 3, "student initialization").

    Raises:
      UserError: the teacher is of other sizes than the depth, or lacks a part of the main network.
    """
    depths: dict[str, int] = {}
    for where, names in (
        ("here", [variable.name for variable in model.trainable_variables]),
        ("there", CheckpointVariables(teacher).names()),
    ):
        for name in names:
            found = _LAYER.fullmatch(name)
            if found is not None:
                scope = where + found[1]
                depths[scope] = max(depths.get(scope, 0), int(found[2]) + 1)

    def names_of(name: str) -> list[str]:
        found = _LAYER.fullmatch(name)
        if found is None:
            return [name]
        scope, number, rest = found.groups()
        return [f"{scope}{int(number) * depths.get('there' + scope, 0) // depths['here' + scope]}{rest}"]

    report = warm_start(model, teacher, names_of)
    lacking = [name for name in report.missing if name.startswith("electra/")]
    if lacking:
        raise UserError(f"init_from_teacher: {teacher} lacks {', '.join(lacking[:5])}")
    return report
