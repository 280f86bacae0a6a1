"""import electra_tf2: loading, states, replaced tokens, filling, scoring, predicting, the network for Keras."""

import copy
import functools
import itertools
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import electra_tf2 as electra
from electra_tf2.corpus.encoding import Encoded
from electra_tf2.corpus.unknown_tokens import UnknownTokens
from electra_tf2.exports import conversions
from electra_tf2.formats import readers as sources
from electra_tf2.formats.folders import SHIPPED
from electra_tf2.formats.joining import with_generator
from electra_tf2.formats.stored_model import StoredModel, default_run_hparams
from electra_tf2.formats.tensor_file import read_tensors, write_tensors
from electra_tf2.inference.model_config import with_config
from electra_tf2.inference.network import EncoderModel
from electra_tf2.model import kernels
from electra_tf2.util.errors import UserError
from tests.support import golden
from tests.support import huggingface_oracle as oracle
from tests.support import stored_models as support
from tests.support.stored_models import to_huggingface, write_folder, write_huggingface
from tests.support.training import ROOT

TEXTS = ["the man went to the house", "a b c d e f g", "of"]


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    """Expected answers are computed as the answers are, in ordinary operations: no block is compiled by XLA for
    every length of a text."""
    with kernels.off():
        yield


@pytest.fixture(scope="module")
def model() -> electra.Model:
    return electra.load(str(golden.CHECKPOINT))


def _inputs(model: electra.Model, text: str) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    ids, _ = model.tokenizer.tokenize([text.encode()])
    row = tf.constant([[model.tokenizer.special.cls, *ids, model.tokenizer.special.sep]], tf.int32)
    return row, tf.ones_like(row), tf.zeros_like(row)


def test_states_are_those_of_each_text_alone(model: electra.Model) -> None:
    for text, states in zip(TEXTS, model.states(TEXTS), strict=True):
        alone = model.network.states(*_inputs(model, text)).numpy()[0]
        np.testing.assert_allclose(states.vectors, alone, atol=2e-6)
        np.testing.assert_array_equal(states.sentence, states.vectors[0])
        assert states.tokens[0] == "[CLS]" and states.tokens[-1] == "[SEP]" and len(states.tokens) == len(alone)
    [pair] = model.states([("one text", "another")])
    assert pair.tokens.count("[SEP]") == 2
    assert model.states([]) == []


def test_results_have_fields(model: electra.Model) -> None:
    [states] = model.states(TEXTS[:1])
    np.testing.assert_allclose(states.mean, states.vectors.mean(0))
    tokens, vectors, sentence = states
    assert states.tokens is tokens and states.sentence is sentence and len(vectors) == len(tokens)
    [answer] = _tuned("cola").predict(TEXTS[:1])
    assert json.loads(json.dumps(vars(answer)))["label"] == answer.label
    assert answer == copy.copy(answer) == pickle.loads(pickle.dumps(answer))
    with pytest.raises(AttributeError, match="no 'tags'; it has label, probabilities"):
        _ = answer.tags


def test_embed_is_the_mean_of_the_states_at_length_one(model: electra.Model) -> None:
    vectors = model.embed(TEXTS)
    for vector, states in zip(vectors, model.states(TEXTS), strict=True):
        np.testing.assert_allclose(vector, states.mean / np.linalg.norm(states.mean), atol=1e-5)
    np.testing.assert_allclose(model.embed(TEXTS[1]), vectors[1], atol=1e-6)
    cls = model.states(TEXTS[2:])[0].sentence
    np.testing.assert_allclose(model.embed(TEXTS, pooling="cls")[2], cls / np.linalg.norm(cls), atol=1e-5)
    assert model.pooling == "mean" and model.embed([]).shape == (0, 128)
    with pytest.raises(UserError, match="pooling is one of cls, mean, not 'max'"):
        model.embed(TEXTS, pooling="max")


