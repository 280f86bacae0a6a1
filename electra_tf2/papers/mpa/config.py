"""MPA's hparams and their checks.

"Learning to focus where it matters: mis-predictions as harm alerts" is known from a poster alone (papers.mpa.model).
"""

import dataclasses
import os
from collections.abc import Iterable
from typing import Any

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.util.hparams import free_hparam, hparam


@dataclasses.dataclass(frozen=True)
class Config(PretrainingConfig):
    """ELECTRA-MPA; BERT-MPA with electra_objective false."""

    mpa_objective: bool = hparam(True, "penalise attention from mis-predictions to what misled them", heading="MPA")
    mpa_gamma: float = hparam(0.1, "weight of MPA's penalty (gamma)", at_least=0)
    mpa_warmup_steps: int | None = hparam(None, "steps in which mpa_gamma rises; null: num_warmup_steps", at_least=0)
    mpa_target: str = hparam(
        "scaled_logits",
        "what MPA penalises: scaled_logits: scores of attention (the poster); prob_mass: the attention itself (ours)",
        choices=("scaled_logits", "prob_mass"),
    )
    mpa_stop_gradient: bool = hparam(True, "the smaller scores that mpa_target scaled_logits aims at are constants")
    mpa_layers: list[int] = hparam([-1], "layers whose attention MPA penalises, from 0, or from -1, the last")
    mpa_heads: list[int] = hparam([], "heads of mpa_layers, from 0; none given: the first quarter")
    mpa_table: str = hparam(
        "sparse",
        "how MPA looks up scores of co-occurrence: sparse: among a token's neighbours; dense: in a table of "
        "vocab_size squared float16",
        choices=("sparse", "dense"),
    )
    cooccurrence_file: str = free_hparam(
        "", "file of mpa_objective's table, of electra build-table; default <data_dir>/cooccurrence.npz", place="read"
    )

    def derived(self) -> dict[str, Any]:
        default = os.path.join(self.data_dir, "cooccurrence.npz")
        return super().derived() | {"cooccurrence_file": self.cooccurrence_file or default}

    @property
    def observed_heads(self) -> list[tuple[int, int]]:
        """(layer, head) that are regularised, from 0; by default a quarter of the last layer's heads."""
        sizes = self.architecture
        heads = self.mpa_heads or list(range(-(-sizes.num_attention_heads // 4)))
        layers = [layer % sizes.num_hidden_layers for layer in self.mpa_layers if type(layer) is int]
        return sorted({(layer, head) for layer in layers for head in heads if type(head) is int})

    def objective_problems(self) -> Iterable[str]:
        yield from super().objective_problems()
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
        if self.mpa_target == "prob_mass" and not self.mpa_stop_gradient:
            yield "mpa_stop_gradient false has no effect: mpa_target prob_mass aims at no smaller scores"
        if not self.trains_main_network and self.uniform_generator:
            yield "mpa_objective needs the attention of a network"
