"""Texts with marked spans, as programs for annotation export them, become words with tags."""

import json
import re
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from electra_tf2.corpus.tokenization import joined
from electra_tf2.finetune.mistakes import errors_of
from electra_tf2.finetune.tasks import signs
from electra_tf2.finetune.tasks.conll import split_words
from electra_tf2.finetune.tasks.marked_texts import split_at_signs
from electra_tf2.finetune.tasks.tagged_columns import TaggedColumns
from electra_tf2.finetune.tasks.tagged_files import read_sentences
from electra_tf2.finetune.tasks.tagging_windows import TaggedSentence
from electra_tf2.finetune.tasks.tags import with_all_positions
from electra_tf2.inference.labelling import open_rows, read_rows
from electra_tf2.inference.scores_of_file import Answered, report_on_file
from electra_tf2.util.errors import UserError
from tests.support import finetuning as support

TEXT = "🙂 Anna Schmidt, of Berlin-Mitte."
SPANS = [(2, 14, "PER"), (19, 25, "LOC")]
WORDS = ["🙂", "Anna", "Schmidt", ",", "of", "Berlin", "-", "Mitte", "."]
TAGS = ["O", "B-PER", "I-PER", "O", "O", "B-LOC", "O", "O", "O"]


def objects(in_utf16: bool = False, **names: str) -> list[dict[str, Any]]:
    """The spans as objects, called as `names` says; in_utf16: places as JavaScript counts them."""
    shift = 1 if in_utf16 else 0
    keys = {"start": "start", "end": "end", "label": "label"} | names
    spans = []
    for start, end, kind in SPANS:
        values = {"start": start + shift, "end": end + shift, "label": kind}
        spans.append({"text": TEXT[start:end]} | {keys[key]: value for key, value in values.items()})
    return spans


