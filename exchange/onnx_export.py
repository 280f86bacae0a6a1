"""Writing models as ONNX: a folder with the network, its tokenizer, and what its outputs mean.

    model.onnx            the network (exchange.onnx_network); int8 where it was asked for
    model.json            what it is: inputs and outputs, labels, pooling, the longest input
    tokenizer.json, tokenizer_config.json, vocab.txt

Which outputs a file has follows from the part (exchange.network_file).
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from electra_tf2.exchange import network_file as files
from electra_tf2.exchange import onnx_network as onnx
from electra_tf2.exchange.onnx_graph import Graph, peaks_in
from electra_tf2.exchange.pooling import pooling_of
from electra_tf2.exchange.sources import Model

Peaks = Mapping[str, np.ndarray] | None


@dataclasses.dataclass
class Written:
    """A network as ONNX, before it is a file.

    graph: the graph. inputs: of the graph. about: facts for model.json.
    """

    graph: Graph
    inputs: onnx.Inputs
    about: dict[str, Any]


def started(model: Model, packed: bool, peaks: Peaks) -> Written:
    """A graph with inputs and nothing else; arguments as those of `Graph`."""
    graph = Graph(model.weights, packed, peaks)
    return Written(graph, onnx.Inputs(graph), files.facts(model, graph.int8))


def main_states(written: Written, model: Model) -> str:
    """Adds the main network's encoder: [B, L, H]."""
    return onnx.Encoder(written.graph, model.architecture, "electra", "electra/embeddings").states(written.inputs)


def pretrained(model: Model, part: str, packed: bool = False, peaks: Peaks = None) -> Written:
    """A pre-trained network.

    Args:
      part: "main", "body" or "generator". packed, peaks: as of `Graph`.

    Raises:
      UserError: the model has no such part.
    """
    head, written = files.head_of(model, part), started(model, packed, peaks)
    graph, rows, sizes, block = written.graph, ("batch", "length"), model.architecture, "electra/embeddings"
    written.about |= files.meaning(head)
    if part == "generator":
        sizes = model.generator_architecture
        if "generator/embeddings/word_embeddings" in model.weights:
            block = "generator/embeddings"
        states = onnx.Encoder(graph, sizes, "generator", block).states(written.inputs)
    else:
        states = main_states(written, model)
        graph.output(files.STATES, states, *rows, sizes.hidden_size)
    if head == "detector":
        graph.output(files.LOGITS, onnx.replaced_logits(graph, states, sizes.hidden_act), *rows)
    elif head:
        scope, table = files.language_model(model, part), f"{block}/word_embeddings"
        network = "generator" if part == "generator" else "electra"
        logits = onnx.token_logits(graph, states, scope, table, sizes, network)
        graph.output(files.LOGITS, logits, *rows, sizes.vocab_size)
    else:
        pooling = pooling_of(model)
        vectors = onnx.text_vectors(graph, states, written.inputs.marks, pooling)
        graph.output(files.SENTENCE, vectors, "batch", pooling.width(model))
        written.about["pooling"] = pooling.mode
    return written


def write_onnx(
    folder: Path, model: Model, make: Callable[..., Written], compared: files.Comparison, int8: bool
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
