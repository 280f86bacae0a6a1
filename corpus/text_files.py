"""Reading a corpus: a directory of plain or compressed text becomes a stream of blocks of lines.

The vocabulary trainer and the data builder both read their text here. Lines stay bytes and are handled a block at a
time, because a Python loop over the tokens of a corpus would take longer than everything else the builder does. No
TensorFlow is imported. What a corpus file may be:

  - text, one paragraph or sentence a line, a blank line between documents: any name without a known suffix;
  - JSON lines, one document a line with its text in a field ("text"): .jsonl or .ndjson;
  - either of them compressed: .gz, .bz2, .xz, .zst added to the name.

Bytes that are not UTF-8 are left out and counted; a damaged archive stops the program with its name.
"""

import bz2
import contextlib
import gzip
import io
import json
import lzma
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from util.errors import UserError

COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
JSON_SUFFIXES = (".jsonl", ".ndjson")

# The original reads every file of the directory as text. With these names that is never what the user wants.
_NOT_TEXT = (
    ".7z", ".arrow", ".bin", ".json", ".npy", ".npz", ".parquet", ".pdf", ".pkl", ".rar", ".tar", ".tbz2", ".tfrecord",
    ".tgz", ".txz", ".warc", ".wet", ".zip",
)  # fmt: skip
_ASCII_SPACE = b" \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f"  # what str.strip takes off, of ASCII
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
# A file without line ends is cut into lines of at most this size, so that memory does not follow the corpus.
MAX_LINE_BYTES = 16 << 20
_DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError)


class CorpusError(UserError):
    """A corpus that cannot be read; the message names the file or directory and says what to do."""


class TextBlock(NamedTuple):
    """Consecutive lines of one file.

    lines: UTF-8, without line ends and without white space around them; a blank line (b"") ends a document.
    undecodable_bytes: how many bytes were left out because they are not UTF-8.
    raw_bytes: uncompressed size of what was read for this block.
    file_bytes: how far the reading moved on in the file on disk; over all blocks this adds up to the file's size.
    """

    lines: list[bytes]
    undecodable_bytes: int
    raw_bytes: int
    file_bytes: int


def find_corpus_files(directory: str | os.PathLike[str], recursive: bool = False) -> list[Path]:
    """The corpus files of a directory, sorted by path; hidden files are passed over."""
    root = Path(directory)
    if not root.exists():
        raise CorpusError(f"corpus directory {str(directory)!r} does not exist")
    if not root.is_dir():
        raise CorpusError(f"corpus directory {str(directory)!r} is a file; give the directory that holds it")
    found = [
        path
        for path in root.glob("**/*" if recursive else "*")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(root).parts)
    ]
    found.sort(key=lambda path: path.relative_to(root).as_posix())
    for path in found:
        _check_name(path)
    if not found:
        below = "" if recursive or not any(root.iterdir()) else " at its top level"
        raise CorpusError(
            f"corpus directory {str(directory)!r} holds no text files{below}; "
            "put .txt, .jsonl or their .gz, .bz2, .xz, .zst forms there"
        )
    if not any(path.stat().st_size for path in found):
        raise CorpusError(f"corpus directory {str(directory)!r} is empty: all {len(found)} files in it have no content")
    return found


def is_json_lines(path: str | os.PathLike[str]) -> bool:
    """Whether the name says that each line is a JSON document."""
    return _content_name(Path(path)).endswith(JSON_SUFFIXES)


def open_corpus_file(path: str | os.PathLike[str]) -> BinaryIO:
    """A corpus file as a binary stream, decompressed as its suffix says."""
    return _open(Path(path))[0]


