"""Standard output and standard error that are closed, full, or no longer read."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO


def open_standard_streams() -> None:
    """Opens the null device in place of standard streams that were closed ("program >&-"), and lets the others show
    characters that their encoding has not as escapes.

    Else the next file that is opened would take their place, and get whatever a library prints; and a label in Chinese
    would end a run whose terminal is not UTF-8.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r+" if name == "stdin" else "w"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError):  # a file that has become a pipe since it was opened
                stream.reconfigure(errors="backslashreplace")


def unwritable_output() -> str | None:
    """ "standard output", if it is what cannot be written; what it still holds is dropped then."""
    try:
        sys.stdout.write("\n")  # what failed before has been dropped
        sys.stdout.flush()
        return None
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return "standard output"


class OutputWithoutReader:
    """A text stream that drops what is written to it once its reader has ended, with one note on standard error."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._dropping():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._dropping():
            self._stream.flush()

    @contextlib.contextmanager
    def _dropping(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
            print("note: nobody reads the output any more; the work goes on without it", file=sys.stderr, flush=True)
