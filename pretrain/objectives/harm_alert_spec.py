"""MPA's penalty of attention, as the configuration knows it (pretrain.objectives.harm_alert computes it)."""

from collections.abc import Iterator

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.objectives.spec import Needs, ObjectiveSpec


def attention_of(c: PretrainingConfig) -> frozenset[tuple[int, int]]:
    """(layer, head) that are regularised, from 0; by default a quarter of the last layer's heads."""
    a = c.architecture
    heads = c.mpa_heads or list(range(-(-a.num_attention_heads // 4)))
    layers = [layer % a.num_hidden_layers for layer in c.mpa_layers if type(layer) is int]
    return frozenset((layer, head) for layer in layers for head in heads if type(head) is int)


def _problems(c: PretrainingConfig) -> Iterator[str]:
    a = c.architecture
    layers = range(-a.num_hidden_layers, a.num_hidden_layers)
    if not c.mpa_layers or not all(type(layer) is int and layer in layers for layer in c.mpa_layers):
        yield f"mpa_layers must name some of {a.num_hidden_layers} layers, from 0 or from -1, got {c.mpa_layers}"
    if not all(type(head) is int and 0 <= head < a.num_attention_heads for head in c.mpa_heads):
        yield f"mpa_heads must name some of {a.num_attention_heads} heads, from 0, got {c.mpa_heads}"
    if c.mpa_target == "prob_mass" and not c.mpa_stop_gradient:
        yield "mpa_stop_gradient false has no effect: mpa_target prob_mass aims at no smaller scores"
    if not c.trains_main_network and c.uniform_generator:
        yield "mpa_objective needs the attention of a network"


SPECS = (
    ObjectiveSpec(
        flag="mpa_objective",
        title="a penalty of attention to what misled (MPA)",
        role="beside",
        objectives=("electra_tf2.pretrain.objectives.harm_alert:HarmAlert",),
        problems=_problems,
        needs=lambda c: Needs(attention=attention_of(c)),
        without_main=True,
    ),
)