def read_blocks(
    path: str | os.PathLike[str],
    block_bytes: int = 1 << 20,
    text_field: str = "text",
    span: tuple[int, int] | None = None,
) -> Iterator[TextBlock]:
    """Streams a corpus file as blocks of about block_bytes; the lines do not depend on where blocks end.

    Of a JSON-lines file every document yields the non-blank lines of its text_field and then a blank line.
    span: of an uncompressed file, the bytes [start, end) to read instead of all; both must be starts of lines. Line
    numbers in errors then count from there.
    """
    path = Path(path)
    json_lines = is_json_lines(path)
    line_number = 0
    with contextlib.ExitStack() as stack, _damage_is_named(path):
        stream, on_disk = _open(path)
        stack.enter_context(stream)
        seen_on_disk = 0
        if span is not None:
            if stream is not on_disk:
                raise ValueError(f"{path} is compressed and can only be read from its start")
            stream.seek(span[0])
            seen_on_disk = span[0]
            stream = cast(BinaryIO, _Limited(stream, span[1] - span[0]))
        for data in _whole_lines(stream, block_bytes, path):
            text = valid_utf8(data)
            undecodable = len(data) - len(text)
            # What precedes the last line end; a last line without one is complete too.
            rows = text[:-1].split(b"\n") if text.endswith(b"\n") else text.split(b"\n")
            if json_lines:
                lines, dropped = _json_documents(rows, path, line_number, text_field)
                line_number += len(rows)
                undecodable += dropped
            else:
                lines = strip_lines(rows)
            position = on_disk.tell()
            yield TextBlock(lines, undecodable, len(data), position - seen_on_disk)
            seen_on_disk = position


def strip_lines(rows: list[bytes]) -> list[bytes]:
    """Valid UTF-8 lines without white space at their ends, in Unicode's sense (as str.strip does)."""
    stripped = [row.strip(_ASCII_SPACE) for row in rows]
    for index, row in enumerate(stripped):
        if row and (row[0] > 127 or row[-1] > 127):
            stripped[index] = row.decode("utf-8").strip().encode("utf-8")
    return stripped


def _whole_lines(stream: BinaryIO, block_bytes: int, path: Path) -> Iterator[bytes]:
    """Pieces of the stream that end at a line end (but for the last)."""
    pending: list[bytes] = []  # the start of a line whose end has not been read yet
    pending_bytes = 0
    first = True
    while data := stream.read(block_bytes):
        if first:
            if data.startswith(_UTF16_MARKS):
                raise CorpusError(f"corpus file {str(path)!r} is UTF-16 text; convert it to UTF-8")
            data = data.removeprefix(_BYTE_ORDER_MARK)
            first = False
        end = data.rfind(b"\n") + 1
        if end:
            yield b"".join([*pending, data[:end]])
            pending, pending_bytes = [], 0
        if rest := data[end:]:
            pending.append(rest)
            pending_bytes += len(rest)
        if pending_bytes > MAX_LINE_BYTES and not is_json_lines(path):
            line = b"".join(pending)
            while len(line) > MAX_LINE_BYTES:
                cut = _cut(line, MAX_LINE_BYTES)
                yield line[:cut] + b"\n"
                line = line[cut:]
            pending, pending_bytes = [line], len(line)
    if pending_bytes:
        yield b"".join(pending)


def _cut(line: bytes, limit: int) -> int:
    """Where to cut a line that is too long: after the last space before the limit, or between two characters."""
    cut = line.rfind(b" ", 0, limit) + 1 or limit
    while cut > limit - 4 and cut < len(line) and line[cut] & 0xC0 == 0x80:
        cut -= 1
    return cut


def valid_utf8(data: bytes) -> bytes:
    """The data without the bytes that are not part of a UTF-8 character; the same object when all are."""
    try:
        data.decode("utf-8")
        return data
    except UnicodeDecodeError:
        return data.decode("utf-8", "ignore").encode("utf-8")


def _json_documents(rows: list[bytes], path: Path, lines_before: int, field: str) -> tuple[list[bytes], int]:
    """The lines of each document and a blank one after it, and how many undecodable bytes were left out."""
    lines: list[bytes] = []
    dropped = 0
    for number, row in enumerate(rows, start=lines_before + 1):
        if not row.strip():
            continue
        where = f"{str(path)!r}, line {number}"
        try:
            document: Any = json.loads(row)
        except ValueError as error:
            raise CorpusError(
                f"{where}: not valid JSON ({error}); a .jsonl file holds one JSON object a line"
            ) from None
        text = document.get(field) if isinstance(document, dict) else None
        if not isinstance(text, str):
            if isinstance(document, dict) and field in document:
                raise CorpusError(f"{where}: field {field!r} is {type(text).__name__}, not a string")
            fields = ", ".join(sorted(document)) if isinstance(document, dict) else type(document).__name__
            raise CorpusError(f"{where}: no field {field!r} (there: {fields}); name the field that holds the text")
        encoded = text.encode("utf-8", "ignore")  # JSON can spell half a surrogate pair, UTF-8 cannot
        if not text.isascii():
            dropped += len(text.encode("utf-8", "surrogatepass")) - len(encoded)
        lines.extend(line for line in strip_lines(encoded.split(b"\n")) if line)
        lines.append(b"")
    return lines, dropped


