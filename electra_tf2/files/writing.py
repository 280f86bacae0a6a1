"""Writes files, whole or not at all. Errors of the system become one UserError. files.reading reads files."""

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

# Formats of a file of labelled rows, by the ending of its name.
_ROW_FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    "": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".conll": "conll",
    ".txt": "conll",
}


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turns errors of the operating system (full disk, no permission, a file in place of a folder) into a UserError."""
    try:
        yield
    except (OSError, UnicodeEncodeError) as error:
        raise UserError(f"cannot write {os.fspath(path)}: {reason(error)}") from None


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raises UserError if a file cannot be written at a path. Tries it in the nearest folder that exists."""
    path = Path(path)
    with writing(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "")
        existing_folder = next(folder for folder in path.parents if folder.exists())
        with tempfile.TemporaryFile(dir=existing_folder):
            pass


def check_new(flag: str, path: str | os.PathLike[str], overwrite: bool) -> None:
    """Raises UserError if a file that a flag names cannot be written, or exists and must not be replaced."""
    check_writable(path)
    if Path(path).exists() and not overwrite:
        raise UserError(f"{flag} {os.fspath(path)!r} exists; pass --overwrite to replace it or name another file")


def name_aside(path: Path) -> Path:
    """The path to which --overwrite moves an existing file or folder: the first `<path>.old-N` that is free."""
    count = 1
    aside = path.with_name(f"{path.name}.old-{count}")
    while os.path.lexists(aside):
        count += 1
        aside = path.with_name(f"{path.name}.old-{count}")
    return aside


def is_name_aside(name: str) -> bool:
    """True for the name of a file or folder that --overwrite moved, as `name_aside` forms it."""
    return re.search(r"\.old-\d+$", name) is not None


@contextlib.contextmanager
def lock(path: Path, busy: str) -> Iterator[None]:
    """Holds a lock on a file (flock), which the system releases when this process ends, however it ends.

    It works between hosts if the file system shares locks, as NFS does. If the file system has no locks, or another
    host left its name in the file, a note asks the user to check.

    Args:
      busy: the error if another process holds the lock.

    Raises:
      UserError: another process holds the lock, or the file cannot be written.
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
        if not _is_open_file(path, descriptor):  # its holder has just released and removed it
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
                    folder.rmdir()  # fails, and is left, if it is not empty
    finally:
        os.close(descriptor)


def _is_open_file(path: Path, descriptor: int) -> bool:
    return path.exists() and os.path.samestat(path.stat(), os.fstat(descriptor))


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Gives a temporary file beside a path, which replaces the path at the end if there was no error.

    The file gets the mode of a new file (umask), even if a library changes it. Temporary files of this path that killed
    processes of this host left are removed.

    Raises:
      UserError: as `writing`. The temporary file is then removed.
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
    """Removes temporary files that killed processes of this host left in a folder.

    Args:
      name: the file that they were writing; None: any.
    """
    pattern = re.compile(rf"(.+)\.{re.escape(socket.gethostname())}-(\d+)\.tmp")
    for path in folder.glob("*.tmp"):
        match = pattern.fullmatch(path.name)
        if match and name in (None, match[1]) and _has_ended(int(match[2])):
            path.unlink(missing_ok=True)


def _has_ended(process: int) -> bool:
    """True if there is no process with this id; False if that is unknown."""
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
    """Appends a line to a JSON-lines file. Raises UserError as `writing`."""
    path = Path(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(value) + "\n")


def keep_steps(path: str | os.PathLike[str], last: int) -> None:
    """Drops the lines of a metrics file after a step, and malformed ones, such as a half-written last line."""
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


def row_format(path: str) -> str:
    """The format for a file of rows with this name: "jsonl", "json", "csv", "tsv", or "conll", lines of tagged words.

    Raises:
      UserError: the name is of a format that cannot be written.
    """
    suffix = os.path.splitext(plain_name(path))[1]
    if suffix not in _ROW_FORMATS:
        suffixes = ", ".join(filter(None, _ROW_FORMATS))
        raise UserError(
            f"{path}: {suffix} cannot be written: give a name that ends in one of {suffixes}, also with .gz"
        )
    if is_compressed(path) and not path.lower().endswith(".gz"):
        raise UserError(f"{path}: of compressed files only .gz is written")
    return _ROW_FORMATS[suffix]


def encoded_output(path: str, text: str) -> bytes:
    """The bytes of a text for a file with this name, compressed if the name ends in .gz."""
    data = text.encode()
    return gzip.compress(data, mtime=0) if is_compressed(path) else data
