"""Corpus files in every format they may have, whole, damaged and odd."""

import bz2
import gzip
import json
import lzma
import tarfile
from typing import Any

import pytest
from backports import zstd
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from electra_tf2.corpus import corpus_reader
from electra_tf2.corpus.corpus_reader import Corpus
from electra_tf2.files import content
from electra_tf2.files.content import no_text
from electra_tf2.util.errors import UserError

TEXT = "first line\nsecond line é\n\nother document 中国\n".encode()
LINES = ["first line", "second line é", "", "other document 中国"]
COMPRESS = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd.compress,
}


def write(path, data):
    path.write_bytes(data.encode("utf-8") if isinstance(data, str) else data)
    return path


def lines_of(path, **options):
    return [line.decode("utf-8") for block in read_blocks(path, **options) for line in block.lines]


def read_blocks(path, block_bytes=1 << 20, **options):
    return Corpus(str(path.parent), **options).read(path.name, block_bytes=block_bytes)


def names(folder, **options):
    return [file.name for file in Corpus(str(folder), **options).files()]


def test_files_are_found_sorted(tmp_path):
    for name in ["b.txt", "a.txt.gz", "C", "wiki_00", ".hidden.txt", "d.jsonl.zst"]:
        write(tmp_path / name, b"x")
    (tmp_path / "deeper").mkdir()
    write(tmp_path / "deeper" / "a.txt", b"x")
    (tmp_path / ".git").mkdir()
    write(tmp_path / ".git" / "config", b"x")
    assert names(tmp_path) == ["C", "a.txt.gz", "b.txt", "d.jsonl.zst", "wiki_00"]
    assert names(tmp_path, recursive=True) == ["C", "a.txt.gz", "b.txt", "d.jsonl.zst", "deeper/a.txt", "wiki_00"]


@pytest.mark.parametrize(
    "name", ["corpus.tar.xz", "records.tfrecord", "table.npz", "dump.json", "all.zip", "a.txt.lz4"]
)
def test_a_file_that_is_not_text_is_refused(tmp_path, name):
    write(tmp_path / name, b"x")
    with pytest.raises(UserError, match=name):
        names(tmp_path)


def test_links_to_folders_are_followed(tmp_path):
    corpus, elsewhere = tmp_path / "corpus", tmp_path / "elsewhere"
    elsewhere.mkdir()
    write(elsewhere / "a.txt", b"text\n")
    corpus.mkdir()
    (corpus / "wiki").symlink_to(elsewhere)
    assert [file.name for file in Corpus(str(corpus), recursive=True).files()] == ["wiki/a.txt"]
    (elsewhere / "again").symlink_to(corpus)
    with pytest.raises(UserError, match=r"again' is a link to a folder that it lies in"):
        Corpus(str(corpus), recursive=True).files()
    (corpus / "b.txt").symlink_to(tmp_path / "gone")
    with pytest.raises(UserError, match=r"b\.txt' is a link to nothing"):
        names(corpus)


def test_an_archive_is_not_read_as_text(tmp_path):
    write(tmp_path / "member.txt", b"text\n")
    with tarfile.open(tmp_path / "urlsf_subset00.xz", "w:xz") as archive:
        archive.add(tmp_path / "member.txt", "member.txt")
    with pytest.raises(UserError, match=r"urlsf_subset00\.xz' holds a tar archive"):
        lines_of(tmp_path / "urlsf_subset00.xz")


