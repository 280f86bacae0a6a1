"""A start in ModernBERT's architecture: the weights of a pre-norm network with a learned bias of distances, moved over.

Hugging Face has no class for such a network, but it has ModernBERT's. What both have is copied. Of the rest

- embeddings, their norm and projection become one table of the same width (the mean over segments and positions);
- a feed-forward network becomes a gated one whose gate is 1;
- the bias of distances becomes biases of queries and keys, which rotary turns, as in
  `model.relative_positions.local_turns`, in the half of the pairs that turns fastest; what queries and keys say of each
  other, of which only the largest singular values remain, goes to the pairs that turn slowest.

This is an approximation, and the turned biases are its rough part: `electra convert` prints the cosine of the states
before and after. Pre-training that goes on from here, with the old network as teacher, does the rest.
H hidden, A heads, D head size.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.exchange.sources import Model, with_own_layers
from electra_tf2.model.architecture import PRESETS, Architecture
from electra_tf2.model.relative_positions import turning_biases
from electra_tf2.util.errors import UserError

_SWITCHES: dict[str, Any] = {
    "architecture": "modernbert",
    "norm_bias": True,
    "attention_bias": True,
    "mlp_bias": True,
    "rope_theta": 10000.0,
    "local_rope_theta": 10000.0,
    "relative_position_start": "local",
}
_NOT_THERE = {*PRESETS["modernbert"], "relative_position_buckets", "relative_position_max_distance", "share_layers",
              "zero_residual_init", "qk_norm"}  # fmt: skip
_REACH = 64  # distances, to either side, whose attention is to stay the same
_RIDGE = 1e-3
_STEPS = 100  # of Newton's method, which needs some ten
_SMALLEST_STEP = 1e-4
_ROW_SIZE = 0.2  # standard deviation of the new table
_HEAD_SCALE = 0.5  # gamma of the norm that the detector's head gets
_COMMON = ("attention/output/dense/kernel", "attention/output/dense/bias", "output/LayerNorm/gamma",
           "output/LayerNorm/beta", "output/dense/kernel", "output/dense/bias")  # fmt: skip
_HEAD = "discriminator_predictions"


def modernbert_start(model: Model) -> Model:
    """Brings the main network and its detector to ModernBERT's architecture, in float32.

    Generator, language models and the scores of the network before are left out.

    Raises:
      UserError: the network is not pre-norm, or has no learned bias of distances, or differs in other switches.
    """
    model = with_own_layers(model)
    old = model.architecture
    if (
        not isinstance(model.config, PretrainingConfig)
        or old.norm_style != "pre"
        or old.positions.bucket is None
        or not old.first_norm
        or old.embedding_norm != "before"
        or old.hidden_act != "gelu"
        or old.head_size % 8
        or old.embedding_size > old.hidden_size
        or any(getattr(old, name) for name in ("gated_mlp", "qk_norm", "local_attention"))
        or not all(getattr(old, name) for name in ("norm_bias", "attention_bias", "mlp_bias"))
    ):
        raise UserError(
            f"--architecture modernbert starts from a pre-trained network with norm_style pre, relative_positions t5 "
            f"or coco and else the switches of architecture bert; {model.origin} is another"
        )
    overrides = {name: value for name, value in model.config.model_hparam_overrides.items() if name not in _NOT_THERE}
    overrides |= _SWITCHES | {"intermediate_size": old.intermediate_size}
    config = dataclasses.replace(model.config, model_hparam_overrides=overrides, generator_hparam_overrides={})
    weights = {name: np.asarray(value, np.float64) for name, value in model.weights.items()}
    scale, made = _embeddings(weights)
    sizes = config.architecture
    table = weights["electra/encoder/relative_attention"]  # one for all layers, whose angles are the same, too
    turns = [_turns(table[:, head], old, sizes) for head in range(sizes.num_attention_heads)]
    for layer in range(sizes.num_hidden_layers):
        made |= _layer(weights, sizes, layer, scale, turns)
    made |= {name: value for name, value in weights.items() if name.startswith("electra/encoder/LayerNorm/")}
    if f"{_HEAD}/dense/kernel" in weights:
        width = sizes.hidden_size
        made |= {f"{_HEAD}/LayerNorm/gamma": np.full(width, _HEAD_SCALE), f"{_HEAD}/LayerNorm/beta": np.zeros(width)}
        made |= {name: value for name, value in weights.items() if name.startswith(f"{_HEAD}/")}
    arrays = {name: value.astype(np.float32) for name, value in made.items()}
    left_out = sorted({name.split("/")[0] for name in weights} - {"electra", _HEAD})
    return model._replace(config=config, weights=arrays, scores={}, generator_sizes=None, left_out=left_out)


def _embeddings(weights: dict[str, np.ndarray]) -> tuple[float, dict[str, np.ndarray]]:
    """Returns the mean scale of a token's embedding, and a table, projection and norm that make such embeddings."""
    scope = "electra/embeddings"
    beside = weights[f"{scope}/position_embeddings"][:_REACH].mean(0)
    if f"{scope}/token_type_embeddings" in weights:
        beside = beside + weights[f"{scope}/token_type_embeddings"].mean(0)
    rows = weights[f"{scope}/word_embeddings"] + beside
    rows = (rows - rows.mean(1, keepdims=True)) / rows.std(1, keepdims=True)
    rows = rows * weights[f"{scope}/LayerNorm/gamma"] + weights[f"{scope}/LayerNorm/beta"]
    if "electra/embeddings_project/kernel" in weights:
        rows = rows @ weights["electra/embeddings_project/kernel"] + weights["electra/embeddings_project/bias"]
    rows -= rows.mean(1, keepdims=True)
    sizes, hidden = rows.std(1, keepdims=True), rows.shape[1]
    scale = float(np.sqrt((sizes**2).mean()))
    norm = "electra/embeddings_LayerNorm"
    made = {f"{norm}/gamma": np.full(hidden, scale), f"{norm}/beta": np.zeros(hidden)}
    width = weights[f"{scope}/word_embeddings"].shape[1]
    if width == hidden:
        return scale, made | {f"{scope}/word_embeddings": rows / sizes * _ROW_SIZE}
    left, values, right = np.linalg.svd(rows / sizes, full_matrices=False)
    table = left[:, :width] * values[:width]
    unit = table.std() / _ROW_SIZE
    made[f"{scope}/word_embeddings"] = table / unit
    return scale, made | {"electra/embeddings_project/kernel": right[:width] * unit}


