"""Files in and out, and columns of tables: whatever is wrong with one is a UserError that names it."""

import csv
import gzip
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from electra_tf2.files import table_files, tables
from electra_tf2.files.reading import parse_json, read_json, read_json_lines, read_text
from electra_tf2.files.writing import (
    append_json_line,
    encoded_output,
    keep_steps,
    replacing,
    write_atomically,
    write_json,
)
from electra_tf2.util.errors import UserError, shown
from tests.support.finetuning import write_lines


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON: Expecting value at line 1, column 1"),
        (b'{"a": 1,\n "b": }', "at line 2, column 7, near"),
        (b"\xff\xfe{}", "is not UTF-8 text (byte 0xff in line 1)"),
        (b"[1]", "a JSON object is needed, got [1]"),
        (b"null", "a JSON object is needed, got None"),
        (b'{"a": ' + b"9" * 400 + b"}", "an integer of 400 digits (9999999999...) is beyond any use"),
        (b'{"a": ' + b"-" + b"9" * 5000 + b"}", "an integer of 5001 digits"),
        (b'{"a": ' + b"[" * 65 + b"]" * 65 + b"}", "nested more than 64 deep"),
        (b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested more than 64 deep"),
        (b'{"a": "\\ud800"}', "holds half of a surrogate pair"),
        (b'{"\\udc00b": 1}', "holds half of a surrogate pair"),
    ],
    ids=lambda value: shown(value, 30),
)
def test_a_file_that_is_no_object_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "hparams.json"
    path.write_bytes(content)
    with pytest.raises(UserError) as error:
        read_json(path, "--hparams")
    assert message in str(error.value)
    assert f"--hparams{':' if 'UTF-8' in message else ''} {path}" in str(error.value)
    assert len(str(error.value)) < 300 + len(str(path))


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    paths: list[tuple[Path | str, str]] = [
        (tmp_path / "none", f"vocabulary: there is no file {tmp_path / 'none'}"),
        (tmp_path, "it is a folder"),
        (tmp_path / "file" / "below", "a part of its path is a file, not a folder"),
        ("nul\0", "the path holds a NUL character"),
        ("/dev/full", "/dev/full is a device, not a file"),
        (tmp_path / ("a" * 300), "the name is too long"),
    ]
    for path, message in paths:
        with pytest.raises(UserError) as error:
            read_text(path, "vocabulary")
        assert message in str(error.value)


def test_a_pipe_is_read_as_a_file(tmp_path: Path) -> None:
    """As shells make one of <(command)."""
    read, write = os.pipe()
    os.write(write, b"[PAD]")
    os.close(write)
    assert read_text(f"/dev/fd/{read}", "vocabulary") == "[PAD]"
    os.close(read)


def test_what_is_legal_passes(tmp_path: Path) -> None:
    value: Any = {"pair": "😀", "escape": "\\ud800 spelt out", "big": 10**299, "deep": [[[]]] * 40, "one": 1}
    path = tmp_path / "value.json"
    path.write_text("\ufeff" + json.dumps(value), encoding="utf-8")
    assert read_json(path, "value") == value
    assert parse_json('"\\ud800"', "corpus", str, half_pairs=True) == "\ud800"
    assert parse_json(b"[2]", "list", list) == [2]


def test_lines_are_numbered_and_a_cut_one_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"a": 1}\n\n{"a": "\u2028"}\n{"a"')
    assert list(read_json_lines(path, "metrics", cut=True)) == [(1, {"a": 1}), (3, {"a": "\u2028"})]
    with pytest.raises(UserError, match=r"metrics .*lines\.jsonl, line 4: not valid JSON"):
        list(read_json_lines(path, "metrics"))


def test_metrics_keep_the_lines_up_to_a_step_and_nothing_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "train_metrics.jsonl"
    append_json_line(path, {"step": 10, "loss": 1.5})
    kept = path.read_bytes()
    path.write_bytes(kept + b'null\n{"loss": 1}\n{"step": "x"}\n\xff\n{"step": 20, "loss": 1}\n{"step": 1')
    keep_steps(path, 10)
    assert path.read_bytes() == kept


def test_what_cannot_be_written_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "folder").mkdir()
    for path, message in [
        (tmp_path / "file" / "below.json", "a file stands where a folder is needed"),
        (tmp_path / "folder", "it is a folder"),
    ]:
        for write in (write_json, append_json_line):
            with pytest.raises(UserError) as error:
                write(path, {})
            assert str(error.value).startswith(f"cannot write {path}: ")
        assert message in str(error.value)
    with pytest.raises(UserError, match="cannot write "):
        write_atomically(tmp_path / "file", "\ud800")
    assert (tmp_path / "file").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_the_same_output_is_the_same_file_whenever_it_is_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    files = []
    for year in (1, 2):
        with monkeypatch.context() as patched:
            patched.setattr(time, "time", iter([year * 3e7] * 9).__next__)
            files.append(encoded_output("answers.csv.gz", "text,label\n"))
    assert files[0] == files[1] and gzip.decompress(files[0]) == b"text,label\n"
    assert encoded_output("answers.csv", "text,label\n") == b"text,label\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a device that is always full")
