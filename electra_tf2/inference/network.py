"""Pre-trained networks built from stored weights: `Network` with its heads, and `EncoderModel` for Keras users.

The weights decide which heads a network has: a detector of replaced tokens, a masked language model (the generator's or
the main network's), Electric's two towers. Inference, exports and their checks use it, and papers/distilbert for its
teacher. B batch, L length, H hidden, V vocabulary.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from electra_tf2.formats.stored_model import (
    CORRECTIVE_LM,
    DETECTOR,
    MASKED_LM,
    StoredModel,
    has_transform,
    main_language_model,
)
from electra_tf2.model import kernels
from electra_tf2.model.architecture import Architecture
from electra_tf2.model.coco_lm_heads import TiedHead, vocabulary_head
from electra_tf2.model.encoder import Embeddings, Encoder
from electra_tf2.model.generators import TwoTowerClozeModel
from electra_tf2.model.heads import LanguageModelHead, ReplacedTokenHead
from electra_tf2.model.layers import Dense, Layer, SeedStream
from electra_tf2.model.pooling import POOLINGS, orthogonal, text_vectors
from electra_tf2.util.errors import UserError

STATES = "last_hidden_state"
LOGITS = "logits"
_PROJECTION = "/projection/kernel"  # end of the name of a variable (finetune.tasks.embedding)
_GENERATOR_WORDS = "generator/embeddings/word_embeddings"
_TOWER_WORDS = "generator_ltr/embeddings/word_embeddings"


class Network(Layer):
    """The main network, the generator if there is one, and their heads.

    filler: the network that reads [MASK]s, the generator or else the main network. language_model: its head.

    Args:
      architecture: sizes of the main network.
      generator: sizes of the generator, if there is one.
      weights: arrays under our names.
      compute_dtype: type of activations and matrix products.

    Raises:
      UserError: the weights do not fit these sizes.
    """

    poolings = POOLINGS

    def __init__(
        self,
        architecture: Architecture,
        generator: Architecture,
        weights: Mapping[str, np.ndarray],
        compute_dtype: str = "float32",
    ) -> None:
        super().__init__("")
        self.architecture = architecture
        self.encoder = Encoder("electra", architecture, compute_dtype=compute_dtype)
        self.detector = None
        if f"{DETECTOR}/dense/kernel" in weights:
            self.detector = ReplacedTokenHead(DETECTOR, architecture)
        self.generator = None
        if any(name.startswith("generator/encoder/") for name in weights):
            tables = self._generator_tables(generator, weights)
            self.generator = Encoder("generator", generator, tables, compute_dtype=compute_dtype)
        self.towers = None
        if "cloze_predictions/dense/kernel" in weights:
            tower_tables = None if _TOWER_WORDS in weights else self._generator_tables(generator, weights)
            self.towers = TwoTowerClozeModel(generator, tower_tables, compute_dtype)
        self.filler = self.generator or self.encoder
        self.language_model = self._make_language_model(weights)
        self.projection = self._make_projection(weights)
        assign(self.trainable_variables, weights)

    def _generator_tables(self, generator: Architecture, weights: Mapping[str, np.ndarray]) -> Embeddings:
        """The generator's embeddings: all shared with the main network, all its own, or its own but for the words."""
        if not any(name.startswith("generator/embeddings/") for name in weights):
            return self.encoder.embeddings
        words = None if _GENERATOR_WORDS in weights else self.encoder.embeddings
        return Embeddings("generator/embeddings", generator, words=words)

    def _make_language_model(self, weights: Mapping[str, np.ndarray]) -> LanguageModelHead | TiedHead | None:
        """Makes the head that `fill` uses: the generator's if there is one, or else the main network's.

        COCO-LM's main network has a head over the vocabulary, too, but has never read a [MASK].
        """
        scope = MASKED_LM if self.generator else main_language_model(weights, has_generator=False)
        if scope is None or f"{scope}/output_bias" not in weights:
            return None
        return vocabulary_head(scope, self.filler, has_transform(weights, scope))

    def _make_projection(self, weights: Mapping[str, np.ndarray]) -> Dense | None:
        """The layer after pooling, which a model that was fine-tuned to make text vectors may have."""
        for name in weights:
            if name.endswith(_PROJECTION):
                hidden, width = weights[name].shape
                return Dense(name.removesuffix("/kernel"), hidden, width, orthogonal)
        return None

    @property
    def width(self) -> int:
        """Length of a text's vector."""
        if self.projection is None:
            return self.architecture.hidden_size
        return self.projection.kernel.shape[1]

    @property
    def reads_no_mask(self) -> bool:
        """True if the language model was trained on texts without [MASK]s."""
        return self.language_model is not None and self.language_model.scope == CORRECTIVE_LM

    def head_of(self, part: str) -> ReplacedTokenHead | LanguageModelHead | TiedHead | None:
        """The head of a part: "main", the main network's; "generator", its language model; "body", none."""
        if part == "generator":
            return self.language_model
        if part == "body":
            return None
        if self.detector is not None:
            return self.detector
        has_generator = self.generator is not None or self.towers is not None
        return None if has_generator else self.language_model

    def outputs(
        self, part: str, input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """int32 [B, L] three times -> STATES of a part, float32 [B, L, H], and LOGITS of its head if it has one."""
        encoder = self.filler if part == "generator" else self.encoder
        states = tf.cast(encoder(input_ids, input_mask, segment_ids).sequence, tf.float32)
        outputs = {STATES: states}
        head = self.head_of(part)
        if head is not None:
            outputs[LOGITS] = head(states)
        return outputs

    def states(self, input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor) -> tf.Tensor:
        """int32 [B, L] three times -> float32 [B, L, H], the last layer."""
        return tf.cast(self.encoder(input_ids, input_mask, segment_ids).sequence, tf.float32)

    def text_vectors(
        self, input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor, pooling: str
    ) -> tf.Tensor:
        """float32 [B, width], vectors of length 1.

        Args:
          pooling: one of `model.pooling.POOLINGS`.
        """
        sequence = self.encoder(input_ids, input_mask, segment_ids).sequence
        return text_vectors(sequence, input_mask, pooling, self.projection)

    def replaced_logits(self, input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor) -> tf.Tensor:
        """float32 [B, L], positive where a token looks replaced. Electric's are its energies.

        Raises:
          UserError: the model has no detector.
        """
        if self.detector is None:
            raise UserError("this model has no head that detects replaced tokens")
        return self.detector(self.encoder(input_ids, input_mask, segment_ids).sequence)

    def token_logits(self, input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor) -> tf.Tensor:
        """float32 [B, L, V], logits of the masked language model.

        Raises:
          UserError: the model has no masked language model.
        """
        if self.language_model is None:
            raise UserError("this model has no masked language model: neither a generator nor a head of its own")
        return self.language_model(self.filler(input_ids, input_mask, segment_ids).sequence)


def main_network(model: StoredModel, heads: Collection[str], compute_dtype: str = "float32") -> Network:
    """The main network of a stored model with some of its heads, without its generator.

    Args:
      heads: scopes, such as `DETECTOR`.

    Raises:
      UserError: the model lacks a head.
    """
    weights = {}
    for name in model.weights:
        if name.split("/")[0] in ("electra", *heads):
            weights[name] = model.weights[name]  # reads it from the file
    scopes = {name.split("/")[0] for name in weights}
    missing = [head for head in heads if head not in scopes]
    if missing:
        raise UserError(f"{model.path} lacks {', '.join(missing)}")
    return Network(model.architecture, model.architecture, weights, compute_dtype)


def graph_of_any_shape(function: Callable[..., Any], signature: Sequence[Any] | None = None) -> Any:
    """Makes a graph that is traced once for inputs of all shapes. Kernels are off: XLA would compile each shape anew.

    Args:
      signature: types and shapes of the inputs; None: rows of tokens, int32 [B, L] each.
    """

    def without_kernels(*inputs: Any) -> Any:
        with kernels.off():
            return function(*inputs)

    return tf.function(without_kernels, input_signature=signature, autograph=False, reduce_retracing=True)


def assign(variables: Sequence[tf.Variable], weights: Mapping[str, np.ndarray]) -> None:
    """Assigns to each variable the array with its name.

    Raises:
      UserError: an array is missing or has another shape.
    """
    problems = []
    for variable in variables:
        name = variable.name.split(":")[0]
        value = weights.get(name)
        if value is None:
            problems.append(f"{name} is missing")
        elif tuple(value.shape) != tuple(variable.shape):
            problems.append(f"{name} is {tuple(value.shape)}, not {tuple(variable.shape)}")
        else:
            variable.assign(value)
    if problems:
        raise UserError(f"the weights do not fit the model's sizes: {'; '.join(problems[:5])}")


@tf_keras.utils.register_keras_serializable(package="electra_tf2")
class EncoderModel(tf_keras.Model):
    """An encoder from {"input_ids", "input_mask", "segment_ids"}, int32 [B, L] each, to states, float32 [B, L, H].

    input_mask may be left out (no padding), and segment_ids (one segment).

    Args:
      architecture: the fields of model.architecture.Architecture.
      compute_dtype_name: type of activations and matrix products.

    >>> sizes = make_architecture("small", {"num_hidden_layers": 1, "hidden_size": 64}, 600, None)
    >>> model = EncoderModel.from_architecture(sizes)
    >>> model({"input_ids": tf.ones([2, 7], tf.int32)}, training=True).shape
    TensorShape([2, 7, 64])
    >>> EncoderModel.from_config(model.get_config()).sizes == sizes
    True
    """

    def __init__(self, architecture: Mapping[str, Any], compute_dtype_name: str = "float32", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sizes = Architecture(**architecture)
        self.compute_dtype_name = compute_dtype_name
        self.encoder = Encoder("electra", self.sizes, compute_dtype=compute_dtype_name)
        self({"input_ids": tf.zeros([1, 1], tf.int32)})  # builds the model, which summary() and saving need

    @classmethod
    def from_architecture(cls, architecture: Architecture, compute_dtype_name: str = "float32") -> "EncoderModel":
        return cls(dataclasses.asdict(architecture), compute_dtype_name, name="electra")

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        """Computes the last layer. Dropout, if `training`, takes its seeds from TensorFlow's global generator."""
        ids = tf.cast(inputs["input_ids"], tf.int32)
        mask = tf.cast(inputs.get("input_mask", tf.ones_like(ids)), tf.int32)
        segments = tf.cast(inputs.get("segment_ids", tf.zeros_like(ids)), tf.int32)
        if training is None:
            training = tf_keras.backend.learning_phase()
        seeds = None
        if training:
            seeds = SeedStream(tf.random.uniform([2], 0, 2**31 - 1, tf.int32))
        with kernels.off():  # a saved model must load without XLA
            return tf.cast(self.encoder(ids, mask, segments, seeds).sequence, tf.float32)

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "architecture": dataclasses.asdict(self.sizes),
            "compute_dtype_name": self.compute_dtype_name,
        }
