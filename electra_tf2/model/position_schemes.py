"""Position schemes, by which attention knows where tokens are: what configuration and costs read of them.

`SCHEMES` lists all there are; whatever reads a model's configuration looks there. Free of TensorFlow: the layers that
compute them stand in `model.position_layers`.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from electra_tf2.model.architecture import Architecture


class PositionScheme:
    """Base of the schemes, and the scheme `none`.

    embedded: whether a table of absolute positions is added to the embeddings, as in BERT.
    limited: whether no sequence may be longer than max_position_embeddings.
    starts_locally: whether relative_position_start `local` is possible.
    has_windows: whether local_attention is possible.
    """

    embedded = True
    limited = True
    starts_locally = False
    has_windows = True

    def problems(self, sizes: "Architecture") -> list[str]:
        """Lists why a network of these sizes cannot have this scheme."""
        del sizes
        return []

    def parameters(self, sizes: "Architecture") -> int:
        """Counts weights that a network has once, position embeddings excepted."""
        del sizes
        return 0

    def layer_kernels(self, sizes: "Architecture") -> list[tuple[int, int]]:
        """Lists shapes of kernels that every layer's attention has besides BERT's."""
        del sizes
        return []

    def score_flops(self, sizes: "Architecture", length: int) -> int:
        """Counts further FLOPs of matrix products in one layer on one sequence."""
        del sizes, length
        return 0


class Bucketed(PositionScheme):
    """A learned number for each head and bucket of distances, added to the scaled scores; one table per network.

    Args:
      bucket: (distance = key position - query position, buckets, largest distance told apart) -> row of the table.
    """

    starts_locally = True

    def __init__(self, bucket: Callable[[int, int, int], int]) -> None:
        self.bucket = bucket

    def problems(self, sizes: "Architecture") -> list[str]:
        buckets = sizes.relative_position_buckets
        farthest = sizes.relative_position_max_distance
        if farthest - 1 > buckets // 4:  # up to a quarter of the buckets distances are exact
            return []
        return [
            f"relative_position_max_distance {farthest} must exceed a quarter of the {buckets} buckets by 2 at least"
        ]

    def parameters(self, sizes: "Architecture") -> int:
        return sizes.relative_position_buckets * sizes.num_attention_heads


class Rotary(PositionScheme):
    """Queries and keys rotated by angles that grow with the position (RoFormer, Su et al. 2021, section 3.2.2)."""

    embedded = False
    limited = False
    starts_locally = True

    def problems(self, sizes: "Architecture") -> list[str]:
        problems = []
        if sizes.starts_locally and not sizes.attention_bias:
            problems.append(
                "relative_position_start local sets biases of queries and keys, which attention_bias false leaves out"
            )
        if sizes.head_size % 2:
            problems.append(f"relative_positions rotary needs an even head size, got {sizes.head_size}")
        return problems


class KeysOfDistances(PositionScheme):
    """Every query meets a key of each distance as it meets the tokens' keys (Transformer-XL, Dai et al. 2019, 3.3).

    Sinusoids of distances, H wide, are multiplied by a kernel in every layer; two biases for each head are shared by
    all layers.
    """

    embedded = False
    limited = False
    has_windows = False

    def problems(self, sizes: "Architecture") -> list[str]:
        if sizes.hidden_size % 2 == 0:
            return []
        return [f"relative_positions xl needs an even hidden size, got {sizes.hidden_size}"]

    def parameters(self, sizes: "Architecture") -> int:
        return 2 * sizes.hidden_size

    def layer_kernels(self, sizes: "Architecture") -> list[tuple[int, int]]:
        return [(sizes.hidden_size, sizes.hidden_size)]

    def score_flops(self, sizes: "Architecture", length: int) -> int:
        """Counts queries times keys of 2L - 1 distances; these keys are products that a whole batch has in common."""
        return 2 * sizes.hidden_size * length * (2 * length - 1)


def t5_bucket(distance: int, buckets: int, max_distance: int) -> int:
    """T5's rule: half the buckets per direction, exact below a quarter, then logarithmic (Raffel et al. 2020, 2.1)."""
    half = buckets // 2
    exact = buckets // 4
    first = half if distance > 0 else 0
    steps = abs(distance)
    if steps < exact:
        return first + steps
    share = math.log(steps / exact) / math.log(max_distance / exact)  # of the way from `exact` to max_distance
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
    """Initial value of a learned bias of distance = key position - query position, by which heads see neighbours.

    Heads take turns: the tokens to the left, those to the right, both sides, everything. A score that starts near 0
    averages the whole sequence, in which a neighbour's share is 1/L; a masked language model then sits at the entropy
    of token frequencies for thousands of steps before it finds its neighbours (docs/small_budgets.md).
    """
    far = abs(distance)
    near_first = 1.0 - far  # 0 for the neighbour, and less the farther away
    unwanted = -4.0  # the other side, and the token itself
    left = near_first if distance < 0 else unwanted
    right = near_first if distance > 0 else unwanted
    both = -0.25 * far
    everything = 0.0
    biases = (left, right, both, everything)
    return max(-6.0, biases[head % 4])


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