def _content_name(path: Path) -> str:
    """The file's name in lower case without the suffix of its compression."""
    name = path.name.lower()
    return name.rsplit(".", 1)[0] if name.endswith(COMPRESSED_SUFFIXES) else name


def _check_name(path: Path) -> None:
    if _content_name(path).endswith(_NOT_TEXT):
        raise CorpusError(
            f"corpus file {str(path)!r} is neither text nor JSON lines by its name; unpack or convert it to .txt or "
            ".jsonl (each may be .gz, .bz2, .xz or .zst), or move it out of the corpus directory"
        )


def _open(path: Path) -> tuple[BinaryIO, BinaryIO]:
    """The decompressed stream, and the file below it, whose position shows the progress."""
    try:
        raw: BinaryIO = open(path, "rb")  # noqa: SIM115
    except OSError as error:
        raise CorpusError(f"corpus file {str(path)!r} cannot be opened: {error.strerror}") from None
    suffix = path.suffix.lower()
    if suffix not in COMPRESSED_SUFFIXES or not path.stat().st_size:
        return raw, raw
    opened: Any
    if suffix == ".gz":
        opened = gzip.GzipFile(fileobj=raw)
    elif suffix == ".bz2":
        opened = bz2.BZ2File(raw)
    elif suffix == ".xz":
        opened = lzma.LZMAFile(raw)  # noqa: SIM115
    else:
        opened = io.BufferedReader(_ZstandardFile(raw, path), 1 << 20)
    return cast(BinaryIO, _ClosesBoth(opened, raw)), raw


class _Limited(io.RawIOBase):
    """The next `size` bytes of a stream."""

    def __init__(self, stream: BinaryIO, size: int):
        self._stream = stream
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(min(len(buffer), self._left))
        self._left -= len(data)
        buffer[: len(data)] = data
        return len(data)


class _ClosesBoth(io.BufferedReader):
    """A buffered view of a decompressing stream that closes the file below it too."""

    def __init__(self, opened: Any, raw: BinaryIO):
        super().__init__(opened, 1 << 20)
        self._below = raw

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._below.close()


class _ZstandardFile(io.RawIOBase):
    """Zstandard frames as a stream; unlike the package's own reader it notices a file that ends within a frame."""

    def __init__(self, raw: BinaryIO, path: Path):
        try:
            import zstandard
        except ImportError:
            raise CorpusError(f"corpus file {str(path)!r} needs the package zstandard: pip install zstandard") from None
        self._raw = raw
        self._damage = zstandard.ZstdError
        # The window of `zstd --long=31`, the largest there is.
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 31)
        self._frame = self._decompressor.decompressobj()
        self._inside = False  # whether the current frame has begun and not ended
        self._ready = b""  # decompressed, not handed out
        self._unread = b""  # of the file, beyond the end of the last frame

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            data = self._unread or self._raw.read(1 << 17)
            self._unread = b""
            if not data:
                if self._inside:
                    raise EOFError("the file ends before its last frame does")
                return 0
            try:
                self._ready = self._frame.decompress(data)
            except self._damage as error:
                raise OSError(str(error)) from None
            self._inside = not self._frame.eof
            if self._frame.eof:
                self._unread = self._frame.unused_data
                self._frame = self._decompressor.decompressobj()
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size


@contextlib.contextmanager
def _damage_is_named(path: Path) -> Iterator[None]:
    """Turns whatever a decompressor raises into an error that names the file."""
    try:
        yield
    except _DAMAGED as error:
        raise CorpusError(
            f"corpus file {str(path)!r} is damaged or not what its suffix says ({error}); fetch or compress it again"
        ) from None
