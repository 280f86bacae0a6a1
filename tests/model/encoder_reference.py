"""An encoder written out plainly in float64 numpy, one head and one query at a time: what ours is compared with.

The numbers of published schemes of positions are written out here; those of others are what the scheme says.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np

from electra_tf2.model.architecture import Architecture

EMBEDDED = {"none": True, "t5": True, "coco": True, "alibi": False, "rotary": False, "xl": False}
SLOPES = {"alibi": [1 / 16, 1 / 256]}  # of two heads


def is_embedded(a: Architecture) -> bool:
    return EMBEDDED.get(a.relative_positions, a.positions.embedded)


def encode(
    a: Architecture, values: Mapping[str, np.ndarray], ids: np.ndarray, mask: np.ndarray, segments: np.ndarray
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Last states [B, L, H] and every layer's attention probabilities [B, A, L, L], without dropout.

    Args:
      values: variables by name, below the encoder's scope.
    """
    weights = {name: np.asarray(value, np.float64) for name, value in values.items()}

    def dense(x: np.ndarray, name: str) -> np.ndarray:
        return x @ weights[f"{name}/kernel"] + weights.get(f"{name}/bias", 0.0)

    def norm(x: np.ndarray, name: str, last: str = "/LayerNorm") -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + a.norm_eps)
        return scaled * weights[f"{name}{last}/gamma"] + weights.get(f"{name}{last}/beta", 0.0)

    x = weights["embeddings/word_embeddings"][ids]
    if a.type_vocab_size:
        x = x + weights["embeddings/token_type_embeddings"][segments]
    if is_embedded(a):
        x = x + weights["embeddings/position_embeddings"][: ids.shape[1]]
    if a.embedding_norm == "before":
        x = norm(x, "embeddings")
    if a.embedding_size != a.hidden_size:
        x = dense(x, "embeddings_project")
    if a.embedding_norm == "after":
        x = norm(x, "embeddings", "_LayerNorm")
    attention_maps = []
    for number in range(a.num_hidden_layers):
        layer = f"encoder/layer_{number}"

        def attend(y: np.ndarray, layer: str = layer) -> np.ndarray:
            own = weights | {"layer": weights.get(f"{layer}/attention/self/relative_key/kernel", np.zeros(0))}
            qkv = dense(y, f"{layer}/attention/self/qkv")
            if a.qk_norm:
                parts = np.reshape(qkv, [*qkv.shape[:2], 3, a.num_attention_heads, -1])
                for part, name in enumerate(("query", "key")):
                    parts[:, :, part] = norm(parts[:, :, part], f"{layer}/attention/self/{name}_norm", "")
            context, probabilities = attention(a, own, qkv, mask, int(layer.removeprefix("encoder/layer_")))
            attention_maps.append(probabilities)
            return dense(context, f"{layer}/attention/output/dense")

        def feed_forward(y: np.ndarray, layer: str = layer) -> np.ndarray:
            if not a.gated_mlp:
                inner = ACTIVATIONS[a.hidden_act](dense(y, f"{layer}/intermediate/dense"))
            else:
                first, second = np.split(dense(y, f"{layer}/intermediate/gated"), 2, -1)
                inner = ACTIVATIONS[a.hidden_act](first) * second
            return dense(inner, f"{layer}/output/dense")

        if a.norm_style == "pre":
            x = x + attend(norm(x, f"{layer}/attention/output") if number or a.first_norm else x)
            x = x + feed_forward(norm(x, f"{layer}/output"))
        else:
            x = norm(x + attend(x), f"{layer}/attention/output")
            x = norm(x + feed_forward(x), f"{layer}/output")
    return (norm(x, "encoder") if a.norm_style == "pre" else x), attention_maps


