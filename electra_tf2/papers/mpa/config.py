"""MPA's hparams and their checks.

"Learning from Mistakes: Using Mis-predictions as Harm Alerts in Language Pre-Training"
(Xing, Liu, Xiong 2020), of which only a poster is known to us (papers.mpa.model).
"""

import dataclasses
import os
from collections.abc import Iterator
from typing import Any

from electra_tf2.config.hparams import free_hparam, hparam
from electra_tf2.configure_pretraining import PretrainingConfig


@dataclasses.dataclass(frozen=True)
class Config(PretrainingConfig):
    """ELECTRA-MPA; BERT-MPA with electra_objective false."""

    mpa_objective: bool = hparam(True, "penalise attention from mis-predictions to what misled them", heading="MPA")
    mpa_gamma: float = hparam(0.1, "weight of MPA's penalty (gamma)", at_least=0)
    mpa_warmup_steps: int | None = hparam(None, "steps in which mpa_gamma rises; null: num_warmup_steps", at_least=0)
    mpa_stop_gradient: bool = hparam(True, "the smaller scores that MPA aims at are constants")
    mpa_layers: list[int] = hparam([-1], "layers whose attention MPA penalises, from 0, or from -1, the last")
    mpa_heads: list[int] = hparam([], "heads of mpa_layers, from 0; none given: the first quarter")
    cooccurrence_file: str = free_hparam(
        "", "file of mpa_objective's table, of electra build-table; default <data_dir>/cooccurrence.npz", place="read"
    )

    def derived(self) -> dict[str, Any]:
        default = os.path.join(self.data_dir, "cooccurrence.npz")
        return super().derived() | {"cooccurrence_file": self.cooccurrence_file or default}

    @property
    def observed_heads(self) -> list[tuple[int, int]]:
        """(layer, head), both from 0, that are regularised; by default a quarter of the last layer's heads."""
        sizes = self.architecture
        heads = self.mpa_heads or list(range(-(-sizes.num_attention_heads // 4)))
        places = set()
        for layer in self.mpa_layers:
            for head in heads:
                if type(layer) is int and type(head) is int:  # others are refused
                    places.add((layer % sizes.num_hidden_layers, head))
        return sorted(places)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if not self.mpa_objective:
            return
        sizes = self.architecture
        layers = range(-sizes.num_hidden_layers, sizes.num_hidden_layers)
        if not self.mpa_layers or not all(type(layer) is int and layer in layers for layer in self.mpa_layers):
            yield (
                f"mpa_layers must name some of {sizes.num_hidden_layers} layers, from 0 or from -1, "
                f"got {self.mpa_layers}"
            )
        if not all(type(head) is int and 0 <= head < sizes.num_attention_heads for head in self.mpa_heads):
            yield f"mpa_heads must name some of {sizes.num_attention_heads} heads, from 0, got {self.mpa_heads}"
