"""Standard output and standard error that are closed, full, or no longer read."""

import contextlib
import gzip
import io
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from electra_tf2.util.content import is_compressed, plain_name
from electra_tf2.util.errors import UserError

_DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_LINES = (".jsonl", ".ndjson", ".json", "")


def delimiter_of_output(path: str) -> str:
    """Delimiter between the cells of a file of rows that is written under this name; "" for JSON lines.

    Raises:
      UserError: a name of another format, which would hold something else than it says.
    """
    suffix = os.path.splitext(plain_name(path))[1]
    if suffix not in _DELIMITERS and suffix not in _LINES:
        kinds = ", ".join(filter(None, (*_LINES, *_DELIMITERS)))
        raise UserError(f"{path}: {suffix} cannot be written: give a name that ends in one of {kinds}, also with .gz")
    if is_compressed(path) and not path.lower().endswith(".gz"):
        raise UserError(f"{path}: of compressed files only .gz is written")
    return _DELIMITERS.get(suffix, "")


def encoded_output(path: str, text: str) -> bytes:
    """The bytes of a text under this name, compressed where it says so."""
    data = text.encode()
    return gzip.compress(data, mtime=0) if is_compressed(path) else data


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
