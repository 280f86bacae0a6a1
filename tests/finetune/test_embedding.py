"""Sentence embeddings: files, the contrast, drawing to TF-IDF, scores on pairs, predictions, vectors from Python."""

import json
import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import electra_tf2 as electra
from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.finetune.tasks.embedding import ContrastHead, EmbeddingTask, read_triplets
from electra_tf2.finetune.tasks.head import HeadInput
from electra_tf2.finetune.tasks.task import EmptyText
from electra_tf2.util.errors import UserError
from tests.support import finetuning as support
from tests.support.finetuning import write_lines
from tests.support.finetuning_runs import WORDS, results, run


def make(tmp_path, **overrides: Any) -> EmbeddingTask:
    return support.task(tmp_path, "sentence_embedding", **overrides)


def test_training_files_hold_texts_pairs_and_negatives(tmp_path):
    rows = ['{"anchor": "a", "positive": "b", "negative": "c"}', '{"text": "d", "positive": ""}', "", '{"query": "e"}']
    expected = [("a", "b", "c"), ("d", "", ""), ("e", "", "")]
    assert read_triplets(write_lines(tmp_path / "train.jsonl", *rows)) == expected
    table = write_lines(tmp_path / "train.csv", "sent0,sent1,hard_neg", 'a,"b, too",c')
    assert read_triplets(table) == [("a", "b, too", "c")]
    assert read_triplets(write_lines(tmp_path / "train.tsv", "sentence1\tsentence2", "a\tb")) == [("a", "b", "")]
    assert read_triplets(write_lines(tmp_path / "train.txt", "a b", "", "c")) == [("a b", "", ""), ("c", "", "")]
    for name, lines, said in (
        ("bad.jsonl", ['{"text": "a"}', '{"positive": "b"}'], "line 2: no text"),
        ("bad.tsv", ["text\tpositive", "a"], "line 2: 1 columns, but 2"),
        ("empty.txt", [""], "holds no texts"),
        ("odd.jsonl", ['{"text": 3}'], "line 1: texts are needed"),
    ):
        with pytest.raises(UserError, match=said):
            read_triplets(write_lines(tmp_path / name, *lines))


def test_the_score_is_of_ranks_and_pearsons_stands_beside_it(tmp_path):
    rows = [json.dumps({"text1": "the file", "text2": "a list", "score": score}) for score in (1, 2, 5)]
    write_lines(tmp_path / "sentence_embedding" / "dev.jsonl", *rows)
    task, cosines = make(tmp_path), (0.1, 0.8, 0.9)
    vectors = [vector for cosine in cosines for vector in ((1.0, 0.0), (cosine, (1 - cosine**2) ** 0.5))]
    scores = task.scores(task.load("dev"), [{"embedding": np.array(vector)} for vector in vectors])
    assert scores["spearman"] == pytest.approx(100)
    assert scores["pearson"] == pytest.approx(100 * np.corrcoef([1, 2, 5], cosines)[0, 1])


def test_texts_alone_need_dropout(tmp_path):
    write_lines(tmp_path / "sentence_embedding" / "train.txt", "the file", "a list")
    with pytest.raises(UserError, match="differ by dropout alone"):
        make(tmp_path).load("train")
    split = make(tmp_path, dropout=0.1).load("train")
    assert [feature.labels["text"] for feature in split.features] == [1, 1, 2, 2]


def loss_of(states: np.ndarray, texts: list[int], choices: int, **overrides: Any) -> np.ndarray:
    """The head's losses; a text has one token beside [CLS]."""
    config = support.config("sentence_embedding", **overrides)
    rarity = np.array([0, 0, 1, 2, 3], np.float32) if config.lexical_weight else None
    head = ContrastHead("task_specific/sentence_embedding", states.shape[-1], choices, rarity, config, 0)
    ids = tf.constant([[1, 2 + text % 3] for text in texts], tf.int32)
    sequence = tf.stack([tf.constant(states)] * 2, 1)
    labels = {"text": tf.constant(texts, tf.int32)}
    return head(HeadInput(sequence, tf.ones_like(ids), ids * 0, labels, ids), None, training=True).losses.numpy()


