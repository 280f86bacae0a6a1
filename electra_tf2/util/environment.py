"""Settings before and around the import of TensorFlow."""

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


# tf_keras and an old copy of Keras in TensorFlow import these, if they are there, for data frames and sparse matrices
# given to `fit`. pandas is there because tf-models-official wants it.
_NOT_NEEDED = ("pandas", "scipy")
_PROGRAMS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "programs")
# Of absl's --verbosity: 1 debug, 0 info, -1 warning.
_ERROR = -2
_FATAL = -3


def program_called() -> str:
    """The command `electra` as it was called, to be typed again: `electra`, or the Python that ran it as a module or
    one of the scripts."""
    called = sys.argv[0]
    is_script = os.path.isfile(os.path.join(_PROGRAMS, os.path.basename(called)))
    if is_script or called.startswith("python -m electra_tf2"):
        return f"{shlex.quote(sys.orig_argv[0])} -m electra_tf2"
    return "electra"


def before_tensorflow(verbosity: int = _FATAL) -> None:
    """Keeps TensorFlow's messages off the screen, and Keras 3, which nothing here uses, from being imported along.

    What goes wrong comes as an exception, so messages are noise unless somebody looks for a cause. TensorFlow imports
    tf_keras anyway; TF_USE_LEGACY_KERAS spares it Keras 3 as well, 3 s. A program that has imported TensorFlow itself
    keeps its Keras, since `tf.keras` would become Keras 2 otherwise; one that has imported Keras 3 alone is told.

    Args:
      verbosity: the least severe message that is shown, as absl counts them; TF_CPP_MIN_LOG_LEVEL, where it is set,
        decides for those of TensorFlow's C++.
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
    is_file = flags[:1] not in ("", "-")  # XLA reads its flags from there
    for name, value in machine.this_processor().xla_flags.items():
        if not is_file and name not in flags:
            flags = f"{flags} {name}={value}".strip()
            os.environ["XLA_FLAGS"] = flags
    levels = {_FATAL: logging.ERROR, _ERROR: logging.ERROR, -1: logging.WARNING, 0: logging.INFO}
    logging.getLogger("tensorflow").setLevel(levels.get(verbosity, logging.DEBUG))


def use_processor_only() -> None:
    """Hides GPUs from TensorFlow, which is not yet imported, and keeps its start-up messages off the screen."""
    before_tensorflow()
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"


def import_tensorflow() -> None:
    """Imports TensorFlow without the packages that it only looks for, which take a quarter of that time.

    TensorFlow 2.21 says, whatever the least severity that is shown, that it finds no CUDA on machines without GPU. What
    it writes to standard error is kept off the screen, unless notes are asked for; a GPU that is there and cannot be
    used is named by training.distribution, and an import that fails raises.
    """
    hidden = [name for name in _NOT_NEEDED if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        with errors_unseen():
            import tensorflow as tf

            tf.config.list_physical_devices()  # says once more that there is no CUDA; nothing is initialised by it
    finally:
        for name in hidden:
            del sys.modules[name]


@functools.cache
def compile_unseen() -> None:
    """Lets XLA say that it compiled, which it does at its first compilation in a process whatever the least severity
    that is shown, while nobody listens. Not before the devices are configured: this initialises them."""
    import tensorflow as tf

    if _notes_are_wanted():
        return
    # tensorflow-tpu has none for processors
    with errors_unseen(), tf.device("CPU:0"), contextlib.suppress(tf.errors.NotFoundError):
        tf.function(lambda x: x + x, jit_compile=True, autograph=False)(tf.constant(1.0))


def _notes_are_wanted() -> bool:
    return os.environ.get("TF_CPP_MIN_LOG_LEVEL", "0") in ("0", "1")


@contextlib.contextmanager
def errors_unseen() -> Iterator[None]:
    """Keeps what libraries write to standard error to themselves, unless their notes are asked for."""
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
    """The dataset without tf.data's search for the sizes of its buffers, which ours say themselves.

    The thread that searches sleeps as long as it has run, up to a minute at a time, and whoever drops an iterator waits
    for it if it is woken before it can see that it should end: a race in TensorFlow, lost in every other iterator.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)
