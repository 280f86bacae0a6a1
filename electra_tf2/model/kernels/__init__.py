"""Fast forms of the model's formulas, with their gradients. Within `off` the formulas themselves are computed.

A kernel stands beside each formula of model.layers, model.attention and others (`switch.with_kernel`). A kernel called
..._in_program takes its place where XLA compiles the whole step as one program, for GPUs and TPUs.

How kernels are made: switch (formula or kernel), compilation (what XLA compiles), gradients (written out), dtypes,
products, sums (arithmetic), barriers (what XLA may not join), loops (parts one after another), joined (many small
operations as few large ones).

The kernels: activations, dropout, norms, feed_forward, whole_attention, tiles (attention over long sequences),
positions, vocabulary_softmax, chunked_softmax (over all tokens).
"""

from electra_tf2.model.kernels.switch import off

__all__ = ["off"]
