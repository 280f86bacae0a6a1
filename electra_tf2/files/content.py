"""Opens files, compressed or not, and recognises what they hold by names and first bytes. For corpora and tables."""

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

_ZSTD_LONG = {int(zstd.DecompressionParameter.window_log_max): 31}  # needed for files of `zstd --long=31`
_DECOMPRESSED: dict[str, Callable[[BinaryIO], Any]] = {
    ".gz": lambda raw: gzip.GzipFile(fileobj=raw),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".zst": lambda raw: zstd.ZstdFile(raw, options=_ZSTD_LONG),
}
SUFFIXES = tuple(_DECOMPRESSED)
DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError, zstd.ZstdError, tarfile.TarError)  # raised by reading
LOOK = 1 << 16  # bytes at the start of a file by which its content is recognised

# What may be in the place of any file: Git LFS's pointer, or the answer of a server. No real file begins so.
_POINTER = b"version https://git-lfs"
_WEB_PAGE = re.compile(rb"(\xef\xbb\xbf)?\s*<(\?xml|!doctype html|html)\b", re.IGNORECASE)
_ANSWERS = (  # the whole content: answers of GitHub and Hugging Face if a file is missing or needs a login
    b"404: Not Found", b"Not Found", b"Entry not found", b"Repository not found", b"Invalid username or password.",
)  # fmt: skip

_SIGNATURES = {  # first bytes -> format of files that are no text
    b"\xff\xfe": "UTF-16 text", b"\xfe\xff": "UTF-16 text",
    b"\x1f\x8b": "data compressed by gzip", b"BZh": "data compressed by bzip2",
    b"\xfd7zXZ": "data compressed by xz", b"\x28\xb5\x2f\xfd": "data compressed by zstd",
    b"PK\x03\x04": "a zip archive (or a spreadsheet)", b"\xd0\xcf\x11\xe0": "a document of old office programs",
    b"PAR1": "a parquet table", b"ARROW1": "an Arrow table", b"%PDF": "a PDF document",
}  # fmt: skip
_MARKUP = re.compile(r"\s*<(\?xml|!doctype|html|mediawiki|doc)\b", re.IGNORECASE)
_JSON = re.compile(r"\[\s*\{\s*[\"}]|\{\s*\n\s*\"")  # a list of objects, an object over several lines
_CUT_JSON = re.compile(r"\{\s*\"[^\"]*\"\s*:[^\n]*$")  # an object whose line is longer than the part that was read
_COPIES = (".bak", ".orig", ".rej", ".swo", ".swp", ".tmp", ".part", ".crdownload")  # of editors and browsers
_NOTES = ("thumbs.db", "desktop.ini", "__macosx")  # written by Windows and macOS; their other files are hidden
_SPARK = re.compile(r"_(success|metadata|common_metadata|(started|committed)_\d+)")  # Spark, Dask, Databricks
_TAR_MARK = b"ustar"
_TAR_MARK_AT = 257
_MANY_NULS = 0.01  # share of NULs above which bytes are no text
_MANY_UNDECODABLE = 0.1  # share of bytes that are no UTF-8 above which a text is of another encoding
_FEW_BYTES = 3  # so many bytes that are no UTF-8 are ignored in a text of any length


# Names.


def is_compressed(path: str | os.PathLike[str]) -> bool:
    return os.fspath(path).lower().endswith(SUFFIXES)


def plain_name(path: str | os.PathLike[str]) -> str:
    """A file's name in lower case, without the suffix of its compression."""
    name = os.path.basename(path).lower()
    return name.rpartition(".")[0] if is_compressed(name) else name


def is_named_lines(path: str | os.PathLike[str]) -> bool:
    """True for a name of JSON lines."""
    return plain_name(path).endswith((".jsonl", ".ndjson"))


def is_copy(name: str) -> bool:
    """True for the name of an editor's copy, or of an unfinished download."""
    return name.endswith(("~", *_COPIES)) or (name.startswith("#") and name.endswith("#"))


def is_no_data(name: str) -> bool:
    """True for names in a folder of data that are no data: hidden ones, copies, and programs' notes.

    Every reader of a folder of data skips these.
    """
    lower = name.lower()
    return name.startswith(".") or is_copy(name) or lower in _NOTES or bool(_SPARK.fullmatch(lower))


