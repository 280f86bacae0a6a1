"""Muon: the momentum of a matrix, made orthogonal, is its update (Jordan et al. 2024, kellerjordan.github.io).

The update of W [n, m] is U V^T of the singular value decomposition U S V^T of its momentum, so that all directions
grow alike. Five steps of Newton-Schulz's iteration come close to it with products alone: every singular value that is
at least 1/500 of the matrix's norm ends between 0.68 and 1.21. Liu et al. 2025 ("Muon is Scalable for LLM Training",
section 2.2) multiply it with 0.2 sqrt(max(n, m)): entries then have the root mean square of AdamW's updates, and one
learning rate and one weight decay serve both.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from electra_tf2.model.kernels.products import matmul
from electra_tf2.training.shared_hparams import OptimizerHparams

# Of x -> a x + b x^3 + c x^5, steep at 0 (Jordan et al. 2024, "tuning the coefficients").
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_RMS_OF_ADAMW = 0.2
_KERNEL_OF_LAYER = re.compile(r"(?:^|/)encoder/layer_\d+/(?:.+/)?kernel$")


def matrices_in(variable: tf.Variable) -> int:
    """Number of matrices, side by side in its columns, that Muon updates in a variable; 0: AdamW updates it.

    They are the kernels of encoder layers. Embeddings, norms, biases, heads and the projection of the embeddings are
    AdamW's (Jordan et al. 2024). A fused query-key-value kernel [H, 3H] is three: they are three maps of the same
    input, and as one matrix the singular values of the largest would decide how far the others go. So a gated
    feed-forward network's is two.
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
    """Newton-Schulz's approximation of U V^T of every matrix; a matrix of zeros stays one.

    Args:
      matrices: float32 [k, n, m], n at most m, where the products are smaller.
      steps: of the iteration.
      dtype: of the products; bfloat16 is enough (Jordan et al. 2024): it turns directions by a few hundredths.

    Returns:
      float32 [k, n, m].
    """
    a, b, c = _COEFFICIENTS
    norms = tf.sqrt(tf.reduce_sum(tf.square(matrices), axis=[1, 2], keepdims=True))  # above all singular values
    x = tf.cast(tf.math.divide_no_nan(matrices, norms), dtype)
    for _ in range(steps):
        gram = matmul(x, x, transpose_b=True)
        x = a * x + matmul(b * gram + c * matmul(gram, gram), x)
    return tf.cast(x, tf.float32)


class Update(NamedTuple):
    """Parts of a variable's step: float32 [n, m] momentum from now on, and direction, of AdamW's size."""

    momentum: tf.Tensor
    direction: tf.Tensor


class Muon(tf.Module):
    """Nesterov momentum of the matrices of hidden layers, and the directions that follow from it.

    `training.optimization.AdamW` applies them; create it under the strategy's scope.

    Args:
      variables: of which those are taken that `matrices_in` names.
      hparams: those that begin with muon_.

    Attributes:
      places: numbers of the variables that are updated.
    """

    def __init__(self, variables: Sequence[tf.Variable], hparams: OptimizerHparams) -> None:
        super().__init__(name="muon")
        self.momentum = hparams.muon_momentum
        self.steps = hparams.muon_ns_steps
        self.rate_factor = hparams.muon_learning_rate_factor
        self._dtype = tf.as_dtype(hparams.muon_precision)
        self.places: list[int] = []
        self._matrices: list[int] = []  # of each of these variables
        momenta = []
        for index, variable in enumerate(variables):
            matrices = matrices_in(variable)
            if not matrices:
                continue
            self.places.append(index)
            self._matrices.append(matrices)
            name = f"{variable.name.split(':')[0]}/muon_m"
            momenta.append(tf.Variable(tf.zeros_like(variable), trainable=False, name=name))
        self.momenta = momenta

    def updates(self, gradients: Sequence[tf.Tensor], factor: tf.Tensor | float) -> list[Update]:
        """Updates of the variables of `places`, for `AdamW.apply`; in replica context, every replica computes alike.

        Matrices of the same shape, lying or standing, are one stack, so that a step has few and large products.

        Args:
          gradients: float32, of all variables, summed over replicas.
          factor: of the gradients, which clips them.
        """
        momenta = []
        # (rows, columns) -> the matrices of that shape, each with the place of its variable in `places`.
        stacks = defaultdict[tuple[int, int], list[tuple[int, tf.Tensor]]](list)
        for number, index in enumerate(self.places):
            gradient = gradients[index] * factor
            momentum = self.momentum * self.momenta[number] + (1.0 - self.momentum) * gradient
            momenta.append(momentum)
            ahead = self.momentum * momentum + (1.0 - self.momentum) * gradient
            for matrix in tf.split(ahead, self._matrices[number], axis=1):
                lying = _lying(matrix)
                stacks[tuple(lying.shape)].append((number, lying))

        directions: list[list[tf.Tensor]] = [[] for _ in self.places]
        for (_, columns), members in stacks.items():
            stack = tf.stack([matrix for _, matrix in members])
            stack = orthogonalised(stack, self.steps, self._dtype)
            stack *= _RMS_OF_ADAMW * float(columns) ** 0.5
            for (number, _), direction in zip(members, tf.unstack(stack), strict=True):
                directions[number].append(direction)
        return [
            Update(momentum, _side_by_side(matrices, momentum))
            for momentum, matrices in zip(momenta, directions, strict=True)
        ]

    @staticmethod
    def step(variable: tf.Variable, momentum: tf.Variable, update: Update, rates: dict[str, tf.Tensor]) -> None:
        """Weight decay and Muon's direction of one variable."""
        momentum.assign(update.momentum)
        variable.assign(variable * rates.get("kept", 1.0) - rates["lr"] * update.direction)


def _lying(matrix: tf.Tensor) -> tf.Tensor:
    """A matrix with at least as many columns as rows: itself, or transposed."""
    if matrix.shape[0] > matrix.shape[1]:
        return tf.transpose(matrix)
    return matrix


def _side_by_side(matrices: list[tf.Tensor], like: tf.Tensor) -> tf.Tensor:
    """Lying matrices, stood up where they did, as the columns of a variable."""
    rows, columns = like.shape
    if rows > columns // len(matrices):
        matrices = [tf.transpose(matrix) for matrix in matrices]
    return tf.concat(matrices, axis=1)
