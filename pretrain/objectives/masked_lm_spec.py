"""The generator's language modelling, as the configuration knows it (pretrain.objectives.masked_lm computes it)."""

from collections.abc import Iterator

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.objectives.spec import ObjectiveSpec


def _problems(c: PretrainingConfig) -> Iterator[str]:
    if not c.trains_main_network:
        if c.uniform_generator:
            yield "uniform_generator without a main network leaves nothing to train"
        if not c.gen_weight:
            yield "gen_weight is 0, so BERT's only loss is off"


SPECS = (
    ObjectiveSpec(
        flag="",
        role="generator",
        objectives=("electra_tf2.pretrain.objectives.masked_lm:MaskedLM",),
        chosen=lambda c: not (c.two_tower_generator or c.adversarial_generator or c.generator_exits),
        problems=_problems,
    ),
    ObjectiveSpec(
        flag="",
        role="generator",
        objectives=("electra_tf2.pretrain.objectives.masked_lm:ClozeLM",),
        chosen=lambda c: c.two_tower_generator and not c.adversarial_generator,
    ),
)
