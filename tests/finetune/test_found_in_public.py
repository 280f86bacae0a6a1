"""Tables, tags and questions as people reported them with other programs: each is read as it is meant, or refused with
what to do."""

import csv
import datetime
import decimal
import json
import math
from pathlib import Path
from typing import Any

import pytest

from electra_tf2.files.cells import is_no_label, label_text
from electra_tf2.files.tables import open_table
from electra_tf2.finetune.tasks import labels
from electra_tf2.finetune.tasks.conll import tagged_lines
from electra_tf2.finetune.tasks.labels import classes_of, labelled_rows
from electra_tf2.finetune.tasks.qa_answer_fields import place_of
from electra_tf2.finetune.tasks.qa_files import read_questions
from electra_tf2.finetune.tasks.tagged_columns import TaggedColumns
from electra_tf2.finetune.tasks.tagged_files import read_sentences
from electra_tf2.finetune.tasks.tags import encoding_of, spelled_as_bioes
from electra_tf2.finetune.tasks.targets import Classes, Scale
from electra_tf2.finetune.tasks.text_files import TextExample
from electra_tf2.settings.built_in import TextSettings
from electra_tf2.util.errors import UserError


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [row for _, row in open_table(path).readable()]


@pytest.mark.parametrize("name", ["table", "table.txt", "table.data", "table.csv"])
@pytest.mark.parametrize("delimiter", [",", ";", "|", "\t"])
def test_a_delimited_table_is_read_whatever_it_is_called(tmp_path: Path, name: str, delimiter: str) -> None:
    path = tmp_path / name
    path.write_text(f'text{delimiter}label\n"a, b; c|d"{delimiter}x\nb{delimiter}y\n')
    first, second = rows_of(path)
    assert second == {"text": "b", "label": "y"} and first["label"] == "x"
    if delimiter != "\t":
        assert first["text"] == "a, b; c|d"


