"""Inputs that people have, through every reader of fine-tuning: formats by any name, folders with splits, layouts of
tagged words, answers in text without blanks, tables with the column names of `datasets`."""

import bz2
import csv
import gzip
import io
import json
import lzma
from collections.abc import Callable

import numpy as np
import pytest
from backports import zstd

from electra_tf2.corpus.corpus_reader import Corpus
from electra_tf2.files import table_files, tables
from electra_tf2.files.cells import cell
from electra_tf2.finetune.data_report import trained_on, unknown_of
from electra_tf2.finetune.mistakes import complaint
from electra_tf2.finetune.starts import configuration
from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.finetune.tasks.qa_files import read_questions
from electra_tf2.finetune.tasks.tagged_files import read_sentences
from electra_tf2.inference.labelling import open_rows, read_rows
from electra_tf2.util.errors import UserError
from tests.support import finetuning as support
from tests.support.finetuning import write_lines

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
TEXTS = ["the file is open", "a list of all", "a file, the list", "open it"]
ROWS = [{"text": text, "label": f"class {number % 2}"} for number, text in enumerate(TEXTS)]


def content_of(rows, suffix):
    """A table as the bytes of a file of this suffix."""
    if suffix in (".csv", ".tsv"):
        written = io.StringIO(newline="")
        writer = csv.DictWriter(written, list(rows[0]), delimiter="," if suffix == ".csv" else "\t")
        writer.writeheader()
        writer.writerows(rows)
        return written.getvalue().encode()
    if suffix == ".parquet":
        sink = arrow.BufferOutputStream()
        parquet.write_table(arrow.Table.from_pylist(rows), sink)
        return sink.getvalue().to_pybytes()
    if suffix == ".arrow":
        sink, table = arrow.BufferOutputStream(), arrow.Table.from_pylist(rows)
        with arrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return sink.getvalue().to_pybytes()
    if suffix == "list":
        return json.dumps(rows, indent=1).encode()
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


FILES: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    **{name: (f".{name.lower().rpartition('.')[2]}", bytes) for name in (
        "a.csv", "a.CSV", "a.tsv", "a.jsonl", "a.ndjson", "a.json", "a.parquet", "a.PARQUET", "a.arrow"
    )},
    "list.json": ("list", bytes),
    "no_suffix": (".jsonl", bytes),
    "list.data": ("list", bytes),
    "parquet.data": (".parquet", bytes),
    "lines.tsv": (".jsonl", bytes),  # whatever its name says
    "a.csv.gz": (".csv", gzip.compress),
    "a.jsonl.GZ": (".jsonl", gzip.compress),
    "a.tsv.bz2": (".tsv", bz2.compress),
    "a.json.xz": ("list", lzma.compress),
    "a.csv.zst": (".csv", zstd.compress),
}  # fmt: skip


def make(name="mine", described=None, **overrides):
    return support.task(None, name, described, **overrides)


def learner(path, **described):
    """A task of classification that learns from a file."""
    return make(described={"type": "classification", "held_out": 0, "files": {"train": str(path)}} | described)


def learned_texts(path):
    return [example.texts[0] for example in learner(path).load("train").examples]


def contrasted_texts(path):
    task = make(described={"type": "embedding", "files": {"train": str(path)}}, dropout=0.1)
    return [example.texts[0] for example in task.load("train").examples]


def answered_texts(path):
    task = make(described={"type": "classification", "labels": ["a", "b"]})
    _, read = read_rows(task, open_rows(str(path), task))
    if read.split is None:
        return []
    return [example.texts[0] for example in read.split.examples]


READERS = {"learned": learned_texts, "contrasted": contrasted_texts, "answered": answered_texts}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("reader", READERS)
def test_a_table_is_read_whatever_it_is_called(tmp_path, reader, name):
    content, packed = FILES[name]
    (tmp_path / name).write_bytes(packed(content_of(ROWS, content)))
    assert READERS[reader](tmp_path / name) == TEXTS


@pytest.mark.parametrize("reader", READERS)
def test_markup_is_no_text(tmp_path, reader):
    (tmp_path / "page").write_text('<doc id="12">\nA text.\n</doc>\n')
    with pytest.raises(UserError, match="page holds markup"):
        READERS[reader](tmp_path / "page")


def corpus_texts(path):
    """Texts that `electra build-data` reads of a corpus whose only file it is."""
    corpus = Corpus(str(path.parent))
    return [line.decode() for file in corpus.files() for block in corpus.read(file.name) for line in block.lines]


@pytest.mark.parametrize("reader", [*READERS, "corpus"])
@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"PK\x03\x04 and so on", r"a zip archive \(or a spreadsheet\)"),
        (gzip.compress(content_of(ROWS, ".jsonl")), "data compressed by gzip"),
        (content_of(ROWS, ".jsonl").decode().encode("utf-16-le"), r"NUL bytes, which no text has \(or UTF-16\)"),
        ("\n".join(["\u4eca\u5929\u5929\u6c14\u5f88\u597d"] * 9).encode("gbk"), "text that is not UTF-8"),
    ],
    ids=["zip", "gzip", "utf-16", "gbk"],
)
def test_what_is_no_text_is_named(tmp_path, reader, content, what):
    (tmp_path / "some.txt").write_bytes(content)
    with pytest.raises(UserError, match=f"some.txt('| is not UTF-8 text: it) holds {what}"):
        (READERS | {"corpus": corpus_texts})[reader](tmp_path / "some.txt")