def test_replaced_gives_the_detectors_probability_of_every_token(model: electra.Model) -> None:
    found = model.replaced(TEXTS[0])
    logits = model.network.replaced_logits(*_inputs(model, TEXTS[0])).numpy()[0, 1:-1]
    np.testing.assert_allclose([one.probability for one in found], 1 / (1 + np.exp(-logits)), atol=1e-6)
    assert "".join(one.token.replace("##", "") for one in found) == TEXTS[0].replace(" ", "")
    assert [one.token for one in model.replaced(TEXTS)[0]] == [one.token for one in found]


def test_fill_ranks_the_masked_language_models_tokens(model: electra.Model) -> None:
    first, second = model.fill("the [MASK] went to the [MASK].", top=3)
    assert len(first) == len(second) == 3
    assert first[0].probability >= first[1].probability > 0
    special = model.tokenizer.special
    before, between, after = ([*model.tokenizer.tokenize([part])[0]] for part in (b"the", b"went to the", b"."))
    row = tf.constant([[special.cls, *before, special.mask, *between, special.mask, *after, special.sep]], tf.int32)
    logits = model.network.token_logits(row, tf.ones_like(row), tf.zeros_like(row))
    probabilities = tf.nn.softmax(logits)[0, 1 + len(before)]
    assert first[0].token == model.tokenizer.vocab[int(tf.argmax(probabilities))]
    np.testing.assert_allclose(first[0].probability, float(tf.reduce_max(probabilities)), rtol=1e-5)
    with pytest.raises(UserError, match="MASK"):
        model.fill("nothing to fill")


def _bert_score(model: electra.Model, text: str) -> np.ndarray:
    """log p of each token with it alone masked, one pass each."""
    ids = _inputs(model, text)[0].numpy()
    scores = []
    for place in range(1, ids.shape[1] - 1):
        masked = ids.copy()
        masked[0, place] = model.tokenizer.special.mask
        logits = model.network.token_logits(tf.constant(masked), tf.ones_like(ids), tf.zeros_like(ids))
        scores.append(float(tf.nn.log_softmax(logits)[0, place, ids[0, place]]))
    return np.array(scores)


def test_bert_scores_by_masking_each_token() -> None:
    bert = electra.Model(support.with_crc_weights(electra_objective=False))
    expected = [_bert_score(bert, text).sum() for text in TEXTS]
    np.testing.assert_allclose(bert.score(TEXTS, batch_size=4), expected, rtol=1e-4)
    assert bert.score([""]) == 0


def test_electra_scores_by_generator_and_discriminator(model: electra.Model) -> None:
    share = 0.15 * 0.85  # of the original: 15 % are drawn, and 15 % of these kept, which a generator puts back
    expected = []
    for text in TEXTS:
        g = np.exp(_bert_score(model, text))
        real = 1 - np.array([one.probability for one in model.replaced(text)])
        p = real * g / ((1 - share) / share * (1 - real) + g)  # ELECTRA, appendix G
        expected.append(np.log(p).sum())
    np.testing.assert_allclose(model.score(TEXTS), expected, rtol=1e-4)


def test_the_share_of_masked_tokens_is_the_runs_unless_it_is_given(model: electra.Model) -> None:
    dense = electra.Model(support.with_crc_weights(mask_prob=0.25))
    assert (dense.score(TEXTS) != dense.score(TEXTS, mask_prob=0.15)).all()
    np.testing.assert_array_equal(dense.score(TEXTS), dense.score(TEXTS, mask_prob=0.25))
    with pytest.raises(UserError, match="mask_prob is a share of tokens, between 0 and 1, not 25"):
        model.score(TEXTS, mask_prob=25)


def test_released_models_have_the_share_of_the_paper() -> None:
    sizes = {"small": (256, 0.15), "base": (768, 0.15), "large": (1024, 0.25)}
    for size, (hidden, share) in sizes.items():
        hparams = {"model_size": size, "model_hparam_overrides": {"hidden_size": hidden}, "electra_objective": True}
        assert default_run_hparams(hparams, "released")["mask_prob"] == share
        assert default_run_hparams(hparams | {"electra_objective": False}, "released")["mask_prob"] == 0.15


