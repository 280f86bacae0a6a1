"""Self-check of a conversion: the same sentences through our network and through what was written.

The files are read back from the disk: Hugging Face's and the original's by our own reader, so that the way out and the
way in must agree; others by their own runtime. Tests hold what was written against transformers.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf2.corpus.encoding import Encoded, Text, encode
from electra_tf2.finetune.tasks.head import HeadInput
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.inference.configured import make_network
from electra_tf2.inference.network import LOGITS, STATES
from electra_tf2.inference.predictor import Predictor
from electra_tf2.model import kernels
from electra_tf2.util.errors import UserError

TOLERANCE = 1e-5  # in float32; narrower weights differ by more, which is reported
SENTENCES: tuple[Text, ...] = (
    "The generator replaces some words, and the discriminator says which.",
    ("A pair of sentences has two segments.", "The second is this one, Müller's: 北京 42!"),
    "Short.",
)


class Options(NamedTuple):
    """Wishes of whoever converts: flags of convert_model.py."""

    part: str = "main"
    dtype: str = "float32"
    step: int = 0
    adam_slots: bool = False


class Written(NamedTuple):
    """Files of a conversion, and the largest difference between our network and what it is `compared` with."""

    what: str
    difference: float
    compared: str


def check_inputs(model: StoredModel, sentences: Sequence[Text] = SENTENCES) -> Encoded:
    """Encodes the fixed sentences in the model's vocabulary."""
    return encode(model.tokenizer(), sentences, model.architecture.max_position_embeddings)


def outputs(model: StoredModel, part: str = "main", rows: Encoded | None = None) -> dict[str, np.ndarray]:
    """Computes what a part of our network says (`Network.outputs`); LOGITS of a fine-tuned one are its first task's.

    Args:
      part: "main", "generator" or "body".
      rows: None: the fixed sentences.
    """
    rows = check_inputs(model) if rows is None else rows
    with kernels.off():
        ids, mask, segments = (tf.constant(value, tf.int32) for value in rows)
        found = make_network(model).outputs(part, ids, mask, segments)
        if part == "main" and model.is_fine_tuned:
            predictor = Predictor(model, model.tokenizer())
            inputs = HeadInput(found[STATES], mask, segments, {})
            found[LOGITS] = predictor.model.heads[0].logits(inputs, None)
        return {name: value.numpy() for name, value in found.items()}


def read_back_difference(model: StoredModel, again: StoredModel) -> float:
    """The largest difference between the outputs and weights of a model and of what was read back.

    Infinite if one has a variable that the other lacks.
    """
    if model.weights.keys() != again.weights.keys():
        return float("inf")
    parts, rows = ["body"] if model.is_fine_tuned else ["main"], check_inputs(model)
    if any(name.startswith("generator/encoder/") for name in model.weights):
        parts.append("generator")
    of_outputs = (largest_at_tokens(outputs(model, part), outputs(again, part), rows) for part in parts)
    of_weights = (distance(value, again.weights[name]) for name, value in model.weights.items())
    return largest([*of_outputs, *of_weights])


def largest(differences: Iterable[float]) -> float:
    """The largest number; NaN if one is, which max() may pass over."""
    return float(np.max(np.fromiter(differences, np.float64)))


def report(difference: float, dtype: str, what: str) -> str:
    """Says how large a difference is.

    Raises:
      UserError: the difference is beyond `TOLERANCE` and the weights are float32, or it is no number: float16 holds
        nothing beyond 65,504.
    """
    line = f"self-check: {what}: largest difference {difference:.2e} on {len(SENTENCES)} inputs"
    if dtype == "float32" and not difference <= TOLERANCE:
        raise UserError(
            f"{line}, above {TOLERANCE:g}: the conversion is wrong; nothing that was written should be used"
        )
    if not np.isfinite(difference):
        raise UserError(f"{line}: {dtype} cannot hold these weights; nothing that was written should be used")
    return f"{line} ({dtype} weights)" if dtype != "float32" else line


def distance(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference; where values go beyond 1, as a share of the largest of them.

    Sums of float32 round in proportion to their largest terms, and the logits of a trained language model go to 30.
    Infinite for other texts, or numbers of another shape.
    """
    if ours.shape != theirs.shape or ours.dtype.kind == "U":
        return 0.0 if np.array_equal(ours, theirs) else np.inf
    return float(np.abs(ours - theirs).max() / max(1.0, np.abs(ours).max()))


def largest_at_tokens(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray], encoded: Encoded) -> float:
    """The largest `distance` at real tokens; states beyond a row's end mean nothing."""
    assert ours.keys() == theirs.keys(), (sorted(ours), sorted(theirs))
    cut = [at_tokens(outputs, encoded.input_mask) for outputs in (ours, theirs)]
    return largest(distance(value, cut[1][name]) for name, value in cut[0].items())


def at_tokens(found: Mapping[str, np.ndarray], input_mask: np.ndarray) -> dict[str, np.ndarray]:
    """Outputs [tokens, ...] where they are one for each token, [B, L, ...]; others as they are."""
    real = input_mask.astype(bool)
    return {name: value[real] if value.shape[:2] == real.shape else value for name, value in found.items()}