def test_a_full_disk_is_called_one(tmp_path: Path) -> None:
    (tmp_path / "metrics").symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"cannot write .*metrics: the disk is full"):
        append_json_line(tmp_path / "metrics", {"step": 1})


def test_a_new_file_may_be_read_by_whom_the_umask_lets(tmp_path: Path) -> None:
    """Some libraries give what they write to its owner alone."""
    with replacing(tmp_path / "weights") as temporary:
        temporary.unlink()
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT, 0o600))
    (tmp_path / "plain").write_text("")
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(list(tmp_path.iterdir())) == 2 and len(modes) == 1


def test_what_a_killed_writer_left_goes_with_the_next_write_and_what_others_write_stays(tmp_path: Path) -> None:
    path = tmp_path / "scores [1].json"
    ended = f"{socket.gethostname()}-4999999.tmp"  # a number that no process has
    kept = {path.name, f"{path.name}.{socket.gethostname()}-{os.getppid()}.tmp", f"scores 1.json.{ended}"}
    kept |= {f"{path.name}.notes.tmp", f"{path.name}.another-host-4999999.tmp"}
    for name in (*kept, f"{path.name}.{ended}"):
        (tmp_path / name).write_text("{")
    write_json(path, {"accuracy": 0.5})
    assert {one.name for one in tmp_path.iterdir()} == kept
    assert json.loads(path.read_text()) == {"accuracy": 0.5}


def test_every_column_keeps_a_name_of_its_own(tmp_path: Path) -> None:
    (row,) = tables.open_table(write_lines(tmp_path / "a.csv", "a,a,a_2", "1,2,3")).rows
    assert list(row.values.values()) == ["1", "2", "3"] and row.values["a_2"] == "3"  # the file's own a_2


@pytest.mark.parametrize(("column", "found"), [(0, "1"), (-1, "3"), (-3, "1"), (3, None), (-4, None)])
def test_columns_are_counted_from_either_end(tmp_path: Path, column: int, found: str | None) -> None:
    table = tables.open_table(write_lines(tmp_path / "a.csv", "1,2,3"), header=False)
    if found is None:
        with pytest.raises(UserError, match=f"3 columns, but column {column} is needed"):
            tables.find_columns(table, [column])
    else:
        names = tables.find_columns(table, [column])
        assert names is not None and [row.values[names[0]] for row in table.rows] == [found]


