"""Reading a corpus: a directory of plain or compressed text becomes a stream of blocks of lines.

The vocabulary trainer and the data builder both read their text here. Lines stay bytes and are handled a block at a
time, because a Python loop over the tokens of a corpus would take longer than everything else the builder does. No
TensorFlow is imported. What a corpus file may be:

  - text, one paragraph or sentence a line, a blank line between documents: any name without a known suffix;
  - JSON lines, one document a line with its text in a field ("text"): .jsonl or .ndjson, or .json by a look inside;
  - either of them compressed: .gz, .bz2, .xz, .zst added to the name;
  - a table with a document a row, its text in a column of that name: .parquet, or .arrow as `datasets` saves them;
  - of OpenWebText, an archive of text files with one document each: urlsf_subset*.xz, and no other file.

Bytes that are not UTF-8 are left out and counted; a damaged archive stops the program with its name.
"""

import contextlib
import io
import itertools
import lzma
import os
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

from electra_tf2.files import tables
from electra_tf2.files.content import (
    DAMAGED,
    LOOK,
    decompressed,
    holds_lines,
    is_compressed,
    is_copy,
    is_json,
    is_markup,
    no_text,
    opened_raw,
    plain_name,
)
from electra_tf2.files.reading import parse_json
from electra_tf2.util.errors import UserError, reason, shown
from electra_tf2.util.progress import say

# The original reads every file of the directory as text. With these names that is never what the user wants.
_NOT_TEXT = (
    ".7z", ".bin", ".br", ".csv", ".docx", ".epub", ".htm", ".html", ".lz4", ".lzma", ".npy", ".npz", ".pdf",
    ".pkl", ".rar", ".tar", ".tbz2", ".tfrecord", ".tgz", ".tsv", ".txz", ".warc", ".wet", ".xml", ".z", ".zip",
)  # fmt: skip
_ARCHIVES = "urlsf_subset*.xz"
_ASCII_SPACE = b" \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f"  # what str.strip takes off, of ASCII
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# A file without line ends is cut into lines of at most this size, so that memory does not follow the corpus.
MAX_LINE_BYTES = 16 << 20
_BLOCK_BYTES = 1 << 20
_BLOCK_ROWS = 500
_MANY_UNDECODABLE = 0.001  # share of bytes that looks like another encoding

Boundary = Literal["line", "blank line"]


class CorpusFile(NamedTuple):
    """A file of the corpus: path below the corpus directory, size on disk."""

    name: str
    size: int


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


class Corpus(NamedTuple):
    """A directory of text and how to read it; the flags of the builders have the same names.

    archives: the files are OpenWebText's archives.
    """

    directory: str
    text_field: str = "text"
    recursive: bool = False
    blanks_separate_docs: bool = True
    archives: bool = False

    def files(self) -> list[CorpusFile]:
        """The files, sorted by path; hidden ones are passed over. Raises UserError if there is no text in them."""
        root = Path(self.directory)
        named = f"corpus directory {self.directory!r}"
        if not root.is_dir():
            problem = "is a file; give the directory that holds it" if root.exists() else "does not exist"
            raise UserError(f"{named} {problem}")
        paths = list(root.glob(_ARCHIVES) if self.archives else _text_files(root, self.recursive))
        if not paths:
            below = "" if self.recursive or not any(root.iterdir()) else " at its top level"
            texts = f"text files{below}; put .txt, .jsonl or their .gz, .bz2, .xz, .zst forms there"
            archives = f"{_ARCHIVES}; it must hold the archives that openwebtext.tar.xz contains"
            raise UserError(f"{named} holds no {archives if self.archives else texts}")
        files = sorted(CorpusFile(path.relative_to(root).as_posix(), path.stat().st_size) for path in paths)
        if not any(file.size for file in files):
            raise UserError(f"{named} is empty: all {len(files)} files in it have no content")
        return files

    def boundary(self, name: str) -> Boundary | None:
        """The place after which a file may be divided, so that no document is; None if it must be read as a whole."""
        if is_compressed(name) or tables.format_by_name(name) == "columnar":
            return None
        if holds_lines(Path(self.directory) / name):
            return "line"
        return "blank line" if self.blanks_separate_docs else None

    def read(
        self, name: str, start: int = 0, end: int = sys.maxsize, block_bytes: int = _BLOCK_BYTES
    ) -> Iterator[TextBlock]:
        """Streams a file as blocks of about block_bytes; the lines do not depend on where blocks end.

        Blank lines are the ends of documents. Of a JSON-lines file every document yields the non-blank lines of its
        text_field and then a blank line.

        Args:
          start, end: bytes of an uncompressed file at which lines start.

        Raises:
          UserError: the file cannot be read, is damaged or plainly no text, or a document has no such field.
        """
        path = Path(self.directory) / name
        if self.archives:
            return _read_archive(path)
        if tables.format_by_name(path) == "columnar":
            return _read_table(path, self.text_field)
        whole = is_compressed(name)
        return self._read_lines(path, 0 if whole else start, sys.maxsize if whole else end, block_bytes)

    def _read_lines(self, path: Path, start: int, end: int, block_bytes: int) -> Iterator[TextBlock]:
        json_lines = holds_lines(path)
        position, line_number = start, 1
        with _opened(path) as raw, decompressed(raw, path) as stream:
            stream.seek(start)
            head = stream.read(min(max(block_bytes, LOOK), end - start))
            if not start:
                _refuse_other_content(head, path, json_lines)
            rest = _chunks(stream, block_bytes, end - start - len(head))
            chunks = itertools.chain([head if start else head.removeprefix(_BYTE_ORDER_MARK)], rest)
            for data in _whole_lines(chunks, sys.maxsize if json_lines else MAX_LINE_BYTES):
                text = valid_utf8(data)
                undecodable = len(data) - len(text)
                # What precedes the last line end; a last line without one is complete too.
                rows = text[:-1].split(b"\n") if text.endswith(b"\n") else text.split(b"\n")
                if json_lines:
                    try:
                        lines, dropped = _documents(_json_rows(rows, path, line_number), self.text_field)
                    except UserError:
                        before = _line_ends(path, start)  # too slow to be counted where nothing is wrong
                        lines, dropped = _documents(_json_rows(rows, path, line_number + before), self.text_field)
                    line_number += len(rows)
                    undecodable += dropped
                else:
                    lines = strip_lines(rows)
                    if not self.blanks_separate_docs:
                        lines = [line for line in lines if line]
                before, position = position, raw.tell()
                yield TextBlock(lines, undecodable, len(data), position - before)


