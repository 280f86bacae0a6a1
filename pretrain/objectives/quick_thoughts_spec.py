"""Quick thoughts, as the configuration knows them (pretrain.objectives.quick_thoughts computes them)."""

from collections.abc import Iterator

from configure_pretraining import PretrainingConfig
from model.flops import Part
from pretrain.objectives.spec import Needs, auxiliary_task


def _problems(c: PretrainingConfig) -> Iterator[str]:
    if not c.trains_main_network and c.uniform_generator:
        yield "aux_tasks qt needs a network"


def _parts(c: PretrainingConfig) -> list[Part]:
    hidden = c.architecture.hidden_size
    square = hidden * hidden
    return [Part("quick thoughts", square + 3 * hidden, 2 * 2 * square, 2 * hidden)]


SPECS = (
    auxiliary_task(
        task="qt",
        objectives=("pretrain.objectives.quick_thoughts:QuickThoughts",),
        problems=_problems,
        parts=_parts,
        needs=lambda c: Needs(views=(c.half_length, c.half_length), whole_batch=True),
    ),
)