@pytest.mark.parametrize("tabs", [1, 2])
def test_lines_with_one_tab_are_text_and_with_more_a_table(tmp_path: Path, tabs: int) -> None:
    lines = ["\t".join([word] * (tabs + 1)) for word in ("word", "other")]
    path = write_lines(tmp_path / "a.txt", *lines)
    if tabs == 1:
        table = tables.open_table(path, parse_line=lambda line: {"text": line})
        assert [row.values["text"] for row in table.rows] == lines
    else:
        with pytest.raises(UserError, match="is a table by its tabs"):
            tables.open_table(path, parse_line=lambda line: {"text": line})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "sep=;\ntext;label\na, b;x\nc;y\n"),  # tells Excel the delimiter
        ("a.csv", 'text, label\n"a, b", "x"\nc, y\n'),  # typed, with blanks
        ("a.csv", 'text,label\n"a, b", "x"\nc, y\n'),
        ("a.csv", 'text,label\r"a, b",x\rc,y\r'),  # Excel's "CSV (Macintosh)"
        ("a.tsv", "text\tlabel\ra, b\tx\rc\ty\r"),
        ("a.jsonl", '{"text": "a, b", "label": "x"}\r{"text": "c", "label": "y"}\r'),
        ("a.csv", 'text,label\n"a, b",x\n   \nc,y\n \n'),  # lines of blanks
        ("a.tsv", "\n\ntext\tlabel\na, b\tx\n\nc\ty\n  \n"),
        ("a.csv", 'text,label\r\n"a, b",x\r\nc,y\r\n'),
    ],
    ids=["sep", "blanks", "blanks before quotes", "Mac", "Mac tsv", "Mac JSON", "lines of blanks", "tsv", "Windows"],
)
def test_tables_as_spreadsheets_and_people_write_them(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode())
    table = tables.open_table(path)
    assert [row for _, row in table.readable()] == [{"text": "a, b", "label": "x"}, {"text": "c", "label": "y"}]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_a_cell_may_be_as_long_as_a_book(tmp_path: Path, name: str) -> None:
    """The csv module of Python refuses more than 131,072 characters."""
    csv.field_size_limit(131_072)
    delimiter = "," if name == "a.csv" else "\t"
    book = '"to be, or not to be" ' * 20_000
    with open(tmp_path / name, "w", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows([["text", "label"], [book, "x"]])
    assert [row.values for row in tables.open_table(tmp_path / name).rows] == [{"text": book, "label": "x"}]


def test_blanks_and_quotes_within_cells_are_text(tmp_path: Path) -> None:
    rows = [["text", "label"], [' a "b"', "x"], ["c , d", " y "], ['he said, "no", and', "x"], [' "q"', "y"]]
    with open(tmp_path / "a.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    assert [[*row.values.values()] for row in tables.open_table(tmp_path / "a.csv").rows] == rows[1:]


def test_cells_that_mean_missing_elsewhere_are_texts(tmp_path: Path) -> None:
    """pandas takes them for missing values."""
    rows = [["NA", "None"], ["null", "nan"], ["N/A", "NULL"]]
    path = write_lines(tmp_path / "a.csv", "text,label", *(",".join(row) for row in rows))
    assert [[*row.values.values()] for row in tables.open_table(path).rows] == rows


def test_lines_are_read_one_at_a_time_and_counted_from_one(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\n\xff\n")
    lines = table_files.read_lines(path)
    assert [next(lines), next(lines)] == ["one\r\n", "two\n"]  # without the byte order mark
    with pytest.raises(UserError, match=r"a\.jsonl, line 3: this is not UTF-8 text"):
        next(lines)


def test_an_object_over_several_lines_is_called_one_and_a_damaged_line_is_not(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", *json.dumps({"text": "a", "label": "b"}, indent=2).split("\n"))
    with pytest.raises(UserError, match="is one JSON object over several lines: an object a line is needed"):
        list(tables.open_table(path).readable())
    for damaged in ("{", '{"text": 3'):
        write_lines(path, '{"text": "a"}', damaged)
        with pytest.raises(UserError, match=r"a\.jsonl, line 2: not valid JSON"):
            list(tables.open_table(path).readable())


@pytest.mark.parametrize("orient", ["columns", "index", "split", "table"])
def test_a_data_frame_in_one_object_is_answered_by_how_pandas_writes_rows(tmp_path: Path, orient: str) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["a", "b"], "label": ["x", "y"]})
    frame.to_json(tmp_path / "a.json", orient=orient)
    with pytest.raises(UserError, match=r"a\.json holds a whole data frame .* orient='records', lines=True"):
        tables.open_table(tmp_path / "a.json")
    frame.to_json(tmp_path / "a.json", orient="records", lines=True)
    rows = [row.values for row in tables.open_table(tmp_path / "a.json").rows]
    assert rows == [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]


@pytest.mark.parametrize("comment", ["# exported on Monday", "#exported", "# text, label", "// exported"])
def test_a_comment_above_the_header_is_named(tmp_path: Path, comment: str) -> None:
    table = tables.open_table(write_lines(tmp_path / "a.csv", comment, "text,label", "a,x"))
    with pytest.raises(UserError, match=r"a\.csv, line 1: .* is a comment: the first line must name the columns"):
        tables.find_columns(table, ["text"])


def test_a_column_of_numbers_may_be_called_by_their_sign(tmp_path: Path) -> None:
    table = tables.open_table(write_lines(tmp_path / "a.csv", "#,text", "1,a"))
    with pytest.raises(UserError, match="has no column 'label'"):
        tables.find_columns(table, ["label"])
