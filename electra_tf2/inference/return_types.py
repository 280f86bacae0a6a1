"""Types that the methods of a model return in Python (`inference.model`)."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np


class States(NamedTuple):
    """Vectors of a text.

    tokens: wordpieces, [CLS] and [SEP] included. vectors: float32 [tokens, H], the last layer. sentence: float32 [H],
    the vector of [CLS]. It means little before fine-tuning; `mean` and `Model.embed` represent a whole text better.
    """

    tokens: list[str]
    vectors: np.ndarray
    sentence: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """float32 [H], the mean of `vectors`."""
        return self.vectors.mean(0)


class Replaced(NamedTuple):
    """A wordpiece and the probability that it is a replacement.

    start, end: its characters in the text, text[start:end].
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
    """An answer of `Model.predict`.

    Its fields depend on the kind of task, and are those that `electra predict` writes: `label` and `probabilities`, or
    `words` and `tags`, and so on; of an empty text `error`. `vars(answer)` is a dict of them, for JSON.
    """

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:  # IPython's
        printer.text(repr(self))

    def __getattr__(self, name: str) -> Any:
        if "error" in vars(self):
            raise AttributeError(f"the answer has no {name!r}, since its row has {self.error}")
        raise AttributeError(f"the answer has no {name!r}; it has {', '.join(vars(self))}")
