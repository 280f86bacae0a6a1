"""Uses of sentence scores: accuracy on minimal pairs, and re-ranking of n-best lists. No TensorFlow.

Of a minimal pair, such as BLiMP's, one sentence is acceptable. An n-best list of a speech recogniser or a translator is
re-ranked by f + lambda * score (Electric, section 3.2).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.files.reading import field, read_json_lines
from electra_tf2.util.errors import UserError

# Electric's paper searches 0.05, ..., 1.0.
LAMBDAS = tuple(round(0.05 * step, 2) for step in range(21))


class Hypotheses(NamedTuple):
    """The n-best list for one utterance.

    scores: f, the recogniser's log-probabilities. reference: what was said, if known. row: the JSON object that the
    list was read from.
    """

    texts: list[str]
    scores: np.ndarray
    reference: str | None
    row: dict[str, Any]


def read_hypotheses(row: dict[str, Any], where: str) -> Hypotheses:
    """Reads an n-best list from an object with `hypotheses`, each a `text` and a `score`, and maybe a `reference`."""
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
      UserError: the file is empty, a line is no n-best list, or it lacks the reference though `references` is True.
    """
    lists = []
    for line_number, row in read_json_lines(path, flag):
        where = f"{flag} {path}, line {line_number}"
        hypotheses = read_hypotheses(row, where)
        if references and hypotheses.reference is None:
            raise UserError(f"{where}: choosing lambda needs a 'reference' in every line")
        lists.append(hypotheses)
    if not lists:
        raise UserError(f"{flag}: {path} holds no lists")
    return lists


def accuracy(phenomena: Sequence[str], good: np.ndarray, bad: np.ndarray) -> dict[str, float]:
    """Percentage of pairs whose good sentence scores higher, by phenomenon. A tie counts as wrong.

    "mean" is the mean over phenomena, "all" the one over pairs.
    """
    percent_right = 100.0 * (good > bad)  # for each pair 0 or 100
    names = np.array(phenomena)
    by_name = {}
    for name in sorted(set(phenomena)):
        by_name[name] = float(percent_right[names == name].mean())
    mean = float(np.mean(list(by_name.values())))
    return by_name | {"mean": mean, "all": float(percent_right.mean())}


def word_errors(hypothesis: str, reference: str) -> int:
    """Number of substitutions, insertions and deletions of words (Levenshtein distance)."""
    reference_words = reference.split()
    columns = np.arange(len(reference_words) + 1)
    # A row of the usual table: distances[i] is that of the hypothesis's words so far and the first i reference words.
    distances = columns
    for row, word in enumerate(hypothesis.split(), start=1):
        differs = np.array([word != reference_word for reference_word in reference_words], int)
        with_insertion = distances[1:] + 1
        with_substitution = distances[:-1] + differs
        without_deletions = np.concatenate([[row], np.minimum(with_insertion, with_substitution)])
        # A deletion costs one: new[i] = min over j <= i of without_deletions[j] + (i - j). That is a running minimum of
        # without_deletions[j] - j.
        distances = np.minimum.accumulate(without_deletions - columns) + columns
    return int(distances[-1])


def order(hypotheses: Hypotheses, scores: np.ndarray, weight: float) -> np.ndarray:
    """Indices of the hypotheses by f + weight * score, the best first. Ties keep their order."""
    return np.argsort(-(hypotheses.scores + weight * scores), kind="stable")


def reordered(hypotheses: Hypotheses, scores: np.ndarray, weight: float) -> dict[str, Any]:
    """The JSON object of an n-best list in its new order, with a `language_model_score` for each hypothesis."""
    entries = hypotheses.row["hypotheses"]
    best_first = []
    for index in order(hypotheses, scores, weight):
        best_first.append(entries[index] | {"language_model_score": float(scores[index])})
    return hypotheses.row | {"hypotheses": best_first}


def rate_at(lists: Sequence[Hypotheses], scores: Sequence[np.ndarray], weight: float) -> float:
    """Word error rate, in percent, of the best hypotheses after re-ranking."""
    errors = 0
    words = 0
    for hypotheses, list_scores in zip(lists, scores, strict=True):
        reference = hypotheses.reference or ""
        best = order(hypotheses, list_scores, weight)[0]
        errors += word_errors(hypotheses.texts[best], reference)
        words += len(reference.split())
    if not words:
        raise UserError("the references have no words")
    return 100 * errors / words


def best_weight(lists: Sequence[Hypotheses], scores: Sequence[np.ndarray]) -> tuple[float, dict[float, float]]:
    """Finds the lambda with the lowest word error rate, the smallest if several tie. All lists must have a reference.

    Returns:
      That lambda, and the error rate for each lambda.
    """
    rates = {weight: rate_at(lists, scores, weight) for weight in LAMBDAS}
    best = min(rates, key=lambda weight: (rates[weight], weight))
    return best, rates
