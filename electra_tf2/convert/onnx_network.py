"""Our networks as ONNX graphs: the encoder and its heads, in the formulas of model/ (convert.onnx_graph).

    model.onnx: input_ids, attention_mask, token_type_ids: int64 [batch, length]  ->  last_hidden_state, logits, ...
    model.json: what it is: inputs and outputs, labels, pooling, the longest input
    tokenizer.json, tokenizer_config.json, vocab.txt

Which outputs a file has follows from the part (convert.network_file). Inputs have the names that transformers'
tokenizers give them. Batch and length are dynamic; there is no dropout. B batch, L length, H hidden, A heads, D head
size, V vocabulary, T [B, L], or of a packed graph [N], its real tokens.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from electra_tf2.convert import network_file as files
from electra_tf2.convert.onnx_graph import Graph, peaks_in
from electra_tf2.inference.stored_model import Pooling, StoredModel, pooling_of
from electra_tf2.model.architecture import Architecture
from electra_tf2.model.kernels.cpu import MASKED_SCORE
from electra_tf2.model.positions import Bucketed, sinusoid_frequencies

_ROWS = ("batch", "length")


class Inputs:
    """Inputs of a graph: names of int64 [B, L] tensors, and of what is computed of them."""

    def __init__(self, graph: Graph) -> None:
        self.ids, self.mask, self.types = (graph.input(name, _ROWS) for name in files.INPUTS)
        self._graph = graph
        self.length = graph.op("Gather", graph.op("Shape", self.ids), graph.constant(1, "int64"))  # scalar
        self.marks = graph.floats(self.mask)
        if graph.packed:
            flat = graph.op("Reshape", self.mask, graph.ints(-1))
            self._real = graph.op("Squeeze", graph.op("NonZero", flat), graph.ints(0))  # [N], places in the batch
            # [B, L], the number of each token; padding has that of the token before, and nothing looks at it.
            zero, one = (graph.constant(number, "int64") for number in (0, 1))
            numbers = graph.op("Sub", graph.op("CumSum", flat, zero), one)
            self._numbers = graph.op("Reshape", graph.op("Max", numbers, zero), graph.op("Shape", self.ids))

    def packed(self, x: str, *width: int) -> str:
        """[B, L, width] -> [T, width]."""
        g = self._graph
        return g.op("Gather", g.op("Reshape", x, g.ints(-1, *width)), self._real) if g.packed else x

    def padded(self, x: str) -> str:
        """[T, width] -> [B, L, width]; padding has what the token before it has."""
        return self._graph.op("Gather", x, self._numbers) if self._graph.packed else x

    def places(self) -> str:
        """int64 [L], the positions, or [N], those of real tokens."""
        return self._graph.op("Mod", self._real, self.length) if self._graph.packed else self.positions()

    def positions(self) -> str:
        """int64 [L], from 0."""
        zero, one = (self._graph.constant(number, "int64") for number in (0, 1))
        return self._graph.op("Range", zero, self.length, one)


class Encoder:
    """The formulas of model.encoder on weights by our names.

    A packed graph computes what is of one token (embeddings, dense layers, norms) for real tokens alone, and puts them
    into rows where they look at each other: a batch is mostly padding where lengths differ.

    Args:
      scope: "electra" or "generator".
      embeddings: scope of the embedding block, which may be the main network's.
      words: name of the word table; "": the block's.
    """

    def __init__(self, graph: Graph, architecture: Architecture, scope: str, embeddings: str, words: str = "") -> None:
        self.graph, self.sizes, self.scope, self.embeddings = graph, architecture, scope, embeddings
        self.words = words or f"{embeddings}/word_embeddings"
        graph.epsilon = architecture.norm_eps
        self._inputs: Inputs | None = None
        self._turns: dict[float, tuple[str, str]] = {}  # by base of the angles: cosines and sines, [L, D/2]
        self._distances = ""  # sines and cosines of distances, [2L - 1, H]

    def states(self, inputs: Inputs) -> str:
        """float32 [B, L, H]."""
        g, sizes, self._inputs = self.graph, self.sizes, inputs
        x = self._embedded(inputs)
        if sizes.embedding_size != sizes.hidden_size:
            x = g.dense(x, f"{self.scope}/embeddings_project")
        if sizes.embedding_norm == "after":
            x = g.layer_norm(x, f"{self.scope}/embeddings_LayerNorm")
        bias = self._score_bias(inputs)
        reaches = [sizes.window(layer) for layer in range(sizes.num_hidden_layers)]
        biases = {reach: self._within(bias, inputs, reach) for reach in dict.fromkeys(reaches)}
        attending, feeding = sizes.shared_with("attention"), sizes.shared_with("ffn")
        pre = sizes.norm_style == "pre"
        for layer, (attention, feed_forward) in enumerate(zip(attending, feeding, strict=True)):
            of_attention, of_ffn = (f"{self.scope}/encoder/layer_{n}" for n in (attention, feed_forward))
            norms = f"{of_attention}/attention/output/LayerNorm", f"{of_ffn}/output/LayerNorm"
            attend = functools.partial(
                self._attention, bias=biases[reaches[layer]], scope=of_attention, reach=reaches[layer]
            )
            x = self._branch(x, norms[0], pre, attend) if layer or sizes.first_norm else g.op("Add", x, attend(x))
            x = self._branch(x, norms[1], pre, functools.partial(self._feed_forward, scope=of_ffn))
        return inputs.padded(g.layer_norm(x, f"{self.scope}/encoder/LayerNorm") if pre else x)

    def _branch(self, x: str, norm: str, pre: bool, branch: Callable[[str], str]) -> str:
        if pre:
            return self.graph.op("Add", x, branch(self.graph.layer_norm(x, norm)))
        return self.graph.layer_norm(self.graph.op("Add", branch(x), x), norm)

    def _embedded(self, inputs: Inputs) -> str:
        g, block = self.graph, self.embeddings
        x = g.rows(self.words, inputs.packed(inputs.ids))
        if self.sizes.positions.embedded:
            x = g.op("Add", x, g.op("Gather", g.weight(f"{block}/position_embeddings"), inputs.places()))
        if self.sizes.type_vocab_size:
            types = inputs.packed(inputs.types)
            x = g.op("Add", x, g.op("Gather", g.weight(f"{block}/token_type_embeddings"), types))
        return g.layer_norm(x, f"{block}/LayerNorm") if self.sizes.embedding_norm == "before" else x

    def _feed_forward(self, x: str, scope: str) -> str:
        g, act = self.graph, self.sizes.hidden_act
        if self.sizes.gated_mlp:
            both = g.dense(x, f"{scope}/intermediate/gated")
            first, second = g.split("Split", both, parts=2, axis=-1, num_outputs=2)
            inner = g.op("Mul", g.activation(first, act), second)
        else:
            inner = g.activation(g.dense(x, f"{scope}/intermediate/dense"), act)
        return g.dense(inner, f"{scope}/output/dense")

    def _attention(self, x: str, bias: str, scope: str, reach: int | None) -> str:
        """[T, H] -> [T, H]; queries are scaled by their weights."""
        assert self._inputs is not None
        g, heads, size, hidden = (
            self.graph,
            self.sizes.num_attention_heads,
            self.sizes.head_size,
            self.sizes.hidden_size,
        )
        name, parts, normed = f"{scope}/attention/self/qkv", [], False
        scales = (1.0 if normed else size**-0.5, 1.0, 1.0)
        offsets = g.weights.get(f"{name}/bias", np.zeros(3 * hidden, np.float32))
        kernels, biases = (np.split(array, 3, -1) for array in (g.weights[f"{name}/kernel"], offsets))
        for number, (kernel, offset, scale) in enumerate(zip(kernels, biases, scales, strict=True)):
            # Three products and no Split of one: its copies cost more than a wider product saves.
            part = g.dense(x, f"{name}_{number}", kernel * np.float32(scale), offset * np.float32(scale))
            part = self._inputs.padded(part)
            parts.append(g.op("Transpose", g.op("Reshape", part, g.ints(0, 0, heads, size)), perm=[0, 2, 1, 3]))
        q, k, v = parts
        if normed:
            q, k = (g.layer_norm(x, f"{scope}/attention/self/{part}_norm") for x, part in ((q, "query"), (k, "key")))
            q = g.op("Mul", q, g.constant(size**-0.5))
        if self._turns:
            base = self._base(reach)
            q, k = self._turned(q, base), self._turned(k, base)
        k = g.op("Transpose", k, perm=[0, 1, 3, 2])
        scores = self._relative(q, k, scope) if self._distances else g.op("MatMul", q, k)
        probabilities = g.op("Softmax", g.op("Add", scores, bias), axis=-1)
        context = g.op("Transpose", g.op("MatMul", probabilities, v), perm=[0, 2, 1, 3])
        context = self._inputs.packed(g.op("Reshape", context, g.ints(0, 0, hidden)), hidden)
        return g.dense(context, f"{scope}/attention/output/dense")

    # Positions (model.relative_positions).

    def _score_bias(self, inputs: Inputs) -> str:
        """float32 [B, 1, 1, L] of the mask, or [B, A, L, L] with a bias of positions; prepares other schemes."""
        g, sizes, scheme = self.graph, self.sizes, self.sizes.positions
        hidden = g.op("Mul", g.op("Sub", g.constant(1), inputs.marks), g.constant(MASKED_SCORE))
        bias = g.op("Unsqueeze", hidden, g.ints(1, 2))
        places = inputs.positions()
        if isinstance(scheme, Bucketed):
            longest, rule = sizes.max_position_embeddings, scheme.bucket
            of_distance = [
                rule(distance, sizes.relative_position_buckets, sizes.relative_position_max_distance)
                for distance in range(1 - longest, longest)
            ]
            table = g.constant(g.weights[f"{self.scope}/encoder/relative_attention"][of_distance])
            rows = g.op("Add", self._between(places), g.constant(longest - 1, "int64"))
            bias = g.op("Add", bias, g.op("Transpose", g.op("Gather", table, rows), perm=[2, 0, 1]))
        if sizes.relative_positions == "alibi":
            from electra_tf2.papers.alibi.config import slopes as slopes_of

            slopes = -np.reshape(slopes_of(sizes.num_attention_heads), [-1, 1, 1])
            bias = g.op("Add", bias, g.op("Mul", g.floats(g.op("Abs", self._between(places))), g.constant(slopes)))
        if sizes.relative_positions == "rotary":
            column = g.op("Unsqueeze", g.floats(places), g.ints(1))
            for base in {self._base(sizes.window(layer)) for layer in range(sizes.num_hidden_layers)}:
                angles = g.op("Mul", column, g.constant(sinusoid_frequencies(sizes.head_size, base)))
                self._turns[base] = g.op("Cos", angles), g.op("Sin", angles)
        if sizes.relative_positions == "xl":
            last = g.op("Sub", inputs.length, g.constant(1, "int64"))
            downward = g.op("Range", last, g.op("Neg", inputs.length), g.constant(-1, "int64"))
            angles = g.op("Unsqueeze", g.floats(downward), g.ints(1))
            angles = g.op("Mul", angles, g.constant(sinusoid_frequencies(sizes.hidden_size)))
            self._distances = g.op("Concat", g.op("Sin", angles), g.op("Cos", angles), axis=1)
        return bias

    def _base(self, reach: int | None) -> float:
        """Base of rotary's angles in layers of this reach."""
        return self.sizes.rope_theta if reach is None else self.sizes.local_rope_theta or self.sizes.rope_theta

    def _within(self, bias: str, inputs: Inputs, reach: int | None) -> str:
        """The bias, masked beyond a layer's reach (model.local_attention, on whole arrays)."""
        if reach is None:
            return bias
        g = self.graph
        is_far = g.op("Greater", g.op("Abs", self._between(inputs.positions())), g.constant(reach, "int64"))
        return g.op("Add", bias, g.op("Mul", g.floats(is_far), g.constant(MASKED_SCORE)))

    def _between(self, places: str) -> str:
        """int64 [L, L], key position - query position."""
        g = self.graph
        return g.op("Sub", g.op("Unsqueeze", places, g.ints(0)), g.op("Unsqueeze", places, g.ints(1)))

    def _turned(self, x: str, base: float) -> str:
        """[B, A, L, D], the halves of each vector rotated by its position (RoFormer, section 3.2.2)."""
        g, (cosine, sine) = self.graph, self._turns[base]
        first, second = g.split("Split", x, parts=2, axis=3, num_outputs=2)
        turned = [
            g.op("Sub", g.op("Mul", first, cosine), g.op("Mul", second, sine)),
            g.op("Add", g.op("Mul", second, cosine), g.op("Mul", first, sine)),
        ]
        return g.op("Concat", *turned, axis=3)

    def _relative(self, q: str, k: str, scope: str) -> str:
        """(q_i + u) k_j + (q_i + v) W R_(i-j), of scaled queries (Transformer-XL, section 3.3): [B, A, L, L]."""
        g, heads, size = self.graph, self.sizes.num_attention_heads, self.sizes.head_size
        biases = (g.weights[f"{self.scope}/encoder/relative_{part}_bias"] for part in ("content", "distance"))
        u, v = (g.constant(bias[:, np.newaxis] * np.float32(size**-0.5)) for bias in biases)
        keys = g.op("MatMul", self._distances, g.weight(f"{scope}/attention/self/relative_key/kernel"))
        keys = g.op("Transpose", g.op("Reshape", keys, g.ints(0, heads, size)), perm=[1, 2, 0])  # [A, D, 2L - 1]
        by_distance = g.op("MatMul", g.op("Add", q, v), keys)
        return g.op("Add", g.op("MatMul", g.op("Add", q, u), k), self._shifted(by_distance))

    def _shifted(self, scores: str) -> str:
        """[B, A, L, 2L - 1] -> [B, A, L, L]: the entry of distance i - j, at j - i + L - 1, moves to (i, j)."""
        g = self.graph
        shape = g.op("Shape", scores)
        length = g.op("Slice", shape, g.ints(2), g.ints(3))
        width = g.op("Slice", shape, g.ints(3), g.ints(4))
        one = g.ints(1)
        flat = g.op("Reshape", g.op("Pad", scores, g.ints(0, 0, 0, 0, 0, 0, 0, 1)), g.ints(0, 0, -1))
        start = g.op("Sub", length, one)
        stop = g.op("Add", start, g.op("Mul", length, width))
        flat = g.op("Slice", flat, start, stop, g.ints(2))
        aligned = g.op("Reshape", flat, g.op("Concat", g.ints(0, 0), length, width, axis=0))
        return g.op("Slice", aligned, g.ints(0), length, g.ints(3))


