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
    entries = field(row, "hypotheses", list, where)
    if not entries:
        raise UserError(f"{where}: 'hypotheses', a list of objects with 'text' and 'score', is empty")
    reference = None
    if row.get("reference") is not None:
        reference = field(row, "reference", str, where)
    scores = [field(entry, "score", (int, float), where) for entry in entries]
    texts = [field(entry, "text", str, where) for entry in entries]
    return Hypotheses(texts, np.array(scores, np.float64), reference, row)


def read_lists(path: str, flag: str, references: bool = False) -> list[Hypotheses]:
    """Reads the n-best lists of a file of JSON lines.

    Raises:
      UserError: the file is empty, a line is no list of hypotheses, or it lacks its reference and `references` is True.
    """
    lists = []
    for number, row in read_json_lines(path, flag):
        where = f"{flag} {path}, line {number}"
        hypotheses = read_hypotheses(row, where)
        if references and hypotheses.reference is None:
            raise UserError(f"{where}: choosing lambda needs a 'reference' in every line")
        lists.append(hypotheses)
    if not lists:
        raise UserError(f"{flag}: {path} holds no lists")
    return lists


def accuracy(phenomena: Sequence[str], good: np.ndarray, bad: np.ndarray) -> dict[str, float]:
    """Per cent of pairs whose good sentence scores higher, by phenomenon; a tie counts as wrong.

    "mean" is the mean over phenomena, "all" that over pairs.
    """
    percent_right = 100.0 * (good > bad)  # of each pair: 0 or 100
    names = np.array(phenomena)
    by_name = {}
    for name in sorted(set(phenomena)):
        by_name[name] = float(percent_right[names == name].mean())
    mean = float(np.mean(list(by_name.values())))
    return by_name | {"mean": mean, "all": float(percent_right.mean())}


def word_errors(hypothesis: str, reference: str) -> int:
    """Substitutions, insertions and deletions between two texts' words (Levenshtein)."""
    wanted = reference.split()
    places = np.arange(len(wanted) + 1)
    # distances[i]: errors between the words of the hypothesis so far and the first i wanted ones.
    distances = places
    for number, word in enumerate(hypothesis.split(), start=1):
        differs = np.array([word != wanted_word for wanted_word in wanted], int)
        with_insertion = distances[1:] + 1
        with_substitution = distances[:-1] + differs
        without_deletions = np.concatenate([[number], np.minimum(with_insertion, with_substitution)])
        # Each wanted word that is left out after place j costs one: new[i] = min over j <= i of value[j] + (i - j),
        # which is a running minimum of value[j] - j.
        distances = np.minimum.accumulate(without_deletions - places) + places
    return int(distances[-1])


def order(hypotheses: Hypotheses, scores: np.ndarray, weight: float) -> np.ndarray:
    """Places of the hypotheses by f + weight * score, the best first; equal ones stay in order."""
    return np.argsort(-(hypotheses.scores + weight * scores), kind="stable")


def reordered(hypotheses: Hypotheses, scores: np.ndarray, weight: float) -> dict[str, Any]:
    """The object of a list with its hypotheses in the new order, each with its `language_model_score`."""
    entries = hypotheses.row["hypotheses"]
    best_first = []
    for place in order(hypotheses, scores, weight):
        best_first.append(entries[place] | {"language_model_score": float(scores[place])})
    return hypotheses.row | {"hypotheses": best_first}


def rate_at(lists: Sequence[Hypotheses], scores: Sequence[np.ndarray], weight: float) -> float:
    """Word error rate of the first hypotheses after re-ranking: errors in per cent of the references' words."""
    errors = 0
    words = 0
    for hypotheses, list_scores in zip(lists, scores, strict=True):
        reference = hypotheses.reference or ""
        best_place = order(hypotheses, list_scores, weight)[0]
        errors += word_errors(hypotheses.texts[best_place], reference)
        words += len(reference.split())
    if not words:
        raise UserError("the references have no words")
    return 100 * errors / words


def best_weight(lists: Sequence[Hypotheses], scores: Sequence[np.ndarray]) -> tuple[float, dict[float, float]]:
    """Finds the lambda of the least word error rate, the smallest of equal ones, and the rate of each.

    Every list has a reference.
    """
    rates = {weight: rate_at(lists, scores, weight) for weight in LAMBDAS}
    best = min(rates, key=lambda weight: (rates[weight], weight))
    return best, rates