def expected_loss(states: np.ndarray, texts: list[int], choices: int, left_out: list[tuple[int, int]]) -> np.ndarray:
    """SimCSE, equation 5, without the candidates that may not count: (number of the text, of the candidate)."""
    vectors = (states / np.linalg.norm(states, axis=1, keepdims=True)).reshape(-1, choices, states.shape[1])
    logits = vectors[:, 0] @ np.concatenate([vectors[:, place] for place in range(1, choices)]).T / 0.05
    for row, column in left_out:
        logits[row, column] = -np.inf
    return np.log(np.exp(logits).sum(1)) - np.diagonal(logits)


def test_the_loss_is_simcses_without_false_negatives():
    states = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    found = loss_of(states, [1, 2, 3, 4, 5, 6], 2)
    np.testing.assert_allclose(found.reshape(3, 2).sum(1), expected_loss(states, [1, 2, 3, 4, 5, 6], 2, []), rtol=1e-5)
    # The first and the last text are the same, so neither's partner stands against the other.
    found = loss_of(states, [1, 2, 3, 4, 1, 6], 2)
    left_out = [(0, 2), (2, 0)]
    np.testing.assert_allclose(found.reshape(3, 2).sum(1), expected_loss(states, [], 2, left_out), rtol=1e-5)
    # The second example has no negative; the first one's is the partner of the second.
    found = loss_of(states, [1, 2, 5, 4, 5, 0], 3)
    left_out = [(0, 3), (1, 3), (1, 2)]
    np.testing.assert_allclose(found.reshape(2, 3).sum(1), expected_loss(states, [], 3, left_out), atol=1e-6)


def test_cosines_are_drawn_to_those_of_tf_idf():
    states = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    texts = [1, 2, 3, 4]  # their words: 3, 4, 2, 3; all have one, so cosines of TF-IDF are 0 or 1
    with_words = loss_of(states, texts, 2, lexical_weight=3.0) - loss_of(states, texts, 2)
    vectors = states / np.linalg.norm(states, axis=1, keepdims=True)
    errors = (vectors[0::2] @ vectors[1::2].T - np.array([[0, 1], [0, 0]])) ** 2
    weights = np.array([[1, 0.5], [0.5, 1]])  # of the partner, and of the two candidates' others
    np.testing.assert_allclose(with_words.reshape(2, 2).sum(1), 3 * (weights * errors).sum(1), rtol=1e-4)


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    """A model of texts whose partner has the same words in another order, scored by the words that two texts share."""
    folder, out = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("out")
    random = np.random.RandomState(0)
    data = folder / "finetuning_data"
    texts = [random.choice(WORDS, 5, replace=False) for _ in range(200)]
    pairs = [{"text": " ".join(words), "positive": " ".join(random.permutation(words))} for words in texts]
    write_lines(data / "sentence_embedding" / "train.jsonl", *map(json.dumps, pairs))
    rows = []
    for first in texts[:60]:
        shared = random.randint(6)
        others = [word for word in WORDS if word not in first]
        second = [*random.permutation(first)[:shared], *random.choice(others, 5 - shared, replace=False)]
        rows.append((" ".join(first), " ".join(random.permutation(second)), shared))
    write_lines(
        data / "sentence_embedding" / "dev.tsv", "text1\ttext2\tscore", *(f"{a}\t{b}\t{score}" for a, b, score in rows)
    )
    columns = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
    write_lines(data / "sts" / "dev.tsv", columns, *("\t".join(["0"] * 7 + [a, b, str(s)]) for a, b, s in rows[:20]))
    settings = {
        "task_names": ["sentence_embedding"],
        "embedding_projection": 24,
        "train_batch_size": 20,
        "num_train_epochs": 6.0,
        "lexical_weight": 1.0,
    }
    return folder, out, run(folder, out, **settings), settings, rows


