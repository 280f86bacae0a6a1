"""Reads a corpus: a directory of plain or compressed text becomes a stream of blocks of lines.

The vocabulary trainer and the data builder both read their text here. Lines stay bytes and are handled a block at a
time, because a Python loop over the tokens of a corpus would take longer than everything else the builder does. No
TensorFlow is imported. A corpus file may be:

  - text, a paragraph or sentence on each line, a blank line between documents: any name without a known suffix;
  - JSON lines, a document on each line with its text in a field ("text"): .jsonl, .ndjson, or .json with such content;
  - either of them compressed: .gz, .bz2, .xz or .zst added to the name;
  - a table, a document in each row with its text in a column of that name: .parquet, or .arrow as `datasets` saves it;
  - OpenWebText's archives of text files, a document in each: urlsf_subset*.xz, and no other file.

Bytes that are not UTF-8 are left out and counted. A damaged file stops the program with its name.
"""

import contextlib
import io
import itertools
import lzma
import os
import sys
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

from electra_tf2.files import table_files
from electra_tf2.files.columnar import read_columnar
from electra_tf2.files.content import (
    DAMAGED,
    LOOK,
    decompressed,
    holds_lines,
    is_compressed,
    is_copy,
    is_json,
    is_markup,
    is_no_data,
    no_text,
    opened_raw,
    plain_name,
)
from electra_tf2.files.reading import parse_json
from electra_tf2.util.errors import UserError, reason, shown
from electra_tf2.util.progress import say

# The original reads every file of the directory as text. For these that is never what the user wants.
_NOT_TEXT = (
    ".7z", ".bin", ".br", ".csv", ".docx", ".epub", ".htm", ".html", ".lz4", ".lzma", ".npy", ".npz", ".pdf",
    ".pkl", ".rar", ".tar", ".tbz2", ".tfrecord", ".tgz", ".tsv", ".txz", ".warc", ".wet", ".xml", ".z", ".zip",
)  # fmt: skip
_ARCHIVES = "urlsf_subset*.xz"
_ASCII_SPACE = b" \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f"  # the ASCII characters that str.strip removes
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# A file without line ends is cut into lines of at most this size, so that memory does not follow the corpus.
MAX_LINE_BYTES = 16 << 20
_BLOCK_BYTES = 1 << 20
_BLOCK_ROWS = 500
_FILES_SHOWN = 3
_MANY_UNDECODABLE = 0.001  # share of bytes; more looks like another encoding
# One estimate for every compression. 4 MB of English Wikipedia give 2.7 with gzip and zstd, 3.4 with bzip2 and xz. If
# the estimate is too high, a build has a few more shards, which are smaller.
TEXT_BYTES_PER_COMPRESSED_BYTE = 3.5

Boundary = Literal["line", "blank line"]


class CorpusFile(NamedTuple):
    """A file of the corpus: path below the corpus directory, size on disk."""

    name: str
    size: int


class TextBlock(NamedTuple):
    """Consecutive lines of one file.

    lines: UTF-8, without line ends and without white space around them. A blank line (b"") ends a document.
    undecodable_bytes: number of bytes that were left out because they are not UTF-8.
    raw_bytes: uncompressed size of the block.
    file_bytes: size of the block in the file on disk. Over all blocks this adds up to the file's size.
    """

    lines: list[bytes]
    undecodable_bytes: int
    raw_bytes: int
    file_bytes: int


