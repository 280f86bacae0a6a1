"""Uses of sentences' scores: telling the better of two, and choosing among the hypotheses of a recogniser.

Pairs are minimal pairs such as BLiMP's, one acceptable; hypotheses are n-best lists of a speech recogniser or a
translator, re-ranked by f + lambda * score (Electric, section 3.2). No TensorFlow.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.files.reading import field, read_json_lines
from electra_tf2.util.errors import UserError

# Electric's paper searches 0.05, ..., 1.0.
LAMBDAS = tuple(round(0.05 * step, 2) for step in range(21))


class Hypotheses(NamedTuple):
    """N-best list of a recogniser for one utterance.

    scores: the recogniser's own, higher is better (log-probabilities). reference: what was said, if known. row: the
    object that the list was read from.
    """

    texts: list[str]
    scores: np.ndarray
    reference: str | None
    row: dict[str, Any]


def read_hypotheses(row: dict[str, Any], where: str) -> Hypotheses:
    """Reads an n-best list from an object: `hypotheses`, each with `text` and `score`, and perhaps `reference`."""
    listed = field(row, "hypotheses", list, where)
    if not listed:
        raise UserError(f"{where}: 'hypotheses', a list of objects with 'text' and 'score', is empty")
    reference = None if row.get("reference") is None else field(row, "reference", str, where)
    scores = np.array([field(one, "score", (int, float), where) for one in listed], np.float64)
    return Hypotheses([field(one, "text", str, where) for one in listed], scores, reference, row)


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


def accuracy(phenomena: Sequence[str], good: np.ndarray, bad: np.ndarray) -> dict[str, float]:
    """Per cent of pairs whose good sentence scores higher, by phenomenon; a tie counts as wrong.

    "mean" is the mean over phenomena, "all" that over pairs.
    """
    right, names = 100.0 * (good > bad), np.array(phenomena)
    found = {name: float(right[names == name].mean()) for name in sorted({*phenomena})}
    return found | {"mean": float(np.mean(list(found.values()))), "all": float(right.mean())}


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


def order(hypotheses: Hypotheses, scores: np.ndarray, weight: float) -> np.ndarray:
    """Places of the hypotheses by f + weight * score, the best first; equal ones stay in order."""
    return np.argsort(-(hypotheses.scores + weight * scores), kind="stable")


def reordered(hypotheses: Hypotheses, scores: np.ndarray, weight: float) -> dict[str, Any]:
    """The object of a list with its hypotheses in the new order, each with its `language_model_score`."""
    best_first = [
        hypotheses.row["hypotheses"][place] | {"language_model_score": float(scores[place])}
        for place in order(hypotheses, scores, weight)
    ]
    return hypotheses.row | {"hypotheses": best_first}


def rate_at(lists: Sequence[Hypotheses], scores: Sequence[np.ndarray], weight: float) -> float:
    """Word error rate of the first hypotheses after re-ranking: errors in per cent of the references' words."""
    firsts = [one.texts[order(one, found, weight)[0]] for one, found in zip(lists, scores, strict=True)]
    references = [one.reference or "" for one in lists]
    words = sum(len(reference.split()) for reference in references)
    if not words:
        raise UserError("the references have no words")
    return 100 * sum(map(word_errors, firsts, references)) / words


def best_weight(lists: Sequence[Hypotheses], scores: Sequence[np.ndarray]) -> tuple[float, dict[float, float]]:
    """Finds the lambda of the least word error rate, the smallest of equal ones, and the rate of each.

    Every list has a reference.
    """
    rates = {weight: rate_at(lists, scores, weight) for weight in LAMBDAS}
    return min(rates, key=lambda weight: (rates[weight], weight)), rates
