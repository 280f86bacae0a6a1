"""Pre-trained networks after training, built from weights: `Network` with its heads, `EncoderModel` for Keras users.

A network has the heads that there are weights of: detection of replaced tokens, a masked language model (a generator's
or the encoder's own), the two towers of Electric. Inference and exports run it, conversions are checked with it, and a
teacher is one (papers/distilbert). B batch, L length, H hidden, V vocabulary.
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
    """Encoder and heads with given weights.

    Args:
      architecture: of the main network.
      generator: architecture of the generator's network, where it has one of its own.
      weights: arrays by our names, which decide which heads there are.
      compute_dtype: of activations and matrix products.

    Raises:
      UserError: the weights do not belong to these sizes.
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
        self.filler = self.generator or self.encoder  # the network that reads [MASK]s
        self.language_model = self._make_language_model(weights)
        self.projection = self._make_projection(weights)
        assign(self.trainable_variables, weights)

    def _generator_tables(self, generator: Architecture, weights: Mapping[str, np.ndarray]) -> Embeddings:
        """The embeddings that a generator reads: those of the main network, all its own, or its own beside the main
        network's words."""
        if not any(name.startswith("generator/embeddings/") for name in weights):
            return self.encoder.embeddings
        words = None if _GENERATOR_WORDS in weights else self.encoder.embeddings
        return Embeddings("generator/embeddings", generator, words=words)

    def _make_language_model(self, weights: Mapping[str, np.ndarray]) -> LanguageModelHead | TiedHead | None:
        """Makes the head that `fill` uses: the generator's where there is one, else the main network's own.

        COCO-LM has both, and its main network has never read a [MASK]; nor has the head of corrected tokens where one
        network is both.
        """
        scope = MASKED_LM if self.generator else main_language_model(weights, has_generator=False)
        if scope is None or f"{scope}/output_bias" not in weights:
            return None
        return vocabulary_head(scope, self.filler, has_transform(weights, scope))

    def _make_projection(self, weights: Mapping[str, np.ndarray]) -> Dense | None:
        """The layer after pooling of a model that was fine-tuned to make vectors of texts, where it has one."""
        for name in weights:
            if name.endswith(_PROJECTION):
                hidden, width = weights[name].shape
                return Dense(name.removesuffix("/kernel"), hidden, width, orthogonal)
        return None

    @property
    def width(self) -> int:
        """Numbers of a text's vector."""
        return self.architecture.hidden_size if self.projection is None else self.projection.kernel.shape[1]

    @property
    def reads_no_mask(self) -> bool:
        """Tells whether the head that fills [MASK]s was trained on texts without any."""
        return self.language_model is not None and self.language_model.scope == CORRECTIVE_LM

    def head_of(self, part: str) -> ReplacedTokenHead | LanguageModelHead | TiedHead | None:
        """Head of a part: of "main" the one that reads the main network; of "generator" its masked language model; of
        "body", the main network alone, none."""
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
        """int32 [B, L] three times -> STATES of a part, float32 [B, L, H], and LOGITS of its head where it has one."""
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
        """float32 [B, H or the projection's width] of length 1, of one of `model.pooling.POOLINGS`."""
        sequence = self.encoder(input_ids, input_mask, segment_ids).sequence
        return text_vectors(sequence, input_mask, pooling, self.projection)

    def replaced_logits(self, input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor) -> tf.Tensor:
        """float32 [B, L], positive where a token looks replaced; Electric's energies.

        Raises:
          UserError: the model has no such head.
        """
        if self.detector is None:
            raise UserError("this model has no head that detects replaced tokens")
        return self.detector(self.encoder(input_ids, input_mask, segment_ids).sequence)

    def token_logits(self, input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor) -> tf.Tensor:
        """float32 [B, L, V], of the masked language model.

        Raises:
          UserError: the model has none.
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
    for name in model.weights:  # each is read from the file when it is asked for
        if name.split("/")[0] in ("electra", *heads):
            weights[name] = model.weights[name]
    scopes = {name.split("/")[0] for name in weights}
    lacking = [head for head in heads if head not in scopes]
    if lacking:
        raise UserError(f"{model.path} lacks {', '.join(lacking)}")
    return Network(model.architecture, model.architecture, weights, compute_dtype)


def graph_of_any_shape(function: Callable[..., Any], signature: Sequence[Any] | None = None) -> Any:
    """Makes a graph that is traced once for inputs of all shapes; without XLA, which would compile each shape.

    Args:
      signature: of the inputs; None: they are rows of tokens, int32 [B, L] each, as many as are given.
    """

    def plain(*inputs: Any) -> Any:
        with kernels.off():
            return function(*inputs)

    return tf.function(plain, input_signature=signature, autograph=False, reduce_retracing=True)


def assign(variables: Sequence[tf.Variable], weights: Mapping[str, np.ndarray]) -> None:
    """Gives variables the arrays of their names.

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
    """An encoder over {"input_ids", "input_mask", "segment_ids"}, int32 [B, L] each -> float32 [B, L, H].

    input_mask may be left out (no padding), and segment_ids (one segment).

    Args:
      architecture: the fields of model.architecture.Architecture.
      compute_dtype_name: of activations and matrix products.

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
        self({"input_ids": tf.zeros([1, 1], tf.int32)})  # built: summary() and saving know the shapes

    @classmethod
    def from_architecture(cls, architecture: Architecture, compute_dtype_name: str = "float32") -> "EncoderModel":
        return cls(dataclasses.asdict(architecture), compute_dtype_name, name="electra")

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        """Computes the last layer; dropout is on if `training`, with seeds from TensorFlow's global generator."""
        ids = tf.cast(inputs["input_ids"], tf.int32)
        mask = tf.cast(inputs.get("input_mask", tf.ones_like(ids)), tf.int32)
        segments = tf.cast(inputs.get("segment_ids", tf.zeros_like(ids)), tf.int32)
        if training is None:
            training = tf_keras.backend.learning_phase()
        seeds = None
        if training:
            seeds = SeedStream(tf.random.uniform([2], 0, 2**31 - 1, tf.int32))
        with kernels.off():  # whoever loads what is saved need not have XLA
            return tf.cast(self.encoder(ids, mask, segments, seeds).sequence, tf.float32)

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "architecture": dataclasses.asdict(self.sizes),
            "compute_dtype_name": self.compute_dtype_name,
        }
