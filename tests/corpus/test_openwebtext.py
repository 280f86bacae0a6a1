"""OpenWebText's layout: archives of text files are read as streams, and build the records of the same plain text."""

import tracemalloc

import pytest

from electra_tf2.corpus import text_files
from electra_tf2.corpus.build import build, run_local
from electra_tf2.corpus.jobs import OPENWEBTEXT, BuildSettings, make_plan
from electra_tf2.corpus.record_metadata import verify
from electra_tf2.corpus.text_files import Corpus
from electra_tf2.util.errors import UserError
from tests.support import golden
from tests.support.corpora import write_archive
from tests.support.programs import run_program

VOCAB = golden.CHECKPOINT / "vocab.txt"


def settings(corpus, output):
    return BuildSettings(str(corpus), str(VOCAB), str(output), corpus_kind=OPENWEBTEXT)


@pytest.fixture
def data_dir(tmp_path):
    (tmp_path / "openwebtext").mkdir()
    (tmp_path / "vocab.txt").write_bytes(VOCAB.read_bytes())
    for number in range(2):
        texts = {f"{i:04}-x.txt": b"one document here %d\n\n\nits second part \xff\n" % i for i in range(20)}
        write_archive(tmp_path / "openwebtext" / f"urlsf_subset0{number}-1_data.xz", texts)
    return tmp_path


def test_each_file_is_a_document(data_dir):
    blocks = list(Corpus(str(data_dir / "openwebtext"), archives=True).read("urlsf_subset00-1_data.xz"))
    lines = [line for block in blocks for line in block.lines]
    assert lines[:3] == [b"one document here 0", b"its second part", b""]
    assert lines.count(b"") == 20
    assert sum(block.undecodable_bytes for block in blocks) == 20
    size = (data_dir / "openwebtext/urlsf_subset00-1_data.xz").stat().st_size
    assert sum(block.file_bytes for block in blocks) == size


def test_build_leaves_nothing_unpacked(data_dir):
    before = {path.name for path in data_dir.rglob("*")}
    words = ["--data-dir", str(data_dir), "--max-seq-length", "32", "--num-processes", "1"]
    run = run_program("build_openwebtext_pretraining_dataset.py", *words)
    assert run.returncode == 0, run.stderr
    assert verify(str(data_dir / "pretrain_tfrecords"), str(VOCAB)) == 40
    shown = run_program(
        "build_openwebtext_pretraining_dataset.py", "--output-dir", str(data_dir / "pretrain_tfrecords"), "--inspect=1"
    )
    assert shown.returncode == 0 and "one document here" in shown.stdout, shown
    new = {path.name for path in data_dir.rglob("*")} - before
    assert all(name.startswith(("pretrain_", "metadata")) for name in new), new


def test_damaged_and_missing_archives_are_named(data_dir):
    archive = data_dir / "openwebtext" / "urlsf_subset01-1_data.xz"
    archive.write_bytes(archive.read_bytes()[:-200])
    with pytest.raises(UserError, match=r"urlsf_subset01-1_data\.xz' is damaged"):
        build(make_plan(settings(data_dir / "openwebtext", data_dir / "records")), run_local(1))
    with pytest.raises(UserError, match="holds no urlsf_subset"):
        make_plan(settings(data_dir, data_dir / "records"))


def test_memory_does_not_follow_the_size_of_a_document(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "MAX_LINE_BYTES", 1 << 20)
    write_archive(tmp_path / "urlsf_subset00-1_data.xz", {"zeros": bytes(60 << 20), "text": b"words\nand more\n"})
    corpus = Corpus(str(tmp_path), archives=True)
    tracemalloc.start()
    raw_bytes, last = 0, [b""]
    for block in corpus.read("urlsf_subset00-1_data.xz"):
        raw_bytes, last = raw_bytes + block.raw_bytes, block.lines
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert raw_bytes >= 60 << 20 and last[-3:] == [b"words", b"and more", b""]
    assert peak < 24 << 20, f"{peak >> 20} MB"
