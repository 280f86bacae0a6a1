"""Moving averages of the weights (ema_decay), which evaluation, fine-tuning and conversion use in their place."""

import contextlib
from collections.abc import Iterator, Sequence

import tensorflow as tf

from electra_tf2.formats.checkpoint_files import AVERAGE


class WeightAverage:
    """Exponential moving averages of variables; after t updates the decay is min(decay, t / (t + 10)).

    Attributes:
      values: the averages: variables with names made of those they average.
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
        """float32 scalar: which share of the way to the variables averages move at 0-based `step`; 1 at step 0."""
        done = tf.cast(step, tf.float32)
        return 1.0 - tf.minimum(self._decay, done / (done + 10.0))

    @staticmethod
    def follow(average: tf.Variable, variable: tf.Variable, share: tf.Tensor) -> None:
        """Moves an average towards its variable."""
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