@pytest.mark.parametrize(
    ("content", "advice"),
    [
        (b"PK\x03\x04 and so on", "a spreadsheet is saved as CSV UTF-8"),
        (content_of(ROWS, ".csv").decode().encode("utf-16"), "iconv -f UTF-16 -t UTF-8"),
        (gzip.compress(content_of(ROWS, ".jsonl")), "Unpack or convert it"),
    ],
    ids=["spreadsheet", "UTF-16", "packed"],
)
def test_files_of_spreadsheets_say_how_they_become_text(tmp_path, content, advice):
    (tmp_path / "some.csv").write_bytes(content)
    with pytest.raises(UserError, match=advice):
        tables.open_table(tmp_path / "some.csv")


def test_a_corpus_whose_lines_end_in_carriage_returns_is_refused(tmp_path):
    """Else it were one line: the original reads it so, too."""
    (tmp_path / "old.txt").write_bytes(b"one line\r\rand another\r")
    with pytest.raises(UserError, match="carriage returns alone"):
        corpus_texts(tmp_path / "old.txt")


@pytest.mark.parametrize("reader", READERS)
def test_a_quote_that_is_never_closed_swallows_no_rows(tmp_path, reader):
    write_lines(tmp_path / "a.csv", "label,text", 'x,"a ""good"" one', "y,another", "x,more")
    with pytest.raises(UserError, match=r"a\.csv, line 2: a cell in quotes does not end"):
        READERS[reader](tmp_path / "a.csv")
    write_lines(tmp_path / "a.csv", "label,text", "x,a", 'y,"one', 'more"')
    assert READERS[reader](tmp_path / "a.csv")[-1] == "one\nmore"


def test_two_quotes_that_are_never_closed_are_told(tmp_path, capsys):
    rows = ["a,x", '"b,y', *(f"c{number},x" for number in range(5)), 'd",y', "e,x"]
    path = write_lines(tmp_path / "a.csv", "text,label", *rows)
    assert len(list(tables.open_table(path).checked())) == 3
    warned = " ".join(capsys.readouterr().err.split())
    assert "line 3: a cell in quotes goes on to line 9, over lines that look like rows: is a quote missing?" in warned
    write_lines(path, "text,label", '"a poem,\nof lines\nwithout\nany rows",x')
    assert len(list(tables.open_table(path).checked())) == 1
    assert "a cell in quotes" not in capsys.readouterr().err


TABLES_WITH_QUOTES = {  # name, content, and the first two texts as who wrote them means them
    "pandas": ("a.tsv", 'text\tlabel\n"a ""good"" one"\tx\nit\ty\n', ['a "good" one', "it"]),
    "line ends": ("a.tsv", 'text\tlabel\n"a\nb"\tx\nit\ty\n', ["a\nb", "it"]),
    "tabs": ("a.tsv", 'text\tlabel\n"a\tb"\tx\nit\ty\n', ["a\tb", "it"]),
    "every cell": ("a.tsv", '"text"\t"label"\n"a"\t"x"\n"b"\t"y"\n', ["a", "b"]),
    "U+2028": ("a.tsv", '"text"\t"label"\n"a\u2028b"\t"x"\n"c"\t"y"\n', ["a\u2028b", "c"]),
    "text in quotes": ("a.tsv", 'text\tlabel\n"a"\tx\nb\ty\n', ['"a"', "b"]),
    "nothing in quotes": ("a.tsv", 'text\tlabel\n"a"\tx\n""\ty\n', ['"a"', '""']),
    "quotes in text": ("a.tsv", 'text\tlabel\n"a ""b"" c"\tx\nsay "no" to it\ty\n', ['"a ""b"" c"', 'say "no" to it']),
    "two that look like one": ("a.tsv", 'text\tlabel\n"a\tx\nb"\ty\n', ['"a', 'b"']),
    "Spark": ("a.csv", 'text,label\n"a \\"good\\" one, b",x\n"it\\\\",y\n', ['a "good" one, b', "it\\"]),
    "backslashes": ("a.csv", 'text,label\n"C:\\new",x\n"a ""b\\""",y\n', ["C:\\new", 'a "b\\"']),
    "inches": ("a.csv", 'text,label\n5" pipe,x\nit,y\n', ['5" pipe', "it"]),
}


@pytest.mark.parametrize("case", TABLES_WITH_QUOTES)
@pytest.mark.parametrize("reader", READERS)
def test_quotes_are_read_as_they_were_written(tmp_path, reader, case):
    name, content, texts = TABLES_WITH_QUOTES[case]
    (tmp_path / name).write_bytes(content.encode())
    assert READERS[reader](tmp_path / name) == texts


