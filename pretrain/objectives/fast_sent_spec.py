"""FastSent, as the configuration knows it (pretrain.objectives.fast_sent computes it)."""

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.flops import Part
from electra_tf2.pretrain.objectives.spec import Needs, auxiliary_task


def _parts(c: PretrainingConfig) -> list[Part]:
    hidden, vectors = c.architecture.hidden_size, 2 * (1 + c.half_length)
    flops = 2 * vectors * hidden * hidden + 2 * 2 * c.half_length * hidden
    return [Part("FastSent", 2 * (hidden * hidden + 3 * hidden), flops, vectors * hidden)]


SPECS = (
    auxiliary_task(
        task="fs",
        objectives=("electra_tf2.pretrain.objectives.fast_sent:FastSent",),
        parts=_parts,
        needs=lambda c: Needs(views=(c.half_length, c.half_length)),
    ),
)
