"""Attention with linear biases (ALiBi, Press et al. 2022, "Train Short, Test Long"): the scheme `alibi`."""

import dataclasses
import math
from typing import TYPE_CHECKING

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.positions import SCHEMES, PositionScheme

if TYPE_CHECKING:
    from electra_tf2.papers.alibi.positions import LinearBias


def slopes(heads: int) -> list[float]:
    """2^(-8/n), 2^(-16/n), ... for n heads, a power of two; else those of the next smaller power and, of twice that,
    every other one (section 3)."""
    power = 2 ** math.floor(math.log2(heads))
    found = [2 ** (-8 * (head + 1) / power) for head in range(power)]
    return found + (slopes(2 * power)[0::2][: heads - power] if heads > power else [])


class Linear(PositionScheme):
    """Minus slope x distance is added to the scaled scores, a fixed slope for each head."""

    embedded = limited = False

    def layer_class(self) -> "type[LinearBias]":
        from electra_tf2.papers.alibi.positions import LinearBias

        return LinearBias


SCHEMES["alibi"] = Linear()


@dataclasses.dataclass(frozen=True)
class Config(PretrainingConfig):
    """No hparams of its own: `relative_positions` may be alibi."""
