"""Position schemes, by which attention knows where tokens are: one entry each, free of TensorFlow.

Configuration, FLOPs and `model.encoder` read `SCHEMES`. A scheme may add to the scores of attention (a learned number
for every bucket of distances, or a fixed slope of the distance), may turn queries and keys by angles that grow with
the position, and may make keys of the distances themselves; it says whether positions are also embedded at the input,
as in BERT.
"""

import math
from collections.abc import Callable
from typing import NamedTuple


class PositionScheme(NamedTuple):
    """Additions of a scheme to a network; every function is evaluated once, when a network is built.

    embedded: whether a table of absolute positions is added to the embeddings.
    bucket: (distance = key position - query position, buckets, largest distance told apart) -> row of a learned table
      [buckets, A], whose entry is added to the scaled score. One table per network.
    slopes: number of heads -> for each of them, what is subtracted from the scaled score per token of distance.
    frequencies: (head size D, base rope_theta) -> D/2 angles in radians by which the pairs (i, i + D/2) of a query and
      of a key are turned per position.
    distances: hidden size H -> H/2 frequencies of the sines and cosines by which distances are embedded; every layer
      makes a key of each distance, and every query meets it as it meets the tokens' keys.
    score_flops: (head size, length) -> FLOPs of further matrix products in one head of one layer on one sequence.
    """

    embedded: bool = True
    bucket: Callable[[int, int, int], int] | None = None
    slopes: Callable[[int], list[float]] | None = None
    frequencies: Callable[[int, float], list[float]] | None = None
    distances: Callable[[int], list[float]] | None = None
    score_flops: Callable[[int, int], int] = lambda head_size, length: 0


def t5_bucket(distance: int, buckets: int, max_distance: int) -> int:
    """T5's rule: half the buckets per direction, exact below a quarter, then logarithmic (Raffel et al. 2020, 2.1)."""
    half, exact = buckets // 2, buckets // 4
    n, first = abs(distance), half if distance > 0 else 0
    if n < exact:
        return first + n
    far = math.log(n / exact) / math.log(max_distance / exact) * (half - exact)
    return first + min(half - 1, exact + math.floor(far))


def coco_bucket(distance: int, buckets: int, max_distance: int) -> int:
    """Rule of `coco`: symmetric about the middle, rounded up; the last bucket is never used."""
    half, exact = buckets // 2, buckets // 4
    n = abs(distance)
    if n >= exact:
        far = math.log(n / exact) / math.log((max_distance - 1) / exact) * (half - 1 - exact)
        n = min(half - 1, exact + math.ceil(far))
    return half - 1 + (n if distance > 0 else -n)


def alibi_slopes(heads: int) -> list[float]:
    """2^(-8/n), 2^(-16/n), ... for n heads, a power of two; else those of the next smaller power and, of twice that,
    every other one (ALiBi, Press et al. 2022, section 3)."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (head + 1) / power) for head in range(power)]
    return slopes + (alibi_slopes(2 * power)[0::2][: heads - power] if heads > power else [])


def local_bias(distance: int, head: int) -> float:
    """Initial value of a learned bias of distance = key position - query position, by which heads see neighbours.

    Heads take turns: the tokens to the left, those to the right, both sides, everything. A score that starts near 0
    averages the whole sequence, in which a neighbour's share is 1/L; a masked language model then sits at the entropy
    of token frequencies for thousands of steps before it finds its neighbours (docs/small_budgets.md).
    """
    far = abs(distance)
    left, right = (1.0 - far if distance < 0 else -4.0), (1.0 - far if distance > 0 else -4.0)
    return max(-6.0, (left, right, -0.25 * far, 0.0)[head % 4])


def sinusoid_frequencies(size: int, base: float = 10000.0) -> list[float]:
    """base^(-2i/D) (Vaswani et al. 2017, section 3.5; RoFormer, Su et al. 2021, section 3.2.2)."""
    return [base ** (-2 * i / size) for i in range(size // 2)]


_FEWEST_QUERIES, _MOST_QUERIES = 32, 256  # of a block


class Blocks(NamedTuple):
    """Plan of attention to a window (model.local_attention): `number` blocks of `size` queries, each of which sees the
    keys of its own block and of as many `neighbours` on either side."""

    number: int
    size: int
    neighbours: int

    @property
    def keys(self) -> int:
        """Keys that a block sees, those beyond the ends of the sequence included."""
        return (2 * self.neighbours + 1) * self.size


def blocks_of(length: int, reach: int) -> Blocks | None:
    """Cuts a sequence for attention that goes `reach` tokens far; None where that saves less than half."""
    size = min(max(reach, _FEWEST_QUERIES), _MOST_QUERIES)
    blocks = Blocks(-(-length // size), size, -(-reach // size))
    return blocks if 2 * blocks.keys <= length else None


SCHEMES: dict[str, PositionScheme] = {
    "none": PositionScheme(),
    "t5": PositionScheme(bucket=t5_bucket),
    "coco": PositionScheme(bucket=coco_bucket),
    "alibi": PositionScheme(embedded=False, slopes=alibi_slopes),
    "rotary": PositionScheme(embedded=False, frequencies=sinusoid_frequencies),
    "xl": PositionScheme(
        embedded=False,
        distances=sinusoid_frequencies,
        score_flops=lambda head_size, length: 2 * head_size * length * (2 * length - 1),
    ),
}
