"""Files as they lie on disk, compressed or not, and what their first bytes give away: for corpora and tables alike."""

import bz2
import contextlib
import gzip
import io
import json
import lzma
import os
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, BinaryIO

from backports import zstd

from electra_tf2.util.errors import UserError

_ZSTD_LONG = {int(zstd.DecompressionParameter.window_log_max): 31}  # what `zstd --long=31` writes can be read too
_DECOMPRESSED: dict[str, Callable[[BinaryIO], Any]] = {
    ".gz": lambda raw: gzip.GzipFile(fileobj=raw),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".zst": lambda raw: zstd.ZstdFile(raw, options=_ZSTD_LONG),
}
SUFFIXES = tuple(_DECOMPRESSED)
DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError, zstd.ZstdError, tarfile.TarError)  # while reading
LOOK = 1 << 16  # bytes of a file by which its content is recognised

# What servers and Git leave in the place of a file of any format. No file that is read here begins so.
_POINTER = b"version https://git-lfs"
_WEB_PAGE = re.compile(rb"(\xef\xbb\xbf)?\s*<(\?xml|!doctype html|html)\b", re.IGNORECASE)
_ANSWERS = (  # whole files: GitHub's and Hugging Face's for a file that is not there or that needs a login
    b"404: Not Found", b"Not Found", b"Entry not found", b"Repository not found", b"Invalid username or password.",
)  # fmt: skip

_SIGNATURES = {  # first bytes of files whose name may not tell what they are
    b"\xff\xfe": "UTF-16 text", b"\xfe\xff": "UTF-16 text",
    b"\x1f\x8b": "data compressed by gzip", b"BZh": "data compressed by bzip2",
    b"\xfd7zXZ": "data compressed by xz", b"\x28\xb5\x2f\xfd": "data compressed by zstd",
    b"PK\x03\x04": "a zip archive (or a spreadsheet)", b"\xd0\xcf\x11\xe0": "a document of old office programs",
    b"PAR1": "a parquet table", b"ARROW1": "an Arrow table", b"%PDF": "a PDF document",
}  # fmt: skip
_MARKUP = re.compile(r"\s*<(\?xml|!doctype|html|mediawiki|doc)\b", re.IGNORECASE)
_JSON = re.compile(r"\[\s*\{\s*[\"}]|\{\s*\n\s*\"")  # a list of objects, an object over several lines
_CUT_JSON = re.compile(r"\{\s*\"[^\"]*\"\s*:[^\n]*$")  # an object whose line is longer than what was read
_COPIES = (".bak", ".orig", ".rej", ".swo", ".swp", ".tmp", ".part", ".crdownload")  # of editors and of half a download
_NOTES = ("thumbs.db", "desktop.ini", "__macosx")  # of Windows and macOS; others of theirs are hidden
_SPARK = re.compile(r"_(success|metadata|common_metadata|(started|committed)_\d+)")  # Spark, Dask, Databricks
_TAR_MARK = b"ustar"
_TAR_MARK_AT = 257
_MANY_NULS = 0.01  # share of NULs beyond which bytes are no text
_MANY_UNDECODABLE = 0.1  # share of bytes that are not UTF-8 beyond which they are of another encoding
_FEW_BYTES = 3  # not UTF-8 in a short text: no share to speak of


# Names.


def is_compressed(path: str | os.PathLike[str]) -> bool:
    return os.fspath(path).lower().endswith(SUFFIXES)


def plain_name(path: str | os.PathLike[str]) -> str:
    """The file's name in lower case without the suffix of its compression."""
    name = os.path.basename(path).lower()
    return name.rpartition(".")[0] if is_compressed(name) else name


def is_named_lines(path: str | os.PathLike[str]) -> bool:
    """Tells whether a file has the name of one whose lines are JSON objects."""
    return plain_name(path).endswith((".jsonl", ".ndjson"))


def is_copy(name: str) -> bool:
    """Tells whether a file is what an editor or a half-done download leaves beside the file that is meant."""
    return name.endswith(("~", *_COPIES)) or (name.startswith("#") and name.endswith("#"))


def is_no_data(name: str) -> bool:
    """Tells whether a file or folder that lies in a folder of data is none of it, by its name.

    That is: hidden, a copy, or a note of a program to itself. Whoever reads a folder of data asks this.
    """
    lower = name.lower()
    return name.startswith(".") or is_copy(name) or lower in _NOTES or bool(_SPARK.fullmatch(lower))


