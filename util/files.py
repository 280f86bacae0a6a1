"""Files that are either whole or absent."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_atomically(path: str | os.PathLike[str], text: str) -> None:
    """Writes a text file under a temporary name, then renames it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    write_atomically(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def keep_json_lines(path: str | os.PathLike[str], keep: Callable[[dict[str, Any]], bool]) -> None:
    """Drops the lines of a JSON-lines file that `keep` refuses, and a half-written last one."""
    path = Path(path)
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            if keep(json.loads(line)):
                kept.append(line)
        except json.JSONDecodeError:
            continue
    write_atomically(path, "".join(f"{line}\n" for line in kept))
