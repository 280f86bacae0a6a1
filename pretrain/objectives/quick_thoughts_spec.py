"""Quick thoughts, as the configuration knows them (pretrain.objectives.quick_thoughts computes them)."""

from collections.abc import Iterator

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.flops import Part
from electra_tf2.pretrain.objectives.spec import Needs, auxiliary_task


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
        objectives=("electra_tf2.pretrain.objectives.quick_thoughts:QuickThoughts",),
        problems=_problems,
        parts=_parts,
        needs=lambda c: Needs(views=(c.half_length, c.half_length), whole_batch=True),
    ),
)
