"""What has to be done before TensorFlow is imported, and around that."""

import os
import sys

# tf_keras and an old copy of Keras in TensorFlow import these, if they are there, for data frames and sparse matrices
# given to `fit`. pandas is there because tf-models-official wants it.
_NOT_NEEDED = ("pandas", "scipy")


def before_tensorflow(log_level: int = 2) -> None:
    """Keeps start-up messages off the screen, and Keras 3, which nothing here uses, from being imported along.

    With TF_USE_LEGACY_KERAS, TensorFlow imports tf_keras in its place, which is needed anyway: about 3 s less.

    Args:
      log_level: the least severe message of TensorFlow's that is shown: 2 errors, 3 only what ends the process.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", str(log_level))
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")


def import_tensorflow() -> None:
    """Imports TensorFlow without the packages that it only looks for, which take a quarter of that time."""
    hidden = [name for name in _NOT_NEEDED if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        import tensorflow  # noqa: F401
    finally:
        for name in hidden:
            del sys.modules[name]
