"""Texts that Git and servers leave in the place of a file: one look inside, one message, whichever reader opens it."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from electra_tf2.corpus.corpus_reader import Corpus
from electra_tf2.corpus.record_metadata import read_metadata
from electra_tf2.corpus.records import RecordFormat, count_records, read_batches
from electra_tf2.corpus.vocabulary import load_tokens, load_vocab, vocab_sha256
from electra_tf2.exports.saved_model import load_saved
from electra_tf2.files import table_files, tables
from electra_tf2.files.reading import read_bytes, read_json, read_json_lines, read_text
from electra_tf2.finetune.tasks.qa_files import read_questions
from electra_tf2.finetune.tasks.tagged_files import read_sentences
from electra_tf2.formats.stored_weights import TensorFlowCheckpoint
from electra_tf2.formats.tensor_file import read_tensors
from electra_tf2.papers.counts import read_table
from electra_tf2.util.errors import UserError

POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 54000000\n"
)
SUBSTITUTES = {
    "pointer": (POINTER, "a pointer of Git LFS"),
    "login": ("\n <!DOCTYPE html>\n<html><title>Sign in</title>\n", "a web page"),
    "error of a store": ('\ufeff<?xml version="1.0"?>\n<Error><Code>AccessDenied</Code></Error>\n', "a web page"),
    "answer of GitHub": ("404: Not Found", "a web page or another answer of a server"),
    "answer of a hub": ("Entry not found\n", "a web page or another answer of a server"),
}


def read_corpus(path: Path, **options: Any) -> Any:
    return list(Corpus(str(path.parent), **options).read(path.name))


def read_tables_rows(path: Path) -> Any:
    return list(tables.open_table(path).readable())


def read_checkpoint(path: Path) -> Any:
    """A prefix is given, and the other one of its two files is there."""
    prefix = str(path).partition(".")[0]
    for ending in ("index", "data-00000-of-00001"):
        Path(f"{prefix}.{ending}").touch()
    return TensorFlowCheckpoint(prefix)


READERS: dict[str, tuple[str, Any]] = {
    "text": ("a.txt", lambda path: read_text(path, "--text")),
    "compressed text": ("a.txt.gz", lambda path: read_text(path, "--text")),
    "bytes": ("a", lambda path: read_bytes(path, "--predict")),
    "JSON": ("config.json", lambda path: read_json(path, "--hparams")),
    "JSON lines": ("a.jsonl", lambda path: list(read_json_lines(path, "--pairs"))),
    "vocabulary": ("vocab.txt", load_vocab),
    "checksum of a vocabulary": ("vocab.txt", vocab_sha256),
    "tokenizer": ("tokenizer.json", load_tokens),
    "csv": ("a.csv", read_tables_rows),
    "compressed csv": ("a.csv.bz2", read_tables_rows),
    "tsv": ("a.tsv", read_tables_rows),
    "table of JSON": ("a.jsonl", read_tables_rows),
    "table without a known name": ("a", read_tables_rows),
    "parquet": ("a.parquet", read_tables_rows),
    "Arrow": ("a.arrow", read_tables_rows),
    "lines of a table": ("a.jsonl", lambda path: list(table_files.read_lines(path))),
    "tagged words": ("a.conll", lambda path: read_sentences(path, tagged=True)),
    "questions": ("a.json", lambda path: list(read_questions(path, v2=True, training=True))),
    "corpus": ("a.txt", read_corpus),
    "compressed corpus": ("a.txt.xz", read_corpus),
    "corpus of JSON lines": ("a.jsonl.zst", read_corpus),
    "corpus of parquet": ("a.parquet", read_corpus),
    "archive of OpenWebText": ("urlsf_subset00.xz", lambda path: read_corpus(path, archives=True)),
    "number of records": ("pretrain_data.tfrecord-0-of-1", count_records),
    "records": ("pretrain_data.tfrecord-0-of-1", lambda path: list(read_batches(path, RecordFormat(8, 100)))),
    "metadata of records": ("metadata.json", lambda path: read_metadata(path.parent)),
    "counts": ("pmi.npz", lambda path: read_table(str(path), "pmi_table", "pmi", "vocab.txt")),
    "safetensors": ("model.safetensors", read_tensors),
    "index of a checkpoint": ("model.index", read_checkpoint),
    "data of a checkpoint": ("model.data-00000-of-00001", read_checkpoint),
    "SavedModel": ("saved_model.pb", lambda path: load_saved(path.parent)),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("substitute", SUBSTITUTES)
def test_every_reader_names_what_stands_in_a_files_place(tmp_path: Path, reader: str, substitute: str) -> None:
    name, read = READERS[reader]
    content, what = SUBSTITUTES[substitute]
    (tmp_path / name).write_bytes(content.encode())
    with pytest.raises(UserError, match=f"{name} holds {what}"):
        read(tmp_path / name)


def test_a_page_that_was_sent_compressed_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"<html><title>Sign in</title>"))
    with pytest.raises(UserError, match=r"a\.csv\.gz holds a web page"):
        read_tables_rows(path)


@pytest.mark.parametrize("text", ["version https://git", "<htmlx> a", "Not Found is a film", "404: Not Found\nnever"])
def test_texts_that_begin_alike_are_texts(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    assert read_text(tmp_path / "a.txt", "--text") == text
    assert [line.decode() for block in read_corpus(tmp_path / "a.txt") for line in block.lines] == text.split("\n")