def test_vectors_are_learned_and_scored(embedder):
    _, out, output, _, rows = embedder
    scores = results(out, "sentence_embedding")["trials"][0]["scores"]["sentence_embedding"]
    assert list(scores) == ["dev", "sts"] and scores["dev"].keys() == {"spearman", "pearson"}
    assert scores["dev"]["spearman"] > 80 and "collapsed" not in output
    model = out / "finetuning_models" / "sentence_embedding_model_1"
    lines = (model / "predictions" / "sentence_embedding_dev.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    assert (first["text1"], first["text2"], first["gold"]) == rows[0] and -1 <= first["similarity"] <= 1


def test_a_trained_model_embeds_as_it_was_scored(embedder):
    _, out, _, _, rows = embedder
    folder = out / "finetuning_models" / "sentence_embedding_model_1"
    model = electra.load(folder)
    texts = [text for row in rows[:10] for text in row[:2]]
    vectors = model.embed(texts)
    assert model.pooling == "mean" and vectors.shape == (20, 24) and vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    lines = (folder / "predictions" / "sentence_embedding_dev.jsonl").read_text().splitlines()
    scored = [json.loads(line)["similarity"] for line in lines[:10]]
    np.testing.assert_allclose((vectors[0::2] * vectors[1::2]).sum(1), scored, atol=1e-4)
    answers = model.predict([rows[0][0], rows[0][:2]])
    np.testing.assert_allclose(answers[0].embedding, vectors[0], atol=1e-5)
    assert answers[1].similarity == pytest.approx(scored[0], abs=1e-4)
    np.testing.assert_allclose(model.embed(texts[0]), vectors[0], atol=1e-6)


def test_files_are_embedded_and_compared(embedder, tmp_path):
    folder, out, _, settings, rows = embedder
    file = write_lines(tmp_path / "new.txt", rows[0][0], f"{rows[0][0]}\t{rows[0][1]}")
    run(folder, out, "--predict", str(file), **settings)
    found = [json.loads(line) for line in (tmp_path / "new.txt.predictions.jsonl").read_text().splitlines()]
    assert len(found[0]["embedding"]) == 24 and isinstance(found[1]["similarity"], float)


def test_without_scored_pairs_the_message_says_what_would_do(tmp_path):
    write_lines(tmp_path / "sentence_embedding" / "train.jsonl", '{"text": "a", "positive": "b"}')
    with pytest.raises(UserError, match=r"STS-B's development data.*text1, text2, score"):
        make(tmp_path).load("dev")


@pytest.mark.parametrize("row", [{"text": None}, {"text": ""}, {"text1": "a", "text2": math.nan}])
def test_empty_and_missing_texts_have_no_vector(tmp_path, row):
    with pytest.raises(EmptyText, match="here: an empty text"):
        make(tmp_path).example(row, "here", 0)


def test_several_tasks_of_vectors_answer_without_training_data(tmp_path):
    config = support.config("sentence_embedding", "mine", tasks={"mine": {"type": "embedding"}}, do_train=False)
    assert [task.name for task in make_tasks(config, support.tokenizer())] == ["sentence_embedding", "mine"]


def test_beside_negatives_a_partner_still_counts_as_much_as_all_candidates_together():
    states = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    texts = [1, 2, 3, 4, 7, 6]  # their words: 3, 4, 2, 3, 3, 2
    with_words = loss_of(states, texts, 3, lexical_weight=3.0) - loss_of(states, texts, 3)
    vectors = states / np.linalg.norm(states, axis=1, keepdims=True)
    candidates = np.concatenate([vectors[1::3], vectors[2::3]])
    errors = (vectors[0::3] @ candidates.T - np.array([[0, 1, 0, 0], [0, 1, 0, 0]])) ** 2
    weights = np.array([[1, 0.25, 0.25, 0.25], [0.25, 1, 0.25, 0.25]])
    np.testing.assert_allclose(with_words.reshape(2, 3).sum(1), 3 * (weights * errors).sum(1), rtol=1e-4)
