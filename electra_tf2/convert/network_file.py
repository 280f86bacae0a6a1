"""Networks as files for other runtimes: the function that is written, what lies beside it, and its check.

    input_ids, attention_mask, token_type_ids: [batch, length]  ->  last_hidden_state, logits, sentence_embedding

The part says which outputs there are: "main", the main network with its head (of fine-tuned models: its answers,
convert.head_outputs); "body", states and a vector for the whole text; "generator", its masked language model. ONNX
(convert.onnx) and LiteRT (convert.litert) files lie beside a model.json and the tokenizer's files. B batch, L length.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf2.convert import self_check as check
from electra_tf2.convert.huggingface import write_tokenizer_of
from electra_tf2.corpus.encoding import Encoded
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.inference.configured import config_of, make_network, pooling_of
from electra_tf2.model import kernels
from electra_tf2.model.pooling import text_vectors
from electra_tf2.util.errors import UserError
from electra_tf2.util.files import replacing, write_json

INPUTS = "input_ids", "attention_mask", "token_type_ids"
STATES, LOGITS, SENTENCE = "last_hidden_state", "logits", "sentence_embedding"
_LEAST_COSINE = 0.9  # of what int8 makes of vectors with what they were
_REPLACED = "positive where a token looks replaced"
_LANGUAGE_MODEL = "of the masked language model, one for each token of the vocabulary"


class Exportable(NamedTuple):
    """A function to be written, and the rows on which the file is compared with it.

    function: int32 [B, L] inputs by name (`INPUTS`, then those of `further`) -> outputs by name. variables: those that
    it reads. about: facts for model.json. rows: inputs of the comparison. further: more inputs of it by name.
    comparable: outputs without what may differ.
    """

    function: Callable[[Mapping[str, tf.Tensor]], dict[str, tf.Tensor]]
    variables: Sequence[tf.Variable]
    about: dict[str, Any]
    rows: Encoded
    further: Mapping[str, np.ndarray] = {}
    comparable: Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]] = dict

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """int32 [B, L] by name."""
        return dict(zip(INPUTS, self.rows, strict=True)) | dict(self.further)

    def pairs(self, outputs: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """(name, ours, a file's) at real tokens, for outputs that are one for each of them."""
        real = self.rows.input_mask.astype(bool)
        with kernels.off():
            found = self.function({name: tf.constant(value, tf.int32) for name, value in self.inputs.items()})
        ours, theirs = self.comparable({name: value.numpy() for name, value in found.items()}), self.comparable(outputs)
        assert ours.keys() == theirs.keys(), (sorted(ours), sorted(theirs))
        for name, value in ours.items():
            by_token = value.shape[:2] == real.shape
            yield (name, value[real], theirs[name][real]) if by_token else (name, value, theirs[name])

    def difference(self, outputs: Mapping[str, np.ndarray]) -> float:
        """The largest `self_check.distance` of an output."""
        return check.largest(check.distance(ours, theirs) for _, ours, theirs in self.pairs(outputs))


def pretrained(model: StoredModel, part: str) -> Exportable:
    """A part of a pre-trained network.

    Raises:
      UserError: the model has no such part.
    """
    network = make_network(model)
    if part == "generator" and network.generator is None:
        raise UserError(
            "the generator's two towers are no masked language model, which --part generator writes"
            if network.towers is not None
            else "this model has no generator of its own"
        )
    head: Callable[[tf.Tensor], tf.Tensor] | None = None
    about: dict[str, Any] = {"pooling": pooling_of(model).mode}
    if part == "main" and network.detector is not None:
        head, about = network.detector, {LOGITS: _REPLACED}
    elif part == "generator" or (part == "main" and not model.has_generator and network.language_model is not None):
        head, about = network.language_model, {LOGITS: _LANGUAGE_MODEL}

    def outputs(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        rows = [inputs[name] for name in INPUTS]
        if part == "generator":
            return {LOGITS: network.token_logits(*rows)}
        states = network.states(*rows)
        if head is not None:
            return {STATES: states, LOGITS: head(states)}
        return {STATES: states, SENTENCE: text_vectors(states, rows[1], about["pooling"], network.projection)}

    return Exportable(outputs, network.trainable_variables, about, check.check_inputs(model))


def write_network(
    path: Path,
    content: bytes,
    model: StoredModel,
    made: Exportable,
    run: Callable[[bytes, Exportable], dict[str, np.ndarray]],
    exact: bytes | None,
) -> tuple[str, float]:
    """Writes a network and what lies beside it; model.json last, so that a folder which has it is complete.

    Args:
      run: outputs of a file's content in its runtime. exact: the same network in float32, where `content` is int8.

    Returns:
      A description of what was written, and the largest difference between our network and the one in float32.

    Raises:
      UserError: int8 makes another network of it.
    """
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    outputs = run(path.read_bytes(), made)
    moved = movement(made, outputs) if exact is not None else []
    longest = min(512, model.architecture.max_position_embeddings)
    about: dict[str, Any] = {"outputs": sorted(outputs), "inputs": [*made.inputs], "model": config_of(model).model_name}
    about |= {"made_of": model.origin, "max_length": longest, "weights": "float32" if exact is None else "int8"}
    about |= {"do_lower_case": model.casing.do_lower_case} | made.about
    write_tokenizer_of(model, path.parent, about["max_length"])
    write_json(path.with_name("model.json"), about)
    said = f"{path}: {', '.join(about['outputs'])}; {about['weights']}, {len(content) / 1e6:.1f} MB"
    return "\n  ".join([said, *moved]), made.difference(outputs if exact is None else run(exact, made))


def movement(made: Exportable, outputs: Mapping[str, np.ndarray]) -> list[str]:
    """Says how far a quantised network's outputs are from ours.

    Raises:
      UserError: too far to be of use.
    """
    lines = []
    for name, ours, theirs in made.pairs(outputs):
        moved = np.abs(theirs - ours)
        line = f"{name}: {moved.mean():.3f} from float32 on average, {moved.max():.3f} at most"
        if ours.ndim > 1 and ours.shape[-1] > 1:
            cosines = (ours * theirs).sum(-1) / (np.linalg.norm(ours, axis=-1) * np.linalg.norm(theirs, axis=-1))
            line += f"; cosine {cosines.mean():.4f} on average, {cosines.min():.4f} at least"
            if not cosines.mean() > _LEAST_COSINE:
                raise UserError(f"--quantize int8: {line}: too far to be of use; leave out --quantize")
        lines.append(line)
    return lines