def label_studio(spans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = [{"type": "choices", "value": {"choices": ["good"]}}, {"type": "relation"}]
    for span in spans:
        result.append({"type": "labels", "value": span | {"labels": [span.pop("label")]}})
    return [{"was_cancelled": True, "result": []}, {"result": result}]


def test_marked_texts_are_scored_on_the_answers_that_are_written():
    """A tagger of words between blanks reads `Paris?` as a word, where the marked span is `Paris`."""
    task = support.task(Path("nowhere"), "ner", tasks={"ner": {"type": "tagging", "spans": True}})
    task.target = sorted(with_all_positions({"S-LOC"}))
    text = "Where is Paris?"
    marked = joined(["Where", "is", "Paris", "?"])._replace(text=text, starts=np.array([0, 6, 9, 14], np.int32))
    gold = task.encode([TaggedSentence(marked, ["O", "O", "S-LOC", "O"])], "dev")
    answered = task.encode([TaggedSentence(split_words(text), None)], "new")
    for end, f1 in ((15, 0.0), (14, 100.0)):
        answers = [{"entities": [{"start": 9, "end": end, "type": "LOC"}]}]
        assert task.scores_of_answers(gold, answered, answers)["f1"] == f1
    assert task.scores_of_answers(gold, task.encode([TaggedSentence(split_words("a"), None)], "new"), [{}]) is None


def test_a_span_that_ends_inside_a_word_is_missed_in_the_table_of_types_too(tmp_path: Path) -> None:
    """As in the scores: nobody can find such ends in new text."""
    row = {"text": "Googles in Rome", "entities": [[0, 6, "ORG"], [11, 15, "LOC"]]}
    for split in ("train", "dev"):
        support.write_lines(tmp_path / "own" / f"{split}.jsonl", json.dumps(row))
    task = support.task(tmp_path, "own", {"type": "tagging"})
    task.load("train")
    split = task.load("dev")
    whole = [{"type": "ORG", "text": "Googles", "start": 0, "end": 7, "probability": 0.9}]
    whole.append({"type": "LOC", "text": "Rome", "start": 11, "end": 15, "probability": 0.8})
    errors = errors_of(task, split, [{"words": ["Googles", "in", "Rome"], "entities": whole}])
    found = {kind: counts["f1"] for kind, counts in errors["by_label"].items()}
    assert found == {"ORG": 0.0, "LOC": 100.0}
    [mistake] = errors["mistakes"]
    assert (mistake["text"], mistake["gold"]) == ("Googles", "Google (ORG)")
    [written] = task.inputs(split)
    assert [(one["start"], one["end"], one["text"]) for one in written["gold_entities"]] == (
        [(0, 6, "Google"), (11, 15, "Rome")]
    )


@pytest.mark.parametrize(
    "row",
    [
        {"text": TEXT, "entities": SPANS},
        {"text": TEXT, "entities": objects()},
        {"text": TEXT, "entities": SPANS[::-1], "meta": "x"},
        {"id": 3, "text": TEXT, "label": SPANS},
        {"id": 3, "text": TEXT, "labels": SPANS},
        {"text": TEXT, "entities": objects(start="start_offset", end="end_offset"), "relations": []},
        {"text": TEXT, "annotations": objects(start="start_offset", end="end_offset"), "meta": {}},
        {"text": TEXT, "label": [[*span, TEXT[span[0] : span[1]]] for span in SPANS]},
        {"text": TEXT, "spans": objects(), "tokens": [], "answer": "accept"},
        {"text": TEXT, "spans": objects(), "tokens": [{"text": "🙂", "start": 0, "end": 1, "id": 0}]},  # Prodigy's
        {"text": TEXT, "annotations": [], "entities": SPANS},
        {"text": TEXT, "annotations": SPANS},
        {"text": TEXT, "annotations": objects(start="begin")},
        {"text": TEXT, "annotations": [{"comment": "x"}], "entities": SPANS},
        {"text": TEXT, "ents": objects(), "sents": [{"start": 0, "end": 33}]},  # spaCy's Doc.to_json
        {"text": TEXT, "spans": SPANS, "label": "PER"},
        {"text": TEXT, "entities": None, "spans": [], "label": SPANS},
        {"data": {"source": "web", "review": TEXT}, "annotations": label_studio(objects())},
        {"text": TEXT, "label": [span | {"labels": [span["label"]]} for span in objects(in_utf16=True)]},
        {"data": {"text": TEXT}, "annotations": label_studio(objects(in_utf16=True))},
        {"data": {"review": TEXT}, "annotations": label_studio(objects())},
        {"text": TEXT, "entities": [*SPANS, (7, 14, "INNER"), (14, 14, "EMPTY")]},
        {"text": TEXT, "entities": [(1, 15 - 1, "PER"), (18, 25, "LOC")]},
    ],
)
def test_spans_of_characters_become_tags_of_words(tmp_path: Path, row: dict[str, Any]) -> None:
    path = tmp_path / "marked.jsonl"
    support.write_lines(path, json.dumps(row), json.dumps({"text": "none here", "entities": []} | {"spans": []}))
    first, second = read_sentences(path)
    assert (first.words, first.tags) == (WORDS, TAGS)
    assert first.text is not None and first.text.text == TEXT
    assert [TEXT[start : start + len(word)] for start, word in zip(first.text.starts, WORDS, strict=True)] == WORDS
    assert second.tags == ["O", "O"]


def test_spacys_older_pairs_of_text_and_annotations(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    path.write_text(json.dumps([[TEXT, {"entities": SPANS}], ["none here", {"entities": []}]], indent=1))
    assert [(one.words, one.tags) for one in read_sentences(path)] == [(WORDS, TAGS), (["none", "here"], ["O", "O"])]
    path.write_text(json.dumps([["a", "b"], ["c", "d"]]))
    with pytest.raises(UserError, match="row 1: a JSON object is needed"):
        read_sentences(path)


@pytest.mark.parametrize(
    "row",
    [
        {"text": TEXT, "spans": objects(), "answer": "reject"},
        {"text": TEXT, "spans": objects(), "answer": "ignore"},
        {"data": {"text": TEXT}, "annotations": []},
        {"data": {"text": TEXT}, "annotations": [{"was_cancelled": True, "result": []}]},
    ],
)
def test_texts_that_nobody_annotated_are_not_learned(
    tmp_path: Path, capsys: pytest.CaptureFixture, row: dict[str, Any]
) -> None:
    """Else a text with names would teach that it has none."""
    path = tmp_path / "marked.jsonl"
    support.write_lines(path, json.dumps(row), json.dumps({"text": TEXT, "entities": SPANS}))
    assert [one.tags for one in read_sentences(path)] == [TAGS]
    assert "1 text left out that nobody annotated" in " ".join(capsys.readouterr().err.split())
    assert [one.tags for one in read_sentences(path, tagged=False)] == [[], TAGS]


def test_what_is_left_out_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "marked.jsonl"
    support.write_lines(path, json.dumps({"text": TEXT, "entities": [*SPANS, (7, 14, "INNER"), (12, 20, "ACROSS")]}))
    read_sentences(path)
    assert "2 spans left out" in " ".join(capsys.readouterr().err.split())


def test_annotated_texts_without_a_field_of_spans_have_none(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Label Studio's JSON_MIN and Prodigy leave it out, or empty. Elsewhere nobody has annotated such a text."""
    path = tmp_path / "marked.jsonl"
    empty = [
        {"text": "none here", "annotator": 1},
        {"text": "none here", "spans": [], "label": "PER"},
        {"text": "none here", "answer": "accept"},
    ]
    rows = [{"text": TEXT, "entities": SPANS}, *empty, {"text": "not yet", "id": 5}]
    support.write_lines(path, *map(json.dumps, rows))
    assert [one.tags for one in read_sentences(path)] == [TAGS, *[["O", "O"]] * 3]
    assert "1 text left out that nobody annotated" in " ".join(capsys.readouterr().err.split())
    assert [one.tags for one in read_sentences(path, tagged=False)] == [TAGS, *[["O", "O"]] * 3, []]


def test_spans_that_end_inside_words_are_learned_there_and_scored_by_their_characters(tmp_path: Path) -> None:
    """New text is not divided there, so that such a span cannot be found: it counts as missed."""
    path = tmp_path / "marked.jsonl"
    support.write_lines(
        path,
        json.dumps({"text": "They weren't in Rome", "entities": [[5, 9, "V"], [9, 12, "N"], [16, 20, "LOC"]]}),
    )
    described = {"type": "tagging", "files": {"train": str(path), "dev": str(path)}}
    task = support.task(tmp_path, "ner", described)
    [learned] = task.load("train").examples
    assert list(learned.words) == ["They", "were", "n", "'", "t", "in", "Rome"]
    assert learned.labels == ["O", "S-V", "B-N", "I-N", "E-N", "O", "S-LOC"]
    split = task.load("dev")
    [asked] = split.examples
    assert list(asked.words) == ["They", "weren", "'", "t", "in", "Rome"]
    [answered] = support.parse(task, [{"text": "They weren't in Rome"}], "new").examples
    assert list(answered.words) == list(asked.words)
    logits = np.full([len(split.features[0].input_ids), len(task.label_names)], -9.0)
    for position, label in zip(asked.windows[0].positions, asked.labels, strict=True):
        logits[position, task.label_names.index(label)] = 9
    scores = task.scores(split, [{"logits": logits}])
    assert scores["accuracy"] == 100
    assert (scores["precision"], scores["recall"]) == (pytest.approx(100 / 3), pytest.approx(100 / 3))


def test_what_label_studio_has_beside_the_spans_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "marked.json"
    region = {"start": 2, "end": 14, "text": TEXT[2:14]}
    annotations = label_studio(objects())
    annotations[1]["result"] += [{"value": region | {"choices": ["real"]}}, {"value": region | {"labels": []}}]
    path.write_text(json.dumps([{"data": {"text": TEXT}, "annotations": annotations}]))
    assert read_sentences(path)[0].tags == TAGS
    path.write_text(json.dumps([{"data": {"url": "a", "body": "b"}, "annotations": [{"result": []}]}]))
    with pytest.raises(UserError, match="row 1: which text of `data` is marked, url, body"):
        read_sentences(path)


def test_the_field_of_spans_that_is_named_is_read(tmp_path: Path) -> None:
    path = tmp_path / "marked.jsonl"
    support.write_lines(path, json.dumps({"text": TEXT, "entities": [[0, 1, "X"]], "ner": SPANS}))
    assert read_sentences(path, columns=TaggedColumns(tags="ner"))[0].tags == TAGS


def test_marked_texts_in_a_csv(tmp_path: Path) -> None:
    (tmp_path / "marked.csv").write_text('text,label\nAnn saw,"[[0, 3, ""PER""]]"\nnone here,[]\n')
    first, second = read_sentences(tmp_path / "marked.csv")
    assert (first.tags, second.tags) == (["B-PER", "O"], ["O", "O"])


def test_spans_that_cut_words_are_told(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "marked.jsonl"
    shifted = [(start + 1, end + 1, kind) for start, end, kind in SPANS]
    support.write_lines(
        path, json.dumps({"text": TEXT, "entities": SPANS}), json.dumps({"text": TEXT, "entities": shifted})
    )
    read_sentences(path)
    warned = " ".join(capsys.readouterr().err.split())
    assert "2 spans with an end inside a word" in warned and "marked.jsonl, line 2: 'nna Schmidt,'" in warned


@pytest.mark.parametrize(
    ("span", "message"),
    [
        ([0, 99, "PER"], r"line 1: the span from 0 to 99 lies outside of its text"),
        ([4, 2, "PER"], r"line 1: the span from 4 to 2"),
        ([0, 4], r"line 1: a span must be like \[0, 4, \"PER\"\]"),
        (["PER", 0, 4], "a span must be like"),
        ({"start": 0, "end": 4}, "a span must be like"),
        ({"start": 2, "end": 6, "label": "PER", "text": "Schmidt"}, "from 2 to 6 the text has 'Anna', but the span"),
    ],
)
def test_a_span_that_is_none_is_named(tmp_path: Path, span: Any, message: str) -> None:
    path = tmp_path / "marked.jsonl"
    support.write_lines(path, json.dumps({"text": TEXT, "entities": [span]}))
    with pytest.raises(UserError, match=message):
        read_sentences(path)


@pytest.mark.parametrize("spans", [[{"start": None, "end": 2, "label": "PER"}], [{"token_start": 0}], {}, "PER"])
def test_a_field_of_spans_that_holds_none_is_named(tmp_path: Path, spans: Any) -> None:
    rows = [{"text": "Ann", "spans": [[0, 3, "PER"]]}, {"text": "Bo", "spans": spans or {"a": 1}, "answer": "accept"}]
    path = support.write_lines(tmp_path / "a.jsonl", *map(json.dumps, rows))
    with pytest.raises(UserError, match="line 2: spans has no spans that can be read"):
        read_sentences(path)
    support.write_lines(path, json.dumps(rows[0]), json.dumps({"text": "Bo", "label": "news", "answer": "accept"}))
    assert [sentence.tags for sentence in read_sentences(path)] == [["B-PER"], ["O"]]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_columns_of_marked_texts_have_their_names_in_any_case(tmp_path: Path, name: str) -> None:
    lines = ["Text,Entities", "Ann saw,\"[[0, 3, 'PER']]\""]
    if name == "a.jsonl":
        lines = ['{"Text": "Ann saw", "Entities": [[0, 3, "PER"]]}']
    [sentence] = read_sentences(support.write_lines(tmp_path / name, *lines))
    assert (sentence.words, sentence.tags) == (["Ann", "saw"], ["B-PER", "O"])


def test_new_text_is_split_as_the_training_data_were(tmp_path: Path) -> None:
    """Else a tagger of marked texts would not know the words that it has learned."""
    described: dict[str, Any] = {"type": "tagging", "held_out": 0}
    for name, row in (("marked", {"text": TEXT, "entities": SPANS}), ("words", {"words": WORDS, "tags": TAGS})):
        path = tmp_path / f"{name}.jsonl"
        support.write_lines(path, json.dumps(row))
        task = support.task(tmp_path, "own", described | {"files": {"train": str(path)}})
        task.read("train")
        words = list(task.example({"text": "In Berlin."}, "here", 0).words)
        assert words == (["In", "Berlin", "."] if name == "marked" else ["In", "Berlin."])
        of_label_studio = task.example({"id": 1, "data": {"text": "In Berlin."}}, "here", 0)
        assert list(of_label_studio.words) == words


def test_all_files_of_the_training_data_say_how_new_text_is_split_and_tagged(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    support.write_lines(folder / "train-00000-of-00002.jsonl", json.dumps({"text": TEXT, "entities": SPANS}))
    bioes = [{"B-PER": "B-PER", "I-PER": "E-PER", "B-LOC": "S-LOC"}.get(tag, tag) for tag in TAGS]
    support.write_lines(folder / "train-00001-of-00002.jsonl", json.dumps({"words": WORDS, "tags": bioes}))
    described = {"type": "tagging", "held_out": 0, "files": {"train": str(folder)}}
    task = support.task(tmp_path, "own", described)
    task.load("train")
    assert (task.state()["splits_at_signs"], task.state()["encoding"]) == (True, "BIOES")


def test_null_texts_are_empty_and_null_spans_are_not_annotated(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Another field of Label Studio's `data` was taken for the text, and pandas' null for a text without spans."""
    marked = {"text": "Anna sang.", "label": [[0, 4, "PER"]]}
    null_text = {"data": {"text": None, "source": "a paper"}, "annotations": [{"id": 1, "result": []}]}
    path = tmp_path / "a.jsonl"
    support.write_lines(path, *map(json.dumps, [marked, null_text, {"text": "Eva sang.", "label": None}]))
    assert [one.words for one in read_sentences(path)] == [["Anna", "sang", "."]]
    warned = " ".join(capsys.readouterr().err.split())
    assert "1 text left out, without a word" in warned and "1 text left out that nobody annotated" in warned


def test_annotated_rows_are_scored_beside_others(tmp_path: Path) -> None:
    """With all scores and the table of types, by the answers that the file gets."""
    marked = {"text": "Anna sang.", "label": [[0, 4, "PER"]]}
    path = support.write_lines(tmp_path / "own" / "train.jsonl", json.dumps(marked))
    task = support.task(tmp_path, "own", {"type": "tagging", "held_out": 0})
    task.load("train")
    support.write_lines(path.parent / "new.jsonl", json.dumps(marked), json.dumps({"text": "Eva sang."}))
    _, read = read_rows(task, open_rows(str(path.parent / "new.jsonl"), task))
    assert read.split is not None and len(read.split.features) == 2
    predictions: list[Any] = []
    for feature in read.split.features:
        predictions.append({"logits": np.zeros([len(feature.input_ids), len(task.label_names)])})
    no_other: Any = None  # predictions are those of the file
    report = report_on_file(task, str(path.parent / "new.jsonl"), Answered(read.split, predictions), no_other)
    assert "accuracy" in report and "recall" in report and "PER" in report


def test_symbols_and_emoji_are_words() -> None:
    """Else a name beside one would be another word."""
    assert split_at_signs("Oslo🎉 A→B 5€ Nok\u00adia® ❤\ufe0f!").words == (
        ["Oslo", "🎉", "A", "→", "B", "5", "€", "Nok\u00adia", "®", "❤\ufe0f", "!"]
    )


def test_cards_hold_the_code_that_finds_words() -> None:
    found: dict[str, Any] = {"re": re, "unicodedata": unicodedata}
    exec(signs.source(), found)
    for text in ("In Berlin, 我爱 东京。e\u0301 🎉🎉 5€", "コーヒーを हिन्दी \u200b", ""):
        assert found["words_at_signs"](text) == signs.words_at_signs(text)


def test_words_of_scripts_without_blanks_are_letters() -> None:
    assert split_at_signs("我爱 东京。don't e\u0301t\u00e9 3.5%").words == (
        ["我", "爱", "东", "京", "。", "don", "'", "t", "e\u0301t\u00e9", "3", ".", "5", "%"]
    )