def test_what_only_looks_like_electra_is_not_scored() -> None:
    model = electra.Model(support.with_crc_weights(disallow_correct=True))
    with pytest.raises(UserError, match="a model of disallow_correct gives no probabilities"):
        model.score(TEXTS)
    assert (model.score(TEXTS, method="detector") < 0).all()


@pytest.mark.parametrize(
    ("hparams", "said"),
    [
        ({"electra_objective": False, "replace_mlm_objective": True}, "generator alone"),
        ({"electra_objective": False, "all_tokens_mlm_objective": True}, "generator alone"),
        ({"electra_objective": False, "corrective_lm_objective": True}, "generator alone"),
        ({"electra_objective": False}, ""),
        ({}, ""),
    ],
)
def test_scores_of_the_generator_alone_say_so(hparams: dict[str, Any], said: str) -> None:
    note = electra.Model(support.with_crc_weights(**hparams)).scorer().note
    assert said in note and bool(said) == bool(note)


def test_the_detector_alone_sums_log_probabilities_in_one_pass(model: electra.Model) -> None:
    expected = [sum(np.log(1 - one.probability) for one in tokens) for tokens in model.replaced(TEXTS)]
    np.testing.assert_allclose(model.score(TEXTS, method="detector"), expected, rtol=1e-4)
    bert = electra.Model(support.with_crc_weights(electra_objective=False))
    electric = electra.Model(support.with_crc_weights(electra_objective=False, electric_objective=True))
    for other, why in ((bert, "does not detect"), (electric, "energies are scores already")):
        with pytest.raises(UserError, match=why):
            other.score(TEXTS, method="detector")
    with pytest.raises(UserError, match="method is one of likelihood, detector, not 'x'"):
        model.score(TEXTS, method="x")


