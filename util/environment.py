"""What TensorFlow reads from the environment, to be set before it is imported."""

import os


def before_tensorflow(log_level: int = 2) -> None:
    """Keeps start-up messages off the screen, and Keras 3, which nothing here uses, from being imported along.

    With TF_USE_LEGACY_KERAS, TensorFlow imports tf_keras in its place, which is needed anyway: about 3 s less.

    Args:
      log_level: the least severe message of TensorFlow's that is shown: 2 errors, 3 only what ends the process.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", str(log_level))
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
