"""A frozen network beside the trained ones, for objectives that learn from its outputs."""

import tensorflow as tf

from exchange.checkpoints import warm_start
from model.encoder import Encoder, EncoderOutput
from pretrain.corruption import CorruptedBatch
from pretrain.masking import MaskedBatch
from pretrain.objectives.spec import TeacherNeed
from util.errors import UserError


class Teacher:
    """The encoder of a pre-trained model, without dropout and gradient.

    No Keras layer and nothing that TensorFlow tracks, on purpose: so the optimizer does not train it, and a run's
    checkpoint holds the run's own weights alone. A resumed run reads it again from where it was.

    Args:
      need: which model, and what it reads.
      vocab_size: of the run.

    Raises:
      UserError: no model there, or one of another vocabulary.
    """

    def __init__(self, need: TeacherNeed, vocab_size: int, compute_dtype: str) -> None:
        architecture = need.architecture
        if architecture.vocab_size != vocab_size:
            raise UserError(
                f"the teacher {need.checkpoint} has a vocabulary of {architecture.vocab_size}, "
                f"this run one of {vocab_size}"
            )
        self._reads = need.reads
        self._encoder = Encoder("electra", architecture, compute_dtype=compute_dtype)
        missing = warm_start(self._encoder, need.checkpoint).missing
        if missing:
            raise UserError(f"the teacher {need.checkpoint} lacks {', '.join(missing[:5])}")

    def __call__(self, masked: MaskedBatch, corrupted: CorruptedBatch) -> EncoderOutput:
        ids = {
            "original": masked.input_ids,
            "masked": masked.masked_input_ids,
            "corrupted": corrupted.input_ids,
        }[self._reads]
        output = self._encoder(ids, masked.input_mask, masked.segment_ids)
        return tf.nest.map_structure(tf.stop_gradient, output)