def test_lengths_share_graphs_and_little_is_padding(model: electra.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of a length are computed together, and neither a call nor a new length is traced anew for ever."""
    fresh, shapes = electra.Model(model.source), []
    plain = fresh._states

    def counted(ids: np.ndarray, *rest: np.ndarray) -> tf.Tensor:
        shapes.append(ids.shape)
        return plain(ids, *rest)

    monkeypatch.setattr(fresh, "_states", counted)
    texts = [" ".join(["word"] * (1 + (37 * number) % 100)) for number in range(200)]
    found = fresh.states(texts)
    tokens = sum(len(states.tokens) for states in found)
    assert sum(rows * length for rows, length in shapes) < 1.2 * tokens
    assert all(len(states.tokens) == len(states.vectors) for states in found)
    for _ in range(3):
        fresh.score(TEXTS)
        fresh.score([*TEXTS, "a longer text than all of those"])
    scorer = fresh.scorer()
    assert scorer is fresh.scorer()
    for graph in (scorer._fill, scorer._detect):
        assert graph.experimental_get_tracing_count() <= 3


def test_predictions_of_any_number_and_length_share_a_graph() -> None:
    cola = electra.Model(_fine_tuned("cola"))
    together = cola.predict([*TEXTS, " ".join(["word"] * 40)] * 20)
    alone = [cola.predict([text])[0] for text in TEXTS]
    for one, other in zip(alone, together, strict=False):
        assert one.probabilities["0"] == pytest.approx(other.probabilities["0"], abs=1e-5)
    assert cola._predictor is not None and cola._predictor._predict[0].experimental_get_tracing_count() == 1


def test_electric_scores_by_its_energies_in_one_pass() -> None:
    electric = electra.Model(support.with_crc_weights(electra_objective=False, electric_objective=True))
    energies = [electric.network.replaced_logits(*_inputs(electric, text)).numpy()[0, 1:-1].sum() for text in TEXTS]
    np.testing.assert_allclose(electric.score(TEXTS), [-energy for energy in energies], rtol=1e-5)


def test_a_discriminator_takes_its_generator_from_another_directory(model: electra.Model, tmp_path: Path) -> None:
    for part in ("main", "generator"):
        write_huggingface(tmp_path / part, model.source, part)
    alone = electra.load(str(tmp_path / "main"))
    np.testing.assert_allclose(alone.states(TEXTS)[0].vectors, model.states(TEXTS)[0].vectors, atol=1e-6)
    with pytest.raises(UserError, match="generator="):
        alone.score(TEXTS)
    with pytest.raises(UserError, match="masked language model"):
        alone.fill("a [MASK]")
    # Its own table of words, as a generator that was trained apart has one: the discriminator keeps its own.
    path = tmp_path / "apart" / "model.safetensors"
    shutil.copytree(tmp_path / "generator", path.parent)
    apart = {name: value * (1.5 if "word_embeddings" in name else 1) for name, value in read_tensors(path).items()}
    write_tensors(path, apart)
    joined = electra.load(str(tmp_path / "main"), generator=str(path.parent))
    np.testing.assert_allclose(joined.states(TEXTS)[0].vectors, model.states(TEXTS)[0].vectors, atol=1e-6)
    np.testing.assert_allclose(joined.replaced(TEXTS[0])[0].probability, model.replaced(TEXTS[0])[0].probability)
    assert joined.fill("a [MASK]") == electra.load(path.parent).fill("a [MASK]") != model.fill("a [MASK]")
    together = electra.load(str(tmp_path / "main"), generator=str(tmp_path / "generator"))
    np.testing.assert_allclose(together.score(TEXTS), model.score(TEXTS), rtol=1e-4)
    assert together.fill("a [MASK]")[0][0].token == model.fill("a [MASK]")[0][0].token
    with pytest.raises(UserError, match="replaced"):
        electra.load(str(tmp_path / "generator")).replaced("a")


@pytest.mark.parametrize("own_tables", [False, True])
def test_a_generator_of_another_run_keeps_its_tables_and_the_discriminator_its_own(own_tables: bool) -> None:
    ours = support.with_crc_weights()
    theirs = support.with_crc_weights(untied_generator_embeddings=own_tables)
    weights = {}
    for name, value in theirs.weights.items():
        weights[name] = value * 1.5 if name.endswith("/word_embeddings") else value
    theirs = theirs.changed(weights=weights)
    joined = electra.Model(with_generator(ours, with_config(theirs)))
    text = "the man went to the house"
    np.testing.assert_array_equal(joined.states(text).vectors, electra.Model(ours).states(text).vectors)
    assert joined.fill("a [MASK]") == electra.Model(theirs).fill("a [MASK]") != electra.Model(ours).fill("a [MASK]")


@pytest.mark.parametrize("call", ["states", "embed", "replaced", "score", "fill", "predict"])
def test_tokens_that_a_model_does_not_know_are_counted_aloud(model: electra.Model, call: str) -> None:
    used = _tuned("cola") if call == "predict" else model
    mask = "[MASK] " * (call == "fill")
    with pytest.warns(UnknownTokens) as caught:
        getattr(used, call)([f"{mask}the man", f"{mask}the \u5929 man"])
    [warning] = caught
    share, _, rest = str(warning.message).partition(" unknown to this model")
    assert share == f"1 token of {7 + 2 * len(mask.split())} is" and "\u5929" in rest
    assert "[UNK]" in rest and warning.filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        getattr(used, call)([f"{mask}the man"])


def test_coco_lm_fills_a_mask_with_its_auxiliary_network() -> None:
    source = support.with_crc_weights(electra_objective=False, corrective_lm_objective=True)
    of_main = ("electra/encoder/", "clm_predictions/", "copy_predictions/")
    changed = {name: value * 0 if name.startswith(of_main) else value for name, value in source.weights.items()}
    assert any(name.startswith("clm_predictions/") for name in changed)
    model, other = electra.Model(source), electra.Model(source.changed(weights=changed))
    assert model.fill("a [MASK]") == other.fill("a [MASK]")
    np.testing.assert_array_equal(model.score(TEXTS), other.score(TEXTS))


HEADS: dict[str, tuple[dict[str, list[int]], dict]] = {
    "cola": (support.dense(2), {"labels": ["0", "1"]}),
    "sts": (support.dense(1), {}),
    "chunk": (support.dense(3), {"labels": ["O", "B-NP", "I-NP"]}),
}


def _fine_tuned(task: str) -> StoredModel:
    heads, state = HEADS[task]
    return support.fine_tuned(task, heads, state)


@functools.cache
def _tuned(task: str) -> electra.Model:
    """One that several tests predict with: its graph is traced once."""
    return electra.Model(_fine_tuned(task))


def test_predict_answers_with_labels_numbers_and_tags(tmp_path: Path) -> None:
    write_folder(tmp_path, _fine_tuned("cola"))
    cola = electra.load(str(tmp_path))
    answers = cola.predict([*TEXTS, {"sentence": TEXTS[0]}])
    assert len(answers) == 4 and answers[0] == answers[3]
    single = cola.predict({"sentence": TEXTS[0]})
    assert single.label == answers[0].label
    assert single.probabilities == pytest.approx(answers[0].probabilities, abs=1e-5)
    weights = cola.source.weights
    logits = cola.states(TEXTS[:1])[0].sentence @ weights["task_specific/cola/dense/kernel"]
    logits += weights["task_specific/cola/dense/bias"]
    assert str(int(np.argmax(logits))) in map(str, vars(answers[0]).values())
    sts = _tuned("sts")
    array: Any = np.array([["a b", "c d"]])
    [of_pair] = sts.predict([("a b", "c d")])
    assert sts.predict(("a b", "c d")) == of_pair and len(sts.predict(array)) == 1
    assert len(cola.predict(tuple(TEXTS[:2]))) == 2
    [tags] = _tuned("chunk").predict([["the", "man", "went"]])
    assert len(tags.tags) == 3
    expected = r'reads pairs .* alone: a pair is a tuple: \("\w+", "\w+"\), or a list of them'
    for half in ("alone", ["alone"], ["a b", "c d"]):
        with pytest.raises(UserError, match=expected):
            sts.predict(half)


@pytest.mark.parametrize("name", [name for name in oracle.CLASSES if "Class" in name or "Question" in name][:4])
def test_fine_tuned_models_of_hugging_face_predict(name: str, tmp_path: Path) -> None:
    """The logits behind the answers are those of the self-check, which are held against transformers' numbers."""
    support.write_crc_directory(tmp_path, name)
    loaded = electra.load(str(tmp_path))
    assert not loaded.source.left_out
    if "Question" in name:
        [answer] = loaded.predict([("a b", "c d e f g h")])
        assert answer
        return
    ids = _inputs(loaded, TEXTS[0])[0].numpy()
    inputs = Encoded(ids, np.ones_like(ids), np.zeros_like(ids))
    logits = conversions.outputs(loaded.source, "main", inputs)["logits"][0]
    if "Token" in name:
        [answer] = loaded.predict([TEXTS[0]])
        firsts = [place for place, token in enumerate(loaded.tokenizer.convert_ids_to_tokens(ids[0]))
                  if token not in ("[CLS]", "[SEP]") and not token.startswith("##")]  # fmt: skip
        assert answer.tags == [f"label {np.argmax(logits[place])}" for place in firsts]
    else:
        [answer] = loaded.predict(TEXTS[:1])
        probabilities = np.exp(logits - np.logaddexp.reduce(logits))
        np.testing.assert_allclose(list(answer.probabilities.values()), probabilities, atol=1e-5)
        assert list(answer.probabilities) == [f"label {number}" for number in range(3)]


@pytest.mark.parametrize("call", ["states", "embed", "replaced", "score", "fill", "predict"])
def test_every_call_takes_a_text_or_a_list_and_no_table(model: electra.Model, call: str) -> None:
    pandas = pytest.importorskip("pandas")
    used = _tuned("chunk") if call == "predict" else model
    function, text = getattr(used, call), "the man [MASK]" if call == "fill" else "the man"
    both = function([text, text])
    assert len(both) == 2
    single, first = function(text), both[0]
    if call == "states":
        single, first = single.vectors, first.vectors
    if call == "predict":
        assert single.words == first.words
    elif call in ("replaced", "fill"):
        assert len(single) == len(first)
    else:
        np.testing.assert_allclose(single, first, atol=1e-5)
    table: Any = pandas.DataFrame({"text": [text, text]})
    assert len(function(table["text"])) == len(function(np.array([text, text]))) == 2
    about_dict = "a text or a list"
    if call == "predict":  # where a dict is an example, by the names of its task
        about_dict = "`words`, a list of words, or `text` is needed"
        assert len(function(table)) == 2  # an example in each row
        table = table.to_numpy()
    for odd, said in (
        (table, "a table: give one of its columns|2 axes"),
        (np.array([[text]]), "2 axes"),
        ({"a": text}, about_dict),
    ):
        with pytest.raises(UserError, match=said):
            function(odd)


def test_a_model_is_its_path_and_options(model: electra.Model, tmp_path: Path) -> None:
    loaded = electra.load("electra_mini", precision="bfloat16")
    for again in (pickle.loads(pickle.dumps(loaded)), copy.deepcopy(loaded)):
        assert again.precision == "bfloat16"
        np.testing.assert_array_equal(again.embed("a text"), loaded.embed("a text"))
    with pytest.raises(UserError, match="was not made by load"):
        pickle.dumps(electra.Model(model.source))


def test_a_forked_process_is_told_to_load_its_own(model: electra.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow's threads do not come along, so that the call would never return."""
    monkeypatch.setattr(os, "getpid", lambda: -1)
    calls: list[Any] = [model.states, model.embed, model.replaced, model.score, model.fill, model.predict, electra.load]
    for call in [*calls, lambda text: model.keras()]:
        with pytest.raises(UserError, match="this process was forked"):
            call("a text")


def test_predict_needs_a_fine_tuned_model(model: electra.Model) -> None:
    with pytest.raises(UserError, match="not fine-tuned"):
        model.predict(["text"])


def test_what_is_no_list_of_texts_is_refused(model: electra.Model, tmp_path: Path, monkeypatch) -> None:
    chunk = _tuned("chunk")
    not_texts: list[Any] = [None, b"text"]
    for odd in not_texts:
        with pytest.raises(UserError, match="pair of texts"):
            model.states(["a text", odd])
    with pytest.raises(UserError, match="tuple of texts"):
        chunk.predict(not_texts[1:])
    with pytest.warns(UserWarning, match=r"texts\[1\]: an empty text, so no answer"):
        _, nothing, gap = chunk.predict(["a text", np.float32("nan"), np.array(["another"])])
    assert vars(nothing) == {"error": "an empty text"} and gap.words == ["another"]
    (tmp_path / "reviews.csv").touch()
    with pytest.warns(UserWarning, match="is taken for a text, but a file is called so"):
        chunk.predict(str(tmp_path / "reviews.csv"))
    triple: Any = ("one", "two", "three")
    with pytest.raises(UserError, match="pair of texts"):
        model.states([triple])
    for top in (0, 601):
        with pytest.raises(UserError, match="between 1 and the 600 tokens"):
            model.fill("[MASK]", top=top)
    with pytest.raises(UserError, match="float32, bfloat16, float16, not 'int8'"):
        electra.load(str(golden.CHECKPOINT), precision="int8")
    monkeypatch.chdir(tmp_path)
    for path in ("", "."):
        with pytest.raises(UserError, match=f"^no checkpoint at '{path}'"):
            electra.load(path)
    with pytest.raises(UserError, match=r"^no model at nowhere\. Shipped models are bert_mini, "):
        electra.load("nowhere")
    odd_arguments: list[Any] = [None, b"text"]
    for odd in odd_arguments:
        with pytest.raises(UserError, match=re.escape(f"path is a path or the name of a shipped model, not {odd!r}")):
            electra.load(odd)
        with pytest.raises(UserError, match="a text or a list of texts is needed"):
            model.fill(odd)
        with pytest.raises(UserError, match="fill: a text is needed"):
            model.fill([odd])
    no_lists: list[Any] = [None, (text for text in TEXTS), b"text"]
    calls: list[Any] = [model.states, model.score, model.replaced, chunk.predict]
    example: Any = {"a": "b"}  # of which `predict` alone takes one
    with pytest.raises(UserError, match="`words`, a list of words, or `text` is needed"):
        chunk.predict(example)
    for call in calls[:-1]:
        with pytest.raises(UserError, match="a list of texts is needed, got"):
            call(example)
    for odd, call in itertools.product(no_lists, calls):
        with pytest.raises(UserError, match="a list of texts is needed, got"):
            call(odd)


def test_shipped_models_are_listed_and_loaded_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(electra.models()) >= {"bert_mini", "electra_deep", "electra_evening", "electra_mini"}
    assert electra.models()["electra_mini"].startswith("An ELECTRA: a detector of 1.8 M parameters")
    with pytest.raises(UserError, match=r"did you mean 'electra_mini'.*bert_mini, electra_deep, electra_evening, "):
        electra.load("electra_minni")
    monkeypatch.chdir(tmp_path)
    mini = electra.load("electra_mini")
    assert mini.replaced("the man sat")[0].token == "the" and mini.scores["disc_auc"] > 0.7


@pytest.mark.parametrize(
    ("name", "class_name"),
    [
        ("bert_mini", "ModernBertForMaskedLM"),
        ("electra_mini", "ModernBertForTokenClassification"),
        ("electra_deep", "ModernBertForTokenClassification"),
        ("electra_evening", "ModernBertForTokenClassification"),
        ("electra_sentences", "ModernBertModel"),
    ],
)
def test_shipped_models_leave_for_hugging_face(name: str, class_name: str) -> None:
    assert to_huggingface(sources.read_model(SHIPPED / name)).class_name == class_name


def test_keras_users_can_put_a_head_on_train_and_save(tmp_path: Path) -> None:
    model = electra.Model(_fine_tuned("cola"))
    assert electra.Model(model.source, "bfloat16").keras().compute_dtype_name == "bfloat16"
    encoder = model.keras()
    ids, mask, _ = (part.numpy() for part in _inputs(model, TEXTS[0]))
    np.testing.assert_allclose(encoder({"input_ids": ids}), model.states(TEXTS[:1])[0].vectors[None], atol=2e-6)
    inputs = {"input_ids": np.repeat(ids, 8, 0), "input_mask": np.repeat(mask, 8, 0)}
    assert not np.allclose(encoder(inputs, training=True)[0], encoder(inputs, training=True)[1])
    np.testing.assert_array_equal(encoder(inputs, training=False)[0], encoder(inputs)[1])

    tokens = tf_keras.Input([None], dtype=tf.int32, name="input_ids")
    seen = tf_keras.Input([None], dtype=tf.int32, name="input_mask")
    states = encoder({"input_ids": tokens, "input_mask": seen})
    classifier = tf_keras.Model([tokens, seen], tf_keras.layers.Dense(2)(states[:, 0]))
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    classifier.compile(tf_keras.optimizers.legacy.SGD(0.01), loss)
    before = encoder.trainable_variables[0].numpy().copy()
    classifier.fit(inputs, np.array([0, 1] * 4), epochs=1, verbose=0)
    assert not np.array_equal(before, encoder.trainable_variables[0].numpy())
    lines: list[str] = []
    classifier.summary(print_fn=lines.append)
    assert any("electra" in line for line in lines)

    again = EncoderModel.from_config(encoder.get_config())
    encoder.save_weights(str(tmp_path / "w" / "weights"))
    again.load_weights(str(tmp_path / "w" / "weights")).expect_partial()
    np.testing.assert_array_equal(again({"input_ids": ids}), encoder({"input_ids": ids}))
    encoder.save(str(tmp_path / "saved"), save_format="tf")
    loaded = tf_keras.models.load_model(str(tmp_path / "saved"))
    np.testing.assert_allclose(loaded({"input_ids": tf.constant(ids)}), encoder({"input_ids": ids}), atol=1e-6)


@pytest.mark.slow
def test_importing_and_using_it_prints_nothing(tmp_path: Path) -> None:
    code = f"import electra_tf2 as e; print(len(e.load({str(golden.CHECKPOINT)!r}).states(['a'])))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "1\n" and done.stderr == ""