# Opening.


@contextlib.contextmanager
def opened_raw(path: str | os.PathLike[str]) -> Iterator[io.BufferedReader]:
    """Opens a file without decompressing it. Every reader opens its files here, or calls `refuse_substitute`.

    Raises:
      UserError: there is Git LFS's pointer or the answer of a server instead of the file.
      OSError: it cannot be opened. The caller makes the message.
    """
    with open(path, "rb") as raw:
        _refuse(raw.peek(LOOK), path)
        yield raw


@contextlib.contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Opens a file and decompresses it. Errors as in `opened_raw`; reading may raise `DAMAGED`."""
    with opened_raw(path) as raw, decompressed(raw, path) as stream:
        if stream is not raw:
            _refuse(stream.peek(LOOK), path)  # a server may have compressed its answer
        yield stream


def decompressed(raw: BinaryIO, path: str | os.PathLike[str]) -> Any:
    """A stream of a file's decompressed content, or the file itself if its name has no suffix of compression."""
    is_empty = os.path.isfile(path) and not os.path.getsize(path)  # no valid archive, but empty content is meant
    if not is_compressed(path) or is_empty:
        return raw
    return _DECOMPRESSED[os.path.splitext(path)[1].lower()](raw)


def refuse_substitute(path: str | os.PathLike[str]) -> None:
    """Raises UserError if there is Git LFS's pointer or a server's answer instead of a file that a library will open.

    Any other error, such as a missing file, is left to the library.
    """
    try:
        with opened_raw(path):
            pass
    except UserError:
        raise
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return


def _refuse(start: bytes, path: str | os.PathLike[str]) -> None:
    """Raises UserError if a file begins like Git LFS's pointer or the answer of a server."""
    if start.startswith(_POINTER):
        raise UserError(f"{os.fspath(path)} holds a pointer of Git LFS, not the file itself: `git lfs pull` fetches it")
    if _WEB_PAGE.match(start) or start.strip() in _ANSWERS:
        raise UserError(
            f"{os.fspath(path)} holds a web page or another answer of a server (of a login, or that there is no such "
            "file), not the file itself: download it again"
        )


# Content.


def holds_lines(path: str | os.PathLike[str]) -> bool:
    """True for a file of JSON lines, by its name, or by its content if it is called .json (as C4's files are)."""
    if is_named_lines(path):
        return True
    if not plain_name(path).endswith(".json"):
        return False
    try:
        with opened(path) as file:
            first = file.readline(LOOK)
    except (*DAMAGED, ValueError):
        return False  # reading it will raise the error
    is_cut = not first.endswith(b"\n") and len(first) == LOOK
    return is_object(first) or (is_cut and first.lstrip().startswith(b"{"))


def no_text(start: bytes) -> str:
    """Describes a file by its first bytes if they are no UTF-8 text; "" if they are."""
    for signature, description in _SIGNATURES.items():
        if start.startswith(signature):
            return description
    if start.startswith(_TAR_MARK, _TAR_MARK_AT):
        return "a tar archive (those of OpenWebText are for electra build-openwebtext)"
    if start.count(0) > _MANY_NULS * len(start):
        return "NUL bytes, which no text has (or UTF-16)"
    undecodable = len(start) - len(start.decode("utf-8", "ignore").encode())
    if undecodable > max(_MANY_UNDECODABLE * len(start), _FEW_BYTES):
        return "text that is not UTF-8 (iconv -f WINDOWS-1252 -t UTF-8 converts Western European, -f GBK Chinese)"
    return ""


def is_object(line: str | bytes) -> bool:
    """True for a JSON object that is not empty."""
    try:
        value = json.loads(line)
    except ValueError:
        return False
    return isinstance(value, dict) and bool(value)


def is_json(start: str) -> bool:
    """True for the start of a file of JSON: an object on each line, a list of objects, or one object."""
    start = start.removeprefix("\ufeff").lstrip()
    if _JSON.match(start) or _CUT_JSON.match(start):
        return True
    first_line = start.partition("\n")[0]
    return first_line.startswith("{") and is_object(first_line)


def is_markup(start: str) -> bool:
    """True for the start of a file of HTML, XML, or <doc> elements, which extractors of Wikipedia write."""
    return bool(_MARKUP.match(start.removeprefix("\ufeff")))
