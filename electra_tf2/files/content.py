"""Files as they lie on disk, compressed or not, and what their first bytes give away: for corpora and tables alike."""

import bz2
import contextlib
import gzip
import json
import lzma
import os
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, BinaryIO

from backports import zstd

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

_SIGNATURES = {  # first bytes of files whose name may not say what they are
    b"\xff\xfe": "UTF-16 text", b"\xfe\xff": "UTF-16 text",
    b"\x1f\x8b": "data compressed by gzip", b"BZh": "data compressed by bzip2",
    b"\xfd7zXZ": "data compressed by xz", b"\x28\xb5\x2f\xfd": "data compressed by zstd",
    b"PK\x03\x04": "a zip archive (or a spreadsheet)", b"\xd0\xcf\x11\xe0": "a document of old office programs",
    b"version https://git-lfs": "a pointer of Git LFS, not the file itself (`git lfs pull` fetches it)",
    b"PAR1": "a parquet table", b"ARROW1": "an Arrow table", b"%PDF": "a PDF document",
}  # fmt: skip
_MARKUP = re.compile(r"\s*<(\?xml|!doctype|html|mediawiki|doc)\b", re.IGNORECASE)
_JSON = re.compile(r"\[\s*\{\s*[\"}]|\{\s*\n\s*\"")  # a list of objects, an object over several lines
_CUT_JSON = re.compile(r"\{\s*\"[^\"]*\"\s*:[^\n]*$")  # an object whose line is longer than what was read
_WEB_PAGE = re.compile(rb"\s*<(!doctype html|html)\b", re.IGNORECASE)
_COPIES = (".bak", ".orig", ".rej", ".swo", ".swp", ".tmp", ".part", ".crdownload")  # of editors and of half a download
_TAR_MARK, _TAR_MARK_AT = b"ustar", 257
_MANY_NULS, _FEW = 0.01, 0.1  # shares of NULs, and of bytes that are not UTF-8, in what may be text


def is_compressed(path: str | os.PathLike[str]) -> bool:
    return os.fspath(path).lower().endswith(SUFFIXES)


def plain_name(path: str | os.PathLike[str]) -> str:
    """The file's name in lower case without the suffix of its compression."""
    name = os.path.basename(path).lower()
    return name.rpartition(".")[0] if is_compressed(name) else name


def says_lines(path: str | os.PathLike[str]) -> bool:
    """Tells whether a file's name says that each line is a JSON object."""
    return plain_name(path).endswith((".jsonl", ".ndjson"))


def decompressed(raw: BinaryIO, path: str | os.PathLike[str]) -> Any:
    """The stream of a file's content, by its name; an empty file has none."""
    if not is_compressed(path) or (os.path.isfile(path) and not os.path.getsize(path)):
        return raw
    return _DECOMPRESSED[os.path.splitext(path)[1].lower()](raw)


@contextlib.contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Opens a file to read its content. Errors, one of `DAMAGED`, are for the caller to tell."""
    with open(path, "rb") as raw, decompressed(raw, path) as stream:
        yield stream


def holds_lines(path: str | os.PathLike[str]) -> bool:
    """Tells whether each line of a file is a JSON object: by its name, or called .json by a look inside (C4's)."""
    if says_lines(path):
        return True
    if not plain_name(path).endswith(".json"):
        return False
    try:
        with opened(path) as file:
            first = file.readline(LOOK)
    except (*DAMAGED, ValueError):
        return False  # who reads it says what is wrong
    is_cut = not first.endswith(b"\n") and len(first) == LOOK
    return is_object(first) or (is_cut and first.lstrip().startswith(b"{"))


def is_copy(name: str) -> bool:
    """Tells whether a file is what an editor or a half-done download leaves beside the file that is meant."""
    return name.endswith(("~", *_COPIES)) or (name.startswith("#") and name.endswith("#"))


def another_thing(start: bytes) -> str:
    """Names what plainly stands in the place of a file of any format: a pointer, a web page, an archive; else ""."""
    if _WEB_PAGE.match(start):
        return "a web page (of a login, say): download the file again"
    return next((what for sign, what in _SIGNATURES.items() if start.startswith(sign)), "")


def with_remedy(what: str) -> str:
    """Names what a file holds in the place of text, and what to do about it."""
    return what if "Git LFS" in what else f"{what}; unpack or convert it"


def no_text(start: bytes) -> str:
    """Names what a file is by its first bytes, if that is no UTF-8 text, table or document of text; else ""."""
    found = next((what for sign, what in _SIGNATURES.items() if start.startswith(sign)), "")
    if found or start.startswith(_TAR_MARK, _TAR_MARK_AT):
        return found or "a tar archive (those of OpenWebText are for electra build-openwebtext)"
    if start.count(0) > _MANY_NULS * len(start):
        return "NUL bytes, which no text has (or UTF-16)"
    if len(start) - len(start.decode("utf-8", "ignore").encode()) > max(_FEW * len(start), 3):
        return "text that is not UTF-8 (iconv -f GBK -t UTF-8 converts it, say)"
    return ""


def is_object(line: str | bytes) -> bool:
    """Tells whether a line is a JSON object that is not empty."""
    try:
        return bool(value := json.loads(line)) and isinstance(value, dict)
    except ValueError:
        return False


def is_json(start: str) -> bool:
    """Tells whether a file that begins so holds JSON: objects a line, a list of them, or one."""
    start = start.removeprefix("\ufeff").lstrip()
    first = start.partition("\n")[0]
    return bool(_JSON.match(start) or _CUT_JSON.match(start)) or (first.startswith("{") and is_object(first))


def is_markup(start: str) -> bool:
    """Tells whether a file that begins so holds HTML, XML or what extractors of Wikipedia write."""
    return bool(_MARKUP.match(start.removeprefix("\ufeff")))
