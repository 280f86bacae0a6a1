"""Fast forms of the model's formulas, with their gradients. Within `off` the formulas themselves are computed."""

from electra_tf2.model.kernels.switch import off

__all__ = ["off"]