def token_logits(graph: Graph, states: str, scope: str, table: str, sizes: Architecture, network: str) -> str:
    """[B, L, H] -> [B, L, V] of a masked language model (model.heads.LanguageModelHead, or TiedHead).

    Args:
      scope: of the head. table: name of the word table [V, E]. network: scope of the encoder.
    """
    hidden = states
    if f"{scope}/dense/kernel" in graph.weights:
        hidden = prediction_head(graph, states, scope, sizes.hidden_act)
        projects = sizes.head_style == "modernbert" and sizes.embedding_size != sizes.hidden_size
        if f"{scope}/decoder" in graph.weights:
            table = f"{scope}/decoder"
        elif projects:
            kernel = graph.op("Transpose", graph.weight(f"{network}/embeddings_project/kernel"), perm=[1, 0])
            hidden = graph.op("MatMul", hidden, kernel)
    return graph.op("Add", graph.times_table(hidden, table), graph.weight(f"{scope}/output_bias"))


def prediction_head(graph: Graph, states: str, scope: str, act: str) -> str:
    """Dense layer, activation and, where there is one, layer norm before a head's last layer."""
    hidden = graph.activation(graph.dense(states, f"{scope}/dense"), act)
    return graph.layer_norm(hidden, f"{scope}/LayerNorm") if f"{scope}/LayerNorm/gamma" in graph.weights else hidden


