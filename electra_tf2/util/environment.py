"""Sets up the environment before TensorFlow is imported, and imports it quietly."""

import contextlib
import functools
import logging
import os
import shlex
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

from electra_tf2.util import machine

if TYPE_CHECKING:
    import tensorflow as tf


# tf_keras, and an old copy of Keras in TensorFlow, import these if they are installed, for data frames and sparse
# matrices in `fit`. tf-models-official installs pandas.
_NOT_NEEDED = ("pandas", "scipy")
_PROGRAMS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "programs")
# Levels of absl's --verbosity. Others are 1 debug, 0 info, -1 warning.
_ERROR = -2
_FATAL = -3


def program_called() -> str:
    """How a user calls the command: `electra`, or `<python> -m electra_tf2` if Python ran the module or a script."""
    called = sys.argv[0]
    is_script = os.path.isfile(os.path.join(_PROGRAMS, os.path.basename(called)))
    if is_script or called.startswith("python -m electra_tf2"):
        return f"{shlex.quote(sys.orig_argv[0])} -m electra_tf2"
    return "electra"


def before_tensorflow(verbosity: int = _FATAL) -> None:
    """Turns off TensorFlow's log messages, and keeps it from importing Keras 3, which is not used here.

    Errors come as exceptions, so that messages are needed only by somebody who looks for a cause. TensorFlow imports
    tf_keras in any case; TF_USE_LEGACY_KERAS saves it the import of Keras 3, which takes 3 s. If the calling program
    has imported TensorFlow itself, its Keras is left alone, since `tf.keras` would become Keras 2. If it has imported
    Keras 3 but not TensorFlow, it is warned.

    Args:
      verbosity: level of the messages that are shown, as absl counts them. For messages of TensorFlow's C++,
        TF_CPP_MIN_LOG_LEVEL overrides it.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", str(min(max(-verbosity, 0), 3)))
    if "tensorflow" not in sys.modules:
        if "keras" in sys.modules and "TF_USE_LEGACY_KERAS" not in os.environ:
            warnings.warn(
                "electra_tf2 uses Keras 2: in this process tf.keras is tf_keras, not the keras that was imported. To "
                "keep it for tf.keras, import tensorflow before electra_tf2.load",
                stacklevel=3,
            )
        os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    flags = os.environ.get("XLA_FLAGS", "")
    is_file = flags[:1] not in ("", "-")  # the path of a file from which XLA reads its flags
    for name, value in machine.this_processor().xla_flags.items():
        if not is_file and name not in flags:
            flags = f"{flags} {name}={value}".strip()
            os.environ["XLA_FLAGS"] = flags
    levels = {_FATAL: logging.ERROR, _ERROR: logging.ERROR, -1: logging.WARNING, 0: logging.INFO}
    logging.getLogger("tensorflow").setLevel(levels.get(verbosity, logging.DEBUG))


def use_processor_only() -> None:
    """Hides GPUs from TensorFlow and turns off its log messages. To be called before it is imported."""
    before_tensorflow()
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"


def import_tensorflow() -> None:
    """Imports TensorFlow without optional packages, which take a quarter of the time.

    On machines without GPU, TensorFlow 2.21 reports at any log level that there is no CUDA. So standard error is
    silenced, unless log messages are wanted. Failed imports raise, and training.distribution reports an unusable GPU.
    """
    hidden = [name for name in _NOT_NEEDED if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        with errors_unseen():
            import tensorflow as tf

            tf.config.list_physical_devices()  # reports once more that there is no CUDA; it initialises nothing
    finally:
        for name in hidden:
            del sys.modules[name]


@functools.cache
def compile_unseen() -> None:
    """Compiles something small, since XLA reports the first compilation in a process at any log level.

    It initialises the devices, so these must be configured before.
    """
    import tensorflow as tf

    if _notes_are_wanted():
        return
    # tensorflow-tpu has no XLA for processors: NotFoundError.
    with errors_unseen(), tf.device("CPU:0"), contextlib.suppress(tf.errors.NotFoundError):
        tf.function(lambda x: x + x, jit_compile=True, autograph=False)(tf.constant(1.0))


def _notes_are_wanted() -> bool:
    return os.environ.get("TF_CPP_MIN_LOG_LEVEL", "0") in ("0", "1")


@contextlib.contextmanager
def errors_unseen() -> Iterator[None]:
    """Silences standard error, to which libraries write, unless TF_CPP_MIN_LOG_LEVEL asks for notes."""
    if _notes_are_wanted():
        yield
        return
    sys.stderr.flush()
    stderr = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)


def untuned(dataset: "tf.data.Dataset") -> "tf.data.Dataset":
    """The dataset without tf.data's autotuning of buffer sizes. Ours have fixed sizes.

    The autotuning thread sleeps for up to a minute at a time. Deleting an iterator waits for the thread, and by a race
    in TensorFlow, in about every other case, the thread does not notice that it should end.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)