def test_a_text_with_tabs_in_its_first_line_is_no_csv(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("text, or not\tlabel\nb, c\ty\n")
    assert rows_of(path) == [{"text, or not": "b, c", "label": "y"}]


@pytest.mark.parametrize("delimiter", [",", ";", "|"])
def test_a_table_of_long_documents_is_read_whatever_it_is_called(tmp_path: Path, delimiter: str) -> None:
    """A part of the file is looked at, which ends within a row."""
    path = tmp_path / "table"
    document = "word of a text, or more " * 1000
    path.write_text(f"text{delimiter}label\n" + f'"{document}"{delimiter}x\n' * 8)
    assert [row["label"] for row in rows_of(path)] == ["x"] * 8


@pytest.mark.parametrize("value", [None, "", " ", "-", "nan", "NaN", "\\N", "<NA>", "NaT", "#N/A", float("nan")])
def test_labels_that_mean_none(value: Any) -> None:
    assert is_no_label(value)


@pytest.mark.parametrize("value", ["NA", "None", "null", "0", "-1", 0, False])
def test_labels_that_may_be_classes(value: Any) -> None:
    assert not is_no_label(value)


def examples(*values: Any) -> list[TextExample]:
    return [TextExample((f"text {number}",), label, where=f"line {number}") for number, label in enumerate(values)]


def test_labels_that_differ_in_case_alone_are_told(capsys: pytest.CaptureFixture) -> None:
    classes_of(examples("Good", "good", "bad", "Bad", "so-so"), "own", ())
    printed = " ".join(capsys.readouterr().err.split())
    assert "differ in case alone are different classes: 'Bad, bad; Good, good'. Write them alike" in printed


@pytest.mark.parametrize("value", [True, "TRUE", "True", " true "])
def test_truths_are_one_class_in_every_spelling(value: Any) -> None:
    """Excel writes TRUE, pandas True, JSON true."""
    assert label_text(value) == "true" and Classes(["false", "true"]).checked(value, "here") == "true"


def test_classes_that_are_numbers_stand_in_their_order() -> None:
    assert classes_of(examples("10", "2", "0", "-1"), "own", ()).names == ("-1", "0", "2", "10")


def test_labels_of_other_types_are_what_they_say() -> None:
    assert label_text(decimal.Decimal("1.00")) == "1" and label_text(datetime.date(2024, 5, 1)) == "2024-05-01"
    rows = examples("x", [], "y")
    kept, _ = labelled_rows(rows, "own", TextSettings(), None)
    assert [row.label for row in kept] == ["x", "y"]


def test_minus_one_is_no_label_where_the_training_data_have_no_such_class() -> None:
    rows, target = labelled_rows(examples("pos", "neg", -1), "own", TextSettings(), None)
    assert len(rows) == 2 and isinstance(target, Classes) and target.names == ("neg", "pos")
    counted = Classes(["0", "1"])
    assert len(labelled_rows(examples(0, 1, -1), "own", TextSettings(), counted)[0]) == 2
    signs = Classes(["+", "-"])
    assert len(labelled_rows(examples("-", "-"), "own", TextSettings(), signs)[0]) == 2
    three = Classes(["-1", "0", "1"])
    assert len(labelled_rows(examples(-1, 1), "own", TextSettings(), three)[0]) == 2
    tested = labels.test_rows(examples(-1, -1), "test", Classes(["-1", "1"]), keeps_all=False)
    assert [row.label for row in tested] == ["-1", "-1"]


@pytest.mark.parametrize("missing", ["n/a", "NA", "None", "?", "null"])
def test_what_is_no_number_is_no_label_of_a_regression(missing: str) -> None:
    numbers = TextSettings(value_range=(-math.inf, math.inf), range_of_data=True)
    kept, target = labelled_rows(examples("1", missing, "3.5"), "own", numbers, None)
    assert len(kept) == 2 and isinstance(target, Scale) and (target.low, target.high) == (1, 3.5)
    assert len(labelled_rows(examples("x", missing), "own", TextSettings(), None)[0]) == 2  # they may be classes


def test_several_labels_of_a_text_lead_to_a_task_in_python() -> None:
    with pytest.raises(UserError, match=r"line 0: one label is needed, got \['x', 'y'\].*own_tasks"):
        classes_of(examples(["x", "y"], "x"), "own", ())


@pytest.mark.parametrize(
    ("value", "name"),
    [("1.0", "1"), ("-1.0", "-1"), (1.0, "1"), (" 10.0 ", "10"), ("2.5", "2.5"), ("v1.0", "v1.0"), ("1.00", "1.00")],
)
def test_whole_numbers_that_pandas_wrote_as_floats_are_the_same_class(value: Any, name: str) -> None:
    """A column with gaps has 1.0 where another file of the same data has 1, in JSON as in csv, where cells are text."""
    assert label_text(value) == name


def test_a_label_in_a_list_of_its_own_is_the_label() -> None:
    """So does doccano write it."""
    assert classes_of(examples(["x"], ["y"], "x"), "own", ()).names == ("x", "y")


@pytest.mark.parametrize("value", ["3,5", "1,200", "-1,200.50"])
def test_numbers_with_commas_are_refused_with_what_to_write(value: str) -> None:
    with pytest.raises(UserError, match="has a comma: write decimals with a point"):
        Scale(0, 5, strict=False).checked(value, "line 1")
    with pytest.raises(UserError, match=r"must be a number, got .85%.$"):
        Scale(0, 5, strict=False).checked("85%", "line 1")


def test_columns_of_lists_in_one_object_are_a_data_frame(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"text": ["a", "b"], "label": ["x", "y"]}))
    with pytest.raises(UserError, match="a whole data frame in one JSON object"):
        open_table(path)
    path.write_text(json.dumps({"tokens": ["a", "b"], "tags": ["O", "O"], "id": 1}))
    assert rows_of(path)[0]["tokens"] == ["a", "b"]


# Tags.

_KAGGLE = "Sentence #,Word,POS,Tag\nSentence: 1,Thousands,NNS,O\n,London,NNP,B-geo\nSentence: 2,Iran,NNP,B-geo\n"
_SIMPLE = "sentence_id,words,labels\n0,Thousands,O\n0,London,B-geo\n1,Iran,B-geo\n"


