"""Muon: the momentum of a matrix, made orthogonal, is its update (Jordan et al. 2024, kellerjordan.github.io).

With U S V^T the singular value decomposition of the momentum of W [n, m], the update is U V^T, so that all directions
grow alike. Five steps of Newton-Schulz's iteration come close to it with matrix products alone: every singular value of
at least 1/500 of the matrix's norm ends between 0.68 and 1.21. Liu et al. 2025 ("Muon is Scalable for LLM Training",
section 2.2) multiply the update by 0.2 sqrt(max(n, m)): entries then have the root mean square of AdamW's updates, and
one learning rate and one weight decay serve both.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from electra_tf2.model.kernels.products import matmul
from electra_tf2.training.shared_hparams import OptimizerHparams

# a, b, c of x -> a x + b x^3 + c x^5, which is steep at 0 (Jordan et al. 2024, "Tuning the coefficients").
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_RMS_OF_ADAMW = 0.2
_KERNEL_OF_LAYER = re.compile(r"(?:^|/)encoder/layer_\d+/(?:.+/)?kernel$")


def matrices_in(variable: tf.Variable) -> int:
    """How many matrices, side by side in its columns, Muon updates in a variable; 0: AdamW updates it.

    Muon updates the kernels of encoder layers. AdamW updates embeddings, norms, biases, heads and the projection of the
    embeddings (Jordan et al. 2024). A fused query-key-value kernel [H, 3H] is three matrices, which map the same input:
    as one matrix the largest would decide how far the others go. For the same reason the kernel of a gated feed-forward
    network is two.
    """
    name = variable.name.split(":")[0]
    if not _KERNEL_OF_LAYER.search(name) or len(variable.shape) != 2:
        return 0
    if "/self/qkv/" in name:
        return 3
    if "/intermediate/gated/" in name:
        return 2
    return 1


def orthogonalised(matrices: tf.Tensor, steps: int, dtype: tf.DType) -> tf.Tensor:
    """Newton-Schulz's approximation of U V^T of every matrix; a matrix of zeros stays zero.

    Args:
      matrices: float32 [k, n, m] with n <= m, so that the products are small.
      steps: number of iterations.
      dtype: type of the products; bfloat16 is enough (Jordan et al. 2024): it turns directions by a few hundredths.

    Returns:
      float32 [k, n, m].
    """
    a, b, c = _COEFFICIENTS
    # The Frobenius norm exceeds all singular values.
    norms = tf.sqrt(tf.reduce_sum(tf.square(matrices), axis=[1, 2], keepdims=True))  # [k, 1, 1]
    x = tf.cast(tf.math.divide_no_nan(matrices, norms), dtype)
    for _ in range(steps):
        gram = matmul(x, x, transpose_b=True)  # [k, n, n]
        x = a * x + matmul(b * gram + c * matmul(gram, gram), x)
    return tf.cast(x, tf.float32)


class Update(NamedTuple):
    """A variable's update.

    momentum: float32 [n, m], the new momentum.
    direction: float32 [n, m], scaled to the size of AdamW's updates.
    """

    momentum: tf.Tensor
    direction: tf.Tensor


class Muon(tf.Module):
    """Nesterov momentum of the matrices of hidden layers, and the directions of their updates.

    `training.optimization.AdamW` applies the updates. Create it under the strategy's scope.

    Args:
      variables: all that are trained; Muon updates those in which `matrices_in` counts matrices.
      hparams: those that begin with muon_ are read.

    Attributes:
      indices: of the variables that Muon updates.
      momenta: of these variables.
    """

    def __init__(self, variables: Sequence[tf.Variable], hparams: OptimizerHparams) -> None:
        super().__init__(name="muon")
        self.momentum = hparams.muon_momentum
        self.steps = hparams.muon_ns_steps
        self.rate_factor = hparams.muon_learning_rate_factor
        self._dtype = tf.as_dtype(hparams.muon_precision)
        self.indices: list[int] = []
        self._matrices: list[int] = []  # how many each of these variables holds
        momenta = []
        for index, variable in enumerate(variables):
            matrices = matrices_in(variable)
            if not matrices:
                continue
            self.indices.append(index)
            self._matrices.append(matrices)
            name = f"{variable.name.split(':')[0]}/muon_m"
            momenta.append(tf.Variable(tf.zeros_like(variable), trainable=False, name=name))
        self.momenta = momenta

    def updates(self, gradients: Sequence[tf.Tensor], factor: tf.Tensor | float) -> list[Update]:
        """Computes the updates of the variables of `indices`, in replica context; all replicas compute the same.

        Matrices of the same shape, lying or standing, are stacked, so that a step has few and large products.

        Args:
          gradients: float32, for all variables, summed over replicas.
          factor: clips the gradients, which are multiplied by it.
        """
        momenta = []
        # (rows, columns) -> matrices of that shape, each with the position of its variable in `indices`.
        stacks = defaultdict[tuple[int, int], list[tuple[int, tf.Tensor]]](list)
        for position, index in enumerate(self.indices):
            gradient = gradients[index] * factor
            momentum = self.momentum * self.momenta[position] + (1.0 - self.momentum) * gradient
            momenta.append(momentum)
            # Nesterov: the momentum as it would be after one more step with the same gradient.
            ahead = self.momentum * momentum + (1.0 - self.momentum) * gradient
            for matrix in tf.split(ahead, self._matrices[position], axis=1):
                lying = _lying(matrix)
                stacks[tuple(lying.shape)].append((position, lying))

        directions: list[list[tf.Tensor]] = [[] for _ in self.indices]
        for (_, columns), members in stacks.items():
            stack = tf.stack([matrix for _, matrix in members])  # [k, rows, columns]
            stack = orthogonalised(stack, self.steps, self._dtype)
            stack *= _RMS_OF_ADAMW * float(columns) ** 0.5
            for (position, _), direction in zip(members, tf.unstack(stack), strict=True):
                directions[position].append(direction)

        updates = []
        for momentum, matrices in zip(momenta, directions, strict=True):
            updates.append(Update(momentum, _side_by_side(matrices, momentum)))
        return updates

    @staticmethod
    def step(variable: tf.Variable, momentum: tf.Variable, update: Update, rates: dict[str, tf.Tensor]) -> None:
        """Applies weight decay and an update to one variable."""
        momentum.assign(update.momentum)
        variable.assign(variable * rates.get("kept", 1.0) - rates["lr"] * update.direction)


def _lying(matrix: tf.Tensor) -> tf.Tensor:
    """The matrix, transposed if it has more rows than columns."""
    if matrix.shape[0] > matrix.shape[1]:
        return tf.transpose(matrix)
    return matrix


def _side_by_side(matrices: list[tf.Tensor], like: tf.Tensor) -> tf.Tensor:
    """Joins matrices from `_lying`, transposed back if they were, as columns of an array shaped as `like`."""
    rows, columns = like.shape
    if rows > columns // len(matrices):  # the matrices of the variable stand
        matrices = [tf.transpose(matrix) for matrix in matrices]
    return tf.concat(matrices, axis=1)
