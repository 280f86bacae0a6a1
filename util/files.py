"""The door through which files go out: whole or absent, and what prevents it is one UserError (util.reading: in)."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from util.errors import UserError, reason
from util.reading import parse_json, read_bytes


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """What the operating system refuses in here (full disk, no permission, a file for a folder) is a UserError."""
    try:
        yield
    except (OSError, UnicodeEncodeError) as error:
        raise UserError(f"cannot write {os.fspath(path)}: {reason(error)}") from None


def write_atomically(path: str | os.PathLike[str], text: str) -> None:
    """Writes a text file under a temporary name, then renames it. Raises UserError as `writing`."""
    path = Path(path)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_text(text, encoding="utf-8")
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    write_atomically(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def append_json_line(path: str | os.PathLike[str], value: Any) -> None:
    """Adds a line to a JSON-lines file. Raises UserError as `writing`."""
    path = Path(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(value) + "\n")


def keep_steps(path: str | os.PathLike[str], last: int) -> None:
    """Drops the lines of a metrics file beyond a step, and what is no line of ours, such as a half-written last one."""
    path = Path(path)
    if not path.exists():
        return
    kept = []
    for line in read_bytes(path, "metrics").split(b"\n"):
        with contextlib.suppress(UserError):
            step = parse_json(line, "metrics").get("step")
            if isinstance(step, int) and step <= last:
                kept.append(line.decode() + "\n")
    write_atomically(path, "".join(kept))
