"""Finds the labels of words from the scores that a network gives them."""

from collections.abc import Sequence

import numpy as np


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Makes logarithms of probabilities, float64 [words, labels]."""
    logits = logits.astype(np.float64)
    return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)


def likeliest_of_each_word(log_probabilities: np.ndarray) -> list[int]:
    """Lists the label of each word. log_probabilities: float [words, labels]."""
    return np.argmax(log_probabilities, axis=1).tolist()


class SpanDecoder:
    """Finds the likeliest sequence of labels that make up whole spans, by Viterbi's algorithm.

    In BIOES a span is S, or B, any number of I, and E, all of one type.

    Args:
      labels: names of the labels, with O, and B, I, E and S of every type.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        impossible = -np.inf
        may_be_first = [label[0] in "OBS" for label in labels]
        may_be_last = [label[0] in "OES" for label in labels]
        self._first = np.where(may_be_first, 0.0, impossible)
        self._last = np.where(may_be_last, 0.0, impossible)
        self._steps = np.full([len(labels), len(labels)], impossible)  # from a word's label to the next word's
        for i, label in enumerate(labels):
            for j, following in enumerate(labels):
                if _may_follow(following, label):
                    self._steps[i, j] = 0.0

    def __call__(self, log_probabilities: np.ndarray) -> list[int]:
        """Lists the label of each word. log_probabilities: float [words, labels]."""
        if not len(log_probabilities):
            return []
        best = self._first + log_probabilities[0]  # of the sequences that end in each label
        best_previous = []
        for log_probabilities_of_word in log_probabilities[1:]:
            sums = best[:, np.newaxis] + self._steps
            best_previous.append(np.argmax(sums, axis=0))
            best = np.max(sums, axis=0) + log_probabilities_of_word
        label = int(np.argmax(best + self._last))
        sequence = [label]
        for previous in reversed(best_previous):
            label = int(previous[label])
            sequence.append(label)
        return sequence[::-1]


def _may_follow(following: str, label: str) -> bool:
    """Tells whether a word's label may stand behind that of the word before it."""
    span_goes_on = label[0] in "BI"
    if span_goes_on:
        return following[0] in "IE" and following[1:] == label[1:]
    return following[0] in "OBS"