def attention(
    a: Architecture, weights: Mapping[str, np.ndarray], qkv: np.ndarray, mask: np.ndarray, layer: int
) -> tuple[np.ndarray, np.ndarray]:
    """Context [B, L, H] and probabilities [B, A, L, L] from queries, keys and values [B, L, 3 H]."""
    rows, length, _ = qkv.shape
    width = a.hidden_size // a.num_attention_heads
    local = bool(a.local_attention) and layer % a.global_attn_every_n_layers != 0
    theta = a.local_rope_theta if local and a.local_rope_theta else a.rope_theta
    context = np.zeros([rows, length, a.hidden_size])
    probabilities = np.zeros([rows, a.num_attention_heads, length, length])
    for row in range(rows):
        for head in range(a.num_attention_heads):
            columns = slice(head * width, (head + 1) * width)
            q, k, v = (part[row, :, columns] for part in np.split(qkv, 3, -1))
            for i in range(length):
                scores = np.array(
                    [
                        score(a, weights, head, q[i], k[j], i, j, theta) + bias(a, weights, head, i, j)
                        for j in range(length)
                    ]
                )
                if local:
                    scores[np.abs(np.arange(length) - i) > a.local_attention // 2] -= 10000.0
                scores[mask[row] == 0] -= 10000.0
                shares = np.exp(scores - scores.max())
                probabilities[row, head, i] = shares / shares.sum()
                context[row, i, columns] = probabilities[row, head, i] @ v
    return context, probabilities


def score(
    a: Architecture,
    weights: Mapping[str, np.ndarray],
    head: int,
    q: np.ndarray,
    k: np.ndarray,
    i: int,
    j: int,
    theta: float,
) -> float:
    """q k^T / sqrt(d) of the query at position i and the key at position j, without biases."""
    scheme, width, total = a.positions, len(q), float(q @ k)
    if scheme.frequencies is not None:  # the product depends on the difference of the angles alone
        half, total = width // 2, 0.0
        for pair in range(half):
            query, key = complex(q[pair], q[pair + half]), complex(k[pair], k[pair + half])
            angle = (j - i) * theta ** (-2.0 * pair / width)
            total += (query.conjugate() * key * complex(math.cos(angle), math.sin(angle))).real
    if scheme.distances is not None:
        size = a.hidden_size
        angles = [(i - j) / 10000.0 ** (2.0 * pair / size) for pair in range(size // 2)]
        sinusoid = np.array([math.sin(x) for x in angles] + [math.cos(x) for x in angles])
        distance = (sinusoid @ weights["layer"])[head * width : (head + 1) * width]
        u, v = (weights[f"encoder/relative_{name}_bias"][head] for name in ("content", "distance"))
        total = float((q + u) @ k + (q + v) @ distance)
    return total / math.sqrt(width)


def bias(a: Architecture, weights: Mapping[str, np.ndarray], head: int, i: int, j: int) -> float:
    """Term that is added to a score."""
    result = 0.0
    if a.positions.slopes is not None:
        assert a.num_attention_heads == 2
        result -= abs(i - j) * SLOPES.get(a.relative_positions, a.positions.slopes(2))[head]
    if a.positions.bucket is not None:
        result += weights["encoder/relative_attention"][bucket(a, j - i), head]
    return result


def bucket(a: Architecture, distance: int) -> int:
    """Bias of 8 buckets for distances below 16, looked up."""
    n = abs(distance)
    if a.relative_positions == "t5":
        return (n if n < 2 else 2 if n < 6 else 3) + (4 if distance > 0 else 0)
    if a.relative_positions == "coco":
        return 3 + (min(n, 2) if n <= 2 else 3) * (1 if distance > 0 else -1)
    assert a.positions.bucket is not None
    return a.positions.bucket(distance, 8, 16)


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0)))


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "gelu": gelu,
    "relu": lambda x: np.maximum(x, 0.0),
    "relu2": lambda x: np.maximum(x, 0.0) ** 2,
    "tanh": np.tanh,
    "linear": lambda x: x,
}