@pytest.mark.parametrize("reader", READERS)
def test_a_cell_that_goes_on_behind_its_quotes_is_not_mended(tmp_path, reader):
    write_lines(tmp_path / "a.csv", "text,label", "it,x", '"a" b,y')
    with pytest.raises(UserError, match=r"a\.csv, line 3: a cell goes on behind the quote that closes it"):
        READERS[reader](tmp_path / "a.csv")


@pytest.mark.parametrize("reader", READERS)
def test_quotes_that_may_be_text_are_told(tmp_path, reader, capsys):
    write_lines(tmp_path / "a.tsv", "text\tlabel", '"a list"\ty', '"it"\tx', '"the file"\ty')
    assert READERS[reader](tmp_path / "a.tsv")[0] == '"a list"'
    assert "quotes around its cells are taken for part of the texts" in capsys.readouterr().err


def test_rows_without_text_are_left_out_and_counted(tmp_path, capsys):
    """One empty cell in a table stops nobody's training, as one empty label does not."""
    write_lines(tmp_path / "a.csv", "text,label", "a,x", " ,y", "b,y", ",x", "c,x")
    assert learned_texts(tmp_path / "a.csv") == ["a", "b", "c"]
    told = " ".join(capsys.readouterr().err.split())
    assert "2 of 5 rows are left out, which have an empty text; the first:" in told and "a.csv, line 3" in told


CELLS = [  # field, value, what it means
    ("truth", "False", False), ("truth", "true", True), ("truth", "0", False), ("truth", 1, True),
    ("truth", "1.0", True), ("truth", "", None), ("truth", None, None), ("truth", float("nan"), None),
    ("whole", "23", 23), ("whole", 23.0, 23), ("list", "[1, 2]", [1, 2]), ("list", "['a', 'b']", ["a", "b"]),
    ("list", ["a"], ["a"]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "meaning"), CELLS)
def test_a_cell_has_the_type_of_its_field(kind, value, meaning):
    found = cell({"a": value}, "a", kind, "here")
    assert found == meaning and type(found) is type(meaning)


@pytest.mark.parametrize(
    ("kind", "value"), [("truth", "maybe"), ("truth", 2), ("whole", "2.5"), ("whole", True), ("list", "[a")]
)
def test_a_cell_of_another_type_is_named(kind, value):
    with pytest.raises(UserError, match=r"a\.csv, line 2: a\b"):
        cell({"a": value}, "a", kind, "a.csv, line 2")


@pytest.mark.parametrize(
    ("suffix", "labels"),
    [
        (".csv", ["pos", " pos", "neg", "neg "]),
        (".jsonl", ["caf\u00e9", "cafe\u0301", "b", "b"]),
        (".jsonl", [1, 1.0, 0.0, "0"]),
        (".parquet", [1.0, 1.0, 0.0, 0.0]),
    ],
    ids=["blanks", "accents", "numbers", "column with gaps"],
)
def test_a_label_is_the_same_however_it_is_written(tmp_path, suffix, labels):
    rows = [{"text": text, "label": label} for text, label in zip(TEXTS, labels, strict=True)]
    (tmp_path / f"a{suffix}").write_bytes(content_of(rows, suffix))
    task = learner(tmp_path / f"a{suffix}")
    found = [example.label for example in task.load("train").examples]
    assert found[0] == found[1] != found[2] == found[3] and len(task.label_names) == 2 and "." not in found[0]


def test_classes_that_differ_in_case_are_told(tmp_path, capsys):
    rows = [{"text": text, "label": label} for text, label in zip(TEXTS, ["pos", "Pos", "neg", "neg"], strict=True)]
    (tmp_path / "a.csv").write_bytes(content_of(rows, ".csv"))
    task = learner(tmp_path / "a.csv")
    task.load("train")
    assert task.label_names == ("Pos", "neg", "pos")
    assert "differ in case alone are different classes: 'Pos, pos'" in capsys.readouterr().err


def test_scores_of_what_is_trained_on_are_told(tmp_path):
    for split, rows in (("train", ROWS), ("dev", ROWS), ("test", [row | {"text": "a file, all"} for row in ROWS])):
        (tmp_path / f"{split}.csv").write_bytes(content_of(rows, ".csv"))
    files = {split: str(tmp_path / f"{split}.csv") for split in ("train", "dev", "test")}
    task = make(described={"type": "classification", "files": files})
    splits = {split: task.load(split) for split in files}
    assert trained_on(task, splits).startswith("100 % of dev are examples of the training data")
    assert trained_on(task, {"train": splits["train"], "test": splits["test"]}) == ""


@pytest.mark.parametrize(("repeated", "warned"), [(2, True), (1, False)])
def test_more_than_a_tenth_of_a_split_must_be_training_data_to_be_told(tmp_path, repeated, warned):
    rows = [{"text": f"the file {number}", "label": "ab"[number % 2]} for number in range(10)]
    others = [{"text": f"a line {number}", "label": "ab"[number % 2]} for number in range(10)]
    task = make(described={"type": "classification", "files": split_files(tmp_path, rows, rows[:repeated], others)})
    assert trained_on(task, {"train": task.load("train"), "dev": task.load("dev")}).startswith("20 % of dev") is warned


