"""Texts longer than the model: read in windows where that serves, else cut, which is said once with how much."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import electra_tf2 as electra
from electra_tf2.corpus.encoding import LongTexts, windows_of
from tests.support import golden
from tests.support.programs import run_program


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
        LongTexts, match=f"1 of 2 texts are longer than the {model.max_length} tokens .* 10 tokens"
    ) as caught:
        getattr(model, call)(texts, **arguments)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", LongTexts)
        getattr(model, call)(texts[:1], **arguments)


def test_the_program_that_scores_says_it_once(tmp_path) -> None:
    (tmp_path / "lines.txt").write_text("".join(f"{'of ' * (600 + n)}\n" for n in range(3)) + "the man\n")
    words = ["--model", str(golden.CHECKPOINT), "--method", "detector", "--text", f"{tmp_path}/lines.txt"]
    done = run_program("score_sentences.py", *words, "--batch-size", "1")
    assert done.returncode == 0 and done.stderr.count("texts are longer than") == 1, done.stderr
    assert "WARNING: 3 of 4 texts" in done.stderr