def _read_table(path: Path, field: str) -> Iterator[TextBlock]:
    """A parquet or Arrow file; how far it is read on disk is told at its end alone."""
    numbered = enumerate(tables.read_columnar(path, [field]), start=1)
    rows = ((row, f"{str(path)!r}, row {number}") for number, row in numbered)
    while some := list(itertools.islice(rows, _BLOCK_ROWS)):
        lines, dropped = _documents(some, field)
        yield TextBlock(lines, dropped, sum(map(len, lines)), 0)
    yield TextBlock([], 0, 0, path.stat().st_size)


def _read_archive(path: Path) -> Iterator[TextBlock]:
    """A compressed tar of text files, one document each, read as a stream: nothing is unpacked to disk."""
    lines: list[bytes] = []
    text_bytes = undecodable = position = 0
    # tarfile itself would unpack whole blocks of xz at once, however large.
    with _opened(path) as raw, tarfile.open(fileobj=lzma.LZMAFile(raw), mode="r|") as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            if file is None:
                continue
            for data in itertools.chain(_whole_lines(_chunks(file, _BLOCK_BYTES, member.size), MAX_LINE_BYTES), [b""]):
                text = valid_utf8(data)
                undecodable += len(data) - len(text)
                text_bytes += len(data)
                lines += [line for line in strip_lines(text.split(b"\n")) if line]
                if not data:  # the document's end
                    lines.append(b"")
                if text_bytes >= _BLOCK_BYTES:
                    before, position = position, raw.tell()
                    yield TextBlock(lines, undecodable, text_bytes, position - before)
                    lines, text_bytes, undecodable = [], 0, 0
        yield TextBlock(lines, undecodable, text_bytes, os.path.getsize(path) - position)


def strip_lines(rows: list[bytes]) -> list[bytes]:
    """Valid UTF-8 lines without white space at their ends, in Unicode's sense (as str.strip does)."""
    stripped = [row.strip(_ASCII_SPACE) for row in rows]
    for index, row in enumerate(stripped):
        if row and (row[0] > 127 or row[-1] > 127):
            stripped[index] = row.decode("utf-8").strip().encode("utf-8")
    return stripped


def valid_utf8(data: bytes) -> bytes:
    """The data without the bytes that are not part of a UTF-8 character; the same object when all are."""
    try:
        data.decode("utf-8")
        return data
    except UnicodeDecodeError:
        return data.decode("utf-8", "ignore").encode("utf-8")


def left_out(undecodable: int, of: int) -> str:
    """Says how many of so many bytes were left out because they are not UTF-8."""
    share = undecodable / max(of, 1)
    hint = f", {100 * share:.1f} % of the text: it may be of another encoding" if share > _MANY_UNDECODABLE else ""
    return f"left out {undecodable:,} bytes that are not UTF-8{hint}"


