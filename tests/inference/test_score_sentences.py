"""Accuracies on pairs, re-ranking of n-best lists, and score_sentences.py on small files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from electra_tf2.inference import ranking
from electra_tf2.util.errors import UserError
from tests.support import golden
from tests.support.programs import run_program

_WORDS = st.lists(st.sampled_from("abc"), max_size=6)


def _levenshtein(a: list[str], b: list[str]) -> int:
    if not a or not b:
        return len(a) + len(b)
    return min(
        _levenshtein(a[1:], b) + 1, _levenshtein(a, b[1:]) + 1, _levenshtein(a[1:], b[1:]) + (a[0] != b[0])
    )  # fmt: skip


@given(_WORDS, _WORDS)
def test_word_errors_are_the_edit_distance(a: list[str], b: list[str]) -> None:
    assert ranking.word_errors(" ".join(a), " ".join(b)) == _levenshtein(a, b)


def test_accuracy_is_by_phenomenon_and_ties_are_wrong() -> None:
    found = ranking.accuracy(
        ["agreement", "agreement", "islands"], np.array([1.0, 2.0, 3.0]), np.array([0.0, 2.0, 2.0])
    )
    assert found == {"agreement": 50, "islands": 100, "mean": 75, "all": pytest.approx(200 / 3)}


def _list(*hypotheses: tuple[str, float], reference: str | None = None) -> ranking.Hypotheses:
    row = {"hypotheses": [{"text": text, "score": score} for text, score in hypotheses], "reference": reference}
    return ranking.read_hypotheses(row, "file, line 1")


def test_lambda_is_the_one_of_the_least_word_error_rate() -> None:
    lists = [_list(("a b", -1.0), ("a c", -1.3), reference="a c"), _list(("x", 0.0), ("y", -3.0), reference="x")]
    scores = [np.array([-2.0, -1.0]), np.array([-9.0, -5.0])]
    weight, rates = ranking.best_weight(lists, scores)
    # The first list is put right from 0.3 on (0.35, beyond the tie), the second goes wrong at 0.75.
    assert weight == 0.35 and rates[weight] == 0 and rates[0.0] == pytest.approx(100 / 3)
    assert rates[0.8] == pytest.approx(100 / 3)


def test_lists_to_choose_lambda_on_need_references(tmp_path: Path) -> None:
    lists = tmp_path / "dev.jsonl"
    rows = [_list(("a", 0.0), reference="a").row, _list(("b", 0.0)).row]
    lists.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert len(ranking.read_lists(str(lists), "--nbest-dev")) == 2
    with pytest.raises(UserError, match="line 2: choosing lambda needs a 'reference'"):
        ranking.read_lists(str(lists), "--nbest-dev", references=True)


@pytest.mark.parametrize(
    "row", [{}, {"hypotheses": []}, {"hypotheses": [{"text": "a"}]}, {"hypotheses": "a"},
            {"hypotheses": [{"text": "a", "score": 1}], "reference": 3}],
)  # fmt: skip
def test_wrong_lists_name_the_line(row: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="line 7"):
        ranking.read_hypotheses(row, "file, line 7")


def test_what_is_only_for_lists_is_refused_elsewhere() -> None:
    done = run_program("score_sentences.py", "--model", "nowhere", "--text", "lines.txt", "--weight", "0.5")
    assert done.returncode == 2 and "--weight and --nbest-dev are for --nbest" in done.stderr


def test_files_in_files_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The three things that the program does; the model is the golden checkpoint."""
    monkeypatch.chdir(tmp_path)
    pairs = [
        {"sentence_good": "the man", "sentence_bad": "man the", "UID": name} for name in ("order", "order", "other")
    ]
    lists = [
        {"hypotheses": [{"text": "a b", "score": -1.0}, {"text": "b a", "score": -2.0}], "reference": "a b", "id": 4}
    ]
    for name, rows in (("pairs", pairs), ("lists", lists)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "lines.txt").write_text("the man\n\nman the\n")

    def run(*words: str) -> str:
        done = run_program("score_sentences.py", "--model", str(golden.CHECKPOINT), *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    shown = run("--pairs", "pairs.jsonl", "--output", "accuracy.json")
    found = json.loads((tmp_path / "accuracy.json").read_text())
    assert found["pairs"] == 3 and set(found["accuracy"]) == {"order", "other", "mean", "all"} and "order" in shown
    lines = [json.loads(line) for line in run("--text", "lines.txt").splitlines()]
    assert [line["text"] for line in lines] == ["the man", "man the"]
    assert found["accuracy"]["all"] == (100 if lines[0]["score"] > lines[1]["score"] else 0)
    assert "lambda" in run("--nbest", "lists.jsonl", "--nbest-dev", "lists.jsonl", "--output", "out.jsonl")
    [row] = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert row["id"] == 4 and {one["text"] for one in row["hypotheses"]} == {"a b", "b a"}
    assert all(np.isfinite(one["language_model_score"]) for one in row["hypotheses"])
