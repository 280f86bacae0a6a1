"""Files of a corpus whose names say little, and places where a corpus may be divided."""

import gzip
import io
import json
from pathlib import Path

import pytest

from electra_tf2.corpus import jobs
from electra_tf2.corpus.text_files import Corpus
from electra_tf2.util.errors import UserError


def lines_of(folder: Path) -> list[bytes]:
    corpus = Corpus(str(folder))
    return [line for file in corpus.files() for block in corpus.read(file.name) for line in block.lines if line]


def test_json_lines_are_read_under_the_name_json(tmp_path: Path) -> None:
    """C4's files are called so."""
    rows = "".join(json.dumps({"text": f"text {n}"}) + "\n" for n in range(3)).encode()
    (tmp_path / "c4.00000.json.gz").write_bytes(gzip.compress(rows))
    (tmp_path / "d.json").write_bytes(rows)
    assert lines_of(tmp_path) == [b"text 0", b"text 1", b"text 2"] * 2
    assert Corpus(str(tmp_path)).boundary("d.json") == "line"
    (tmp_path / "d.json").write_text(json.dumps([{"text": "a"}]))
    with pytest.raises(UserError, match="give each document a line"):
        lines_of(tmp_path)


def test_copies_beside_a_file_are_passed_over_and_told(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for name in ("a.txt", "a.txt~", "#a.txt#", "a.txt.bak", "a.txt.part"):
        (tmp_path / name).write_text("some text\n")
    assert lines_of(tmp_path) == [b"some text"]
    assert "4 copies of files are passed over" in " ".join(capsys.readouterr().out.split())


def test_a_long_line_that_ends_in_blanks_is_no_blank_line() -> None:
    """It would end a document in its middle."""
    long = b"x" + b" " * (3 * jobs._SCAN_BYTES) + b"\n"
    text = b"first\n" + long + b"goes on\n\nnext\n"
    assert text[jobs._next_boundary(io.BytesIO(text), "blank line") :] == b"next\n"