def test_texts_of_no_tokens_are_no_repetitions(tmp_path):
    rows = [{"text": f"the file {number}", "label": "ab"[number % 2]} for number in range(6)]
    empty = [{"text": "\u200b" * length, "label": "ab"[length % 2]} for length in (1, 2, 3, 4)]
    files = split_files(tmp_path, [*rows, empty[0]], empty, empty)
    task = make(described={"type": "classification", "files": files})
    splits = {split: task.load(split) for split in files}
    assert max(len(feature.input_ids) for feature in splits["dev"].features) == 2
    assert trained_on(task, splits) == ""


def split_files(folder, train, repeated, others):
    """Files of splits: training rows, and development rows of which some are among them."""
    (folder / "train.csv").write_bytes(content_of(train, ".csv"))
    (folder / "dev.csv").write_bytes(content_of([*repeated, *others[len(repeated) :]], ".csv"))
    return {split: str(folder / f"{split}.csv") for split in ("train", "dev")}


def test_unknown_tokens_are_told_with_their_characters(tmp_path):
    rows = [{"text": f"the file \u5929\u6c14 {number}", "label": "ab"[number % 2]} for number in range(4)]
    (tmp_path / "a.csv").write_bytes(content_of(rows, ".csv"))
    task = learner(tmp_path / "a.csv")
    said = unknown_of(task, [task.load("train")])
    assert "of the tokens are [UNK]" in said and "\u5929" in said and "Use a model of this language" in said
    rows = [row | {"text": "the file \U0001f600 \u2192"} for row in rows]
    (tmp_path / "a.csv").write_bytes(content_of(rows, ".csv"))
    task = learner(tmp_path / "a.csv")
    said = unknown_of(task, [task.load("train")])
    assert "of the tokens are [UNK]" in said and "\U0001f600" in said and "Use a model" not in said
    rows = [row | {"text": "the file is open"} for row in rows]
    (tmp_path / "a.csv").write_bytes(content_of(rows, ".csv"))
    task = learner(tmp_path / "a.csv")
    assert unknown_of(task, [task.load("train")]) == ""


@pytest.mark.parametrize("reader", ["contrasted", "answered"])
def test_a_table_called_text_is_not_taken_for_text(tmp_path, reader):
    write_lines(tmp_path / "a.txt", "id\ttext\tlabel", "1\tthe file\tx", "2\ta list\ty")
    with pytest.raises(UserError, match=r"a\.txt is a table by its tabs, not text: call it \.tsv"):
        READERS[reader](tmp_path / "a.txt")


# Folders.


def hub_folder(folder):
    """A data set as it lies in a hub's repository."""
    for split, number in (("train", 40), ("validation", 10), ("test", 6)):
        rows = [{"text": f"{split} film {n}", "label": "ab"[n % 2]} for n in range(number)]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{split}-00000-of-00001.parquet").write_bytes(content_of(rows, ".parquet"))
    return folder


