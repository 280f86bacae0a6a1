"""Reads text and JSON: whatever is wrong with a file or a value is one UserError. files.writing writes them.

Every program reads its hparams, recipes, configurations, vocabularies and tasks through these functions, so none of
them has to know what an operating system, a codec or a parser may raise.
"""

import contextlib
import hashlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from electra_tf2.files.content import DAMAGED, opened, refuse_substitute
from electra_tf2.util.errors import HALF_PAIR, UserError, reason, shown

_BLOCK_BYTES = 1 << 20
_MAX_DIGITS = 300  # more do not fit into a float
_MAX_DEPTH = 64  # of lists and objects in each other; Python's own limit depends on who asks
_KINDS = {dict: "a JSON object", list: "a JSON list", str: "a JSON string", int: "an integer", float: "a number"}
_TYPES: dict[type, str] = {dict: "an object", list: "a list", str: "a text", int: "an integer"}
_Kind = TypeVar("_Kind", dict, list, str, int)


def read_text(path: str | os.PathLike[str], what: str) -> str:
    """The text of a file, without the byte order mark that some editors put before it.

    Args:
      what: the flag or the thing that the file is, for the message: "--hparams", "vocabulary".

    Raises:
      UserError: no such file, a folder, no permission, a path that no file can have, bytes that are no text.
    """
    data = read_bytes(path, what)
    try:
        return data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{what}: {path} is not UTF-8 text (byte {data[error.start]:#04x} in line {line}): "
            "save or convert it as UTF-8"
        ) from None


def is_file(path: str | Path) -> bool:
    """True if a file is there. Raises UserError where that cannot be known: no permission, an impossible path."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {shown(str(path))}: {reason(error)}") from None


def read_bytes(path: str | os.PathLike[str], what: str) -> bytes:
    """The bytes of a file, decompressed if its name says so. Raises UserError as `read_text`."""
    try:
        kind = os.stat(path).st_mode
        if stat.S_ISCHR(kind) or stat.S_ISBLK(kind):  # reading one may never end
            raise UserError(f"{what}: {path} is a device, not a file")
        with opened(path) as file:
            return file.read()
    except FileNotFoundError:
        raise UserError(f"{what}: there is no file {path}") from None
    except UserError:
        raise
    except (*DAMAGED, ValueError) as error:  # ValueError: a NUL in the path
        raise UserError(f"{what}: cannot read {shown(str(path))}: {reason(error)}") from None


@contextlib.contextmanager
def no_pattern(path: str | Path) -> Iterator[str]:
    """A path by which TensorFlow finds a checkpoint (its prefix) or a SavedModel (its folder), valid in here.

    Its reading operations take a path for a pattern and find nothing in a folder called "run [1]", so such paths are
    read through links. All reading of checkpoints and SavedModels goes through here.

    Raises:
      UserError: something else lies in the place of one of its files (`files.content.refuse_substitute`).
    """
    if "://" in str(path):  # of another file system than the local one
        yield str(path)
        return
    path = Path(path)
    files = _files_of_checkpoint(path)
    for file in [*files, path / "saved_model.pb"]:
        refuse_substitute(file)
    if not re.search(r"[][*?\\]", str(path)):
        yield str(path)
        return
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder).resolve() / "link"
        if path.is_dir():
            link.symlink_to(path.absolute())
        for file in files:
            link.with_name(f"link{file.name.removeprefix(path.name)}").symlink_to(file.absolute())
        yield str(link)


def _files_of_checkpoint(prefix: Path) -> list[Path]:
    """The files whose names are a checkpoint's prefix and an ending (.index, .data-00000-of-00001)."""
    if not prefix.parent.is_dir():
        return []
    return [file for file in prefix.parent.iterdir() if file.name.startswith(f"{prefix.name}.")]


def sha256_of(path: str | os.PathLike[str], start: int = 0, end: int | None = None) -> str:
    """SHA-256 of a file, or of its bytes from start to end, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        left = (os.fstat(file.fileno()).st_size if end is None else end) - start  # a device may never end
        file.seek(start)
        while data := file.read(min(_BLOCK_BYTES, left)):
            digest.update(data)
            left -= len(data)
    return digest.hexdigest()


def json_sha256(value: Any) -> str:
    """SHA-256 of a value that JSON can hold; the order of an object's names plays no part."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def read_json(path: str | Path, what: str, expect: type = dict) -> Any:
    """The JSON value that a file holds. Raises UserError as `read_text` and `parse_json`."""
    return parse_json(read_text(path, what), f"{what} {path}", expect)


def read_json_lines(path: str | Path, what: str, cut: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number, object) of the lines of a JSON-lines file, blank ones left out.

    Args:
      cut: a last line without its end, as a killed process leaves one, is passed over.

    Raises:
      UserError: as `read_text` and `parse_json`; names the line.
    """
    lines = read_text(path, what).split("\n")
    for number, line in enumerate(lines[:-1] if cut else lines, start=1):
        if line.strip():
            yield number, parse_json(line, f"{what} {path}, line {number}")


def field(record: Any, name: str, kind: type | tuple[type, ...], where: str = "") -> Any:
    """A field of a JSON object. Raises UserError if it is missing or of another type.

    Args:
      where: the object stands, for the message; "" if whoever calls says it.
    """
    value = record.get(name) if isinstance(record, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool):
        has = f"it has {shown(', '.join(record))}" if isinstance(record, dict) else f"got {shown(record)}"
        raise UserError(f"{where}{': ' if where else ''}the field {name!r} is missing or of the wrong type; {has}")
    return value


def parse_json(text: str | bytes, what: str, expect: type = dict, half_pairs: bool = False) -> Any:
    """A JSON value of the expected type; `object` expects any.

    Args:
      what: where the text is from, for the message.
      half_pairs: let halves of surrogate pairs pass, which UTF-8 cannot spell; the caller drops them.

    Raises:
      UserError: no JSON, integers beyond 300 digits, lists and objects nested too deep, another type than expected.
    """

    def integer(digits: str) -> int:
        if len(digits) > _MAX_DIGITS:
            raise UserError(f"{what}: an integer of {len(digits)} digits ({digits[:10]}...) is beyond any use")
        return int(digits)

    try:
        value = json.loads(text, parse_int=integer)
    except json.JSONDecodeError as error:
        start = error.doc[max(error.pos - 20, 0) : error.pos + 20]
        raise UserError(
            f"{what}: not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}, near {start!r}"
        ) from None
    except UnicodeDecodeError as error:
        raise UserError(f"{what}: not UTF-8 text ({error})") from None
    except RecursionError:
        raise UserError(f"{what}: lists and objects are nested more than {_MAX_DEPTH} deep") from None
    if expect is not object and (not isinstance(value, expect) or (expect in (int, float) and value is True)):
        raise UserError(f"{what}: {_KINDS[expect]} is needed, got {shown(value)}")
    signs = (b"[", b"{", b"\\u") if isinstance(text, bytes) else ("[", "{", "\\u")
    lists, objects, escapes = (text.count(sign) for sign in signs)  # type: ignore[arg-type]
    if lists + objects > _MAX_DEPTH or (escapes and not half_pairs):
        _check_depth_and_strings(value, what, half_pairs)
    return value


def _check_depth_and_strings(value: Any, what: str, half_pairs: bool) -> None:
    level, depth = [value], 0
    while level:
        if depth > _MAX_DEPTH:
            raise UserError(f"{what}: lists and objects are nested more than {_MAX_DEPTH} deep")
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
                inner.extend(item)
            elif isinstance(item, list):
                inner.extend(item)
            elif isinstance(item, str) and not half_pairs and HALF_PAIR.search(item):
                raise UserError(f"{what}: {shown(item)} holds half of a surrogate pair, which is no character")
        level, depth = inner, depth + 1


def typed(value: object, kind: type[_Kind], what: str) -> _Kind:
    """The value, if it is of this type. Raises UserError."""
    if not isinstance(value, kind) or value is True or value is False:
        raise UserError(f"{what} must be {_TYPES[kind]}, got {shown(value)}")
    return value
