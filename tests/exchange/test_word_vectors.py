"""The start of a sentence encoder: vectors of words whose mean compares texts by the rare words that they share."""

import numpy as np
import pytest

import electra_tf2 as electra
from electra_tf2.exchange.word_vectors import encoder_of_words, rarity, word_vectors
from electra_tf2.util.errors import UserError
from tests import golden_support as golden
from tests.exchange import exchange_support as support
from tests.finetuning_support import write_lines
from tests.programs import run_program

VOCABULARY = str(golden.CHECKPOINT / "vocab.txt")


def test_rows_are_even_and_their_parts_weighted_by_rarity():
    random = np.random.default_rng(0)
    table, weights = random.normal(size=(50, 8)), random.uniform(0, 5, 50)
    weights[:3] = 0
    for width in (8, 20):  # without and with random directions
        vectors = word_vectors(table, weights, width, seed=0)
        assert vectors.shape == (50, width)
        np.testing.assert_allclose(vectors.mean(1), 0, atol=1e-9)
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 10, rtol=1e-9)
        lengths = np.linalg.norm(vectors[:, :-2], axis=1)
        np.testing.assert_allclose(lengths / lengths.max(), weights / weights.max(), atol=1e-9)


@pytest.fixture(scope="module")
def source():
    return support.with_crc_weights(
        model_hparam_overrides={"norm_style": "pre", "relative_positions": "t5", "num_hidden_layers": 2}
    )


def test_the_encoder_compares_texts_as_its_word_vectors_do(source):
    model = electra.Model(source)
    texts = ["the man went to the house", "the man went to the mill", "of the a", "the of a b"]
    weights = rarity(model.tokenizer, [*texts, "the man"])
    assert weights[model.tokenizer.special.cls] == 0
    made = electra.Model(encoder_of_words(source, weights, 1, seed=0))
    assert made.source.architecture.num_hidden_layers == 1 and made.width == source.architecture.hidden_size
    table = made.source.weights["electra/embeddings/word_embeddings"][:, :-2]
    expected = []
    for text in texts:
        total = table[model.tokenizer.tokenize([text.encode()])[0]].sum(0)
        expected.append(total / np.linalg.norm(total))
    np.testing.assert_allclose(
        made.embed(texts) @ made.embed(texts).T, np.stack(expected) @ np.stack(expected).T, atol=1e-4
    )


def test_layers_that_are_not_there_and_other_norms_are_refused(source):
    with pytest.raises(UserError, match="takes 1 layer or more of those that there are"):
        encoder_of_words(source, np.ones(600), 9, 0)
    with pytest.raises(UserError, match="needs style pre"):
        encoder_of_words(support.with_crc_weights(), np.ones(600), 1, 0)


def test_the_program_makes_a_folder_that_embeds(tmp_path):
    write_lines(tmp_path / "corpus" / "text.txt", "The first line of names. All of it is read here.")
    words = ["--corpus-dir", str(tmp_path / "corpus"), "--output", str(tmp_path / "start")]
    done = run_program("build_sentence_encoder.py", "--model", "electra_mini", *words)
    assert done.returncode == 0, done.stderr
    vectors = electra.load(tmp_path / "start").embed(["the first line", "a first line", "of names"])
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]
    again = run_program("build_sentence_encoder.py", "--model", "electra_mini", *words)
    assert again.returncode == 2 and "is there already, and is not empty" in again.stderr