class Corpus(NamedTuple):
    """A directory of text and how to read it. The builders' flags have the same names.

    archives: True if the files are OpenWebText's archives.
    """

    directory: str
    text_field: str = "text"
    recursive: bool = False
    blanks_separate_docs: bool = True
    archives: bool = False

    def files(self) -> list[CorpusFile]:
        """The files, sorted by path, without hidden ones. Raises UserError if there is no text."""
        root = Path(self.directory)
        directory = f"corpus directory {self.directory!r}"
        if not root.is_dir():
            problem = "is a file; give the directory that holds it" if root.exists() else "does not exist"
            raise UserError(f"{directory} {problem}")
        if self.archives:
            paths = list(root.glob(_ARCHIVES))
        else:
            paths = _text_files(root, self.recursive)
        if not paths:
            raise UserError(f"{directory} holds no {self._missing_files(root)}")
        files = sorted(CorpusFile(path.relative_to(root).as_posix(), path.stat().st_size) for path in paths)
        if not any(file.size for file in files):
            raise UserError(f"{directory} is empty: all {len(files)} files in it have no content")
        return files

    def _missing_files(self, root: Path) -> str:
        """Names the files that a directory should hold, and what to do."""
        if self.archives:
            return f"{_ARCHIVES}; it must hold the archives that openwebtext.tar.xz contains"
        where = ""
        if not self.recursive and any(root.iterdir()):
            where = " at its top level"
        return f"text files{where}; put .txt, .jsonl or their .gz, .bz2, .xz, .zst forms there"

    def refuse_inside(self, flag: str, path: str | os.PathLike[str], written: str = "") -> None:
        """Raises UserError if a file that a flag names belongs to the corpus, or would when it is written.

        Args:
          written: name of the file, if the flag names its folder.
        """
        root = Path(self.directory).resolve()
        file = Path(path, written)
        folder = file.parent.resolve()
        if self.archives or not folder.is_relative_to(root):
            return
        names = [*folder.relative_to(root).parts, file.name]
        if (self.recursive or len(names) == 1) and not any(map(is_no_data, names)):
            raise UserError(
                f"{flag} {os.fspath(path)!r} lies in the corpus directory {self.directory!r}, whose files are read as "
                "text: name another folder"
            )

    def boundary(self, name: str) -> Boundary | None:
        """The border at which a file may be divided without dividing a document; None: it must be read as a whole."""
        if is_compressed(name) or table_files.format_by_name(name) == "columnar":
            return None
        if holds_lines(Path(self.directory) / name):
            return "line"
        return "blank line" if self.blanks_separate_docs else None

    def read(
        self, name: str, start: int = 0, end: int = sys.maxsize, block_bytes: int = _BLOCK_BYTES
    ) -> Iterator[TextBlock]:
        """Streams a file as blocks of about block_bytes. Where blocks end does not affect the lines.

        A blank line ends a document. A document of JSON lines gives the non-blank lines of its text_field and a blank
        line.

        Args:
          start, end: bytes of an uncompressed file; a line must begin at each.

        Raises:
          UserError: the file cannot be read, is damaged or plainly no text, or a document lacks text_field.
        """
        path = Path(self.directory) / name
        if self.archives:
            return _read_archive(path)
        if table_files.format_by_name(path) == "columnar":
            return _read_table(path, self.text_field)
        if is_compressed(name):  # it is never divided, and `end` counts bytes on disk
            return self._read_lines(path, 0, sys.maxsize, block_bytes)
        return self._read_lines(path, start, end, block_bytes)

    def _read_lines(self, path: Path, start: int, end: int, block_bytes: int) -> Iterator[TextBlock]:
        has_json_lines = holds_lines(path)
        longest_line = sys.maxsize if has_json_lines else MAX_LINE_BYTES
        position = start  # in the file on disk
        line_number = 1  # of the next line, counted from `start`
        with _opened(path) as raw, decompressed(raw, path) as stream:
            stream.seek(start)
            head = stream.read(min(max(block_bytes, LOOK), end - start))
            rest = _chunks(stream, block_bytes, end - start - len(head))
            if start == 0:
                _refuse_other_content(head, path, has_json_lines)
                head = head.removeprefix(_BYTE_ORDER_MARK)
            for data in _whole_lines(itertools.chain([head], rest), longest_line):
                text = valid_utf8(data)
                undecodable = len(data) - len(text)
                rows = text.removesuffix(b"\n").split(b"\n")
                if has_json_lines:
                    try:
                        lines, dropped = _documents(_json_rows(rows, path, line_number), self.text_field)
                    except UserError:
                        # The message must count lines from the file's beginning. Counting those before `start` takes
                        # long, so it is done only now.
                        line_number += _line_ends(path, start)
                        lines, dropped = _documents(_json_rows(rows, path, line_number), self.text_field)
                    line_number += len(rows)
                    undecodable += dropped
                else:
                    lines = strip_lines(rows)
                    if not self.blanks_separate_docs:
                        lines = [line for line in lines if line]
                file_bytes = raw.tell() - position
                position += file_bytes
                yield TextBlock(lines, undecodable, len(data), file_bytes)


def _read_table(path: Path, field: str) -> Iterator[TextBlock]:
    """Reads a parquet or Arrow file. The last block has all of file_bytes."""
    rows = read_columnar(path, [field])
    row_number = 1  # of the block's first row
    while True:
        block = list(itertools.islice(rows, _BLOCK_ROWS))
        if not block:
            break
        located = [(row, f"{str(path)!r}, row {row_number + index}") for index, row in enumerate(block)]
        row_number += len(block)
        lines, dropped = _documents(located, field)
        yield TextBlock(lines, dropped, sum(map(len, lines)), 0)
    yield TextBlock([], 0, 0, path.stat().st_size)


