"""Parts that files of a network for other runtimes share: names, facts beside the weights, and their check.

    input_ids, attention_mask, token_type_ids: [batch, length]  ->  last_hidden_state, logits, sentence_embedding

The part says which outputs there are: "main", the main network with its head (of fine-tuned models: its answers);
"body", states and a vector for the whole text; "generator", its masked language model. ONNX (convert.onnx_network) and
LiteRT (convert.litert) files lie beside a model.json and the tokenizer's files. B batch, L length, H hidden.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.convert import self_check as check
from electra_tf2.convert.huggingface import write_tokenizer_of
from electra_tf2.corpus.encoding import Encoded
from electra_tf2.formats.checkpoints import MASKED_LM, main_language_model
from electra_tf2.inference.stored_model import StoredModel, pooling_of
from electra_tf2.util.errors import UserError
from electra_tf2.util.files import replacing, write_json

INPUTS = "input_ids", "attention_mask", "token_type_ids"
STATES, LOGITS, SENTENCE = "last_hidden_state", "logits", "sentence_embedding"
_DETECTOR = "discriminator_predictions/dense/kernel"
_LEAST_COSINE = 0.9  # of what int8 makes of vectors with what they were
_MEANINGS = {"detector": "positive where a token looks replaced",
             "language model": "of the masked language model, one for each token of the vocabulary"}  # fmt: skip


def facts(model: StoredModel, int8: bool) -> dict[str, Any]:
    """Facts for model.json."""
    longest = min(512, model.architecture.max_position_embeddings)
    about = {"model": model.config.model_name, "made_of": model.origin, "max_length": longest}
    return about | {"weights": "int8" if int8 else "float32", "do_lower_case": model.casing.do_lower_case}


def write_network(
    path: Path,
    content: bytes,
    model: StoredModel,
    about: dict[str, Any],
    compared: "Comparison",
    run: Callable[[bytes, "Comparison"], dict[str, np.ndarray]],
    exact: dict[str, np.ndarray] | None,
) -> tuple[str, float]:
    """Writes a network and what lies beside it; model.json last, so that a folder which has it is complete.

    Args:
      about: facts for model.json.
      run: outputs of a file's content. exact: those of the same network in float32, where the file's is not.

    Returns:
      A description of what was written, and the largest difference between our network and the one in float32.

    Raises:
      UserError: int8 makes another network of it.
    """
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    outputs = run(path.read_bytes(), compared)
    about = {"outputs": sorted(outputs)} | about
    moved = movement(compared, outputs) if about["weights"] == "int8" else []
    write_tokenizer_of(model, path.parent, about["max_length"])
    write_json(path.with_name("model.json"), about)
    said = f"{path}: {', '.join(about['outputs'])}; {about['weights']}, {len(content) / 1e6:.1f} MB"
    return "\n  ".join([said, *moved]), compared.difference(outputs if exact is None else exact)


def head_of(model: StoredModel, part: str) -> str:
    """The head of a pre-trained part: "detector", "language model", or "" of states and a vector alone.

    Raises:
      UserError: the model has no such part.
    """
    weights = model.weights
    if part == "generator" and not any(name.startswith("generator/encoder/") for name in weights):
        raise UserError(
            "the generator's two towers are no masked language model, which --part generator writes"
            if any(name.startswith("generator_ltr/") for name in weights)
            else "this model has no generator of its own"
        )
    if part == "main" and _DETECTOR in weights:
        return "detector"
    return "language model" if language_model(model, part) else ""


def meaning(head: str) -> dict[str, str]:
    """Names the meaning of a head's logits, for model.json."""
    return {LOGITS: _MEANINGS[head]} if head else {}


def language_model(model: StoredModel, part: str) -> str:
    """Scope of the head that fills [MASK]s in a part; "" if there is none."""
    if part == "body" or (part == "main" and model.has_generator):
        return ""
    if part == "generator":
        return MASKED_LM if f"{MASKED_LM}/output_bias" in model.weights else ""
    return main_language_model(model.weights, has_generator=False) or ""


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
        """The largest `check.distance` of an output."""
        return check.largest(check.distance(ours, theirs) for _, ours, theirs in self.pairs(outputs))


def comparison(model: StoredModel, part: str) -> Comparison:
    """The comparison of a pre-trained network."""
    classes = {"detector": "ElectraForPreTraining", "language model": "ElectraForMaskedLM", "": ""}
    found = check.our_outputs(model, "generator" if part == "generator" else "main", classes[head_of(model, part)])
    rows, states = check.check_inputs(model), found.pop("states")
    found |= {STATES: states, SENTENCE: pooling_of(model).vectors(model, states, rows.input_mask)}
    return Comparison(rows, {}, found)


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
