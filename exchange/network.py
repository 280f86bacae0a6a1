"""The parts of a pre-trained model that are used after training, built from the weights that are there.

An encoder, and as many heads as a file has weights of: detection of replaced tokens, a masked language model (a
generator's or the encoder's own), the two towers of Electric. Conversions are checked with it; SavedModels and the
Python door run it. B batch, L length, H hidden, V vocabulary.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.model import kernels
from electra_tf2.model.architecture import Architecture
from electra_tf2.model.encoder import Encoder
from electra_tf2.model.heads import LanguageModelHead, ReplacedTokenHead, TiedHead
from electra_tf2.model.layers import Layer
from electra_tf2.model.other_generators import TwoTowerClozeModel
from electra_tf2.util.errors import UserError


class Network(Layer):
    """Encoder and heads with given weights.

    Args:
      architecture: of the main network.
      generator: of the generator's network, where it has one of its own.
      weights: our names -> arrays; decides which heads there are.
      compute_dtype: of activations and matrix products.

    Raises:
      UserError: the weights do not belong to these sizes.
    """

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
        if "discriminator_predictions/dense/kernel" in weights:
            self.detector = ReplacedTokenHead("discriminator_predictions", architecture)
        self.generator = None
        if any(name.startswith("generator/encoder/") for name in weights):
            tables = None if "generator/embeddings/word_embeddings" in weights else self.encoder.embeddings
            self.generator = Encoder("generator", generator, tables, compute_dtype=compute_dtype)
        self.towers = None
        if "cloze_predictions/dense/kernel" in weights:
            tables = None if "generator_ltr/embeddings/word_embeddings" in weights else self.encoder.embeddings
            self.towers = TwoTowerClozeModel(generator, tables, compute_dtype)
        self.language_model = self._language_model(weights)
        self._assign(weights)

    def _language_model(self, weights: Mapping[str, np.ndarray]) -> LanguageModelHead | TiedHead | None:
        """The head that `fill` uses: the generator's where there is one, else the main network's own.

        COCO-LM has both, and its main network has never read a [MASK].
        """
        corrective = self.generator is None and "clm_predictions/output_bias" in weights
        scope = "clm_predictions" if corrective else "generator_predictions"
        self.filler = self.generator or self.encoder
        if f"{scope}/output_bias" not in weights:
            return None
        sizes = self.filler.architecture
        if f"{scope}/dense/kernel" not in weights:
            return TiedHead(scope, sizes, self.filler.embeddings)
        return LanguageModelHead(scope, sizes.hidden_size, sizes, self.filler.embeddings)

    def _assign(self, weights: Mapping[str, np.ndarray]) -> None:
        problems = []
        for variable in self.trainable_variables:
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

    def states(self, input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor) -> tf.Tensor:
        """int32 [B, L] three times -> float32 [B, L, H], the last layer."""
        return tf.cast(self.encoder(input_ids, input_mask, segment_ids).sequence, tf.float32)

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


def graph_of_any_shape(function: Callable[..., Any]) -> Any:
    """The function as a graph that is traced once for inputs of all shapes, without XLA, which would compile each."""

    def plain(*inputs: Any) -> Any:
        with kernels.off():
            return function(*inputs)

    return tf.function(plain, autograph=False, reduce_retracing=True)