def _layer(
    weights: dict[str, np.ndarray],
    new: Architecture,
    layer: int,
    scale: float,
    turns: Sequence[tuple[np.ndarray, np.ndarray]],
) -> dict[str, np.ndarray]:
    """Weights of a layer. What its norm of attention multiplies and adds is part of the products that follow, since the
    first layer has no such norm: it reads embeddings of this scale."""
    scope, hidden = f"electra/encoder/layer_{layer}", new.hidden_size
    made = {f"{scope}/{name}": weights[f"{scope}/{name}"] for name in _COMMON}
    norm = f"{scope}/attention/output/LayerNorm"
    kernel, bias = (weights[f"{scope}/attention/self/qkv/{name}"] for name in ("kernel", "bias"))
    bias = bias + weights[f"{norm}/beta"] @ kernel
    kernel = kernel * weights[f"{norm}/gamma"][:, np.newaxis]
    for head, (of_query, of_key) in enumerate(turns):
        query = slice(head * new.head_size, (head + 1) * new.head_size)
        key = slice(hidden + query.start, hidden + query.stop)
        queries, keys = _moved(np.concatenate([kernel[:, query], bias[np.newaxis, query]]), kernel[:, key])
        kernel[:, query], bias[query] = queries[:-1], queries[-1] + of_query
        kernel[:, key], bias[key] = keys, of_key
    made |= {f"{scope}/attention/self/qkv/kernel": kernel if layer else kernel / scale}
    made |= {f"{scope}/attention/self/qkv/bias": bias}
    if layer:
        made |= {f"{norm}/gamma": np.ones(hidden), f"{norm}/beta": np.zeros(hidden)}
    first, second = (weights[f"{scope}/intermediate/dense/{name}"] for name in ("kernel", "bias"))
    made[f"{scope}/intermediate/gated/kernel"] = np.concatenate([first, np.zeros_like(first)], 1)
    made[f"{scope}/intermediate/gated/bias"] = np.concatenate([second, np.ones_like(second)])
    return made


def _slow_pairs(head_size: int) -> np.ndarray:
    """Numbers of the pairs that carry content, from the slowest on: nearly half of them."""
    pairs = head_size // 2
    return np.arange(pairs - 1, pairs - (7 * pairs // 16) - 1, -1)


def _moved(queries: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Kernels of one head, [H + 1, D] with the bias as last row and [H, D], whose products are those of the given ones
    but for small singular values, on the pairs (i, i + D/2) that turn slowest."""
    size = keys.shape[1]
    pairs = _slow_pairs(size)
    columns = np.stack([pairs, pairs + size // 2], 1).reshape(-1)
    left, values, right = np.linalg.svd(queries @ keys.T, full_matrices=False)
    root = np.sqrt(values[: len(columns)])
    new_queries, new_keys = np.zeros_like(queries), np.zeros_like(keys)
    new_queries[:, columns] = left[:, : len(columns)] * root
    new_keys[:, columns] = right[: len(columns)].T * root
    return new_queries, new_keys


def _turns(table: np.ndarray, old: Architecture, new: Architecture) -> tuple[np.ndarray, np.ndarray]:
    """Biases [D] of a head's query and key whose scores spread attention over distances as a learned bias does.

    The scores are a sum of waves of the pairs that carry no content; its amplitudes minimise the Kullback-Leibler
    divergence of the two distributions, which is convex, by Newton's method.

    Args:
      table: [buckets].
    """
    assert old.positions.bucket is not None and new.positions.frequencies is not None
    distances = np.arange(1 - _REACH, _REACH)
    rows = [
        old.positions.bucket(int(distance), old.relative_position_buckets, old.relative_position_max_distance)
        for distance in distances
    ]
    frequencies = np.array(new.positions.frequencies(new.head_size, new.rope_theta))
    free = len(frequencies) - len(_slow_pairs(new.head_size))
    angles = np.outer(distances, frequencies[:free])
    waves = np.concatenate([np.cos(angles), np.sin(angles)], 1)
    wanted = _softmax(table[rows])
    fitted = np.zeros(waves.shape[1])

    def divergence(amplitudes: np.ndarray) -> float:
        return float(-wanted @ np.log(_softmax(waves @ amplitudes)) + _RIDGE / 2 * amplitudes @ amplitudes)

    for _ in range(_STEPS):
        found = _softmax(waves @ fitted)
        gradient = waves.T @ (found - wanted) + _RIDGE * fitted
        mean = found @ waves
        curvature = (waves * found[:, np.newaxis]).T @ waves - np.outer(mean, mean) + _RIDGE * np.eye(len(fitted))
        step, share = np.linalg.solve(curvature, gradient), 1.0
        while divergence(fitted - share * step) > divergence(fitted) and share > _SMALLEST_STEP:
            share /= 2
        fitted = fitted - share * step
    waves_of_all = np.zeros([2, len(frequencies)])
    waves_of_all[:, :free] = fitted.reshape(2, free)
    return turning_biases(*waves_of_all)


def _softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()
