"""Files of a corpus whose names say little, and places where a corpus may be divided."""

import dataclasses
import gzip
import io
import json
import re
import subprocess
from pathlib import Path

import pyarrow.parquet
import pytest

from electra_tf2.corpus import jobs
from electra_tf2.corpus.corpus_reader import Corpus
from electra_tf2.corpus.record_metadata import record_files
from electra_tf2.files.table_files import splits_of
from electra_tf2.util.errors import UserError
from tests.support import golden


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


def test_documents_without_a_text_are_empty(tmp_path: Path) -> None:
    """Collections of scraped pages have null for the text of some."""
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"text": null}\n{"text": "b"}\n')
    table = pyarrow.table({"text": ["c", None, "d"]})
    pyarrow.parquet.write_table(table, tmp_path / "b.parquet")
    assert lines_of(tmp_path) == [b"a", b"b", b"c", b"d"]
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"txt": "b"}\n')
    with pytest.raises(UserError, match="line 2: no field 'text'"):
        lines_of(tmp_path)


@pytest.mark.parametrize("name", ["wiki_00", "wiki.txt"])
def test_wikiextractors_files_are_refused_with_what_to_do(tmp_path: Path, name: str) -> None:
    article = '<doc id="12" url="u" title="A">\nA\n\nB is.\n\n</doc>\n'
    (tmp_path / name).write_text(article * 2)
    with pytest.raises(UserError, match=r"WikiExtractor.*run it with --json") as error:
        lines_of(tmp_path)
    (command,) = re.findall(r"(sed .*)$", str(error.value))
    done = subprocess.run(command, shell=True, input=article * 2, capture_output=True, text=True, check=True)
    (tmp_path / name).write_text(done.stdout)
    lines = [line for block in Corpus(str(tmp_path)).read(name) for line in block.lines]
    assert lines == [b"A", b"", b"B is.", b"", b"", b"A", b"", b"B is.", b"", b""]


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


NO_DATA = (
    *("{}~", "#{}#", "{}.bak", "{}.orig", "{}.part", "{}.crdownload"),  # of editors and downloads
    *(".{}", "._{}", ".#{}", "Thumbs.db", "desktop.ini", "__MACOSX"),  # hidden, of macOS, Emacs and Windows
    *("_SUCCESS", "_metadata", "_common_metadata", "_committed_12", "_started_12"),  # of Spark, Dask and Databricks
)


def fill(folder: Path, name: str, content: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in NO_DATA:
        (folder / pattern.format(name)).write_text(content)
    (folder / name).write_text(content)
    return folder


def test_every_reader_of_a_folder_passes_over_what_is_no_data(tmp_path: Path) -> None:
    corpus = Corpus(str(fill(tmp_path / "corpus", "a.txt", "A text.\n")), recursive=True)
    assert [file.name for file in corpus.files()] == ["a.txt"]
    table = fill(tmp_path / "table", "train.csv", "text,label\na,b\n")
    assert splits_of(table) == {"train": [table / "train.csv"]}
    records = fill(tmp_path / "records", "pretrain_data.tfrecord-0-of-1", "")
    assert record_files(f"{records}/*") == [str(records / "pretrain_data.tfrecord-0-of-1")]
    with pytest.raises(UserError, match=rf"^{records} is a folder: name the records in it, .*/pretrain_data\."):
        record_files(str(records))


@pytest.mark.parametrize("recursive", [False, True])
def test_what_is_written_and_the_vocabulary_lie_outside_of_the_corpus(tmp_path: Path, recursive: bool) -> None:
    """Else a vocabulary is trained on, as records are by the next build."""
    folder = fill(tmp_path / "corpus", "a.txt", "A text.\n")
    (folder / "below").mkdir()
    (tmp_path / "link").symlink_to(folder)
    corpus = Corpus(str(folder), recursive=recursive)
    for path in (folder / "vocab.txt", tmp_path / "link" / "vocab.txt"):
        with pytest.raises(UserError, match=r"--vocab-file '.*vocab.txt' lies in the corpus directory"):
            corpus.refuse_inside("--vocab-file", path)
    for path in (tmp_path / "vocab.txt", folder / ".hidden" / "vocab.txt", folder / ".vocab.txt"):
        corpus.refuse_inside("--vocab-file", path)
    settings = jobs.BuildSettings(str(folder), str(golden.CHECKPOINT / "vocab.txt"), str(folder / "below" / "records"))
    settings = dataclasses.replace(settings, recursive=recursive)
    if recursive:
        with pytest.raises(UserError, match=r"--output-dir .* lies in the corpus directory"):
            jobs.make_plan(settings)
    else:
        assert jobs.make_plan(settings).jobs
    with pytest.raises(UserError, match=r"--output-dir .* lies in the corpus directory"):
        jobs.make_plan(dataclasses.replace(settings, output_dir=str(folder)))