def replaced_logits(graph: Graph, states: str, act: str) -> str:
    """[B, L, H] -> [B, L], positive where a token looks replaced (model.heads.ReplacedTokenHead)."""
    scope = "discriminator_predictions"
    hidden = prediction_head(graph, states, scope, act)
    return graph.op("Squeeze", graph.dense(hidden, f"{scope}/dense_1"), graph.ints(-1))


def mean_state(graph: Graph, states: str, marks: str) -> str:
    """The mean [B, H] of the states [B, L, H] at marks, float32 [B, L], that are 1; zeros where none is."""
    weights = graph.op("Unsqueeze", marks, graph.ints(1))
    total = graph.op("Squeeze", graph.op("MatMul", weights, states), graph.ints(1))
    count = graph.op("ReduceSum", marks, graph.ints(1), keepdims=1)
    return graph.op("Div", total, graph.op("Max", count, graph.constant(1)))


def first_state(graph: Graph, states: str) -> str:
    """The state [B, H] of [CLS]."""
    return graph.op("Gather", states, graph.constant(0, "int64"), axis=1)


def text_vectors(graph: Graph, states: str, marks: str, pooling: Pooling) -> str:
    """[B, L, H] -> [B, H or the projection's width] of length 1."""
    state = mean_state(graph, states, marks) if pooling.mode == "mean" else first_state(graph, states)
    if pooling.projection:
        state = graph.dense(state, pooling.projection)
    return graph.op("Div", state, graph.op("ReduceL2", state, graph.ints(-1), keepdims=1))