def saved_folder(folder, left_over):
    """A folder of `save_to_disk`, and what a later map or shuffle left beside it."""
    folder.mkdir(parents=True)
    (folder / "data-00000-of-00001.arrow").write_bytes(content_of(ROWS, ".arrow"))
    (folder / "cache-3a4e449d247479e8.arrow").write_bytes(content_of(left_over, ".arrow"))
    write_lines(folder / "dataset_info.json", "{}")
    write_lines(folder / "state.json", json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    return folder


@pytest.mark.parametrize("left_over", [[{"text": "OTHER", "label": "x"}], [{"indices": 1}]], ids=["map", "shuffle"])
@pytest.mark.parametrize("reader", ["learned", "contrasted", "corpus"])
def test_of_a_saved_folder_what_its_state_lists_is_read(tmp_path, reader, left_over):
    folder = saved_folder(tmp_path / "set", left_over)
    if reader == "corpus":
        corpus = Corpus(str(folder))
        blocks = [block for file in corpus.files() for block in corpus.read(file.name)]
        assert [line.decode() for block in blocks for line in block.lines if line] == TEXTS
    else:
        assert READERS[reader](folder) == TEXTS
    (folder / "state.json").unlink()
    if reader != "corpus":
        assert READERS[reader](folder) == TEXTS


def test_splits_in_one_folder_are_told_apart(tmp_path):
    folder = hub_folder(tmp_path / "set" / "data")
    for given in (folder, folder.parent):
        config = configuration({"train_file": str(given), "model": "electra_mini"})
        task = make_tasks(config, support.tokenizer())[0]
        assert [len(task.load(split).examples) for split in ("train", "dev", "test")] == [40, 10, 6]
        assert task.load("dev").examples[0].texts == ("validation film 0",)
    one_file = str(folder / "validation-00000-of-00001.parquet")
    config = configuration({"train_file": str(folder), "dev_file": one_file, "model": "electra_mini"})
    assert len(make_tasks(config, support.tokenizer())[0].load("train").examples) == 40
    with pytest.raises(UserError, match="holds tables of several splits"):
        table_files.files_of(folder)
    assert len(contrasted_texts(folder)) == 40
    write_lines(tmp_path / "csv" / "train.csv", "text,label", "a,x", "b,y")
    write_lines(tmp_path / "csv" / "test.csv", "text,label", "c,x")
    assert learned_texts(tmp_path / "csv") == ["a", "b"]


# Columns.


HUGGING_FACE = {
    "cola": (["sentence", "label", "idx"], ["a file", "1", "0"], ("a file",), "1"),
    "sst": (["idx", "sentence", "label"], ["0", "a file", "0"], ("a file",), "0"),
    "mrpc": (["sentence1", "sentence2", "label", "idx"], ["a", "b", "1", "0"], ("a", "b"), "1"),
    "qqp": (["question1", "question2", "label", "idx"], ["a", "b", "0", "0"], ("a", "b"), "0"),
    "mnli": (["premise", "hypothesis", "label", "idx"], ["a", "b", "0", "0"], ("a", "b"), "entailment"),
    "qnli": (["question", "sentence", "label", "idx"], ["a", "b", "1", "0"], ("a", "b"), "not_entailment"),
    "sts": (["sentence1", "sentence2", "label", "idx"], ["a", "b", "2.5", "0"], ("a", "b"), 2.5),
    "boolq": (["question", "passage", "idx", "label"], ["a", "b", "0", "1"], ("a", "b"), "true"),
    "cb": (["premise", "hypothesis", "idx", "label"], ["a", "b", "0", "1"], ("a", "b"), "contradiction"),
}


@pytest.mark.parametrize("name", HUGGING_FACE)
@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_built_in_tasks_read_a_tables_header(tmp_path, name, suffix):
    header, row, texts, label = HUGGING_FACE[name]
    write_lines(
        tmp_path / name / f"train.{suffix}", *(("," if suffix == "csv" else "\t").join(one) for one in (header, row))
    )
    (example,) = make(name, raw_data_dir=str(tmp_path), double_unordered=False).load("train").examples
    assert (example.texts, example.label) == (texts, label)


def test_a_column_that_is_there_twice_is_not_chosen_from(tmp_path):
    write_lines(tmp_path / "a.csv", "text,text,label", "a,b,x", "c,d,y")
    with pytest.raises(UserError, match="the column 'text' is there twice"):
        learned_texts(tmp_path / "a.csv")
    write_lines(tmp_path / "a.csv", "text,label,label", "a,x,y", "c,y,x")
    with pytest.raises(UserError, match="the column 'label' is there twice"):
        tables.find_columns(tables.open_table(tmp_path / "a.csv"), ["text"], optional=["label"])
    write_lines(tmp_path / "a.csv", "text,note,note,label", "a,b,B,x", "c,d,D,y")
    assert learned_texts(tmp_path / "a.csv") == ["a", "c"]
    table = tables.open_table(tmp_path / "a.csv")
    assert next(table.rows).values == {"text": "a", "note": "b", "note_2": "B", "label": "x"}


# Tags.


def tagged(tmp_path, text, **given):
    path = tmp_path / "train.txt"
    path.write_bytes(text.encode())
    return [list(zip(one.words, one.tags, strict=True)) for one in read_sentences(path, **given)]


@pytest.mark.parametrize(
    "word", ["10\u00a0000", "a\x85b", "x\x1fy", "東\u3000京", "a\u2028b", "\u00a0", "\x85", "", "a b"]
)
def test_between_tabs_a_word_is_what_stands_there(tmp_path, word):
    assert tagged(tmp_path, f"{word}\tB-X\nto\tO\n\nb\tO\n") == [[(word, "B-X"), ("to", "O")], [("b", "O")]]
    write_lines(tmp_path / "ner" / "train.txt", f"{word}\tB-X", "to\tO", "")
    task = make("ner", raw_data_dir=str(tmp_path))
    split = task.load("train")
    tokens = len(split.features[0].input_ids)
    predictions = [{"logits": np.zeros([tokens, len(task.label_names)])}]
    (row,) = task.answers(split, predictions)
    assert row["words"] == [word, "to"]
    task.write_submission("dev", split, [row], tmp_path)
    assert [one.words for one in read_sentences(tmp_path / "ner_dev.txt")] == [[word, "to"]]


CONLL_U = """# sent_id = 1
# text = Vámonos al mar
1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tVamos\tir\tVERB\t_\t_\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\t_\t_\t1\tobj\t_\tSpaceAfter=No
2.1\tx\t_\t_\t_\t_\t_\t_\t_\t_
3\tmar\tmar\tNOUN\t_\t_\t1\tobl\t_\t_

"""
GERM_EVAL = "#\thttp://example.org/1 [2009-10-17]\n1\tSchartau\tB-PER\tO\n2\tsagte\tO\tO\n\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CONLL_U, [[("Vamos", "VERB"), ("nos", "PRON"), ("mar", "NOUN")]]),
        (GERM_EVAL, [[("Schartau", "B-PER"), ("sagte", "O")]]),
        ("-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\nis VBZ O O\n", [[("EU", "B-ORG"), ("is", "O")]]),
        ("EU\tB-ORG\r\nis\tO\r\n\r\nx\tO\r\n", [[("EU", "B-ORG"), ("is", "O")], [("x", "O")]]),
        ("# id 1\nEU\tB-ORG\n#\tO\n#tag\tO\n\n", [[("EU", "B-ORG"), ("#", "O"), ("#tag", "O")]]),
        ("# 1\nx O\n# O\n\n# 2\n# O\n#eu S-ORG\n", [[("x", "O"), ("#", "O")], [("#", "O"), ("#eu", "S-ORG")]]),
        ("# id = 1\nEU B-ORG\n# O\n \nx  O\n", [[("EU", "B-ORG"), ("#", "O")], [("x", "O")]]),
        ("1 O\n2 O\n\n", [[("1", "O"), ("2", "O")]]),
    ],
    ids=["CoNLL-U", "GermEval", "CoNLL-2003", "CRLF", "comments", "numbers", "blanks", "numbers are words"],
)  # fmt: skip
def test_layouts_of_tagged_words(tmp_path, text, expected):
    assert tagged(tmp_path, text) == expected


