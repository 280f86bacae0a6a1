"""The job of all contenders of benchmarks/step.py: sizes, batch and length, and the matrix products of a step."""

import argparse
import json
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import VOCABULARY

_MASK = 103


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
        """1/generator_share the width, with the generator's heads as the original has them."""
        share = self.generator_share
        return self._replace(hidden=self.hidden // share, heads=max(1, self.heads // share))


SIZES = {
    "small": Size(256, 12, 4, 128, 4),
    "base": Size(768, 12, 12, 768, 3),
    "large": Size(1024, 24, 16, 1024, 4),
    "mini": Size(128, 4, 4, 128, 2, 8192),  # what a laptop trains
    "electra_mini": Size(192, 4, 6, 128, 1, 8192),
}
JOB_FLAGS: dict[str, Any] = {  # of the programs, as of `parser_of`
    "what": ("pretraining", "evaluation", "finetuning"),
    "model_size": tuple(SIZES),
    "batch_size": 32,
    "max_seq_length": 128,
}

Step = Callable[[], Any]  # returns a number that float() waits for


class Job(NamedTuple):
    """Settings that all contenders have in common."""

    what: str  # "pretraining", "evaluation" or "finetuning"
    size: Size
    batch_size: int
    length: int
    precision: str

    @classmethod
    def of(cls, options: argparse.Namespace, contender: str) -> "Job":
        """The job of `JOB_FLAGS`, in the precision that a contender's name ends in."""
        sizes = SIZES[options.model_size], options.batch_size, options.max_seq_length
        return cls(options.what, *sizes, contender.rsplit("_", 1)[1])

    @classmethod
    def read(cls, text: str) -> "Job":
        """A job from its JSON."""
        what, size, *rest = json.loads(text)
        return cls(what, Size(*size), *rest)

    @property
    def token_ids(self) -> np.ndarray:
        ids = np.random.RandomState(0).randint(1000, self.size.vocabulary, [self.batch_size, self.length])
        ids[:, 0], ids[:, -1] = 101, 102
        return ids

    @property
    def masked_tokens(self) -> int:
        """Number of masked tokens of a sequence."""
        return int((0.15 + 0.005) * self.length)

    @property
    def labels(self) -> np.ndarray:
        """int [B], of two classes."""
        return np.random.RandomState(1).randint(0, 2, [self.batch_size])

    @property
    def masked_batch(self) -> dict[str, np.ndarray]:
        """Inputs masked beforehand, as the peers' pipelines do it."""
        ids, count = self.token_ids, self.masked_tokens
        rows = range(self.batch_size)
        places = np.stack([1 + np.random.RandomState(i).permutation(self.length - 2)[:count] for i in rows])
        masked = ids.copy()
        np.put_along_axis(masked, places, _MASK, 1)
        return {"ids": ids, "masked": masked, "places": places, "labels": np.take_along_axis(ids, places, 1)}


def product_shapes(job: Job) -> Counter[tuple[int, int, int, int]]:
    """(batch, m, k, n) of each product [m, k] x [k, n] of a step's forward passes -> how often it is taken."""
    shapes = Counter[tuple[int, int, int, int]]()
    tokens, masked = job.batch_size * job.length, job.batch_size * job.masked_tokens
    networks = [job.size] if job.what == "finetuning" else [job.size, job.size.generator]
    for size in networks:
        width, embedding = size.hidden, size.embedding
        if width != embedding:
            shapes[1, tokens, embedding, width] += 1
        for inputs, outputs in ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)):
            shapes[1, tokens, inputs, outputs] += size.layers
        rows, head = job.batch_size * size.heads, width // size.heads
        shapes[rows, job.length, head, job.length] += size.layers
        shapes[rows, job.length, job.length, head] += size.layers
    for generator in networks[1:]:
        shapes[1, masked, generator.hidden, generator.embedding] += 1
        shapes[1, masked, generator.embedding, generator.vocabulary] += 1
        shapes[1, tokens, job.size.hidden, job.size.hidden] += 1
    return shapes


def product_flops(job: Job) -> float:
    """FLOPs of a step, with its gradient unless it is an evaluation: 2 per multiply-add."""
    forward = sum(2.0 * batch * m * k * n * times for (batch, m, k, n), times in product_shapes(job).items())
    return forward * (1 if job.what == "evaluation" else 3)


def products(job: Job) -> Step:
    """The products alone, each as often as a step takes it, with both of its gradients."""
    import tensorflow as tf

    operands = []
    for (batch, m, k, n), times in product_shapes(job).items():
        x, w, y = (tf.cast(tf.random.normal([batch, *axes]), job.precision) for axes in ((m, k), (k, n), (m, n)))
        operands.append([tensor[0] if batch == 1 else tensor for tensor in (x, w, y)] + [times])

    def step() -> tf.Tensor:
        for x, w, y, times in operands:
            for _ in range(times):
                last = tf.matmul(x, w)
                if job.what != "evaluation":
                    tf.matmul(y, w, transpose_b=True)
                    last = tf.matmul(x, y, transpose_a=True)
        return tf.reshape(last, [-1])[0]

    return step
