"""The job that all contenders of benchmarks/step.py have: sizes, made-up data, and the matrix products of a step."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import VOCABULARY

WHAT = ("pretraining", "evaluation", "finetuning")
_MASK = 103

Step = Callable[..., Any]  # returns a number that float() waits for


class Size(NamedTuple):
    """Size of a main network (ELECTRA, Table 6); its generator is `hidden / generator_share` wide."""

    hidden: int
    layers: int
    heads: int
    embedding: int
    generator_share: int
    vocabulary: int = VOCABULARY

    @property
    def encoder(self) -> dict[str, int]:
        """Sizes under the names of the peers' configurations of encoders."""
        return {
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "intermediate_size": 4 * self.hidden,
            "embedding_size": self.embedding,
            "vocab_size": self.vocabulary,
        }

    @property
    def generator(self) -> "Size":
        """Size of the generator, which has 1/generator_share of the width and, as in the original, of the heads."""
        share = self.generator_share
        return self._replace(hidden=self.hidden // share, heads=max(1, self.heads // share))


SIZES = {
    "small": Size(256, 12, 4, 128, generator_share=4),
    "base": Size(768, 12, 12, 768, generator_share=3),
    "large": Size(1024, 24, 16, 1024, generator_share=4),
    "mini": Size(128, 4, 4, 128, generator_share=2, vocabulary=8192),  # what a laptop trains
    "electra_mini": Size(192, 4, 6, 128, generator_share=1, vocabulary=8192),
}


class Job(NamedTuple):
    """Settings that all contenders share.

    what: one of WHAT. micro_batches: number of micro-batches of our contenders.
    """

    what: str
    size: Size
    batch_size: int
    length: int
    precision: str
    micro_batches: int = 1

    @classmethod
    def read(cls, text: str) -> "Job":
        """Parses a job from JSON."""
        what, size, *rest = json.loads(text)
        return cls(what, Size(*size), *rest)

    @property
    def token_ids(self) -> np.ndarray:
        ids = np.random.RandomState(0).randint(1000, self.size.vocabulary, [self.batch_size, self.length])
        ids[:, 0] = 101  # [CLS]
        ids[:, -1] = 102  # [SEP]
        return ids

    @property
    def masked_tokens(self) -> int:
        """Number of masked tokens in a sequence."""
        return int((0.15 + 0.005) * self.length)

    @property
    def labels(self) -> np.ndarray:
        """int [B], labels of two classes."""
        return np.random.RandomState(1).randint(0, 2, [self.batch_size])

    @property
    def masked_batch(self) -> dict[str, np.ndarray]:
        """Inputs that are masked before the step, as in the peers' pipelines.

        Returns:
          ids and masked ids, int [B, L]; positions of the masked tokens and their labels, int [B, masked].
        """
        ids = self.token_ids
        rows = []
        for row in range(self.batch_size):
            shuffled_positions = 1 + np.random.RandomState(row).permutation(self.length - 2)
            rows.append(shuffled_positions[: self.masked_tokens])
        positions = np.stack(rows)
        masked = ids.copy()
        np.put_along_axis(masked, positions, _MASK, 1)
        labels = np.take_along_axis(ids, positions, 1)
        return {"ids": ids, "masked": masked, "positions": positions, "labels": labels}


def product_shapes(job: Job) -> Counter[tuple[int, int, int, int]]:
    """Products [m, k] x [k, n] of a step's forward passes: (batch, m, k, n) -> number of them."""
    shapes = Counter[tuple[int, int, int, int]]()
    if job.what == "finetuning":
        _add_encoder(shapes, job, job.size)
        return shapes
    generator = job.size.generator
    _add_encoder(shapes, job, job.size)
    _add_encoder(shapes, job, generator)
    masked = job.batch_size * job.masked_tokens
    tokens = job.batch_size * job.length
    shapes[1, masked, generator.hidden, generator.embedding] += 1  # the generator's head
    shapes[1, masked, generator.embedding, generator.vocabulary] += 1
    shapes[1, tokens, job.size.hidden, job.size.hidden] += 1  # the detector's head
    return shapes


def _add_encoder(shapes: Counter[tuple[int, int, int, int]], job: Job, size: Size) -> None:
    tokens = job.batch_size * job.length
    width = size.hidden
    if width != size.embedding:
        shapes[1, tokens, size.embedding, width] += 1
    # Queries, keys and values in one product; attention's output; the two of the feed-forward network.
    for inputs, outputs in ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)):
        shapes[1, tokens, inputs, outputs] += size.layers
    # Attention's scores, and its weighted sums of values.
    pairs = job.batch_size * size.heads
    head_size = width // size.heads
    shapes[pairs, job.length, head_size, job.length] += size.layers
    shapes[pairs, job.length, job.length, head_size] += size.layers


def product_flops(job: Job) -> float:
    """FLOPs of a step's products, with gradients unless it is an evaluation. A multiply-add counts 2."""
    forward = 0.0
    for (batch, m, k, n), times in product_shapes(job).items():
        forward += 2.0 * batch * m * k * n * times
    if job.what == "evaluation":
        return forward
    return 3 * forward
