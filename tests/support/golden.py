"""Shared by the golden tests: the arrays, the fixed batch, and models with the original's weights."""

import json
import zlib
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.formats.stored_weights import original_names
from electra_tf2.model.generators import UniformGenerator
from electra_tf2.pretrain import masking
from electra_tf2.pretrain.networks import Networks
from electra_tf2.pretrain.pretraining_model import PretrainingModel

Kind = TypeVar("Kind")
GOLDEN = Path(__file__).parents[1] / "golden"
CHECKPOINT = GOLDEN / "tiny_checkpoint"
FORWARD_TOLERANCE = 1e-5  # of forwards and losses
GRADIENT_TOLERANCE = 1e-4  # of gradients and updated parameters


# Of objectives that ask no network.
NO_NETWORKS: Any = Networks(None, UniformGenerator(1))  # type: ignore[arg-type]


def load_arrays(name: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / f"{name}.npz") as arrays:
        return dict(arrays)


def load_json(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text())


def config(**overrides: Any) -> PretrainingConfig:
    """The checkpoint's hyperparameters with dropout off."""
    hparams = json.loads((CHECKPOINT / "hparams.json").read_text())
    model_overrides = hparams.pop("model_hparam_overrides") | overrides.pop("model_hparam_overrides", {})
    model_overrides |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    hparams |= {"model_hparam_overrides": model_overrides, "vocab_file": str(CHECKPOINT / "vocab.txt")}
    return PretrainingConfig.from_dict({"model_name": "golden", "data_dir": "data"} | hparams | overrides)


def masked_batch(model: PretrainingModel, arrays: dict[str, np.ndarray]) -> masking.MaskedBatch:
    """The golden batch with the golden masking."""
    batch = {name: tf.constant(arrays[name]) for name in ("input_ids", "input_mask", "segment_ids")}
    replaced = arrays["replace_with_mask"].astype(np.float32)
    how = tf.constant(np.stack([0.999 * (1.0 - replaced), np.zeros_like(replaced)], -1))
    positions = tf.constant(arrays["masked_lm_positions"])
    weights = tf.constant(arrays["masked_lm_weights"])

    def draw(number: int, shape: list[int]) -> tf.Tensor:
        return tf.zeros([len(replaced), *shape])

    return masking.masked_at(model.config, batch, positions, weights, how, draw, model.special)


def objective_of(model: PretrainingModel, kind: type[Kind]) -> Kind:
    """The model's objective of a class."""
    for objective in model.objectives:
        if isinstance(objective, kind):
            return objective
    raise AssertionError(f"no objective is a {kind.__name__}")


def crc_values(model: PretrainingModel) -> dict[str, np.ndarray]:
    """Weights that are a function of the variables' names (golden README, "variants")."""
    values = {}
    for variable in model.trainable_variables:
        names = original_names(variable.name)
        shape = [*variable.shape[:-1], variable.shape[-1] // len(names)]
        for name in names:
            x = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
            last = name.rsplit("/", 1)[-1]
            if last == "gamma":
                x = 1 + 0.1 * x
            elif last in ("beta", "bias", "output_bias"):
                x = 0.05 * x
            elif last.endswith("_embeddings"):
                x = 0.3 * x
            else:
                x = x / np.sqrt(shape[0])
            values[name] = x.astype(np.float32)
    return values


def model_with_crc_values(**overrides: Any) -> PretrainingModel:
    model = PretrainingModel(config(**overrides))
    assign_original(model.trainable_variables, crc_values(model))
    return model


def relative_error(actual: Any, expected: np.ndarray) -> float:
    """The largest difference, relative to the largest magnitude of the expected array."""
    actual = np.asarray(actual, np.float64)
    expected = np.asarray(expected, np.float64)
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    difference = float(np.max(np.abs(actual - expected)))
    return difference / max(float(np.max(np.abs(expected))), 1e-30)


def original_gradients(model: PretrainingModel, gradients: list[Any]) -> dict[str, np.ndarray]:
    """Gradients by the original's variable names; unused variables have none."""
    result: dict[str, np.ndarray] = {}
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        if gradient is None:
            continue
        names = original_names(variable.name)
        dense = tf.convert_to_tensor(gradient).numpy()
        result.update(zip(names, np.split(dense, len(names), axis=-1), strict=True))
    return result


def original_values(variables: list[tf.Variable]) -> dict[str, np.ndarray]:
    """The variables as the original stores them: name -> float32 array."""
    values: dict[str, np.ndarray] = {}
    for variable in variables:
        names = original_names(variable.name)
        values.update(zip(names, np.split(variable.numpy(), len(names), axis=-1), strict=True))
    return values


def assign_original(variables: list[tf.Variable], values: dict[str, np.ndarray]) -> None:
    """Assigns arrays under the original's names; every variable must be there, with its shape."""
    for variable in variables:
        parts = [values[name] for name in original_names(variable.name)]
        variable.assign(np.concatenate(parts, axis=-1) if len(parts) > 1 else parts[0])
