"""Reads text and JSON, and turns every error of the system, of a codec or of a parser into one UserError.

Every program reads its hparams, recipes, configurations, vocabularies and tasks through these functions. files.writing
writes files.
"""

import contextlib
import hashlib
import json
import os
import re
import shlex
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from electra_tf2.files.content import DAMAGED, opened, refuse_substitute
from electra_tf2.util.errors import HALF_PAIR, UserError, reason, shown

_BLOCK_BYTES = 1 << 20
_MAX_DIGITS = 300  # more do not fit into a float
_MAX_DEPTH = 64  # of nested lists and objects; Python's own limit depends on the depth of the call
_JSON_TYPES = {dict: "a JSON object", list: "a JSON list", str: "a JSON string", int: "an integer", float: "a number"}
_TYPES: dict[type, str] = {dict: "an object", list: "a list", str: "a text", int: "an integer"}
_Type = TypeVar("_Type", dict, list, str, int)


def read_text(path: str | os.PathLike[str], what: str) -> str:
    """Reads a text file, without a byte order mark.

    Args:
      what: for messages, the flag that names the file, or what it is: "--hparams", "vocabulary".

    Raises:
      UserError: there is no such file, it is a folder, may not be read, is no UTF-8, or the path is impossible.
    """
    data = read_bytes(path, what)
    try:
        return data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{what}: {path} is not UTF-8 text (byte {data[error.start]:#04x} in line {line}): "
            f"save it as UTF-8, or convert it: {how_to_convert(path)}"
        ) from None


def how_to_convert(path: str | os.PathLike[str]) -> str:
    """The command that makes a file of Western Windows, as Excel writes it, UTF-8."""
    name = Path(path)
    new = name.with_name(f"{name.stem}_utf8{name.suffix}")
    return f"iconv -f WINDOWS-1252 -t UTF-8 {shlex.quote(str(name))} > {shlex.quote(str(new))}"


def is_file(path: str | Path) -> bool:
    """True if a file exists. Raises UserError if that cannot be known: no permission, an impossible path."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {shown(str(path))}: {reason(error)}") from None


def read_bytes(path: str | os.PathLike[str], what: str) -> bytes:
    """Reads a file, and decompresses it if its name has a suffix of compression. Raises UserError as `read_text`."""
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):  # reading one may never end
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
    """Gives a path without pattern characters to a checkpoint (its prefix) or a SavedModel (its folder).

    TensorFlow takes paths for patterns when it reads, and finds nothing in a folder called "run [1]". Such paths are
    replaced by temporary links. All reading of checkpoints and SavedModels goes through this function.

    Raises:
      UserError: a file is not what its name promises (`files.content.refuse_substitute`).
    """
    if "://" in str(path):  # not on the local file system
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
    """The files of a checkpoint: its prefix with .index, .data-00000-of-00001 and so on."""
    if not prefix.parent.is_dir():
        return []
    return [file for file in prefix.parent.iterdir() if file.name.startswith(f"{prefix.name}.")]


def sha256_of(path: str | os.PathLike[str], start: int = 0, end: int | None = None) -> str:
    """SHA-256 of a file, or of its bytes from start to end, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        if end is None:
            end = os.fstat(file.fileno()).st_size  # reading a device to its end may take for ever
        file.seek(start)
        remaining = end - start
        while remaining > 0:
            data = file.read(min(_BLOCK_BYTES, remaining))
            if not data:
                break
            digest.update(data)
            remaining -= len(data)
    return digest.hexdigest()


def json_sha256(value: Any) -> str:
    """SHA-256 of a JSON value. The order of an object's names does not matter."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def read_json(path: str | Path, what: str, expect: type = dict) -> Any:
    """Reads the JSON value in a file. Raises UserError as `read_text` and `parse_json`."""
    return parse_json(read_text(path, what), f"{what} {path}", expect)


def read_json_lines(path: str | Path, what: str, cut: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the objects in a JSON-lines file with their line numbers, from 1. Blank lines are skipped.

    Args:
      cut: True: skips a last line without its end, which a killed process may have left.

    Raises:
      UserError: as `read_text` and `parse_json`; names the line.
    """
    lines = read_text(path, what).split("\n")
    if cut:
        del lines[-1]
    for line_number, line in enumerate(lines, start=1):
        if line.strip():
            yield line_number, parse_json(line, f"{what} {path}, line {line_number}")


def field(record: Any, name: str, expected_type: type | tuple[type, ...], where: str = "") -> Any:
    """A field of a JSON object. Raises UserError if it is missing or of another type.

    Args:
      where: file and line for the message; "" if the caller adds them.
    """
    value = None
    content = f"got {shown(record)}"
    if isinstance(record, dict):
        value = record.get(name)
        content = f"it has {shown(', '.join(record))}"
    # In Python True is an integer, too.
    is_confused_bool = isinstance(value, bool) != (expected_type is bool)
    if not isinstance(value, expected_type) or is_confused_bool:
        start = f"{where}: " if where else ""
        raise UserError(f"{start}the field {name!r} is missing or of the wrong type; {content}")
    return value


def parse_json(text: str | bytes, what: str, expect: type = dict, half_pairs: bool = False) -> Any:
    """Parses a JSON value of the expected type; `object` expects any.

    Args:
      what: where the text is from, for messages.
      half_pairs: True: accepts lone surrogates, which UTF-8 cannot encode. The caller must drop them.

    Raises:
      UserError: the text is no JSON, has integers of more than 300 digits, is nested too deep, or is of another type.
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
        raise UserError(f"{what}: {_JSON_TYPES[expect]} is needed, got {shown(value)}")
    # Most texts can be neither nested too deep nor have lone surrogates, so that their values need no walk.
    if isinstance(text, bytes):
        opening_brackets = text.count(b"[") + text.count(b"{")
        has_escapes = b"\\u" in text
    else:
        opening_brackets = text.count("[") + text.count("{")
        has_escapes = "\\u" in text
    if opening_brackets > _MAX_DEPTH or (has_escapes and not half_pairs):
        _check_depth_and_strings(value, what, half_pairs)
    return value


def _check_depth_and_strings(value: Any, what: str, half_pairs: bool) -> None:
    """Raises UserError for a value that is nested too deep or, unless half_pairs, has lone surrogates."""
    depth = 0
    items = [value]  # all values at this depth
    while items:
        if depth > _MAX_DEPTH:
            raise UserError(f"{what}: lists and objects are nested more than {_MAX_DEPTH} deep")
        inner_items: list[Any] = []
        for item in items:
            if isinstance(item, dict):
                inner_items.extend(item.values())
                inner_items.extend(item)
            elif isinstance(item, list):
                inner_items.extend(item)
            elif isinstance(item, str) and not half_pairs and HALF_PAIR.search(item):
                raise UserError(f"{what}: {shown(item)} holds half of a surrogate pair, which is no character")
        items = inner_items
        depth += 1


def typed(value: object, expected_type: type[_Type], what: str) -> _Type:
    """Returns a value as it is. Raises UserError if it is of another type."""
    if not isinstance(value, expected_type) or value is True or value is False:
        raise UserError(f"{what} must be {_TYPES[expected_type]}, got {shown(value)}")
    return value