@pytest.mark.parametrize(
    ("tags", "learned"),
    [
        (["U-ORG", "B-LOC", "L-LOC"], ["S-ORG", "B-LOC", "E-LOC"]),
        (["b-org", "i-org", "o"], ["B-org", "E-org", "O"]),
        (["B-A", "M-A", "E-A"], ["B-A", "I-A", "E-A"]),
        (["B", "I", "O", "B"], ["B-_", "E-_", "O", "S-_"]),
        (["PER-B", "PER-I", "O"], ["B-PER", "E-PER", "O"]),
        (["O", "art-other", "art-other", "O", "O"], ["O", "B-art-other", "E-art-other", "O", "O"]),
        (["O", "B-per-i"], ["O", "S-per-i"]),
    ],
)
def test_encodings_of_spans(tmp_path, tags, learned):
    write_lines(tmp_path / "ner" / "train.txt", *(f"w{n}\t{tag}" for n, tag in enumerate(tags)), "")
    assert make("ner", raw_data_dir=str(tmp_path)).load("train").examples[0].labels == learned


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_tables_of_words_and_tags(tmp_path, suffix):
    rows = [{"id": "0", "tokens": ["EU", "is"], "ner_tags": [1, 0], "pos_tags": [0, 1]}]
    path = tmp_path / f"train{suffix}"
    path.write_bytes(content_of(rows, suffix))
    described = {"type": "tagging", "held_out": 0, "files": {"train": str(path)}}
    with pytest.raises(UserError, match="which tags are meant, ner_tags, pos_tags"):
        make(described=described).load("train")
    named = described | {"label_column": "ner_tags", "labels": ["O", "B-ORG"]}
    assert make(described=named).load("train").examples[0].labels == ["S-ORG", "O"]
    plain = described | {"label_column": "pos_tags", "spans": False}
    task = make(described=plain)
    task.load("train")
    assert task.label_names == ["0", "1"]


def test_tags_of_development_data_alone_count_as_wrong_and_are_told(tmp_path, capsys):
    write_lines(tmp_path / "pos" / "train.txt", "a X", "b Y", "")
    write_lines(tmp_path / "pos" / "dev.txt", "a X", "b Z", "")
    task = make("pos", raw_data_dir=str(tmp_path))
    split = task.load("dev")
    assert "labels of 1 word are not in the training data ('Z')" in " ".join(capsys.readouterr().err.split())
    assert split.features[0].labels["labels_mask"].tolist() == [1, 0]
    always_x = np.tile([1.0, 0.0], [9, 1])
    assert task.scores(split, [{"logits": always_x[:, : len(task.label_names)]}])["accuracy"] == 50


# Answers.


def squad_of_datasets(suffix):
    answers = [{"text": ["file"], "answer_start": [4]}, {"text": [], "answer_start": []}]
    rows = [
        {"id": str(n), "qid": "of others", "context": "the file is open", "question": "what?", "answers": answer}
        for n, answer in enumerate(answers)
    ]
    if suffix == "data":
        return json.dumps({"version": "2.0", "data": rows}).encode()
    if suffix == ".csv":
        rows = [row | {"answers": json.dumps(row["answers"])} for row in rows]
    return content_of(rows, suffix)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", "list", "data", ".csv"])
