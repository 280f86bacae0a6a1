"""Writes files, whole or not at all; what prevents it is one UserError. files.reading reads them."""

import contextlib
import errno
import gzip
import json
import os
import re
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from electra_tf2.files.content import is_compressed, plain_name
from electra_tf2.files.reading import parse_json, read_bytes
from electra_tf2.util.errors import UserError, reason

_DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_LINES = (".jsonl", ".ndjson", ".json", "")


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turns what the operating system refuses (full disk, no permission, a file for a folder) into a UserError."""
    try:
        yield
    except (OSError, UnicodeEncodeError) as error:
        raise UserError(f"cannot write {os.fspath(path)}: {reason(error)}") from None


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raises UserError unless a file can be written there, or in the nearest folder above that is there already."""
    path = Path(path)
    with writing(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "")
        with tempfile.TemporaryFile(dir=next(folder for folder in path.parents if folder.exists())):
            pass


def check_new(flag: str, path: str | os.PathLike[str], overwrite: bool) -> None:
    """Raises UserError if a file that a flag names cannot be written, or is there already and may not be replaced."""
    check_writable(path)
    if Path(path).exists() and not overwrite:
        raise UserError(f"{flag} {os.fspath(path)!r} exists; pass --overwrite to replace it or name another file")


def name_aside(path: Path) -> Path:
    """The name that --overwrite gives to what is there: the first `<path>.old-N` that is free."""
    number = 1
    aside = path.with_name(f"{path.name}.old-{number}")
    while os.path.lexists(aside):
        number += 1
        aside = path.with_name(f"{path.name}.old-{number}")
    return aside


def is_name_aside(name: str) -> bool:
    """Tells whether a file or folder has a name that `name_aside` gives."""
    return re.search(r"\.old-\d+$", name) is not None


@contextlib.contextmanager
def lock(path: Path, busy: str) -> Iterator[None]:
    """Holds a lock file, which ends with this process however that ends (flock).

    It holds between hosts where the file system shares locks, as NFS does. Where it has none, or where another host
    left its name in the file, a note says that nothing is known about that host.

    Raises:
      UserError: `busy`, with who holds the lock; or the file cannot be written.
    """
    try:
        import fcntl
    except ImportError:  # not on this platform
        yield
        return
    new_folders = [folder for folder in path.parents if not folder.exists()]
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{busy} ({holder})") from None
        except OSError as error:
            print(f"note: {path} cannot be locked ({reason(error)}): make sure that nothing else uses {path.parent}")
        if not _is_open_file(path, descriptor):  # its holder has just let go of it, and removed it
            raise UserError(f"{busy} ({holder})")
        host = socket.gethostname()
        if holder and not holder.endswith(f" on {host}"):
            print(f"note: {path} was last held by {holder}, and not released: make sure that it has ended")
        with writing(path):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {host}\n".encode(), 0)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                if _is_open_file(path, descriptor):
                    path.unlink()
                for folder in new_folders:
                    folder.rmdir()  # if nothing came of it
    finally:
        os.close(descriptor)


def _is_open_file(path: Path, descriptor: int) -> bool:
    return path.exists() and os.path.samestat(path.stat(), os.fstat(descriptor))


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary file beside a path, which takes its name when what is written to it in here is whole.

    It may be read by whom a new file may be read (umask), whatever mode a library gives to what it writes there. What
    processes of this host left that were killed while they wrote this file goes.

    Raises:
      UserError: as `writing`; nothing half-written stays.
    """
    path = Path(path)
    temporary = path.with_name(f"{path.name}.{socket.gethostname()}-{os.getpid()}.tmp")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_left_over(path.parent, path.name)
        try:
            temporary.touch()
            mode = temporary.stat().st_mode
            yield temporary
            if temporary.stat().st_mode != mode:
                temporary.chmod(mode)
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def remove_left_over(folder: Path, name: str | None = None) -> None:
    """Removes what processes of this host left that were killed while they wrote a file of a folder, or any there."""
    ours = re.compile(rf"(.+)\.{re.escape(socket.gethostname())}-(\d+)\.tmp")
    for left in folder.glob("*.tmp"):
        match = ours.fullmatch(left.name)
        if match and name in (None, match[1]) and _has_ended(int(match[2])):
            left.unlink(missing_ok=True)


def _has_ended(process: int) -> bool:
    """True if no process has that number; False where that cannot be told."""
    if os.name != "posix":
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:  # another user's
        pass
    return False


def write_atomically(path: str | os.PathLike[str], text: str | bytes) -> None:
    """Writes a file whole or not at all, text as UTF-8. Raises UserError as `writing`."""
    with replacing(path) as temporary:
        temporary.write_bytes(text.encode() if isinstance(text, str) else text)


def write_json(path: str | os.PathLike[str], value: Any, sort_keys: bool = True) -> None:
    """Writes a value as JSON, whole or not at all. Raises UserError as `writing`."""
    write_atomically(path, json.dumps(value, indent=2, sort_keys=sort_keys) + "\n")


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
