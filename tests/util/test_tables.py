"""Parquet and Arrow files, and folders as Hugging Face's `datasets` saves them, as tasks and as corpus."""

import json

import pytest

from electra_tf2.corpus.corpus_reader import Corpus
from electra_tf2.files.columnar import read_columnar
from electra_tf2.finetune.starts import configuration
from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.util.errors import UserError
from tests.support import finetuning as support
from tests.support.finetuning import write_lines

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
ROWS = [{"text": f"the file {n}", "label": n % 2, "id": n} for n in range(2500)]
FEATURES = {"text": {"dtype": "string", "_type": "Value"}, "label": {"names": ["bad", "good"], "_type": "ClassLabel"}}


def table(rows, named=True):
    """With what `datasets` writes into a schema."""
    described = {b"huggingface": json.dumps({"info": {"features": FEATURES}}).encode()} if named else None
    return arrow.Table.from_pylist(rows).replace_schema_metadata(described)


def save(path, rows=ROWS, kind="stream", named=True):
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "parquet":
        parquet.write_table(table(rows, named), path, row_group_size=700)
        return path
    of_kind = {"stream": arrow.ipc.new_stream, "file": arrow.ipc.new_file}[kind]
    content = table(rows, named)
    with arrow.OSFile(str(path), "wb") as sink, of_kind(sink, content.schema) as writer:
        writer.write_table(content, max_chunksize=1100)
    return path


def save_folder(folder, rows=ROWS):
    """A folder of `Dataset.save_to_disk`, in two files."""
    half = len(rows) // 2
    for number, part in enumerate((rows[:half], rows[half:])):
        save(folder / f"data-{number:05}-of-00002.arrow", part)
    for name in ("dataset_info.json", "state.json"):
        write_lines(folder / name, json.dumps({"features": FEATURES} if name.startswith("d") else {}))
    return folder


@pytest.mark.parametrize("kind", ["parquet", "stream", "file"])
def test_rows_of_all_kinds(tmp_path, kind):
    path = save(tmp_path / ("a.parquet" if kind == "parquet" else "a.arrow"), kind=kind)
    rows = list(read_columnar(path))
    assert rows == [row | {"label": ["bad", "good"][n % 2]} for n, row in enumerate(ROWS)]
    assert list(read_columnar(path, ["id", "none"])) == [{"id": n} for n in range(2500)]
    hidden = save(tmp_path / "b" / path.name, [{"text": "a", "label": -1}], kind)
    assert list(read_columnar(hidden)) == [{"text": "a", "label": None}]
    plain = save(tmp_path / "c" / path.name, ROWS[:2], kind, named=False)
    assert [row["label"] for row in read_columnar(plain)] == [0, 1]
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(UserError, match=r"a\.(parquet|arrow) cannot be read"):
        list(read_columnar(path))


@pytest.mark.parametrize("metadata", ["{}", '{"info": null}', '{"info": {"features": null}}', "[1]"])
def test_metadata_of_other_programs_have_no_names_of_classes(tmp_path, metadata):
    content = table(ROWS[:2], named=False).replace_schema_metadata({b"huggingface": metadata.encode()})
    parquet.write_table(content, tmp_path / "a.parquet")
    assert list(read_columnar(tmp_path / "a.parquet")) == ROWS[:2]


def test_columnar_files_that_cannot_be_read_are_named(tmp_path):
    content = table(ROWS[:2], named=False).replace_schema_metadata({b"huggingface": b"{cut"})
    parquet.write_table(content, tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a\.parquet: its metadata `huggingface` is no JSON"):
        list(read_columnar(tmp_path / "a.parquet"))
    with pytest.raises(UserError, match=r"a\.parquet\.gz: unpack it"):
        list(read_columnar(tmp_path / "a.parquet.gz"))


def test_a_folder_of_datasets_is_a_task(tmp_path):
    for split, rows in (("train", ROWS[:60]), ("validation", ROWS[60:70]), ("test", ROWS[70:75])):
        save_folder(tmp_path / "reviews" / split, rows)
    write_lines(tmp_path / "reviews" / "dataset_dict.json", "{}")
    config = configuration({"train_file": str(tmp_path / "reviews"), "model": "electra_mini"})
    task = make_tasks(config, support.tokenizer())[0]
    assert [len(task.load(split).examples) for split in ("train", "dev", "test")] == [60, 10, 5]
    assert task.state() == {"labels": ["bad", "good"]} and task.load("dev").examples[0].texts == ("the file 60",)
    assert [path.suffix for path in task.files_of("train")] == [".arrow", ".arrow"]


def test_parquet_lies_where_other_files_do_and_says_which_row_is_wrong(tmp_path):
    config = support.config("own", tasks={"own": {"type": "classification"}}, raw_data_dir=str(tmp_path))
    task = make_tasks(config, support.tokenizer())[0]
    path = save(tmp_path / "own" / "train.parquet", kind="parquet")
    assert len(task.load("train").examples) == 2250 and len(task.load("dev").examples) == 250
    save(path, [{"text": 3, "label": 0}, {"text": 4, "label": 1}], "parquet")
    with pytest.raises(UserError, match=r"train\.parquet, row 1: text must be text, got 3"):
        make_tasks(config, support.tokenizer())[0].load("train")


def test_a_corpus_of_tables(tmp_path):
    folder = save_folder(tmp_path / "train", [{"text": f"one {n}\n\n two "} for n in range(1200)])
    save(folder / "more.parquet", [{"text": "a \u00e9"}], "parquet")
    corpus = Corpus(str(folder))
    names = [file.name for file in corpus.files()]
    assert names == ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow", "more.parquet"]
    assert all(corpus.boundary(name) is None for name in names)
    blocks = [list(corpus.read(name)) for name in names]
    lines = [line for of_file in blocks for block in of_file for line in block.lines]
    assert lines[:4] == [b"one 0", b"two", b"", b"one 1"] and lines[-2:] == ["a \u00e9".encode(), b""]
    assert len(lines) == 3602
    for file, of_file in zip(corpus.files(), blocks, strict=True):
        assert sum(block.file_bytes for block in of_file) == file.size
    with pytest.raises(UserError, match=r"row 1: no field 'body'"):
        list(Corpus(str(folder), text_field="body").read("more.parquet"))
