"""Handles standard output and standard error that are closed, full, or no longer read."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO


def open_standard_streams() -> None:
    """Makes the standard streams safe to print to.

    Streams that were closed ("program >&-") are replaced by the null device: the next file that is opened would get
    their descriptor, and whatever a library prints. Characters that a stream's encoding lacks are escaped: a label in
    Chinese would otherwise end a run whose terminal is not UTF-8.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r+" if name == "stdin" else "w"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError):  # the descriptor was a file when the stream was made, and is a pipe now
                stream.reconfigure(errors="backslashreplace")


def unwritable_output() -> str | None:
    """Tests standard output after an error of writing: returns its name if it is the cause, or else None.

    If so, the null device takes its place, and buffered text is dropped.
    """
    try:
        sys.stdout.write("\n")  # earlier text, which failed, is no longer in the buffer
        sys.stdout.flush()
        return None
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return "standard output"


class OutputWithoutReader:
    """A text stream that drops text after its reader has ended. It prints a note on standard error once."""

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