Peaks = Mapping[str, np.ndarray] | None


@dataclasses.dataclass
class Written:
    """A network as ONNX, before it is a file.

    graph: the graph. inputs: of the graph. about: facts for model.json.
    """

    graph: Graph
    inputs: Inputs
    about: dict[str, Any]


def started(model: StoredModel, packed: bool, peaks: Peaks) -> Written:
    """A graph with inputs and nothing else; arguments as those of `Graph`."""
    graph = Graph(model.weights, packed, peaks)
    return Written(graph, Inputs(graph), files.facts(model, graph.int8))


def main_states(written: Written, model: StoredModel) -> str:
    """Adds the main network's encoder: [B, L, H]."""
    return Encoder(written.graph, model.architecture, "electra", "electra/embeddings").states(written.inputs)


def pretrained(model: StoredModel, part: str, packed: bool = False, peaks: Peaks = None) -> Written:
    """A pre-trained network.

    Args:
      part: "main", "body" or "generator". packed, peaks: as of `Graph`.

    Raises:
      UserError: the model has no such part.
    """
    head, written = files.head_of(model, part), started(model, packed, peaks)
    graph, rows, sizes, block = written.graph, ("batch", "length"), model.architecture, "electra/embeddings"
    words = f"{block}/word_embeddings"
    written.about |= files.meaning(head)
    if part == "generator":
        sizes = model.generator_architecture
        own = "generator/embeddings"
        if any(name.startswith(f"{own}/") for name in model.weights):
            block = own
        if f"{own}/word_embeddings" in model.weights:
            words = f"{own}/word_embeddings"
        states = Encoder(graph, sizes, "generator", block, words).states(written.inputs)
    else:
        states = main_states(written, model)
        graph.output(files.STATES, states, *rows, sizes.hidden_size)
    if head == "detector":
        graph.output(files.LOGITS, replaced_logits(graph, states, sizes.hidden_act), *rows)
    elif head:
        scope, table = files.language_model(model, part), words
        network = "generator" if part == "generator" else "electra"
        logits = token_logits(graph, states, scope, table, sizes, network)
        graph.output(files.LOGITS, logits, *rows, sizes.vocab_size)
    else:
        pooling = pooling_of(model)
        vectors = text_vectors(graph, states, written.inputs.marks, pooling)
        graph.output(files.SENTENCE, vectors, "batch", pooling.width(model))
        written.about["pooling"] = pooling.mode
    return written


