"""Moving averages of the weights, which evaluation, fine-tuning and conversion take (ema_decay)."""

import contextlib
from collections.abc import Iterator, Sequence

import tensorflow as tf

from electra_tf2.formats.checkpoint_files import AVERAGE


class WeightAverage:
    """Moving average of variables, with a memory that grows to `decay`: min(decay, t / (t + 10)) after t updates.

    Attributes:
      values: the averages, variables named after those that they follow.
    """

    def __init__(self, variables: Sequence[tf.Variable], decay: float) -> None:
        self._variables = list(variables)
        self._decay = decay
        self.values = []
        for variable in variables:
            name = f"{variable.name.split(':')[0]}/{AVERAGE}"
            zeros = tf.zeros(variable.shape, variable.dtype)
            self.values.append(tf.Variable(zeros, trainable=False, name=name))

    def share(self, step: tf.Tensor) -> tf.Tensor:
        """float32 scalar: how far the averages move towards the variables after the update of 0-based `step`; 1 is all
        the way, after the first."""
        done = tf.cast(step, tf.float32)
        return 1.0 - tf.minimum(self._decay, done / (done + 10.0))

    @staticmethod
    def follow(average: tf.Variable, variable: tf.Variable, share: tf.Tensor) -> None:
        """Moves one average on."""
        average.assign_sub(share * (average - variable))

    @contextlib.contextmanager
    def swapped(self) -> Iterator[None]:
        """Exchanges variables and averages within the context, through the host's memory."""

        def swap() -> None:
            for variable, average in zip(self._variables, self.values, strict=True):
                value = variable.numpy()
                variable.assign(average)
                average.assign(value)

        swap()
        try:
            yield
        finally:
            swap()
