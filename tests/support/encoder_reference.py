"""An encoder written out plainly in float64 numpy, one head and one query at a time: what ours is compared with.

A paper's test gives its own position scheme.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from electra_tf2.model import kernels, layers
from electra_tf2.model.architecture import Architecture
from electra_tf2.model.encoder import Encoder
from electra_tf2.model.kernels.compilation import one_program
from electra_tf2.model.layers import SeedStream


class Scheme:
    """Position scheme none, and base of the others.

    embedded: whether a table of positions is added to the embeddings.
    """

    embedded = True

    def product(
        self, a: Architecture, weights: Mapping[str, np.ndarray], layer: int, head: int, q: np.ndarray, k: np.ndarray,
        i: int, j: int,
    ) -> float:  # fmt: skip
        """q k^T of the query at position i and the key at position j."""
        return float(q @ k)

    def bias(self, a: Architecture, weights: Mapping[str, np.ndarray], head: int, i: int, j: int) -> float:
        """Term that is added to a scaled score."""
        return 0.0


class Bucketed(Scheme):
    """A learned bias of 8 buckets for distances below 16."""

    def __init__(self, bucket: Callable[[int], int]) -> None:
        self.bucket = bucket

    def bias(self, a: Architecture, weights: Mapping[str, np.ndarray], head: int, i: int, j: int) -> float:
        return weights["encoder/relative_attention"][self.bucket(j - i), head]


def t5_bucket(distance: int) -> int:
    n = abs(distance)
    return (n if n < 2 else 2 if n < 6 else 3) + (4 if distance > 0 else 0)


def coco_bucket(distance: int) -> int:
    return 3 + min(abs(distance), 3) * (1 if distance > 0 else -1)


class Rotary(Scheme):
    embedded = False

    def product(
        self, a: Architecture, weights: Mapping[str, np.ndarray], layer: int, head: int, q: np.ndarray, k: np.ndarray,
        i: int, j: int,
    ) -> float:  # fmt: skip
        """Depends on the difference of the angles alone."""
        theta = a.local_rope_theta if is_local(a, layer) and a.local_rope_theta else a.rope_theta
        width, total = len(q), 0.0
        for pair in range(width // 2):
            query, key = complex(q[pair], q[pair + width // 2]), complex(k[pair], k[pair + width // 2])
            angle = (j - i) * theta ** (-2.0 * pair / width)
            total += (query.conjugate() * key * complex(math.cos(angle), math.sin(angle))).real
        return total


SCHEMES = {"none": Scheme(), "t5": Bucketed(t5_bucket), "coco": Bucketed(coco_bucket), "rotary": Rotary()}


def is_local(a: Architecture, layer: int) -> bool:
    return bool(a.local_attention) and layer % a.global_attn_every_n_layers != 0


def encode(
    a: Architecture,
    values: Mapping[str, np.ndarray],
    ids: np.ndarray,
    mask: np.ndarray,
    segments: np.ndarray,
    scheme: Scheme | None = None,
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Last states [B, L, H] and every layer's attention probabilities [B, A, L, L], without dropout.

    Args:
      values: variables by name, below the encoder's scope.
      scheme: of positions, if not one of SCHEMES.
    """
    scheme = scheme or SCHEMES[a.relative_positions]
    weights = {name: np.asarray(value, np.float64) for name, value in values.items()}

    def dense(x: np.ndarray, name: str) -> np.ndarray:
        return x @ weights[f"{name}/kernel"] + weights.get(f"{name}/bias", 0.0)

    def norm(x: np.ndarray, name: str, last: str = "/LayerNorm") -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + a.norm_eps)
        return scaled * weights[f"{name}{last}/gamma"] + weights.get(f"{name}{last}/beta", 0.0)

    x = weights["embeddings/word_embeddings"][ids]
    if a.type_vocab_size:
        x = x + weights["embeddings/token_type_embeddings"][np.minimum(segments, a.type_vocab_size - 1)]
    if scheme.embedded:
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
            qkv = dense(y, f"{layer}/attention/self/qkv")
            context, probabilities = attention(a, weights, qkv, mask, int(layer.removeprefix("encoder/layer_")), scheme)
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
    a: Architecture, weights: Mapping[str, np.ndarray], qkv: np.ndarray, mask: np.ndarray, layer: int, scheme: Scheme
) -> tuple[np.ndarray, np.ndarray]:
    """Context [B, L, H] and probabilities [B, A, L, L] from queries, keys and values [B, L, 3 H]."""
    rows, length, _ = qkv.shape
    width = a.hidden_size // a.num_attention_heads
    context = np.zeros([rows, length, a.hidden_size])
    probabilities = np.zeros([rows, a.num_attention_heads, length, length])
    for row in range(rows):
        for head in range(a.num_attention_heads):
            columns = slice(head * width, (head + 1) * width)
            q, k, v = (part[row, :, columns] for part in np.split(qkv, 3, -1))
            for i in range(length):
                products = [scheme.product(a, weights, layer, head, q[i], k[j], i, j) for j in range(length)]
                biases = [scheme.bias(a, weights, head, i, j) for j in range(length)]
                scores = np.array(products) / math.sqrt(width) + biases
                if is_local(a, layer):
                    scores[np.abs(np.arange(length) - i) > a.local_attention // 2] -= 10000.0
                scores[mask[row] == 0] -= 10000.0
                shares = np.exp(scores - scores.max())
                probabilities[row, head, i] = shares / shares.sum()
                context[row, i, columns] = probabilities[row, head, i] @ v
    return context, probabilities


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0)))


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "gelu": gelu,
    "relu": lambda x: np.maximum(x, 0.0),
    "tanh": np.tanh,
    "linear": lambda x: x,
}