def write_onnx(
    folder: Path, model: StoredModel, make: Callable[..., Written], compared: files.Comparison, int8: bool
) -> tuple[str, float]:
    """Writes the folder; model.json last, so that one which has it is complete.

    Args:
      make: the network, given `packed` and `peaks` of `Graph`.
      compared: what it is checked by.

    Returns:
      A description of what was written, and the largest difference between our network and the one in float32.

    Raises:
      UserError: int8 makes another network of it.
    """
    written = make(int8)
    exact: dict[str, np.ndarray] | None = None
    if int8:
        written.graph.watch()
        exact = run(serialized(written), compared)
        written = make(True, peaks_in(exact))
    about = written.about | {
        "inputs": {value.name: _described(value) for value in written.graph.inputs},
        "outputs": {value.name: _described(value) for value in written.graph.outputs},
    }
    return files.write_network(folder / "model.onnx", serialized(written), model, about, compared, run, exact)


def serialized(written: Written) -> bytes:
    return written.graph.serialized({key: str(value) for key, value in written.about.items()})


def _described(value: Any) -> list[str | int]:
    """Shape of an input or output."""
    return [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]


def run(network: bytes, compared: files.Comparison) -> dict[str, np.ndarray]:
    """Outputs of a file's content by ONNX Runtime on the processor."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(network, options, providers=["CPUExecutionProvider"])
    inputs = dict(zip(files.INPUTS, compared.rows, strict=True)) | compared.further
    found = session.run(None, {name: value.astype(np.int64) for name, value in inputs.items()})
    return dict(zip((output.name for output in session.get_outputs()), found, strict=True))
