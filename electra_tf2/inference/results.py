"""Results of a model's calls from Python (`inference.model`)."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np


class States(NamedTuple):
    """Vectors of a text.

    tokens: wordpieces, [CLS] and [SEP] included. vectors: float32 [tokens, H], the last layer. sentence: float32 [H],
    the vector of [CLS], which means little before fine-tuning; `mean` or `Model.embed` say more of a whole text.
    """

    tokens: list[str]
    vectors: np.ndarray
    sentence: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """float32 [H], the mean of `vectors`."""
        return self.vectors.mean(0)


class Replaced(NamedTuple):
    """A wordpiece and the probability that it stands in another's place.

    start, end: the characters that it stands for, text[start:end].
    """

    token: str
    probability: float
    start: int
    end: int


class Suggestion(NamedTuple):
    """A wordpiece for a [MASK], and its probability."""

    token: str
    probability: float


class Answer(SimpleNamespace):
    """An answer of `Model.predict`. Its fields are those that `--predict` writes for the kind of task, such as `label`
    and `probabilities`, or `words` and `tags`; `vars(answer)` gives them as a dict, for JSON."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the answer has no {name!r}; it has {', '.join(vars(self))}")
