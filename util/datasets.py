"""Options that every tf.data pipeline here has in common."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf


def untuned(dataset: "tf.data.Dataset") -> "tf.data.Dataset":
    """The dataset without tf.data's search for the sizes of its buffers, which ours say themselves.

    The thread that searches sleeps as long as it has run, up to a minute at a time, and whoever drops an iterator waits
    for it if it is woken before it can see that it should end: a race in TensorFlow, lost in every other iterator.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)
