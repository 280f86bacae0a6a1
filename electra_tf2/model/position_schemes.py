"""Position schemes, by which attention knows where tokens are: their requirements, costs and formulas in plain numbers.

`SCHEMES` lists all of them by the value of the hparam relative_positions. Imports no TensorFlow; the layers that
compute the schemes are listed in `model.position_layers`.
"""

import math
from collections.abc import Callable
from typing import Protocol


class Sizes(Protocol):
    """Sizes that schemes read of a network's `Architecture`, which imports this module and so is not imported here."""

    @property
    def hidden_size(self) -> int: ...

    @property
    def num_attention_heads(self) -> int: ...

    @property
    def head_size(self) -> int: ...

    @property
    def attention_bias(self) -> bool: ...

    @property
    def starts_locally(self) -> bool: ...

    @property
    def relative_position_buckets(self) -> int: ...

    @property
    def relative_position_max_distance(self) -> int: ...


class PositionScheme:
    """Base of the schemes, and the scheme "none".

    Class attributes:
      embedded: position embeddings are added to word embeddings, as in BERT.
      limited: no sequence may be longer than max_position_embeddings.
      starts_locally: relative_position_start "local" is possible.
      has_windows: local_attention is possible.
    """

    embedded = True
    limited = True
    starts_locally = False
    has_windows = True

    def problems(self, sizes: Sizes) -> list[str]:
        """Lists why a network of these sizes cannot use this scheme."""
        del sizes
        return []

    def parameters(self, sizes: Sizes) -> int:
        """Counts the weights that a network has once, apart from position embeddings."""
        del sizes
        return 0

    def layer_kernels(self, sizes: Sizes) -> list[tuple[int, int]]:
        """Lists shapes of kernels that the attention of every layer has besides BERT's."""
        del sizes
        return []

    def score_flops(self, sizes: Sizes, length: int) -> int:
        """Counts FLOPs of matrix products in one layer on one sequence, besides BERT's."""
        del sizes, length
        return 0


class Bucketed(PositionScheme):
    """A learned bias for each head and bucket of distances, added to the scaled scores; one table for a network.

    Args:
      bucket: (distance = key position - query position, buckets, largest distance told apart) -> row of the table.
    """

    starts_locally = True

    def __init__(self, bucket: Callable[[int, int, int], int]) -> None:
        self.bucket = bucket

    def problems(self, sizes: Sizes) -> list[str]:
        buckets = sizes.relative_position_buckets
        farthest = sizes.relative_position_max_distance
        if farthest - 1 > buckets // 4:  # up to a quarter of the buckets distances are exact
            return []
        return [
            f"relative_position_max_distance {farthest} must exceed a quarter of the {buckets} buckets by 2 at least"
        ]

    def parameters(self, sizes: Sizes) -> int:
        return sizes.relative_position_buckets * sizes.num_attention_heads


class Rotary(PositionScheme):
    """Queries and keys rotated by angles that grow with the position (RoFormer, Su et al. 2021, section 3.2.2)."""

    embedded = False
    limited = False
    starts_locally = True

    def problems(self, sizes: Sizes) -> list[str]:
        problems = []
        if sizes.starts_locally and not sizes.attention_bias:
            problems.append(
                "relative_position_start local sets biases of queries and keys, which attention_bias false leaves out"
            )
        if sizes.head_size % 2:
            problems.append(f"relative_positions rotary needs an even head size, got {sizes.head_size}")
        return problems


class KeysOfDistances(PositionScheme):
    """Queries are multiplied with keys of distances as with keys of tokens (Transformer-XL, Dai et al. 2019, 3.3).

    A kernel in every layer makes the keys of sinusoids of the distances, H wide. All layers share two biases for each
    head.
    """

    embedded = False
    limited = False
    has_windows = False

    def problems(self, sizes: Sizes) -> list[str]:
        if sizes.hidden_size % 2 == 0:
            return []
        return [f"relative_positions xl needs an even hidden size, got {sizes.hidden_size}"]

    def parameters(self, sizes: Sizes) -> int:
        return 2 * sizes.hidden_size

    def layer_kernels(self, sizes: Sizes) -> list[tuple[int, int]]:
        return [(sizes.hidden_size, sizes.hidden_size)]

    def score_flops(self, sizes: Sizes, length: int) -> int:
        """Counts queries times keys of 2L - 1 distances; making the keys, once for a batch, is not counted."""
        return 2 * sizes.hidden_size * length * (2 * length - 1)


def t5_bucket(distance: int, buckets: int, max_distance: int) -> int:
    """T5's rule: half the buckets per direction, exact below a quarter, then logarithmic (Raffel et al. 2020, 2.1)."""
    half = buckets // 2
    exact = buckets // 4
    first = 0
    if distance > 0:
        first = half
    steps = abs(distance)
    if steps < exact:
        return first + steps
    # Which share of the way from `exact` to max_distance, in logarithms.
    share = math.log(steps / exact) / math.log(max_distance / exact)
    beyond = math.floor(share * (half - exact))
    return first + min(half - 1, exact + beyond)


def coco_bucket(distance: int, buckets: int, max_distance: int) -> int:
    """Rule of `coco`: symmetric about the middle, rounded up; the last bucket is never used."""
    half = buckets // 2
    exact = buckets // 4
    steps = abs(distance)
    if steps >= exact:
        share = math.log(steps / exact) / math.log((max_distance - 1) / exact)
        beyond = math.ceil(share * (half - 1 - exact))
        steps = min(half - 1, exact + beyond)
    middle = half - 1
    if distance > 0:
        return middle + steps
    return middle - steps


def local_bias(distance: int, head: int) -> float:
    """Initial value of a learned bias for a distance = key position - query position, by which heads see neighbours.

    Heads take turns: they see the tokens to the left, those to the right, both sides, everything. Where all scores
    start near 0, attention averages the whole sequence, and a neighbour's share is 1/L. A masked language model then
    stays at the entropy of token frequencies for thousands of steps before it finds its neighbours
    (docs/small_budgets.md).
    """
    far = abs(distance)
    near_first = 1.0 - far  # 0 for the neighbour, and less the farther away
    unwanted = -4.0  # the other side, and the token itself
    turn = head % 4
    if turn == 0:  # to the left
        bias = near_first if distance < 0 else unwanted
    elif turn == 1:  # to the right
        bias = near_first if distance > 0 else unwanted
    elif turn == 2:  # to both sides
        bias = -0.25 * far
    else:  # everything
        bias = 0.0
    return max(-6.0, bias)


def sinusoid_frequencies(size: int, base: float = 10000.0) -> list[float]:
    """base^(-2i/D) (Vaswani et al. 2017, section 3.5; RoFormer, Su et al. 2021, section 3.2.2)."""
    return [base ** (-2 * i / size) for i in range(size // 2)]


SCHEMES: dict[str, PositionScheme] = {
    "none": PositionScheme(),
    "t5": Bucketed(t5_bucket),
    "coco": Bucketed(coco_bucket),
    "rotary": Rotary(),
    "xl": KeysOfDistances(),
}
