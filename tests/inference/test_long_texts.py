"""Texts longer than the model: read in windows where that serves, else cut, which is said once with how much."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import electra_tf2 as electra
from electra_tf2.corpus.encoding import LongTexts, windows_of
from tests.support import golden
from tests.support import stored_models as support
from tests.support.programs import run_program
from tests.support.stored_models import write_folder


@pytest.fixture(scope="module")
def model() -> electra.Model:
    return electra.load(golden.CHECKPOINT)


def test_every_token_is_kept_by_the_window_with_most_around_it(model: electra.Model) -> None:
    special = model.tokenizer.special
    for length in (0, 1, 8, 9, 12, 13, 40):
        pieces = np.arange(20, 20 + length, dtype=np.int32)
        windows = windows_of(pieces, special, 10)
        kept = [pieces[window.kept] for window in windows]
        assert np.concatenate(kept).tolist() == pieces.tolist()
        for start, row, of_text in windows:
            assert len(row.input_ids) <= 10 and row.input_ids[1:-1].tolist() == pieces[start : start + 8].tolist()
            assert of_text.start in (0, length) or of_text.start - start >= 2
            assert of_text.stop == length or start + 8 - of_text.stop >= 2


def test_replaced_reads_long_texts_whole(model: electra.Model) -> None:
    longest = model.max_length
    text = " ".join(["of the went"] * longest)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LongTexts)
        long, short = model.replaced([text, "the man"])
    pieces = model.tokenizer.convert_ids_to_tokens(model.tokenizer.pieces([text])[0])
    assert [one.token for one in long] == pieces and len(pieces) > 2 * longest and short
    whole = tf.constant([[model.tokenizer.special.cls, *model.tokenizer.pieces([text])[0][: longest - 2]]])
    row = tf.concat([whole, [[model.tokenizer.special.sep]]], 1)
    logits = model.network.replaced_logits(row, tf.ones_like(row), tf.zeros_like(row)).numpy()[0, 1:]
    found = [one.probability for one in long[: longest // 2]]
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-logits[: longest // 2])), atol=1e-5)


@pytest.mark.parametrize("call", ["states", "embed", "score"])
def test_what_cuts_says_so_once_with_how_much(call: str, model: electra.Model) -> None:
    texts = ["the man", "of " * (model.max_length + 8)]
    arguments = {"method": "detector"} if call == "score" else {}
    with pytest.warns(
        LongTexts, match=f"1 of 2 texts are longer than the {model.max_length} tokens that are read, .* 10 tokens"
    ) as caught:
        getattr(model, call)(texts, **arguments)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", LongTexts)
        getattr(model, call)(texts[:1], **arguments)


@pytest.mark.parametrize(
    "text", ["of the went", "the\u3000man \u200bcafe\u0301 中国x", "İß ΌΔΟΣ 🙂🏽", "", "q" * 300 + " the"]
)
def test_replaced_says_where_each_wordpiece_stands(text: str, model: electra.Model) -> None:
    found = model.replaced(text)
    assert [one.token for one in found] == model.tokenizer.convert_ids_to_tokens(model.tokenizer.pieces([text])[0])
    written = [(text[one.start : one.end], one.token) for one in found]
    assert all(said and not said.isspace() for said, _ in written)
    for said, token in written:
        if token != "[UNK]":
            assert token.removeprefix("##") in model.tokenizer.normalize([said.encode()])[0].decode()


_CLASSES = (support.dense(2), {"labels": ["0", "1"]})
_TAGS = (support.dense(3), {"labels": ["O", "B-NP", "I-NP"]})
_CHOICES: Any = (support.dense(1, "choice"), {})
_ANSWERS: Any = (support.SPANS | support.dense(1, "answerable"), {})
_LONG = "of " * 70
_COPA = {"premise": "the man", "choice1": "of", "question": "cause"}
# Task -> its head, texts of which the second is long, tokens that are read, tokens that do not fit.
_HEADS: dict[str, tuple[Any, list[Any], int, int]] = {
    "cola": (_CLASSES, ["the man", _LONG], 64, 8),
    "mrpc": (_CLASSES, [("of", "of"), ("of", _LONG)], 64, 10),
    "copa": (_CHOICES, [_COPA | {"choice2": last} for last in ("the", _LONG)], 64, -1),
    "chunk": (_TAGS, ["the man", _LONG], 64, 0),
    "squadv1": (_ANSWERS, [("of ?", _LONG), (_LONG, "the man of the man")], 40, 30),
}


@pytest.mark.parametrize("task", _HEADS)
def test_predict_says_once_what_it_cuts(task: str) -> None:
    head, texts, limit, lost = _HEADS[task]
    plain: dict[str, Any] = {"joint_prediction": False, "answerable_uses_start_logits": False, "max_query_length": 40}
    loaded = electra.Model(support.fine_tuned(task, *head, **plain))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LongTexts)
        answers = loaded.predict(texts)
        loaded.predict(texts[:1])
    said = [warning.message for warning in caught if isinstance(warning.message, LongTexts)]
    assert len(answers) == 2 and len(said) == (lost != 0)
    assert all(caught_one.filename == __file__ for caught_one in caught if isinstance(caught_one.message, LongTexts))
    for one in said:
        assert ("1 of 2 questions are" in str(one)) == (task == "squadv1")
        assert (one.texts, one.all_texts, one.limit) == (1, 2, limit) and (lost < 0 < one.tokens or one.tokens == lost)
    assert task != "chunk" or min(answers[1].probabilities) > 0


def test_the_program_that_labels_says_it_once_beside_its_answers(tmp_path: Path) -> None:
    write_folder(tmp_path / "cola", support.fine_tuned("cola", *_CLASSES))
    (tmp_path / "new.txt").write_text(f"the man\n{_LONG}\n{_LONG}of\n")
    words = ["--model-dir", f"{tmp_path}/cola", "--predict", f"{tmp_path}/new.txt", "--predict-output", "-"]
    done = run_program("run_finetuning.py", *words)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 3, done.stderr
    [said] = [line for line in done.stderr.splitlines() if "longer than" in line]
    assert (
        said
        == "WARNING: 2 of 3 texts are longer than the 64 tokens that are read, and were cut: 17 tokens do not count"
    )


def test_the_program_that_scores_says_it_once(tmp_path) -> None:
    (tmp_path / "lines.txt").write_text("".join(f"{'of ' * (600 + n)}\n" for n in range(3)) + "the man\n")
    words = ["--model", str(golden.CHECKPOINT), "--method", "detector", "--text", f"{tmp_path}/lines.txt"]
    done = run_program("score_sentences.py", *words, "--batch-size", "1")
    assert done.returncode == 0 and done.stderr.count("texts are longer than") == 1, done.stderr
    assert "WARNING: 3 of 4 texts" in done.stderr
