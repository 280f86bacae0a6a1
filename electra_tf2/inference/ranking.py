"""Uses of sentences' scores: telling the better of two, and choosing among the hypotheses of a recogniser.

Pairs are minimal pairs such as BLiMP's, one acceptable; hypotheses are n-best lists of a speech recogniser or a
translator, re-ranked by f + lambda * score (Electric, section 3.2). No TensorFlow.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.util.errors import UserError
from electra_tf2.util.reading import read_json_lines

# Electric's paper searches 0.05, ..., 1.0.
LAMBDAS = tuple(round(0.05 * step, 2) for step in range(21))


class Pair(NamedTuple):
    """Two sentences that differ in one phenomenon; the first is acceptable."""

    good: str
    bad: str
    phenomenon: str


class Hypotheses(NamedTuple):
    """N-best list of a recogniser for one utterance.

    scores: the recogniser's own, higher is better (log-probabilities). reference: what was said, if known. row: the
    object that the list was read from.
    """

    texts: list[str]
    scores: np.ndarray
    reference: str | None
    row: dict[str, Any]


def read_pair(row: dict[str, Any], where: str, fields: Sequence[str], default: str) -> Pair:
    """Reads a pair from an object.

    Args:
      fields: names of the good sentence, of the bad one and of the phenomenon, which may be missing.
      default: phenomenon of pairs that do not say theirs.
    """
    for field in fields[:2]:
        if not isinstance(row.get(field), str):
            raise UserError(
                f"{where}: {field!r}, a sentence, is needed; it has {', '.join(map(repr, row)) or 'nothing'}"
            )
    return Pair(row[fields[0]], row[fields[1]], str(row.get(fields[2], default)))


def read_hypotheses(row: dict[str, Any], where: str) -> Hypotheses:
    """Reads an n-best list from an object: `hypotheses`, each with `text` and `score`, and perhaps `reference`."""
    listed = row.get("hypotheses")
    if not isinstance(listed, list) or not listed:
        raise UserError(f"{where}: 'hypotheses', a list of objects with 'text' and 'score', is needed")
    for one in listed:
        fits = isinstance(one, dict) and isinstance(one.get("text"), str) and isinstance(one.get("score"), (int, float))
        if not fits:
            raise UserError(f"{where}: a hypothesis needs 'text' and a number 'score', got {one!r}")
    reference = row.get("reference")
    if reference is not None and not isinstance(reference, str):
        raise UserError(f"{where}: 'reference' must be a text, got {reference!r}")
    scores = np.array([one["score"] for one in listed], np.float64)
    return Hypotheses([one["text"] for one in listed], scores, reference, row)


def read_lists(path: str, flag: str, references: bool = False) -> list[Hypotheses]:
    """Reads the n-best lists of a file of JSON lines.

    Raises:
      UserError: none are there, one is no list of hypotheses, or it lacks its reference and `references` is True.
    """
    lists = []
    for number, row in read_json_lines(path, flag):
        lists.append(read_hypotheses(row, f"{flag} {path}, line {number}"))
        if references and lists[-1].reference is None:
            raise UserError(f"{flag} {path}, line {number}: choosing lambda needs a 'reference' in every line")
    if not lists:
        raise UserError(f"{flag}: {path} holds no lists")
    return lists


def accuracy(pairs: Sequence[Pair], good: np.ndarray, bad: np.ndarray) -> dict[str, float]:
    """Per cent of pairs whose good sentence scores higher, by phenomenon; a tie counts as wrong.

    "mean" is the mean over phenomena, "all" that over pairs.
    """
    right: dict[str, list[bool]] = {}
    for pair, better in zip(pairs, good > bad, strict=True):
        right.setdefault(pair.phenomenon, []).append(bool(better))
    found = {name: 100 * float(np.mean(values)) for name, values in sorted(right.items())}
    return found | {"mean": float(np.mean(list(found.values()))), "all": 100 * float(np.mean(good > bad))}


def word_errors(hypothesis: str, reference: str) -> int:
    """Substitutions, insertions and deletions between two texts' words (Levenshtein)."""
    words, wanted = hypothesis.split(), reference.split()
    row = np.arange(len(wanted) + 1)
    for number, word in enumerate(words, start=1):
        best = np.minimum(row[1:] + 1, row[:-1] + np.array([word != other for other in wanted], int))
        new = np.concatenate([[number], best])
        # An insertion into what stands to the left costs one each: a running minimum of value - place.
        row = np.minimum.accumulate(new - np.arange(len(new))) + np.arange(len(new))
    return int(row[-1])


def word_error_rate(chosen: Iterable[tuple[str, str]]) -> float:
    """Errors in per cent of the references' words, over (hypothesis, reference)."""
    errors = words = 0
    for hypothesis, reference in chosen:
        errors += word_errors(hypothesis, reference)
        words += len(reference.split())
    if not words:
        raise UserError("the references have no words")
    return 100 * errors / words


def order(hypotheses: Hypotheses, scores: np.ndarray, weight: float) -> np.ndarray:
    """Places of the hypotheses by f + weight * score, the best first; equal ones stay in order."""
    return np.argsort(-(hypotheses.scores + weight * scores), kind="stable")


def reordered(hypotheses: Hypotheses, scores: np.ndarray, weight: float) -> dict[str, Any]:
    """The object of a list with its hypotheses in the new order, each with its `language_model_score`."""
    listed = hypotheses.row["hypotheses"]
    best_first = [
        listed[place] | {"language_model_score": float(scores[place])} for place in order(hypotheses, scores, weight)
    ]
    return hypotheses.row | {"hypotheses": best_first}


def rate_at(lists: Sequence[Hypotheses], scores: Sequence[np.ndarray], weight: float) -> float:
    """Word error rate of the first hypotheses after re-ranking with this weight."""
    return word_error_rate(
        (one.texts[order(one, found, weight)[0]], one.reference or "") for one, found in zip(lists, scores, strict=True)
    )


def best_weight(lists: Sequence[Hypotheses], scores: Sequence[np.ndarray]) -> tuple[float, dict[float, float]]:
    """Finds the lambda of the least word error rate, the smallest of equal ones, and the rate of each.

    Every list has a reference.
    """
    rates = {weight: rate_at(lists, scores, weight) for weight in LAMBDAS}
    return min(rates, key=lambda weight: (rates[weight], weight)), rates
