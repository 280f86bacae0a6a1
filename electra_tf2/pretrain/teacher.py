"""A frozen network beside the trained ones, for objectives that learn from its outputs."""

import tensorflow as tf

from electra_tf2.formats.checkpoints import MASKED_LM, CheckpointVariables, warm_start
from electra_tf2.formats.folders import check_shared_vocabulary
from electra_tf2.model.encoder import Encoder
from electra_tf2.model.heads import LanguageModelHead, ReplacedTokenHead
from electra_tf2.model.layers import Layer
from electra_tf2.pretrain.hparams import PretrainingHparams
from electra_tf2.pretrain.masking import CorruptedBatch, MaskedBatch
from electra_tf2.pretrain.objectives.objective import TeacherNeed, TeacherOutput
from electra_tf2.util.errors import UserError


class _Network(Layer):
    """The teacher's encoder and the heads that are asked for."""

    def __init__(self, need: TeacherNeed, compute_dtype: str) -> None:
        super().__init__("")
        sizes = need.architecture
        self.encoder = Encoder("electra", sizes, compute_dtype=compute_dtype)
        self.detector = ReplacedTokenHead("discriminator_predictions", sizes) if need.detection else None
        self.language_model = None
        if need.tokens:
            self.language_model = LanguageModelHead(MASKED_LM, self.encoder)


class Teacher:
    """The encoder of a pre-trained model, and its heads, without dropout and gradient.

    No Keras layer and nothing that TensorFlow tracks, on purpose: so the optimizer does not train it, and a run's
    checkpoint holds the run's own weights alone. A resumed run reads it again from where it was.

    Args:
      need: which model, what it reads and which heads are asked for.

    Raises:
      UserError: no model there, one of another vocabulary or casing, or one without such a head.
    """

    def __init__(self, need: TeacherNeed, config: PretrainingHparams) -> None:
        ours = {name: getattr(config, name) for name in ("vocab_size", "vocab_file", "do_lower_case")}
        check_shared_vocabulary(f"the teacher {need.checkpoint}", need.hparams, ours)
        variables = CheckpointVariables(need.checkpoint)
        if need.tokens and variables.language_model != MASKED_LM:
            raise UserError(
                f"the teacher {need.checkpoint} has no masked language model but in a generator: a masked language "
                "model learns from another one, such as bert_base"
            )
        self._reads = need.reads
        self._network = _Network(need, config.precision)
        missing = warm_start(self._network, variables).missing
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