def _read_archive(path: Path) -> Iterator[TextBlock]:
    """Reads a compressed tar of text files, a document in each, as a stream. Nothing is unpacked to disk."""
    lines: list[bytes] = []
    text_bytes = 0
    undecodable = 0
    position = 0  # in the file on disk
    # tarfile's own decompression would unpack a whole block of xz at once, however large.
    with _opened(path) as raw, tarfile.open(fileobj=lzma.LZMAFile(raw), mode="r|") as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            if file is None:
                continue
            for data in _whole_lines(_chunks(file, _BLOCK_BYTES, member.size), MAX_LINE_BYTES):
                text = valid_utf8(data)
                undecodable += len(data) - len(text)
                text_bytes += len(data)
                lines += [line for line in strip_lines(text.split(b"\n")) if line]
                # A block may end within a document, which may be larger than memory.
                if text_bytes >= _BLOCK_BYTES:
                    file_bytes = raw.tell() - position
                    position += file_bytes
                    yield TextBlock(lines, undecodable, text_bytes, file_bytes)
                    lines = []
                    text_bytes = 0
                    undecodable = 0
            lines.append(b"")
        yield TextBlock(lines, undecodable, text_bytes, os.path.getsize(path) - position)


def strip_lines(rows: list[bytes]) -> list[bytes]:
    """Strips Unicode's white space, as str.strip does, from valid UTF-8 lines."""
    stripped = [row.strip(_ASCII_SPACE) for row in rows]
    for index, row in enumerate(stripped):
        if row and (row[0] > 127 or row[-1] > 127):  # an end that may be white space beyond ASCII
            stripped[index] = row.decode("utf-8").strip().encode("utf-8")
    return stripped


def valid_utf8(data: bytes) -> bytes:
    """Drops bytes that are not part of a UTF-8 character. Returns the same object if there are none."""
    try:
        data.decode("utf-8")
        return data
    except UnicodeDecodeError:
        return data.decode("utf-8", "ignore").encode("utf-8")


def undecodable_note(undecodable: int, text_bytes: int, files: Sequence[str] = ()) -> str:
    """Tells how many of a text's bytes were left out because they are not UTF-8. files: those with most of them."""
    share = undecodable / max(text_bytes, 1)
    hint = ""
    if share > _MANY_UNDECODABLE:
        hint = f", {100 * share:.1f} % of the text: it may be of another encoding"
    of_files = ""
    if files:
        of_files = f", of {', '.join(files[:_FILES_SHOWN])}"
        if len(files) > _FILES_SHOWN:
            of_files += " and others"
    return f"left out {undecodable:,} bytes that are not UTF-8{of_files}{hint}"


def _text_files(root: Path, recursive: bool) -> list[Path]:
    """The files of a corpus. Raises UserError for files that are no text, and for folders that cannot be read."""

    def fail(error: OSError) -> None:
        raise UserError(f"corpus directory {error.filename!r} cannot be read: {reason(error)}")

    files: list[Path] = []
    copies: list[str] = []
    for folder, folders, names in os.walk(root, onerror=fail, followlinks=True):
        # os.walk visits the folders that stay in this list.
        folders[:] = [name for name in folders if recursive and not is_no_data(name)]
        for name in folders:
            _refuse_loop(Path(folder, name), root)
        for name in names:
            if is_copy(name):
                copies.append(name)
            elif _is_text_file(Path(folder, name)):
                files.append(Path(folder, name))
    if copies:
        say(f"note: corpus directory {str(root)!r}: {len(copies)} copies of files are passed over: {shown(copies)}")
    return files


def _refuse_loop(folder: Path, root: Path) -> None:
    """Raises UserError if a folder of the corpus links to a folder that it lies in: reading would never end."""
    if not folder.is_symlink():
        return
    target = folder.resolve()
    for above in folder.parents:
        if above.resolve().is_relative_to(target):
            raise UserError(f"corpus directory {str(folder)!r} is a link to a folder that it lies in; remove it")
        if above == root:
            return


def _is_text_file(path: Path) -> bool:
    """True if a file belongs to the corpus. Raises UserError if it is neither text nor a file to ignore."""
    if is_no_data(path.name) or path.name in table_files.NOT_DATA:
        return False
    if not path.exists():
        raise UserError(f"corpus file {str(path)!r} is a link to nothing; mend or remove it")
    if not path.is_file() or table_files.is_left_over(path):
        return False
    if plain_name(path).endswith(_NOT_TEXT):
        raise UserError(
            f"corpus file {str(path)!r} is neither text nor JSON lines by its name; unpack or convert it "
            "to .txt or .jsonl (each may be .gz, .bz2, .xz or .zst), or move it out of the corpus directory"
        )
    if plain_name(path).endswith(".json") and not holds_lines(path):
        raise UserError(
            f"corpus file {str(path)!r} holds no JSON lines: give each document a line, its text in a field"
        )
    return True


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[io.BufferedReader]:
    """Opens a file as it is on disk. Errors while it is read become a UserError with its name."""
    try:
        with opened_raw(path) as raw:
            yield raw
    except DAMAGED as error:
        if isinstance(error, OSError) and error.errno:
            raise UserError(f"corpus file {str(path)!r} cannot be read: {reason(error)}") from None
        raise UserError(
            f"corpus file {str(path)!r} is damaged or not what its name says ({error}); fetch or compress it again"
        ) from None


