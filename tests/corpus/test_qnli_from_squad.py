"""Pairs of a question and a sentence that are made of SQuAD's questions."""

import json
import random
import sys
from pathlib import Path

import pytest

from benchmarks import qnli_from_squad
from electra_tf2.finetune.qa.data import read_questions

PARAGRAPH = "Rome lies on the Tiber. Its river was crossed in 1870. Many rivers of Italy are short."


def squad_file(folder: Path) -> Path:
    def asked(context: str, *questions: tuple[str, str]) -> dict[str, object]:
        answers = [(text, [{"text": answer, "answer_start": context.index(answer)}]) for text, answer in questions]
        return {
            "context": context,
            "qas": [{"id": text, "question": text, "answers": answer} for text, answer in answers],
        }

    paragraphs = [
        asked(PARAGRAPH, ("On what river does Rome  lie?", "Tiber"), ("When was the river crossed?", "1870")),
        asked("Rome is old and large", ("Is Rome old?", "old")),
    ]
    path = folder / "train.json"
    path.write_text(json.dumps({"data": [{"title": "Rome", "paragraphs": paragraphs}]}))
    return path


def questions_of(folder: Path) -> list[qnli_from_squad.Question]:
    return list(read_questions(squad_file(folder), mrqa=False, v2=False, training=True))


def test_both_pairs_of_a_question_are_of_its_paragraph_and_the_answer_is_in_the_first(tmp_path: Path) -> None:
    pairs = list(qnli_from_squad.pairs_of(questions_of(tmp_path), random.Random(0), both=True))
    first, second, third = PARAGRAPH.replace(". ", ".\n").split("\n")
    assert pairs == [
        ("On what river does Rome lie?", first, "entailment"),
        ("On what river does Rome lie?", second, "not_entailment"),
        ("When was the river crossed?", second, "entailment"),
        ("When was the river crossed?", first, "not_entailment"),
    ]
    assert third not in {sentence for _, sentence, _ in pairs}


def test_a_coin_chooses_one_of_both_pairs_for_each_question(tmp_path: Path) -> None:
    questions = questions_of(tmp_path)
    both = list(qnli_from_squad.pairs_of(questions, random.Random(0), both=True))
    drawn = [list(qnli_from_squad.pairs_of(questions, random.Random(seed))) for seed in range(20)]
    assert all([pair[0] for pair in pairs] == [both[0][0], both[2][0]] for pairs in drawn)
    assert {pair for pairs in drawn for pair in pairs} == set(both)


def test_the_file_has_the_columns_of_qnli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "qnli.tsv"
    monkeypatch.setattr(
        sys, "argv", ["qnli_from_squad", "--squad", str(squad_file(tmp_path)), "--output", str(output), "--both"]
    )
    qnli_from_squad.main()
    header, *rows = output.read_text().splitlines()
    assert header.split("\t") == ["index", "question", "sentence", "label"]
    assert [row.split("\t")[0] for row in rows] == ["0", "1", "2", "3"]


def test_a_file_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = str(tmp_path / "none.json")
    monkeypatch.setattr(sys, "argv", ["qnli_from_squad", "--squad", missing, "--output", str(tmp_path / "out.tsv")])
    with pytest.raises(SystemExit, match=f"error: .*{missing}"):
        qnli_from_squad.main()
    assert not (tmp_path / "out.tsv").exists()
