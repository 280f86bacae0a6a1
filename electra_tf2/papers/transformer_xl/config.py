"""Relative positions of Transformer-XL (Dai et al. 2019): the scheme `xl`."""

import dataclasses
from typing import TYPE_CHECKING

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.architecture import Architecture
from electra_tf2.model.positions import SCHEMES, PositionScheme

if TYPE_CHECKING:
    from electra_tf2.papers.transformer_xl.attention import Distances


class KeysOfDistances(PositionScheme):
    """Every query meets a key of each distance as it meets the tokens' keys (section 3.3).

    Sinusoids of distances, H wide, are multiplied by a kernel in every layer; two biases for each head are shared by
    all layers.
    """

    embedded = limited = has_windows = False

    def problems(self, sizes: Architecture) -> list[str]:
        if sizes.hidden_size % 2 == 0:
            return []
        return [f"relative_positions xl needs an even hidden size, got {sizes.hidden_size}"]

    def parameters(self, sizes: Architecture) -> int:
        return 2 * sizes.hidden_size

    def layer_kernels(self, sizes: Architecture) -> list[tuple[int, int]]:
        return [(sizes.hidden_size, sizes.hidden_size)]

    def score_flops(self, sizes: Architecture, length: int) -> int:
        """Counts queries times keys of 2L - 1 distances; these keys are products that a whole batch has in common."""
        return 2 * sizes.hidden_size * length * (2 * length - 1)

    def layer_class(self) -> "type[Distances]":
        from electra_tf2.papers.transformer_xl.attention import Distances

        return Distances


SCHEMES["xl"] = KeysOfDistances()


@dataclasses.dataclass(frozen=True)
class Config(PretrainingConfig):
    """No hparams of its own: `relative_positions` may be xl."""
