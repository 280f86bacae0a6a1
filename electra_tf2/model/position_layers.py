"""The layer that computes each scheme of `model.position_schemes`, a module that imports no TensorFlow."""

from electra_tf2.model.attention import Positions
from electra_tf2.model.relative_positions import LearnedBias, Rotations
from electra_tf2.model.transformer_xl import Distances

POSITION_LAYERS: dict[str, type[Positions]] = {
    "none": Positions,
    "t5": LearnedBias,
    "coco": LearnedBias,
    "rotary": Rotations,
    "xl": Distances,
}
