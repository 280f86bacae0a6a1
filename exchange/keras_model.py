"""The encoder as a `tf_keras.Model`: what a Keras user puts a head on and fits.

Its layers are model.encoder's; this adds inputs by name, `training=`, get_config and from_config. B batch, L length, H
hidden.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from electra_tf2.model import kernels
from electra_tf2.model.architecture import Architecture
from electra_tf2.model.encoder import Encoder
from electra_tf2.model.layers import SeedStream
from electra_tf2.util.errors import UserError


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
    def from_architecture(cls, architecture: Architecture) -> "EncoderModel":
        return cls(dataclasses.asdict(architecture), name="electra")

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        """The last layer; dropout is on if `training`, with seeds from TensorFlow's global generator."""
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

    def assign(self, weights: Mapping[str, np.ndarray]) -> None:
        """Gives it weights by our variable names.

        Raises:
          UserError: one is missing.
        """
        for variable in self.encoder.trainable_variables:
            name = variable.name.split(":")[0]
            if name not in weights:
                raise UserError(f"the weights lack {name}")
            variable.assign(weights[name])

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "architecture": dataclasses.asdict(self.sizes),
            "compute_dtype_name": self.compute_dtype_name,
        }