def test_questions_of_a_table(tmp_path, capsys, suffix):
    path = tmp_path / ("a.json" if suffix in ("list", "data") else f"a{suffix}")
    path.write_bytes(squad_of_datasets(suffix))
    for v2 in (True, False):
        described = {"type": "qa", "v2": v2, "held_out": 0, "files": {"train": str(path)}}
        split = make(described=described).load("train")
        answerable = [(one.question.answers, one.question.is_impossible) for one in split.examples]
        assert answerable == [(["file"], False), ([], True)][: 1 + v2]
        start, end = (split.features[0].labels[f"{name}_positions"] for name in ("start", "end"))
        assert support.tokenizer().readable(split.features[0].input_ids[start : end + 1]) == "file"
    assert "1 question without an answer left out" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_questions_to_learn_need_a_field_of_answers(tmp_path, capsys, suffix):
    rows = [{"question": "what?", "context": "the file is open", "reply": "file"}] * 2
    path = tmp_path / f"a{suffix}"
    path.write_bytes(content_of(rows, suffix))
    described = {"type": "qa", "v2": True, "held_out": 0, "files": {"train": str(path)}}
    with pytest.raises(UserError, match=r"no column 'answer'.*it has 'question, context, reply'\. Rename"):
        make(described=described).load("train")
    path.write_bytes(content_of([row | {"answers": ""} for row in rows], suffix))
    assert len(make(described=described).load("train").examples) == 2
    assert "no question has an answer" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("column", ["answer", "answer_text", "answers"])
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_an_answer_without_its_place_is_looked_for_in_the_context(tmp_path, capsys, suffix, column):
    """Tables of people have question, context and the answer's text; an empty one means that there is none."""
    context = "The profiles: the File is a  list, of one file."
    cases = [("file", 42), ("file is", 18), ("a list", 26), ("PROFILES", 4), ("fil", 7)]
    rows = [{"question": "what?", "context": context, column: answer} for answer, _ in cases]
    rows += [rows[0] | {column: ""}, rows[0] | {column: "elsewhere"}]
    path = tmp_path / f"a{suffix}"
    path.write_bytes(content_of(rows, suffix))
    unit = "row" if suffix == ".parquet" else "line"
    first_line = 1 if suffix in (".csv", ".tsv") else 0  # of the header
    questions = read_questions(path, v2=True, training=True)
    assert [question.place[0] for question in questions] == [place for _, place in cases] + [-1]
    assert [question.is_impossible for question in questions] == [False] * len(cases) + [True]
    missing = f"{path}: 1 question left out, since the answer is not in the context: "
    assert f"{missing}{unit} {len(rows) + first_line}: 'elsewhere' is not there" in capsys.readouterr().err
    task = make(described={"type": "qa", "held_out": 0, "files": {"train": str(path)}})
    assert len(task.load("train").examples) == len(cases) + 1 and task.state() == {"v2": True}
    path.write_bytes(content_of(rows[:3], suffix))
    task = make(described={"type": "qa", "held_out": 0, "files": {"train": str(path)}})
    task.load("train")
    assert task.state() == {"v2": False}
    asked = task.example(rows[0], "here", 0)
    assert (asked.text, asked.answers) == ("what?", [])


def test_answers_as_pandas_prints_arrays(tmp_path):
    found = "{'text': array(['file'], dtype=object), 'answer_start': array([4], dtype=int32)}"
    none = "{'text': array([], dtype=object), 'answer_start': array([], dtype=int64)}"
    rows = [{"context": "the file is open", "question": "what?", "answers": answers} for answers in (found, none)]
    path = tmp_path / "a.csv"
    path.write_bytes(content_of(rows, ".csv"))
    questions = read_questions(path, v2=True, training=True)
    assert [(question.answers, question.place) for question in questions] == [(["file"], (4, 7)), ([], (-1, -1))]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_a_table_without_questions_names_its_columns(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(content_of([{"Frage": "what?", "Context": "the file is open", "Answer": "file"}], suffix))
    message = r"line [12]: no column 'question'; it has 'Frage, Context, Answer'. Rename .* --text-column QUESTION,"
    with pytest.raises(UserError, match=message):
        read_questions(path, v2=True, training=True)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".json", ".parquet"])
def test_columns_of_questions_may_have_other_names(tmp_path, suffix):
    """In any case, as spreadsheets have them, or called as the user says, of training data as of new ones."""
    row = {"Frage": "what?", "Text": "the file is open", "Antwort": "file"}
    usual = {"Question": "what?", "Passage": "the file is open", "Answer": "file"}
    named = {"text_columns": ["Frage", "Text"], "label_column": "Antwort"}
    for rows, columns in (([row, row], named), ([usual, usual], {})):
        path = tmp_path / f"a{suffix}"
        path.write_bytes(content_of(rows, suffix))
        task = make(described={"type": "qa", "held_out": 0, "files": {"train": str(path)}} | columns)
        questions = [example.question for example in task.load("train").examples]
        assert [question.place for question in questions] == [(4, 7)] * 2
        assert len({question.id for question in questions}) == 2
        asked = task.example(rows[0], "here", 0)
        assert (asked.text, asked.paragraph.text, asked.answers) == ("what?", "the file is open", [])
        pair = task.example({"question": "who?", "context": "a file"}, "here", 0)  # as Python's pairs are read
        assert pair.text == "who?"
    path = tmp_path / "b.csv"
    path.write_bytes(content_of([{"Frage": "what?", "Text": "the file", "answer": "file"}], ".csv"))
    described = {"type": "qa", "held_out": 0, "files": {"train": str(path)}} | named
    with pytest.raises(UserError, match=r"line 2: no column 'Antwort'.* it has 'Frage, Text, answer'"):
        make(described=described).load("train")
    with pytest.raises(UserError, match=r"here: no field 'question' \(in training: 'Frage'\); it has 'Text'"):
        make(described={"type": "qa"} | named).example({"Text": "the file"}, "here", 0)
    with pytest.raises(UserError, match="text_columns must be two, of questions and of contexts"):
        make(described={"type": "qa", "text_columns": ["Frage"]})


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_what_is_wrong_in_columnar_files_is_said_in_a_line(tmp_path, suffix):
    texts = arrow.array(["a", "b"])
    zero_dates = arrow.array([-719528, 1], arrow.date32())
    no_text = arrow.array([b"\xff", b"b"], arrow.binary()).view(arrow.string())
    for names, columns, message in (
        (["text", "label", "label"], [texts, texts, texts], "the column 'label' is there twice"),
        (["text", "label", "day"], [texts, texts, zero_dates], "cannot be read"),
        (["text", "label"], [texts, no_text], "cannot be read"),
    ):
        path = tmp_path / f"a{suffix}"
        table = arrow.Table.from_arrays(columns, names=names)
        if suffix == ".parquet":
            parquet.write_table(table, path)
        else:
            with arrow.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table)
        with pytest.raises(UserError, match=message):
            list(tables.open_table(path).checked())


