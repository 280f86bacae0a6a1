"""The self-check of every conversion: fixed sentences, the difference between two networks' outputs, its limit.

A model is read back from what was written. Fixed sentences go through both, and the largest difference is reported.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from electra_tf2.corpus.encoding import Encoded, Text, encode
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.util.errors import UserError

TOLERANCE = 1e-5  # for float32 weights; narrower weights differ by more, which is reported
_MARGIN = 1e-3  # between the logarithms of two probabilities, which rounding in float32 does not bridge
_LEAST_PROBABILITY = 1e-6  # above the rounding of a sum of probabilities
SENTENCES: tuple[Text, ...] = (
    "The generator replaces some words, and the discriminator says which.",
    ("A pair of sentences has two segments.", "The second is this one, Müller's: 北京 42!"),
    "Short.",
)


def fixed_inputs(model: StoredModel, sentences: Sequence[Text] = SENTENCES) -> Encoded:
    """Encodes the fixed sentences with the model's vocabulary."""
    return encode(model.tokenizer(), sentences, model.max_length)


def distance(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference of two arrays, relative to their scale if that is above 1.

    Rounding in float32 grows with the largest terms of a sum, and logits of a trained language model reach 30.

    Returns:
      Infinity for arrays of different shapes, or of different strings.
    """
    if ours.shape != theirs.shape or ours.dtype.kind == "U":
        return 0.0 if np.array_equal(ours, theirs) else np.inf
    scale = max(1.0, np.abs(ours).max())
    return float(np.abs(ours - theirs).max() / scale)


def certain_ranks(log_probabilities: np.ndarray) -> np.ndarray:
    """Tells which ids rounding cannot exchange, bool [..., K].

    Args:
      log_probabilities: [..., K], of the K most probable ids of a softmax, the best first.
    """
    # The id after the last one is not known, but it has no more than the probability that is left.
    left = 1 - np.exp(log_probabilities).sum(-1, keepdims=True)
    after_last = np.log(np.maximum(left, _LEAST_PROBABILITY))
    before_first = np.full_like(after_last, np.inf)
    before = np.concatenate([before_first, log_probabilities[..., :-1]], -1)
    after = np.concatenate([log_probabilities[..., 1:], after_last], -1)
    return (before - log_probabilities > _MARGIN) & (log_probabilities - after > _MARGIN)


def largest(differences: Iterable[float]) -> float:
    """The largest difference, or NaN if there is one. Python's max() may pass over NaN."""
    return float(np.max(np.fromiter(differences, np.float64)))


def largest_at_tokens(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray], encoded: Encoded) -> float:
    """The largest `distance` of two networks' outputs, without padding."""
    assert ours.keys() == theirs.keys(), (sorted(ours), sorted(theirs))
    ours = without_padding(ours, encoded.input_mask)
    theirs = without_padding(theirs, encoded.input_mask)
    return largest(distance(value, theirs[name]) for name, value in ours.items())


def without_padding(outputs: Mapping[str, np.ndarray], input_mask: np.ndarray) -> dict[str, np.ndarray]:
    """Replaces outputs for tokens, [B, L, ...], by [real tokens, ...]; keeps other outputs."""
    is_real = input_mask.astype(bool)
    result = {}
    for name, value in outputs.items():
        is_per_token = value.shape[:2] == is_real.shape
        result[name] = value[is_real] if is_per_token else value
    return result


def report(difference: float, dtype: str, what: str) -> str:
    """A line that reports a difference.

    Args:
      dtype: type of the stored weights. what: the two networks that were compared.

    Raises:
      UserError: float32 weights differ by more than `TOLERANCE`, or the difference is not finite (float16 ends at
        65,504).
    """
    line = f"self-check: {what}: largest difference {difference:.2e} on {len(SENTENCES)} inputs"
    is_small = difference <= TOLERANCE  # False for NaN
    if dtype == "float32" and not is_small:
        raise UserError(
            f"{line}, above {TOLERANCE:g}: the conversion is wrong; nothing that was written should be used"
        )
    if not np.isfinite(difference):
        raise UserError(f"{line}: {dtype} cannot hold these weights; nothing that was written should be used")
    return line if dtype == "float32" else f"{line} ({dtype} weights)"
