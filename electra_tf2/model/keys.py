"""Keys: a batch of sequences as attention of all layers sees it."""

from typing import NamedTuple

import tensorflow as tf

from electra_tf2.model.kernels.tiles import Tiling
from electra_tf2.model.positions import Blocks
from electra_tf2.model.relative_positions import RelativeTerms, Rotation


class Keys(NamedTuple):
    """Sequences as attention of all layers sees them.

    allowed: bool [B, 1, 1 or L, L], which keys a query may attend to.
    position_bias: float32 [1, 1 or A, 1 or L, 1 or L], added to the scaled scores.
    rotation: angles by which queries and keys are turned, or None.
    terms: terms of Transformer-XL's scores, or None.
    tiling: how attention is cut into tiles; `allowed` is [B, 1, 1, L] then, whatever the direction, and
      `position_bias` [1 or A, 2L - 1], by distance. None: attention on whole arrays.
    lengths: int32 [B], the number of keys of each sequence, where cuDNN computes attention; `position_bias` is in the
      type of states then, and the angles of `rotation` [L, 1, D/2]. None: it does not.
    are_long: whether, in a program, little is kept for gradients (kernels.compilation.keeping_little).
    blocks: how local attention is cut into blocks, all others being of their shapes then (model.local_attention).
    """

    allowed: tf.Tensor
    position_bias: tf.Tensor
    rotation: Rotation | None = None
    terms: RelativeTerms | None = None
    tiling: Tiling | None = None
    blocks: Blocks | None = None
    lengths: tf.Tensor | None = None
    are_long: bool = False
