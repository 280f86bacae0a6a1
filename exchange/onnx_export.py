"""Writing models as ONNX: a folder with the network, its tokenizer, and what its outputs mean.

    model.onnx            the network (exchange.onnx_network); int8 where it was asked for
    model.json            what it is: inputs and outputs, labels, pooling, the longest input
    tokenizer.json, tokenizer_config.json, vocab.txt

Which outputs a file has follows from the part: "main", the main network with its head (of fine-tuned models: its
answers); "body", states and a vector for the whole text; "generator", its masked language model.
"""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.exchange import check
from electra_tf2.exchange import onnx_network as onnx
from electra_tf2.exchange.encoding import Encoded
from electra_tf2.exchange.huggingface_export import write_tokenizer_of
from electra_tf2.exchange.onnx_graph import Graph
from electra_tf2.exchange.pooling import pooling_of
from electra_tf2.exchange.sources import Model
from electra_tf2.util.errors import UserError
from electra_tf2.util.files import replacing, write_json

NETWORK, ABOUT = "model.onnx", "model.json"
SENTENCE = "sentence_embedding"
_DETECTOR = "discriminator_predictions/dense/kernel"
_LEAST_COSINE = 0.9  # of what int8 makes of vectors with what they were


@dataclasses.dataclass
class Written:
    """A network as ONNX, before it is a file.

    graph: the graph. inputs: of the graph. about: facts for model.json.
    """

    graph: Graph
    inputs: onnx.Inputs
    about: dict[str, Any]


def started(model: Model, int8: bool) -> Written:
    """A graph with inputs and nothing else."""
    graph = Graph(model.weights, int8)
    longest = min(512, model.architecture.max_position_embeddings)
    about = {"model": model.config.model_name, "made_of": model.origin, "max_length": longest}
    about |= {"weights": "int8" if int8 else "float32", "do_lower_case": model.casing.do_lower_case}
    return Written(graph, onnx.Inputs(graph), about)


def main_states(written: Written, model: Model) -> str:
    """Adds the main network's encoder: [B, L, H]."""
    return onnx.Encoder(written.graph, model.architecture, "electra", "electra/embeddings").states(written.inputs)


def pretrained(model: Model, part: str, int8: bool = False) -> Written:
    """A pre-trained network.

    Args:
      part: "main", "body" or "generator".

    Raises:
      UserError: the model has no such part.
    """
    written = started(model, int8)
    graph, rows = written.graph, ("batch", "length")
    if part == "generator":
        _generator(written, model)
        return written
    states, sizes, scope = main_states(written, model), model.architecture, _language_model(model, part)
    graph.output(onnx.STATES, states, *rows, sizes.hidden_size)
    if part == "main" and _DETECTOR in model.weights:
        graph.output(onnx.LOGITS, onnx.replaced_logits(graph, states, sizes.hidden_act), *rows)
        written.about["logits"] = "positive where a token looks replaced"
    elif scope:
        table = "electra/embeddings/word_embeddings"
        logits = onnx.token_logits(graph, states, scope, table, sizes.hidden_act)
        graph.output(onnx.LOGITS, logits, *rows, sizes.vocab_size)
        written.about["logits"] = "of the masked language model, one for each token of the vocabulary"
    else:
        pooling = pooling_of(model)
        vectors = onnx.text_vectors(graph, states, written.inputs.marks, pooling)
        graph.output(SENTENCE, vectors, "batch", pooling.width(model))
        written.about["pooling"] = pooling.mode
    return written


def _language_model(model: Model, part: str) -> str:
    """Scope of the head that fills [MASK]s in a part; "" if there is none."""
    if part == "body" or (part == "main" and model.has_generator):
        return ""
    corrective = part == "main" and "clm_predictions/output_bias" in model.weights
    scope = "clm_predictions" if corrective else "generator_predictions"
    return scope if f"{scope}/output_bias" in model.weights else ""


def _generator(written: Written, model: Model) -> None:
    """Raises UserError if the model has no generator, or one of two towers."""
    weights, sizes = model.weights, model.generator_architecture
    if not any(name.startswith("generator/encoder/") for name in weights):
        towers = any(name.startswith("generator_ltr/") for name in weights)
        raise UserError(
            "the generator's two towers are no masked language model, which --part generator writes"
            if towers
            else "this model has no generator of its own"
        )
    own = "generator/embeddings/word_embeddings" in weights
    block = "generator/embeddings" if own else "electra/embeddings"
    graph = written.graph
    states = onnx.Encoder(graph, sizes, "generator", block).states(written.inputs)
    logits = onnx.token_logits(graph, states, "generator_predictions", f"{block}/word_embeddings", sizes.hidden_act)
    graph.output(onnx.LOGITS, logits, "batch", "length", sizes.vocab_size)
    written.about["logits"] = "of the generator, one for each token of the vocabulary"