def sizes(positions: str, norm_style: str = "post") -> Architecture:
    """Two layers of two heads."""
    return Architecture(
        50, 8, 16, 2, 2, 32, max_position_embeddings=24,
        relative_positions=positions, relative_position_buckets=8, relative_position_max_distance=16,
        norm_style=norm_style, initializer_range=0.3,
    )  # fmt: skip


def inputs(length: int = 20) -> list[tf.Tensor]:
    """Ids, mask and segments, int32 [2, L]; the second row is padded."""
    ids = np.random.RandomState(0).randint(1, 50, [2, length])
    mask = (np.arange(length) < [[length], [length * 2 // 3]]).astype(int)
    return [tf.constant(value, tf.int32) for value in (ids * mask, mask, (np.arange(length) > 8) * mask)]


def passes(network: Encoder, batch: Sequence[tf.Tensor], seeds: SeedStream | None = None) -> list[tf.Tensor]:
    """States at real tokens and the gradients of a function of them."""
    real = tf.cast(batch[1], tf.float32)[..., tf.newaxis]
    shape = [*layers.shape_of(batch[1]), network.architecture.hidden_size]
    # Random numbers would be others within XLA, which makes its own of the same bits.
    weights = tf.reshape(tf.sin(1.7 * tf.range(tf.cast(tf.reduce_prod(shape), tf.float32))), shape)
    with tf.GradientTape() as tape:
        states = tf.cast(network(*batch, seeds).sequence, tf.float32) * real
        loss = tf.reduce_sum(states * weights)
    return [states, *map(tf.convert_to_tensor, tape.gradient(loss, network.trainable_variables))]


def assert_alike(found: Sequence[tf.Tensor], expected: Sequence[tf.Tensor], tolerance: float = 2e-5) -> None:
    """Asserts that arrays differ by no more than rounding, by their largest number."""
    for value, exact in zip(found, expected, strict=True):
        np.testing.assert_allclose(value, exact, rtol=1e-4, atol=tolerance * float(tf.reduce_max(abs(exact))))


def in_a_graph(function: Callable[[], list[tf.Tensor]]) -> list[tf.Tensor]:
    return tf.function(function, autograph=False)()


def varied(network: Encoder) -> Encoder:
    """Gives a network weights, biases and norms among them, that all do something."""
    random = np.random.RandomState(0)
    for variable in network.trainable_variables:
        variable.assign_add(0.1 * random.standard_normal(variable.shape))
    return network


def compared_with(network: Encoder, scheme: Scheme | None = None) -> list[np.ndarray]:
    """Varies a network's weights, runs it on a batch with padding, and asserts that its states at real tokens are those
    of the definition. Returns every layer's attention probabilities [B, A, L, L] by the definition."""
    architecture, batch = varied(network).architecture, inputs()
    values = {v.name.split(":")[0].removeprefix("electra/"): v.numpy() for v in network.trainable_variables}
    ids, mask, segments = (value.numpy() for value in batch)
    expected, maps = encode(architecture, values, ids, mask, segments, scheme)
    real = mask.astype(bool)  # where no key is near a token of padding, rounding decides
    np.testing.assert_allclose(network(*batch).sequence[real], expected[real], rtol=0, atol=2e-5)
    embedded = (scheme or SCHEMES[architecture.relative_positions]).embedded
    assert any("position_embeddings" in name for name in values) == embedded
    return maps


def compiled_in_bfloat16(architecture: Architecture) -> None:
    """Asserts that forward and backward pass as one program of XLA in bfloat16 are close to ordinary operations in
    float32."""
    with kernels.off():
        expected = passes(Encoder("electra", architecture), inputs())
    half = Encoder("electra", architecture, compute_dtype="bfloat16")
    found = one_program(lambda: passes(half, inputs()))()
    joined = [tf.concat([tf.reshape(one, [-1]) for one in gradients[1:]], 0) for gradients in (found, expected)]
    for value, exact in ((found[0], expected[0]), joined):
        assert 0 < float(tf.norm(value - exact)) < 0.05 * float(tf.norm(exact))


def any_length(network: Encoder) -> None:
    """Asserts that a function of batches and lengths that are not known when it is traced, as fine-tuning's and a
    SavedModel's is, computes states and gradients as one of a known shape does."""
    unknown = [tf.TensorSpec([None, None], tf.int32)] * 3
    free = tf.function(lambda *batch: passes(network, batch), input_signature=unknown, autograph=False)
    for length in (7, 12):
        batch = inputs(length)
        assert_alike(free(*batch), in_a_graph(functools.partial(passes, network, batch)), 1e-4)


class KeysOfDistances(Scheme):
    embedded = False

    def product(
        self, a: Architecture, weights: Mapping[str, np.ndarray], layer: int, head: int, q: np.ndarray, k: np.ndarray,
        i: int, j: int,
    ) -> float:  # fmt: skip
        size, width = a.hidden_size, len(q)
        angles = [(i - j) / 10000.0 ** (2.0 * pair / size) for pair in range(size // 2)]
        sinusoid = np.array([math.sin(x) for x in angles] + [math.cos(x) for x in angles])
        kernel = weights[f"encoder/layer_{layer}/attention/self/relative_key/kernel"]
        distance = (sinusoid @ kernel)[head * width : (head + 1) * width]
        u, v = (weights[f"encoder/relative_{name}_bias"][head] for name in ("content", "distance"))
        return float((q + u) @ k + (q + v) @ distance)
