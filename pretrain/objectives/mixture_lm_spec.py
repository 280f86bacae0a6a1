"""The mixture of generators, as the configuration knows it (pretrain.objectives.mixture_lm computes its loss)."""

from collections.abc import Iterator

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.flops import Part, language_model_head
from electra_tf2.pretrain.objectives.spec import ObjectiveSpec


def _problems(c: PretrainingConfig) -> Iterator[str]:
    exits, layers = c.generator_exits, c.generator_architecture.num_hidden_layers
    rising = all(type(layer) is int for layer in exits) and exits == sorted(set(exits))
    if len(exits) < 2 or not rising or exits[0] < 1 or exits[-1] != layers:
        yield (
            f"generator_exits must be two layers or more of the generator, from 1, rising to its uppermost, {layers} "
            f"(generator_layers), got {exits}"
        )
    if not (c.untied_generator and c.trains_main_network) or c.uniform_generator or c.two_tower_generator:
        yield "generator_exits needs a masked language model of its own as generator"
    if c.adversarial_generator:
        yield "generator_exits and adversarial_generator are two ways to train an adversary: choose one"
    if c.freeze_generator:
        yield "generator_exits needs a generator that is trained: freeze_generator must be false"
    if c.architecture.norm_style != "post":
        yield "generator_exits needs norm_style post: its exits read layers that are normalised"
    if c.mask_sampling != "without_replacement":
        yield "generator_exits needs mask_sampling without_replacement: a position has one sample"


def _parts(c: PretrainingConfig) -> list[Part]:
    """Beside the uppermost exit: the others, the shares, and the products with the word table by which they learn."""
    a, masked = c.generator_architecture, c.max_predictions_per_seq
    head = language_model_head("other exits", a.hidden_size, a, masked * (len(c.generator_exits) - 1))
    back = 2 * 2 * masked * c.architecture.embedding_size * c.architecture.vocab_size
    return [
        head._replace(parameters=a.hidden_size),
        Part("mixture's gradient", 0, back, masked * c.architecture.embedding_size, backward=False),
    ]


SPECS = (
    ObjectiveSpec(
        flag="",
        title="a mixture of generators (AMOS)",
        role="generator",
        objectives=("electra_tf2.pretrain.objectives.mixture_lm:MixtureLM",),
        chosen=lambda c: bool(c.generator_exits),
        problems=_problems,
        parts=_parts,
    ),
)