def _text_files(root: Path, recursive: bool) -> Iterator[Path]:
    def fail(error: OSError) -> None:
        raise UserError(f"corpus directory {error.filename!r} cannot be read: {reason(error)}")

    copies: list[str] = []
    for folder, folders, names in os.walk(root, onerror=fail, followlinks=True):
        folders[:] = [name for name in folders if recursive and not name.startswith(".")]
        for link in (path for name in folders if (path := Path(folder, name)).is_symlink()):
            if any(above.resolve().is_relative_to(link.resolve()) for above in link.parents if above >= root):
                raise UserError(f"corpus directory {str(link)!r} is a link to a folder that it lies in; remove it")
        for path in (Path(folder, name) for name in names if not name.startswith(".") and name not in tables.NOT_DATA):
            if not path.exists():
                raise UserError(f"corpus file {str(path)!r} is a link to nothing; mend or remove it")
            if is_copy(path.name):
                copies.append(path.name)
            elif path.is_file() and not tables.is_left_over(path):
                if plain_name(path).endswith(_NOT_TEXT):
                    raise UserError(
                        f"corpus file {str(path)!r} is neither text nor JSON lines by its name; unpack or convert it "
                        "to .txt or .jsonl (each may be .gz, .bz2, .xz or .zst), or move it out of the corpus directory"
                    )
                if plain_name(path).endswith(".json") and not holds_lines(path):
                    raise UserError(
                        f"corpus file {str(path)!r} holds no JSON lines: give each document a line, its text in a field"
                    )
                yield path
    if copies:
        say(f"note: corpus directory {str(root)!r}: {len(copies)} copies of files are passed over: {shown(copies)}")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[io.BufferedReader]:
    """The file as it is on disk; whatever goes wrong while it is read becomes an error that names it."""
    try:
        with opened_raw(path) as raw:
            yield raw
    except DAMAGED as error:
        if isinstance(error, OSError) and error.errno:
            raise UserError(f"corpus file {str(path)!r} cannot be read: {reason(error)}") from None
        raise UserError(
            f"corpus file {str(path)!r} is damaged or not what its name says ({error}); fetch or compress it again"
        ) from None


def _refuse_other_content(start: bytes, path: Path, json_lines: bool) -> None:
    """Raises UserError if a file that begins so is plainly no text."""
    found, text = no_text(start[:LOOK]), start[:LOOK].decode("utf-8", "ignore")
    if not found and not json_lines:
        if is_json(text):
            found = "JSON: give each document a line, its text in a field, and call it .jsonl, not text"
        elif is_markup(text):
            found = "markup"
        elif "\r" in text.strip() and "\n" not in text:
            found = "lines that end in carriage returns alone (tr '\\r' '\\n' makes others of them)"
    if found:
        raise UserError(f"corpus file {str(path)!r} holds {found}: unpack, convert or rename it, or move it away")


def _chunks(stream: IO[bytes], block_bytes: int, size: int) -> Iterator[bytes]:
    """The next `size` bytes of a stream."""
    while data := stream.read(min(block_bytes, size)):
        size -= len(data)
        yield data


def _whole_lines(chunks: Iterable[bytes], longest: int) -> Iterator[bytes]:
    """The chunks cut anew, so that all end at a line end (but for the last), where no line is longer than `longest`."""
    pending = bytearray()
    for data in chunks:
        end = data.rfind(b"\n") + 1
        if end:
            yield bytes(pending) + data[:end]
            pending.clear()
        pending += data[end:]
        while len(pending) > longest:
            # After the last blank before the limit, or between two characters.
            cut = pending.rfind(b" ", 0, longest) + 1 or longest
            while cut > longest - 4 and pending[cut] & 0xC0 == 0x80:
                cut -= 1
            yield bytes(pending[:cut]) + b"\n"
            del pending[:cut]
    if pending:
        yield bytes(pending)


def _json_rows(rows: list[bytes], path: Path, first_line: int) -> Iterator[tuple[dict[str, Any], str]]:
    """The objects of JSON lines, the first of which is the file's line of this number, and where each stands."""
    for number, row in enumerate(rows, first_line):
        if row.strip():
            where = f"{str(path)!r}, line {number}"
            yield parse_json(row.decode(), where, half_pairs=True), where


def _line_ends(path: Path, end: int) -> int:
    """Counts the line ends in a file's first `end` bytes."""
    with open(path, "rb") as file:
        return sum(block.count(b"\n") for block in _chunks(file, _BLOCK_BYTES, end))


def _documents(rows: Iterable[tuple[dict[str, Any], str]], field: str) -> tuple[list[bytes], int]:
    """The lines of the text in a field and a blank one of each document, and how many undecodable bytes were left out.

    Args:
      rows: of each document the object and where it stands.
    """
    lines: list[bytes] = []
    dropped = 0
    for document, where in rows:
        text = document.get(field)
        if not isinstance(text, str):
            if field in document:
                raise UserError(f"{where}: field {field!r} is {type(text).__name__}, not a string")
            fields = ", ".join(sorted(document))
            raise UserError(f"{where}: no field {field!r} (there: {fields}); name the field that holds the text")
        encoded = text.encode("utf-8", "ignore")  # JSON can spell half a surrogate pair, UTF-8 cannot
        dropped += 0 if text.isascii() else len(text.encode("utf-8", "surrogatepass")) - len(encoded)
        lines += [*(line for line in strip_lines(encoded.split(b"\n")) if line), b""]
    return lines, dropped