@pytest.mark.parametrize("text", [_KAGGLE, _SIMPLE, _SIMPLE.replace(",", ";"), _SIMPLE.replace(",", "\t")])
@pytest.mark.parametrize("name", ["ner.csv", "ner.tsv"])
def test_tables_with_a_word_a_row(tmp_path: Path, text: str, name: str) -> None:
    if name == "ner.tsv":
        text = text.replace(",", "\t").replace(";", "\t")
    (tmp_path / name).write_text(text)
    sentences = read_sentences(tmp_path / name)
    assert [list(zip(one.words, one.tags, strict=True)) for one in sentences] == [
        [("Thousands", "O"), ("London", "B-geo")],
        [("Iran", "B-geo")],
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("word,tag\nAnn,B-PER\n", "a column sentence_id is needed"),
        ("sentence_id,word,tag\n1,Ann,\n", "ner.csv holds no sentences"),
        ("word,tag\nAnn,B-PER\n\nsaw,O\nNew York\n", "line 5: 1 columns, but 2 are expected"),
    ],
)
def test_bad_tables_of_words_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "ner.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        read_sentences(tmp_path / "ner.csv")


@pytest.mark.parametrize("columns", ["word,tag,ner", "tag,ner,word"])
def test_two_columns_of_tags_are_asked_about(tmp_path: Path, columns: str) -> None:
    """Whatever the layout, and not the first of them taken."""
    values = {"word": "Ann", "tag": "NNP", "ner": "B-PER"}
    row = ",".join(values[column] for column in columns.split(","))
    (tmp_path / "ner.csv").write_text(f"sentence_id,{columns}\n1,{row}\n")
    with pytest.raises(UserError, match=r"which tags are meant, (tag, ner|ner, tag)\? Name them by label_column"):
        read_sentences(tmp_path / "ner.csv")
    with pytest.raises(UserError, match="a column kind is needed: it has 'sentence_id, "):
        read_sentences(tmp_path / "ner.csv", columns=TaggedColumns(tags="kind"))


@pytest.mark.parametrize("text", ["sentence_id,word\n1,Ann\n1,saw\n", "sentence_id,word,tag\n1,Ann,\n1,saw,O\n"])
def test_rows_of_words_without_tags_can_be_tagged(tmp_path: Path, text: str) -> None:
    (tmp_path / "test.csv").write_text(text)
    [sentence] = read_sentences(tmp_path / "test.csv", tagged=False)
    assert sentence.words == ["Ann", "saw"] and len(sentence.tags) < 2


@pytest.mark.parametrize(
    ("words", "tags"),
    [
        ("['Ann', 'saw']", "['B-PER', 'O']"),  # as Python prints lists
        ("['Ann' 'saw']", "['B-PER'\n 'O']"),  # as numpy prints arrays
        ('["Ann", "saw"]', '["B-PER", "O"]'),
    ],
)
def test_a_csv_of_lists_that_pandas_wrote(tmp_path: Path, words: str, tags: str) -> None:
    path = tmp_path / "ner.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["tokens", "ner_tags"], [words, tags]])
    [sentence] = read_sentences(path)
    assert (sentence.words, sentence.tags) == (["Ann", "saw"], ["B-PER", "O"])


