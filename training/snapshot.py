"""A checkpoint is written while training goes on: a copy of the state on the host, and a thread that writes it."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf


class Snapshot:
    """A copy of variables in the host's memory, which keep in its `checkpoint` the names they have in their own.

    Args:
      tracked: modules by name, as for tf.train.Checkpoint.
    """

    def __init__(self, tracked: Mapping[str, tf.Module]) -> None:
        self._variables: list[tuple[tf.Variable, tf.Variable]] = []  # and their copies
        self._twins: dict[int, Any] = {}  # by the id of what they stand for, which may be reached by several paths
        self._kept = tf.train.Checkpoint(**tracked)
        self.checkpoint: tf.train.Checkpoint = self._twin(self._kept)

    def _twin(self, original: Any) -> Any:
        if id(original) not in self._twins:
            if isinstance(original, tf.Variable):
                name = original.name.partition(":")[0]
                self._twins[id(original)] = copy = tf.Variable(_on_host(original), trainable=False, name=name)
                self._variables.append((original, copy))
            else:
                self._twins[id(original)] = twin = tf.train.Checkpoint()
                for name, child in tf.train.TrackableView.children(original).items():
                    setattr(twin, name, self._twin(child))
        return self._twins[id(original)]

    def take(self) -> None:
        """Copies the variables as they are now."""
        for variable, copy in self._variables:
            copy.assign(_on_host(variable))


def _on_host(variable: tf.Variable) -> tf.Tensor:
    with tf.device("CPU:0"):
        return tf.raw_ops.DeepCopy(x=variable)  # a plain read shares memory, which the next step would copy


class Writer:
    """A thread that does one piece of work at a time; what goes wrong there is raised where its end is waited for."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Begins a piece of work, after the one before. Raises what went wrong with that."""
        self.wait()
        self._thread = threading.Thread(target=self._do, args=(work,), name="checkpoint writer", daemon=True)
        self._thread.start()

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._failure = error

    @property
    def is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def settle(self) -> None:
        """Waits for the end of the work, whatever it may be."""
        if self._thread is not None:
            self._thread.join()

    def check(self) -> None:
        """Raises, once, what has gone wrong by now."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def wait(self) -> None:
        """Waits for the end of the work. Raises what went wrong."""
        self.settle()
        self.check()
