"""Signals that ask a run to save and end."""

import signal
from collections.abc import Callable
from types import TracebackType
from typing import Any

# Sent by schedulers and terminals: Slurm sends the one that --signal names, submitit SIGUSR1, an ssh session that ends
# SIGHUP.
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)


class StopSignal:
    """Remembers the signal that asked the run to end; a context manager that listens for one.

    Attributes:
      number: the signal's number; None before one came.
      on_receive: called when a signal comes.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.on_receive: Callable[[], None] = lambda: None
        self._previous: dict[int, Any] = {}

    @property
    def name(self) -> str:
        """Name of the signal that came: "SIGTERM"."""
        assert self.number is not None
        return signal.Signals(self.number).name

    def __enter__(self) -> "StopSignal":
        for number in _SIGNALS:
            # nohup makes a process ignore SIGHUP, so that it survives its terminal. It stays ignored.
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue
            self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def _receive(self, number: int, frame: Any) -> None:
        del frame
        self.number = number
        # A second Ctrl-C ends the process at once.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        self.on_receive()