def _refuse_other_content(start: bytes, path: Path, has_json_lines: bool) -> None:
    """Raises UserError if the start of a file shows that it is no text."""
    start = start[:LOOK]
    text = start.decode("utf-8", "ignore")
    problem = no_text(start)
    remedy = "unpack, convert or rename it, or move it away"
    if not problem and not has_json_lines:
        if is_json(text):
            problem = "JSON: give each document a line, its text in a field, and call it .jsonl, not text"
        elif text.removeprefix("\ufeff").startswith("<doc "):
            problem = "what WikiExtractor writes, with a line <doc ...> before each article"
            remedy = "run it with --json, or divide the articles by sed -e '/^<doc /d' -e 's/^<\\/doc>$//'"
        elif is_markup(text):
            problem = "markup"
        elif "\r" in text.strip() and "\n" not in text:
            problem = "lines that end in carriage returns alone (tr '\\r' '\\n' makes others of them)"
    if problem:
        raise UserError(f"corpus file {str(path)!r} holds {problem}: {remedy}")


def _chunks(stream: IO[bytes], block_bytes: int, size: int) -> Iterator[bytes]:
    """Yields the next `size` bytes of a stream in blocks."""
    while True:
        data = stream.read(min(block_bytes, size))
        if not data:
            return
        size -= len(data)
        yield data


def _whole_lines(chunks: Iterable[bytes], longest: int) -> Iterator[bytes]:
    """Cuts a stream of chunks anew, so that each ends with a line end. Lines longer than `longest` are divided."""
    pending = bytearray()
    for data in chunks:
        end = data.rfind(b"\n") + 1
        if end:
            yield bytes(pending) + data[:end]
            pending.clear()
        pending += data[end:]
        while len(pending) > longest:
            cut = pending.rfind(b" ", 0, longest) + 1
            if cut == 0:  # no blank
                cut = longest
            # Bytes 10xxxxxx continue a character of UTF-8, which has at most four: do not cut before one.
            while cut > longest - 4 and pending[cut] & 0xC0 == 0x80:
                cut -= 1
            yield bytes(pending[:cut]) + b"\n"
            del pending[:cut]
    if pending:
        yield bytes(pending)


def _json_rows(rows: list[bytes], path: Path, first_line: int) -> Iterator[tuple[dict[str, Any], str]]:
    """Yields the objects of JSON lines, each with its file and line for messages."""
    for line_number, row in enumerate(rows, first_line):
        if row.strip():
            where = f"{str(path)!r}, line {line_number}"
            yield parse_json(row.decode(), where, half_pairs=True), where


def _line_ends(path: Path, end: int) -> int:
    """Counts the line ends in a file's first `end` bytes."""
    with open(path, "rb") as file:
        return sum(block.count(b"\n") for block in _chunks(file, _BLOCK_BYTES, end))


def _documents(rows: Iterable[tuple[dict[str, Any], str]], field: str) -> tuple[list[bytes], int]:
    """Reads the texts of documents.

    Args:
      rows: each document's object, and its file and line for messages.

    Returns:
      For each document the lines of its text and a blank line; and the number of undecodable bytes that were left out.
    """
    lines: list[bytes] = []
    dropped = 0
    for document, where in rows:
        text = document.get(field)
        if text is None and field in document:
            text = ""  # a document without a text, as scraped collections have
        if not isinstance(text, str):
            if field in document:
                raise UserError(f"{where}: field {field!r} is {type(text).__name__}, not a string")
            fields = ", ".join(sorted(document))
            raise UserError(f"{where}: no field {field!r} (there: {fields}); name the field that holds the text")
        encoded = text.encode("utf-8", "ignore")  # JSON can spell half a surrogate pair, UTF-8 cannot
        if not text.isascii():
            dropped += len(text.encode("utf-8", "surrogatepass")) - len(encoded)
        lines += [line for line in strip_lines(encoded.split(b"\n")) if line]
        lines.append(b"")  # ends the document
    return lines, dropped