@pytest.mark.parametrize("header", ["", "word\ttag\n", "Token\tPOS\tNER\n"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_header_above_lines_of_words_and_tags(tmp_path: Path, header: str, line_end: str) -> None:
    middle = "\tNNP" if "POS" in header else ""
    text = f"{header}Ann{middle}\tB-PER\nsaw{middle}\tO\n\nBob{middle}\tB-PER\n".replace("\n", line_end)
    (tmp_path / "ner.tsv").write_bytes(text.encode())
    first, second = read_sentences(tmp_path / "ner.tsv")
    assert (first.words, first.tags, second.words) == (["Ann", "saw"], ["B-PER", "O"], ["Bob"])
    assert second.where.endswith(f"line {4 + bool(header)}")


@pytest.mark.parametrize(
    ("name", "text", "sentences"),
    [
        # Below a header blank lines divide sentences, whatever divides columns and wherever these stand.
        ("a.tsv", "word\tEntity\tpos\nAnn\tB-PER\tNNP\n\nBob\tO\tNN\n", [("Ann", "B-PER"), ("Bob", "O")]),
        ("a.csv", 'word,Entity\n"New York",B-LOC\n\nBob,B-PER\n', [("New York", "B-LOC"), ("Bob", "B-PER")]),
        ("a.tsv", "Entity\tword\nO\tAnn\n\t\nB-X\tBob\n", [("Ann", "O"), ("Bob", "B-X")]),
        # Lists, with blank lines between rows.
        ("a.tsv", "tokens\tEntity\n['Ann']\t['O']\n\n['Bob']\t['B-X']\n", [("Ann", "O"), ("Bob", "B-X")]),
        # Documents whose sentences are all the first; a sentence without its number; the text of the sentence.
        ("a.csv", "doc_id,sentence_id,word,Entity\nA,0,Ann,O\nB,0,Bob,B-X\n", [("Ann", "O"), ("Bob", "B-X")]),
        ("a.csv", "sentence,sent_id,word,Entity\nx,1,Ann,O\nx,2,Bob,O\n", [("Ann", "O"), ("Bob", "O")]),
        ("a.csv", "Sentence #,word,Entity\n1,Ann,O\nnan,saw,O\n2,Bob,O\n", [("Ann saw", "O O"), ("Bob", "O")]),
        # Signs of lists are words, too.
        ("a.csv", "sentence_id,word,Entity\n1,[,O\n1,Ann,B-X\n2,],O\n", [("[ Ann", "O B-X"), ("]", "O")]),
        ("a.csv", "sentence_id,word,Entity\n1,[sic],O\n1,[1],B-X\n", [("[sic] [1]", "O B-X")]),
        # A line end in a cell divides no sentences.
        ("a.csv", 'word,Entity,note\nAnn,O,"two\nlines"\nsaw,O,\n\nBob,O,\n', [("Ann saw", "O O"), ("Bob", "O")]),
        (
            "a.jsonl",
            '{"sent_id": 1, "word": "Ann", "Entity": "O"}\n{"sent_id": 2, "word": "Bob", "Entity": "O"}\n',
            None,
        ),
        ("a.jsonl", '{"tokens": ["in", 1995], "Entity": ["O", "O"]}\n', [("in 1995", "O O")]),
        ("a.jsonl", '{"words": "Ann saw", "Tokens": ["Ann", "saw"], "Entity": ["O", "O"]}', [("Ann saw", "O O")]),
        # A first token of three words, and one that is not written at all.
        ("a.conllu", "1-3\tx" + "\t_" * 8 + "\n1\tAnn\tx\tO" + "\t_" * 6 + "\n\n", [("Ann", "O")]),
        ("a.conllu", "0.1\tx" + "\t_" * 8 + "\n1\tAnn\tx\tO" + "\t_" * 6 + "\n\n", [("Ann", "O")]),
    ],
)
def test_layouts_of_tagged_words(tmp_path: Path, name: str, text: str, sentences: list[tuple[str, str]] | None) -> None:
    (tmp_path / name).write_text(text)
    label_column = "Entity" if "Entity" in text else ""
    read = read_sentences(tmp_path / name, columns=TaggedColumns(tags=label_column))
    shown = [(" ".join(sentence.words), " ".join(sentence.tags)) for sentence in read]
    assert shown == (sentences or [("Ann", "O"), ("Bob", "O")])
    assert all(sentence.where.startswith(f"{tmp_path / name}, ") for sentence in read)


@pytest.mark.parametrize(
    ("task", "columns", "tag"),
    [
        ("pos", "Sentence #,Word,POS,Tag", "NNP"),  # Kaggle's
        ("own", "Sentence #,Word,POS,Tag", "B-PER"),
        ("ner", "sentence_id,word,pos,ner", "B-PER"),
        ("own", "sent_id,form,upos,lemma", "NNP"),
    ],
)
def test_the_column_of_tags_is_the_tasks(tmp_path: Path, task: str, columns: str, tag: str) -> None:
    (tmp_path / "a.csv").write_text(f"{columns}\n1,Ann,NNP,B-PER\n")
    assert read_sentences(tmp_path / "a.csv", columns=TaggedColumns(task=task))[0].tags == [tag]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Sentence #,Sentence,Label\n1,of London,O\n", "columns of words and of their tags are needed"),
        ('sentence_id,word,tag\n1,",O\n1,London,O\n1,",O\n', "line 2: a word and a tag are needed"),
        ("word,tag\n,O\n\nBob,\n", "a.csv holds no sentences"),
    ],
)
def test_csv_files_are_not_read_as_lines(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        read_sentences(tmp_path / "a.csv")


def test_a_column_that_lines_cannot_have_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("Ann NNP B-PER\nsaw VBD O\n")
    with pytest.raises(UserError, match="label_column 'ner' is no name of a column"):
        read_sentences(tmp_path / "a.conll", columns=TaggedColumns(tags="ner"))


def test_a_row_of_lists_has_as_many_tags_as_words(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"tokens": ["a", "b"], "tags": []}')
    with pytest.raises(UserError, match="as many tags as words are needed"):
        read_sentences(tmp_path / "a.jsonl")
    assert read_sentences(tmp_path / "a.jsonl", tagged=False)[0].tags == []


@pytest.mark.parametrize("text", ["Ann O\nsaw O\nNew York B-LOC\n\n", "Ann\tO\nsaw O\nNew York\tB-LOC\n\n"])
def test_no_word_of_a_line_with_too_many_columns_is_lost(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text(text)
    with pytest.raises(UserError, match=r"line 3: 3 columns, but 2 are expected \(between tabs, words may hold"):
        read_sentences(path)
    assert read_sentences(path, as_original=True)[0].words == ["Ann", "saw", "New"]
    written = tagged_lines([(["Ann", "New\tYork"], ["B-a b", "O"])])
    path.write_text(written)
    assert read_sentences(path)[0][:2] == (["Ann", "New York"], ["B-a b", "O"])


def test_blanks_and_tabs_behind_a_tag_are_none(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("EU\tNNP\tB-ORG \nrejects\tVBD\tO\t\n\n")
    [sentence] = read_sentences(tmp_path / "a.txt")
    assert sentence.tags == ["B-ORG", "O"]


def test_line_ends_of_old_macs(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"EU B-ORG\rrejects O\r\rPeter B-PER\r")
    assert [sentence.words for sentence in read_sentences(tmp_path / "a.txt")] == [["EU", "rejects"], ["Peter"]]


def test_quotes_that_are_words(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """However far apart they stand: the csv module reads no cell of more than 131,072 characters by default."""
    (tmp_path / "a.tsv").write_text('"\tO\n' + "word\tO\n" * 30_000 + '"\tO\n\n"a"\tO\n')
    first, second = read_sentences(tmp_path / "a.tsv")
    assert (first.words[0], len(first.words), second.words) == ('"', 30_002, ['"a"'])
    assert not capsys.readouterr().err


def test_a_cell_in_quotes_may_be_longer_than_csvs_limit(tmp_path: Path) -> None:
    document = "word of a text\n" * 10_000
    (tmp_path / "a.tsv").write_text(f'text\tlabel\n"{document}"\tx\n')
    assert rows_of(tmp_path / "a.tsv") == [{"text": document, "label": "x"}]


def test_the_column_of_tags_that_is_named_is_read(tmp_path: Path) -> None:
    (tmp_path / "ner.csv").write_text("sentence_id,word,tag,Entity\n1,Ann,NNP,B-PER\n1,saw,VBD,O\n")
    [sentence] = read_sentences(tmp_path / "ner.csv", columns=TaggedColumns(tags="Entity"))
    assert sentence.tags == ["B-PER", "O"]
    (tmp_path / "ner.csv").write_text("sentence_id,word,Entity\n1,Ann,B-PER\n1,saw,O\n")
    [sentence] = read_sentences(tmp_path / "ner.csv", columns=TaggedColumns(tags="Entity"))
    assert sentence.tags == ["B-PER", "O"]


def test_a_column_of_lines_without_a_header_is_chosen_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("Peter NNP B-PER\nlives VBZ O\n\n#x RB O\n# NNP O\n")
    assert [one.tags for one in read_sentences(path, columns=TaggedColumns(tags="1"))] == [
        ["NNP", "VBZ"],
        ["RB", "NNP"],
    ]
    assert [one.tags for one in read_sentences(path)] == [["B-PER", "O"], ["O", "O"]]
    for column in ("0", "3"):
        with pytest.raises(UserError, match=f"label_column {column} is no column of tags: lines have 3 columns"):
            read_sentences(path, columns=TaggedColumns(tags=column))


def test_an_underscore_divides_letter_and_type_as_a_dash_does(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Ann B_PER\nLee I_PER\nsaw O\nRome B_LOC\n\n")
    sentences = read_sentences(tmp_path / "a.txt")
    assert spelled_as_bioes(sentences)[0].tags == ["B-PER", "I-PER", "O", "B-LOC"]
    assert encoding_of(sentences) == "BIO"


def test_numbered_words_of_conll_2003_have_the_tags_of_names_not_those_of_chunks(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1 EU NNP I-NP I-ORG\n2 rejects VBZ I-VP O\n\n1 Peter NNP I-NP I-PER\n\n")
    assert [one.tags for one in read_sentences(tmp_path / "a.txt")] == [["I-ORG", "O"], ["I-PER"]]


# Questions.


@pytest.mark.parametrize(
    ("answer", "context", "found"),
    [
        ("Ann's", "It is Ann\u2019s.", "Ann\u2019s"),
        ('"no"', "He said \u201cno\u201d.", "\u201cno\u201d"),
        ("1990-95", "in 1990\u201395 it", "1990\u201395"),
        ("Beyonc\u00e9", "by Beyonce\u0301 Knowles", "Beyonce\u0301"),
        ("Beyonce\u0301", "by Beyonc\u00e9 Knowles", "Beyonc\u00e9"),
        ("10 km", "some 10\u00a0km away", "10\u00a0km"),
        ("a  b", "x a\nb y", "a\nb"),
        ("art", "A part of art", "art"),
        ("Art", "art is Art", "Art"),
        ("elsewhere", "it is here", None),
        ("(1)", "see (1) there", "(1)"),
    ],
)
def test_an_answer_is_found_where_a_reader_finds_it(answer: str, context: str, found: str | None) -> None:
    place = place_of(answer, context)
    assert (place is None) == (found is None)
    if place is not None and found is not None:
        first, behind = place
        assert context[first:behind] == found
    if answer == "art":
        assert place == (len(context) - 3, len(context))


def test_a_single_answer_need_not_stand_in_a_list(tmp_path: Path) -> None:
    context = "It is in Houston."
    answer = {"text": "Houston", "answer_start": 9}
    squad = {
        "data": [{"paragraphs": [{"context": context, "qas": [{"id": 1, "question": "where?", "answers": answer}]}]}]
    }
    (tmp_path / "squad.json").write_text(json.dumps(squad))
    row = {"question": "where?", "context": context, "answer": answer}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    for name in ("squad.json", "rows.jsonl"):
        [question] = read_questions(tmp_path / name, v2=False, training=True)
        assert (question.answers, question.place) == (["Houston"], (9, 15))


@pytest.mark.parametrize(
    ("answer", "learned"),
    [
        ("[sic]", "[sic]"),
        ("{x", "{x"),
        ("[3]", "[3]"),
        (1995, "1995"),
        (1995.0, "1995"),
        ("1995.0", "1995"),
        (2.0, "2.0"),
        ("", None),
        (None, None),
    ],
)
def test_answers_that_look_like_something_else_are_texts(tmp_path: Path, answer: Any, learned: str | None) -> None:
    row = {"question": "what?", "context": "He wrote {x [sic] in 1995 [3] for 2.0 days.", "answer": answer}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    [question] = read_questions(tmp_path / "rows.jsonl", v2=True, training=True)
    assert (question.answer or None) == learned and question.is_impossible == (learned is None)


def test_an_answer_in_another_form_of_unicode_is_not_said_to_be_what_stands_there(tmp_path: Path) -> None:
    qas = [{"id": 1, "question": "who?", "answers": [{"text": "Beyonce\u0301", "answer_start": 0}]}]
    content = {"data": [{"paragraphs": [{"context": "Beyonc\u00e9 was.", "qas": qas}]}]}
    (tmp_path / "squad.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="stands in another form of Unicode"):
        read_questions(tmp_path / "squad.json", v2=False, training=True)