# Opening.


@contextlib.contextmanager
def opened_raw(path: str | os.PathLike[str]) -> Iterator[io.BufferedReader]:
    """Opens a file as it lies on disk. Every reader of this project opens its files here, or by `refuse_substitute`.

    Raises:
      UserError: a pointer of Git LFS or the answer of a server lies in its place.
      OSError: it cannot be opened; what is wrong then is for the caller to say.
    """
    with open(path, "rb") as raw:
        _refuse(raw.peek(LOOK), path)
        yield raw


@contextlib.contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Opens a file to read its content, decompressed. Errors as `opened_raw`, and `DAMAGED` while it is read."""
    with opened_raw(path) as raw, decompressed(raw, path) as stream:
        if stream is not raw:
            _refuse(stream.peek(LOOK), path)  # a page that a server sent compressed
        yield stream


def decompressed(raw: BinaryIO, path: str | os.PathLike[str]) -> Any:
    """The stream of a file's content, by its name; an empty file has none."""
    if not is_compressed(path) or (os.path.isfile(path) and not os.path.getsize(path)):
        return raw
    return _DECOMPRESSED[os.path.splitext(path)[1].lower()](raw)


def refuse_substitute(path: str | os.PathLike[str]) -> None:
    """Raises UserError where something else lies in the place of a file that a library opens by its path.

    Whatever else is wrong with the file, that it is not there above all, is for the library to say.
    """
    try:
        with opened_raw(path):
            pass
    except UserError:
        raise
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return


def _refuse(start: bytes, path: str | os.PathLike[str]) -> None:
    """Raises UserError for the first bytes of what stands in the place of a file of any format."""
    if start.startswith(_POINTER):
        raise UserError(f"{os.fspath(path)} holds a pointer of Git LFS, not the file itself: `git lfs pull` fetches it")
    if _WEB_PAGE.match(start) or start.strip() in _ANSWERS:
        raise UserError(
            f"{os.fspath(path)} holds a web page or another answer of a server (of a login, or that there is no such "
            "file), not the file itself: download it again"
        )


# Content.


def holds_lines(path: str | os.PathLike[str]) -> bool:
    """Tells whether each line of a file is a JSON object: by its name, or called .json by a look inside (C4's)."""
    if is_named_lines(path):
        return True
    if not plain_name(path).endswith(".json"):
        return False
    try:
        with opened(path) as file:
            first = file.readline(LOOK)
    except (*DAMAGED, ValueError):
        return False  # who reads it tells what is wrong
    is_cut = not first.endswith(b"\n") and len(first) == LOOK
    return is_object(first) or (is_cut and first.lstrip().startswith(b"{"))


def no_text(start: bytes) -> str:
    """Names what a file is by its first bytes, if that is no UTF-8 text, table or document of text; else ""."""
    for signature, what in _SIGNATURES.items():
        if start.startswith(signature):
            return what
    if start.startswith(_TAR_MARK, _TAR_MARK_AT):
        return "a tar archive (those of OpenWebText are for electra build-openwebtext)"
    if start.count(0) > _MANY_NULS * len(start):
        return "NUL bytes, which no text has (or UTF-16)"
    undecodable = len(start) - len(start.decode("utf-8", "ignore").encode())
    if undecodable > max(_MANY_UNDECODABLE * len(start), _FEW_BYTES):
        return "text that is not UTF-8 (iconv -f WINDOWS-1252 -t UTF-8 converts Western European, -f GBK Chinese)"
    return ""


def is_object(line: str | bytes) -> bool:
    """Tells whether a line is a JSON object that is not empty."""
    try:
        value = json.loads(line)
    except ValueError:
        return False
    return isinstance(value, dict) and bool(value)


def is_json(start: str) -> bool:
    """Tells whether a file that begins so holds JSON: objects a line, a list of them, or one."""
    start = start.removeprefix("\ufeff").lstrip()
    if _JSON.match(start) or _CUT_JSON.match(start):
        return True
    first_line = start.partition("\n")[0]
    return first_line.startswith("{") and is_object(first_line)


def is_markup(start: str) -> bool:
    """Tells whether a file that begins so holds HTML, XML or what extractors of Wikipedia write."""
    return bool(_MARKUP.match(start.removeprefix("\ufeff")))
