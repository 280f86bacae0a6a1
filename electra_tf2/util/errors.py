"""UserError, which is printed as one clear line without a traceback, and helpers for its messages."""

import difflib
import errno
import re
from collections.abc import Iterable
from typing import Any

_SHORT = 3  # letters of a name of which one half may differ and it is still similar
HALF_PAIR = re.compile("[\ud800-\udfff]")  # a lone surrogate, which UTF-8 cannot encode

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "it is on a read-only file system",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EISDIR: "it is a folder",
    errno.ENOTDIR: "a part of its path is a file, not a folder",
    errno.EEXIST: "a file stands where a folder is needed",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ENOENT: "there is no such file or folder",
}


class UserError(ValueError):
    """Bad input. The message names the file, flag or hparam, the value, and what to do."""

    def __str__(self) -> str:
        return one_line(super().__str__())


def reason(error: BaseException) -> str:
    """The cause of an error of reading or writing, without the error's number and path."""
    if isinstance(error, ValueError) and "null" in str(error):
        return "the path holds a NUL character"
    if isinstance(error, OSError) and error.errno in _REASONS:
        return _REASONS[error.errno]
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def how_to_install(extra: str) -> str:
    """The command that installs an extra of pyproject.toml."""
    return f"pip install '.[{extra}]' in the folder of this project's source"


def one_line(text: str) -> str:
    """A text without line breaks, and with escapes for lone surrogates, which cannot be printed."""
    return " ".join(text.split()).encode(errors="backslashreplace").decode()


def shown(value: Any, width: int = 100) -> str:
    """A value for a message: its repr, shortened if it is long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits; deeply nested lists
        return f"<{type(value).__name__} that is too long to show>"
    if len(text) <= width:
        return text
    return text[: width - 3] + "..."


def see_help(message: str) -> str:
    """Adds to a message where the flags are explained."""
    if message.endswith("?"):
        return f"{message} See --help"
    return f"{message}; see --help"


def closest(name: object, valid: Iterable[str]) -> str:
    """ "; did you mean 'x'?", or "" if no valid name is similar."""
    # The dashes of flags would make any two of them similar.
    names = {candidate.lstrip("-"): candidate for candidate in valid}
    text = str(name)[:100].lstrip("-")
    cutoff = 0.6
    if len(text) <= _SHORT:
        cutoff = 0.5
    matches = difflib.get_close_matches(text, names, n=1, cutoff=cutoff)
    if not matches:
        return ""
    return f"; did you mean {names[matches[0]]!r}?"