@pytest.mark.parametrize("name", ["a.txt", "wiki_00", "a.txt.gz"])
@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b'{"text": "a document"}\n{"text": "another"}\n', "JSON"),
        (b'\xef\xbb\xbf[{"text": "a document"},\n', "JSON"),
        (b'{\n  "text": "a document"\n}\n', "JSON"),
        (b'{"text": "' + b"word " * 20_000 + b'"}', "JSON"),
        (b'<doc id="12" url="x" title="Anarchism">\nAnarchism is\n', "what WikiExtractor writes"),
        (b'<mediawiki xml:lang="en">\n<page>\n', "markup"),
        (b"PK\x03\x04 and so on", "a zip archive"),
        (gzip.compress(b"text"), "data compressed by gzip"),
        ("text".encode("utf-16"), "UTF-16 text"),
    ],
)
def test_content_that_is_plainly_no_text_is_refused(tmp_path, name, content, what):
    path = write(tmp_path / name, gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(UserError, match=rf"{name}' holds {what}"):
        lines_of(path)


@pytest.mark.parametrize(
    "text", ["{ a set }", "[1] a note", "{}", "<b>bold</b> words", '"quoted"', "<document> he said"]
)
def test_text_that_begins_with_a_sign_is_text(tmp_path, text):
    assert lines_of(write(tmp_path / "a.txt", text)) == [text]


def test_a_short_text_with_a_byte_that_is_not_utf_8_is_text(tmp_path):
    """It is left out and counted, as in a long text."""
    (block,) = read_blocks(write(tmp_path / "a.txt", "caf\u00e9".encode("latin-1")))
    assert (block.lines, block.undecodable_bytes) == ([b"caf"], 1)


def test_an_empty_corpus_is_explained(tmp_path):
    with pytest.raises(UserError, match=r"nowhere' does not exist"):
        names(tmp_path / "nowhere")
    with pytest.raises(UserError, match="holds no text files; put"):
        names(tmp_path)
    (tmp_path / "below").mkdir()
    with pytest.raises(UserError, match="holds no text files at its top level"):
        names(tmp_path)
    write(tmp_path / "a.txt", b"")
    with pytest.raises(UserError, match="all 1 files in it have no content"):
        names(tmp_path)
    with pytest.raises(UserError, match=r"a\.txt' is a file"):
        names(tmp_path / "a.txt")


@pytest.mark.parametrize("suffix", COMPRESS)
def test_every_compression(tmp_path, suffix):
    path = write(tmp_path / f"corpus.txt{suffix}", COMPRESS[suffix](TEXT))
    assert lines_of(path) == LINES
    blocks = list(read_blocks(path, block_bytes=16))
    assert sum(block.raw_bytes for block in blocks) == len(TEXT)
    assert sum(block.file_bytes for block in blocks) == path.stat().st_size
    # Archives may be written one after the other.
    write(path, COMPRESS[suffix](TEXT) + COMPRESS[suffix](TEXT))
    assert lines_of(path) == LINES * 2
    assert lines_of(write(path, b"")) == lines_of(write(path, COMPRESS[suffix](b""))) == []


@pytest.mark.parametrize("suffix", [suffix for suffix in COMPRESS if suffix])
@pytest.mark.parametrize("damage", ["truncated", "garbage", "flipped"])
def test_a_damaged_archive_is_named(tmp_path, suffix, damage):
    data = COMPRESS[suffix](b"".join(b"line %d\n" % number for number in range(20000)))
    if damage == "truncated":
        data = data[: len(data) // 2]
    elif damage == "garbage":
        data = b"this is no archive\n" * 10
    else:
        middle = len(data) // 2
        data = data[:middle] + bytes(255 - byte for byte in data[middle : middle + 40]) + data[middle + 40 :]
    path = write(tmp_path / f"corpus.txt{suffix}", data)
    if damage == "flipped" and suffix == ".zst":
        path.write_bytes(data[:4] + b"\xff" * 8 + data[12:])  # without a checksum only the structure shows damage
    with pytest.raises(UserError, match=rf"corpus\.txt\{suffix}' is damaged"):
        list(read_blocks(path))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary() | st.text(alphabet="ab \n\r\té中\u3000\x1c\xa0").map(str.encode), size=st.integers(1, 40))
def test_blocks_do_not_show_in_the_lines(tmp_path, data, size):
    path = write(tmp_path / "corpus.txt", data)
    assume(not no_text(data) and (b"\r" not in data.strip() or b"\n" in data))
    assume(data.strip() not in content._ANSWERS)
    blocks = list(read_blocks(path, block_bytes=max(size, 3)))
    # What the original does with a file: one line after the other, decoded without the bytes that are not UTF-8.
    rows = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not rows[-1]:
        rows.pop()
    expected = [row.decode("utf-8", "ignore").strip() for row in rows]
    assert [line.decode("utf-8") for block in blocks for line in block.lines] == expected
    kept = sum(len(row.decode("utf-8", "ignore").encode()) for row in rows)
    assert sum(block.undecodable_bytes for block in blocks) == sum(map(len, rows)) - kept


def test_a_line_without_end_is_cut_at_blanks(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_reader, "MAX_LINE_BYTES", 20)
    words = [f"é{number}中" for number in range(50)]
    path = write(tmp_path / "long.txt", " ".join(words))
    lines = lines_of(path, block_bytes=7)
    assert " ".join(lines).split() == words
    assert max(len(line.encode()) for line in lines) <= 20
    assert lines_of(path, block_bytes=64) == lines
    assert "".join(lines_of(write(path, "中" * 50), block_bytes=8)) == "中" * 50


@pytest.mark.parametrize("suffix", COMPRESS)
def test_json_lines(tmp_path, suffix):
    documents = [{"text": "one\n\n two \u3000\n", "id": 1}, {"text": ""}, {"text": "中\ud800国"}]
    data = "\n".join(json.dumps(document) for document in documents).encode() + b"\n\n"
    path = write(tmp_path / f"c.jsonl{suffix}", COMPRESS[suffix](data))
    for size in (5, 1 << 20):
        blocks = list(read_blocks(path, block_bytes=size))
        assert [line.decode() for block in blocks for line in block.lines] == ["one", "two", "", "", "中国", ""]
        assert sum(block.undecodable_bytes for block in blocks) == 3
    assert lines_of(write(tmp_path / "d.ndjson", '{"body": "a"}'), text_field="body") == ["a", ""]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"text": "unfinished', "not valid JSON"),
        ('{"body": "a", "id": 3}', r"no field 'text' \(there: body, id\)"),
        ('["a"]', r"a JSON object is needed"),
        ('{"text": 3}', "field 'text' is int"),
    ],
)
def test_json_that_cannot_be_used_is_named_with_its_line(tmp_path, row, message):
    path = write(tmp_path / "c.jsonl", '{"text": "a"}\n{"text": "b"}\n' + row)
    with pytest.raises(UserError, match=rf"c\.jsonl', line 3: {message}"):
        lines_of(path, block_bytes=10)
    with pytest.raises(UserError, match=rf"c\.jsonl', line 3: {message}"):  # of a part that begins at the second line
        list(Corpus(str(tmp_path)).read("c.jsonl", start=14, end=path.stat().st_size))


def test_files_are_closed(tmp_path, recwarn):
    for suffix, compress in COMPRESS.items():
        blocks: Any = read_blocks(write(tmp_path / f"c{suffix}", compress(TEXT)), block_bytes=4)
        next(blocks)
        blocks.close()
        del blocks
    assert not [warning for warning in recwarn if warning.category is ResourceWarning]


def test_what_cannot_be_read_is_named(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied", str(args[0]))

    path = write(tmp_path / "a.txt", "text")
    with monkeypatch.context() as patch, pytest.raises(UserError, match=r"a\.txt' cannot be read: permission denied"):
        patch.setattr("builtins.open", refuse)
        lines_of(path)
    monkeypatch.setattr(corpus_reader.os, "scandir", refuse)  # as for a folder below that nobody may read
    with pytest.raises(UserError, match=r"corpus directory .* cannot be read: permission denied"):
        names(tmp_path)