class Comparison(NamedTuple):
    """Rows that go through our network and through a file, and what ours says of them.

    rows: the fixed sentences. further: inputs beside ids, mask and segments. ours: arrays by name. read: makes the same
    arrays of the file's outputs.
    """

    rows: Encoded
    further: dict[str, np.ndarray]
    ours: dict[str, np.ndarray]
    read: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]] = dict

    def pairs(self, outputs: dict[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """(name, ours, the file's) at real tokens, for outputs that are one for each of them."""
        real = self.rows.input_mask.astype(bool)
        for name, theirs in self.read(outputs).items():
            ours = self.ours[name]
            yield (name, ours[real], theirs[real]) if ours.shape[:2] == real.shape else (name, ours, theirs)

    def difference(self, outputs: dict[str, np.ndarray]) -> float:
        """The largest difference; of numbers beyond 1, which float32 keeps to fewer places, as a share of them."""
        return check.largest(
            (np.abs(ours - theirs) / np.maximum(np.abs(ours), 1)).max() for _, ours, theirs in self.pairs(outputs)
        )


def comparison(model: Model, part: str) -> Comparison:
    """The comparison of a pre-trained network."""
    detects = part == "main" and _DETECTOR in model.weights
    class_name = "ElectraForPreTraining" if detects else "ElectraForMaskedLM" if _language_model(model, part) else ""
    found = check.our_outputs(model, "generator" if part == "generator" else "main", class_name)
    rows, states = check.check_inputs(model), found.pop("states")
    found |= {onnx.STATES: states, SENTENCE: pooling_of(model).vectors(model, states, rows.input_mask)}
    return Comparison(rows, {}, found)


def write_onnx(
    folder: Path, model: Model, make: Callable[[bool], Written], compared: Comparison, int8: bool
) -> tuple[str, float]:
    """Writes the folder; model.json last, so that one which has it is complete.

    Args:
      make: the network, in float32 or, if it is given True, int8.
      compared: what it is checked by.

    Returns:
      A description of what was written, and the largest difference between our network and the one in float32.

    Raises:
      UserError: int8 makes another network of it.
    """
    written = make(int8)
    about = written.about | {
        "inputs": {value.name: _described(value) for value in written.graph.inputs},
        "outputs": {value.name: _described(value) for value in written.graph.outputs},
    }
    path = folder / NETWORK
    with replacing(path) as temporary:
        temporary.write_bytes(serialized(written))
    moved = movement(compared, run(path, compared)) if int8 else []
    write_tokenizer_of(model, folder, about["max_length"])
    write_json(folder / ABOUT, about)
    outputs = run(serialized(make(False)) if int8 else path, compared)
    said = [f"{path}: {', '.join(about['outputs'])}; {about['weights']}, {path.stat().st_size / 1e6:.1f} MB", *moved]
    return "\n  ".join(said), compared.difference(outputs)


def serialized(written: Written) -> bytes:
    return written.graph.serialized({key: str(value) for key, value in written.about.items()})


def _described(value: Any) -> list[str | int]:
    """Shape of an input or output."""
    return [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]


def run(network: Path | bytes, compared: Comparison) -> dict[str, np.ndarray]:
    """Outputs of a file, or of its content, by ONNX Runtime on the processor."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    given = network if isinstance(network, bytes) else str(network)
    session = onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    inputs = dict(zip(onnx.INPUTS, compared.rows, strict=True)) | compared.further
    found = session.run(None, {name: value.astype(np.int64) for name, value in inputs.items()})
    return dict(zip((output.name for output in session.get_outputs()), found, strict=True))


def movement(compared: Comparison, outputs: dict[str, np.ndarray]) -> list[str]:
    """Says how far a quantised network's outputs are from ours.

    Raises:
      UserError: too far to be of use.
    """
    lines = []
    for name, ours, theirs in compared.pairs(outputs):
        moved = np.abs(theirs - ours)
        line = f"{name}: {moved.mean():.3f} from float32 on average, {moved.max():.3f} at most"
        if ours.ndim > 1 and ours.shape[-1] > 1:
            cosines = (ours * theirs).sum(-1) / (np.linalg.norm(ours, axis=-1) * np.linalg.norm(theirs, axis=-1))
            line += f"; cosine {cosines.mean():.4f} on average, {cosines.min():.4f} at least"
            if not cosines.mean() > _LEAST_COSINE:
                raise UserError(f"--quantize int8: {line}: too far to be of use; leave out --quantize")
        lines.append(line)
    return lines