def test_questions_without_ids_in_several_files_stay_apart(tmp_path):
    row = {"id": "", "question": "what?", "context": "the file is open", "answer": "file"}
    (tmp_path / "data").mkdir()
    for number, rows in enumerate(([row, row], [row, row | {"id": "own"}]), start=1):
        (tmp_path / "data" / f"train-{number}.csv").write_bytes(content_of(rows, ".csv"))
    task = make(described={"type": "qa", "held_out": 0, "files": {"train": str(tmp_path / "data")}})
    assert [example.question.id for example in task.load("train").examples] == ["1-2", "1-3", "2-2", "own"]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_a_question_is_unanswerable_where_its_cell_says_so(tmp_path, suffix):
    """pandas writes "False", which is a text, and every text that is not empty is true."""
    found = {"text": ["file"], "answer_start": ["4"]}
    rows = [{"id": "a", "context": "the file is open", "question": "what?", "answers": json.dumps(found)}]
    rows = [rows[0] | {"is_impossible": "False"}, rows[0] | {"id": "b", "answers": "", "is_impossible": "True"}]
    rows.append(rows[0] | {"id": "c", "answers": str({"text": ["file"], "answer_start": [4]})})  # as Python prints it
    path = tmp_path / f"a{suffix}"
    path.write_bytes(content_of(rows, suffix))
    for training in (True, False):
        questions = read_questions(path, v2=True, training=training)
        assert [(one.answers, one.is_impossible) for one in questions] == [
            (["file"], False),
            ([], True),
            (["file"], False),
        ]
    path.write_bytes(content_of([rows[0] | {"is_impossible": "maybe"}], suffix))
    with pytest.raises(UserError, match="is_impossible must be true or false, got 'maybe'"):
        read_questions(path, v2=True, training=True)


# What is held out.


def test_no_text_is_on_both_sides_and_classes_keep_their_shares(tmp_path):
    texts = [f"text {n}" for n in range(100)]
    rows = [{"text": text, "label": "rare" if n % 10 == 0 else "common"} for n, text in enumerate(texts)]
    rows += [{"text": f" TEXT  {n}", "label": rows[n]["label"]} for n in range(0, 100, 2)]
    (tmp_path / "a.jsonl").write_bytes(content_of(rows, ".jsonl"))
    task = learner(tmp_path / "a.jsonl", held_out=0.2)
    train, dev = (task.load(split).examples for split in ("train", "dev"))
    norm = lambda part: {" ".join(one.texts[0].lower().split()) for one in part}  # noqa: E731
    assert not norm(train) & norm(dev) and norm(train) | norm(dev) == set(texts)
    assert len(dev) == 30 and sum(one.label == "rare" for one in dev) == 4


def test_a_perfect_score_on_one_class_is_no_collapse(tmp_path):
    write_lines(tmp_path / "cola" / "dev.csv", "sentence,label", "a,1", "b,1")
    task = make("cola", raw_data_dir=str(tmp_path))
    same = [{"logits": np.array([0.0, 1.0]), "predictions": np.array(1)}] * 2
    split = task.load("dev")
    assert complaint(split, task.answers(split, same)) is None
    write_lines(tmp_path / "cola" / "dev.csv", "sentence,label", "a,1", "b,0")
    task = make("cola", raw_data_dir=str(tmp_path))
    split = task.load("dev")
    assert "collapsed" in str(complaint(split, task.answers(split, same)))


def test_a_name_that_no_file_can_have(tmp_path):
    with pytest.raises(UserError, match=r"model 'x{50,}.* is no name and no path: the name is too long"):
        configuration({"model": "x" * 300, "data_dir": str(tmp_path)})


def test_what_follows_from_a_home_folder_is_expanded(tmp_path, monkeypatch):
    """Else the results of a model in "~" lay in a folder of that name."""
    monkeypatch.setenv("HOME", str(tmp_path))
    config = configuration({"model": "electra_mini", "data_dir": "~", "results_dir": "~"})
    paths = (config.data_dir, config.results_dir, config.results_txt, config.raw_data_dir, config.model_dir)
    assert all(path.startswith(str(tmp_path)) for path in paths), paths
