"""Hugging Face directories in and out, against numbers that transformers computed (tests/golden/huggingface.npz)."""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer

import electra_tf2 as electra
from electra_tf2.corpus.encoding import Encoded
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.exports import card_programs, cards, conversions, exportable, tag_programs
from electra_tf2.exports.conversions import to_huggingface as convert
from electra_tf2.formats.huggingface_config import labels_of
from electra_tf2.formats.huggingface_tokenizer import casing_of, write_tokenizer
from electra_tf2.formats.readers import find_model, open_model, read_model
from electra_tf2.formats.stored_model import Casing, Hints
from electra_tf2.formats.tensor_file import write_tensors
from electra_tf2.formats.tf1_checkpoint import write_checkpoint
from electra_tf2.inference.model_config import config_of, with_config
from electra_tf2.inference.network import LOGITS, STATES
from electra_tf2.inference.predictor import Predictor
from electra_tf2.util.errors import UserError
from tests.support import fake_transformers, golden
from tests.support import huggingface_oracle as oracle
from tests.support import stored_models as support
from tests.support.programs import run_program
from tests.support.stored_models import to_huggingface, write_folder, write_huggingface

ARRAYS = support.GOLDEN()


@pytest.mark.parametrize("name", oracle.CLASSES)
def test_our_network_with_their_weights_computes_what_transformers_does(name: str, tmp_path: Path) -> None:
    support.write_crc_directory(tmp_path, name)
    model, rows = read_model(str(tmp_path)), Encoded(*oracle.inputs())
    assert not model.left_out
    found, real = conversions.outputs(model, "main", rows), rows.input_mask.astype(bool)
    assert np.abs(found[STATES] - ARRAYS[f"{name}/states"])[real].max() < 1e-5
    assert (LOGITS in found) == (f"{name}/logits" in ARRAYS)
    if LOGITS in found:
        expected = ARRAYS[f"{name}/logits"]
        expected = expected[..., 1] - expected[..., 0] if "detector" in name else expected  # of two labels
        kept = real if expected.shape[:2] == real.shape else slice(None)
        logits = found[LOGITS][:, :3] if "MaskedLM" in name else found[LOGITS]
        np.testing.assert_allclose(logits[kept], expected[kept], atol=1e-5)


_NARROW = [name for name, config in oracle.CLASSES.items() if config.get("embedding_size") == 16]


@pytest.mark.parametrize(("name", "wide"), [*((n, False) for n in oracle.CLASSES), *((n, True) for n in _NARROW)])
def test_their_class_and_tensors_come_back_bit_for_bit(name: str, wide: bool, tmp_path: Path) -> None:
    """By way of a folder of ours, too; also where the embeddings are as wide as the layers."""
    tensors = support.write_crc_directory(tmp_path, name)
    config = json.loads((tmp_path / "config.json").read_text())
    if wide:
        tables = {key: value for key, value in tensors.items() if ".embeddings." in key or "generator_pred" in key}
        wider = oracle.crc_tensors((key, (*value.shape[:-1], 24)) for key, value in tables.items())
        wider |= oracle.crc_tensors([("generator_predictions.dense.weight", (24, 24))] if name.endswith("LM") else [])
        tensors = {key: value for key, value in (tensors | wider).items() if "embeddings_project" not in key}
        (tmp_path / "config.json").write_text(json.dumps(config | {"embedding_size": 24}))
    if "detector" in name:  # of whose labels the first one's logit is 0
        tensors["classifier.weight"][0], tensors["classifier.bias"][0] = 0, 0
    write_tensors(tmp_path / "model.safetensors", tensors)
    write_folder(tmp_path / "ours", read_model(str(tmp_path)))
    for model in (read_model(str(tmp_path)), read_model(str(tmp_path / "ours"))):
        exported = to_huggingface(model)
        assert exported.class_name == name.split(" ")[0] and exported.tensors.keys() == tensors.keys()
        for key, value in tensors.items():
            np.testing.assert_array_equal(exported.tensors[key], value, err_msg=key)


def test_a_tensor_is_a_copy_only_if_it_is_one(tmp_path: Path) -> None:
    tensors = support.write_crc_directory(tmp_path, "BertForMaskedLM")
    table, copy = tensors["bert.embeddings.word_embeddings.weight"], "cls.predictions.decoder.weight"
    support.write_crc_directory(tmp_path, "BertForMaskedLM", {copy: table})
    assert not open_model(tmp_path).left_out
    support.write_crc_directory(tmp_path, "BertForMaskedLM", {copy: table + 1})
    assert open_model(tmp_path).left_out == [copy]  # which transformers ties all the same
    support.write_crc_directory(tmp_path, "BertForMaskedLM", {copy: table + 1}, tie_word_embeddings=False)
    with pytest.raises(UserError, match="an output table of its own"):
        read_model(tmp_path)


def test_a_language_model_of_electra_has_gelu_in_its_head(tmp_path: Path) -> None:
    support.write_crc_directory(tmp_path, "ElectraForMaskedLM", hidden_act="relu")
    with pytest.raises(UserError, match="has the activation gelu, its layers relu"):
        read_model(tmp_path)


def test_one_segment_is_that_of_both_texts_and_goes_out_as_one(tmp_path: Path) -> None:
    name, table = "ElectraForPreTraining", "electra.embeddings.token_type_embeddings.weight"
    first = support.write_crc_directory(tmp_path, name)[table][:1]
    support.write_crc_directory(tmp_path, name, {table: first}, type_vocab_size=1)
    one = electra.load(tmp_path).states([("the man", "went")])[0].vectors
    assert convert(tmp_path / "out", read_model(str(tmp_path)), exportable.Options()).difference < 1e-5
    assert Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json")).encode("a", "b").type_ids == [0] * 5
    support.write_crc_directory(tmp_path, name, {table: np.repeat(first, 2, 0)})
    np.testing.assert_array_equal(electra.load(tmp_path).states([("the man", "went")])[0].vectors, one)


def test_the_epsilon_of_layer_norms_is_theirs(tmp_path: Path) -> None:
    support.write_crc_directory(tmp_path / "theirs", "BertForMaskedLM", layer_norm_eps=0.01)
    model = read_model(str(tmp_path / "theirs"))
    assert find_model(tmp_path / "theirs").network["model_hparam_overrides"]["norm_eps"] == 0.01
    assert convert(tmp_path / "ours", model, exportable.Options()).difference < 1e-5
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["layer_norm_eps"] == 0.01
    with pytest.raises(UserError, match=r"the original program has no norm_eps 0.01"):
        write_checkpoint(tmp_path / "tf1", model.weights, model.architecture, 0, False)


@pytest.mark.parametrize("part", ["main", "generator", "body"])
def test_ours_goes_out_and_back_bit_for_bit(part: str, tmp_path: Path) -> None:
    model = support.tiny()
    assert convert(tmp_path, model, exportable.Options(part)).difference < 1e-5
    again = read_model(str(tmp_path))
    for name, value in again.weights.items():
        there = name
        if part == "generator" and not name.startswith("electra/embeddings/"):  # which the two share
            there = name.replace("electra/", "generator/")
        np.testing.assert_array_equal(value, model.weights[there], err_msg=name)
    assert again.tokens == model.tokens and again.casing.do_lower_case
    assert again.architecture.embedding_size == 32


_CLASSES, _TAGS = "ElectraForSequenceClassification", "ElectraForTokenClassification"
_GELU = support.dense(128, "inner") | support.dense(3)
HEADS = [
    ("cola", support.dense(2), {"labels": ["0", "1"]}, {}, _CLASSES),
    ("sts", support.dense(1), {}, {}, _CLASSES),
    ("mnli", _GELU, {"labels": ["contradiction", "entailment", "neutral"]}, {"classifier": "gelu"}, _CLASSES),
    ("ner", support.dense(9), {"labels": list("abcdefghi")}, {}, _TAGS),
    (
        "squad",
        support.SPANS,
        {},
        {"joint_prediction": False, "answerable_classifier": False},
        "ElectraForQuestionAnswering",
    ),
]


@pytest.mark.parametrize(("task", "heads", "state", "hparams", "class_name"), HEADS, ids=[row[0] for row in HEADS])
def test_fine_tuned_heads_compute_the_same_logits(task, heads, state, hparams, class_name, tmp_path: Path) -> None:
    model = support.fine_tuned(task, heads, state, **hparams)
    exported, written = to_huggingface(model), convert(tmp_path, model, exportable.Options())
    assert exported.class_name == class_name and not exported.left_out and written.difference < 1e-5
    config = json.loads((tmp_path / "config.json").read_text())
    if "labels" in state:
        assert [config["id2label"][str(number)] for number in range(len(state["labels"]))] == state["labels"]


def test_labels_of_spans_are_those_that_pipelines_group(tmp_path: Path) -> None:
    """transformers' pipeline knows B- and I- alone: a word with S-PER would be an entity of the type "S-PER"."""
    labels = ["B-PER", "E-PER", "I-PER", "O", "S-PER"]
    model = support.fine_tuned("ner", support.dense(5), {"labels": labels, "encoding": "BIO", "splits_at_signs": True})
    convert(tmp_path, model, exportable.Options())
    config = json.loads((tmp_path / "config.json").read_text())
    names = [config["id2label"][str(number)] for number in range(5)]
    assert names == ["B-PER", "I-PER", "I-PER", "O", "B-PER"]
    assert config["label2id"] == {"B-PER": 0, "I-PER": 1, "O": 3}
    card = (tmp_path / "README.md").read_text()
    assert 'aggregation_strategy="first"' in card and "spans of 1 type: PER" in card
    assert "joins spans of one type that stand side by side" in card


def test_words_between_blanks_are_not_given_to_the_pipeline_which_splits_them(tmp_path: Path, monkeypatch) -> None:
    """It would take each part of "labor-management" for a word. The program prints the tags that predict gives."""
    labels = {"labels": ["NN", "DT", "VB"]}
    model = support.fine_tuned("pos", support.dense(3), labels)
    written = convert(tmp_path, model, exportable.Options())
    assert "use the program in README.md, not transformers' pipeline" in written.summary
    assert "pipeline(" not in fake_transformers.program_of_card(tmp_path)
    words = tag_programs.EXAMPLE_WORDS.split()
    (answer,) = Predictor(model, model.tokenizer())([{"words": words}], "pos")
    assert_printed(fake_transformers.printed_by_card(tmp_path, monkeypatch), answer)


def assert_printed(lines: list[str], answer: dict) -> None:
    """Raises AssertionError unless lines have the words, tags and probabilities of an answer of `predict`."""
    printed = [line.rsplit(" ", 2) for line in lines]
    assert [(word, tag) for word, tag, _ in printed] == list(zip(answer["words"], answer["tags"], strict=True))
    assert [float(probability) for *_, probability in printed] == pytest.approx(answer["probabilities"], abs=1e-5)


@pytest.mark.parametrize(
    "state",
    [
        {"labels": ["B-PER", "E-PER", "I-PER", "O", "S-PER"], "encoding": "BIO", "splits_at_signs": True},
        {"labels": ["B-PER", "E-PER", "I-PER", "O", "S-PER"], "encoding": "BILOU"},
        {"labels": ["B-_", "E-_", "I-_", "O", "S-_"], "encoding": "BIO"},
    ],
    ids=["of marked texts", "BILOU", "letters alone"],
)
def test_the_program_for_spans_prints_the_tags_of_predict(state, tmp_path: Path, monkeypatch) -> None:
    model = support.fine_tuned("ner", support.dense(5), state)
    convert(tmp_path, model, exportable.Options())
    text = tag_programs.EXAMPLE_WORDS
    if "splits_at_signs" in state:
        text = tag_programs.EXAMPLE_TEXT
    (answer,) = Predictor(model, model.tokenizer())([{"text": text}], "ner")
    assert len(set(answer["tags"])) > 1
    printed = fake_transformers.printed_by_card(tmp_path, monkeypatch)
    if "splits_at_signs" in state:
        of_spans = [f"{one['start']} {one['end']} {one['type']} {one['text']}" for one in answer["entities"]]
        assert of_spans and printed[len(answer["words"]) :] == of_spans
        printed = printed[: len(answer["words"])]
    assert_printed(printed, answer)


@pytest.mark.parametrize(
    ("state", "hparams"), [({}, {}), ({"v2": True}, {"qa_na_threshold": -100.0}), ({"v2": True}, {})]
)
def test_the_program_for_questions_prints_the_answer_of_predict(state, hparams, tmp_path: Path, monkeypatch) -> None:
    """Without a pipeline, which transformers 5 has removed; where it is decided so, that there is none."""
    independent = {"joint_prediction": False, "answerable_classifier": False}
    model = support.fine_tuned("squad", support.SPANS, state, **independent, **hparams)
    convert(tmp_path, model, exportable.Options())
    asked = {"question": card_programs.EXAMPLE_QUESTION, "context": card_programs.EXAMPLE_CONTEXT}
    (answer,) = Predictor(model, model.tokenizer())([asked], "squad")
    assert fake_transformers.printed_by_card(tmp_path, monkeypatch) == [f"answer: {answer['prediction_text']}"]


@pytest.mark.parametrize(
    ("state", "hparams", "agrees"),
    [
        ({"v2": True}, {}, False),
        ({"v2": True}, {"answerable_classifier": False}, True),
        ({"v2": False}, {}, True),
    ],
)
def test_a_card_of_questions_says_whose_scores_it_has(state, hparams, agrees) -> None:
    """The program decides otherwise where the layer stays behind that knows if there is an answer."""
    heads = support.SPANS | {"answerable/kernel": [128, 1]}
    model = support.fine_tuned("squad", heads, state, joint_prediction=False, **hparams)
    evaluation = {"features": 65, "examples": {"squad": {"dev": 40}}}
    model = model.changed(scores={"scores": {"squad": {"dev": {"f1": 90.0}}}, "evaluation": evaluation})
    card = cards.huggingface_card(with_config(model), to_huggingface(model))
    assert "Scored on 40 questions (squad dev), by one training run" in card
    assert ("has the same where a context fits" in card) == agrees
    assert ("decides that otherwise, and was not scored" in card) != agrees
    assert ("`NoAns`: of the questions" in card) == state["v2"]


def test_a_card_without_the_tasks_head_does_not_pretend(tmp_path: Path) -> None:
    heads = {"end_hidden/kernel": [256, 512], "start/kernel": [128, 1], "end/kernel": [512, 1]}
    model = support.fine_tuned("squad", heads, {}, answerable_classifier=False)
    model = model.changed(scores={"scores": {"squad": {"dev": {"f1": 90.0}}}})
    exported = to_huggingface(model)
    card = cards.huggingface_card(with_config(model), exported)
    assert "# The encoder of squad (qa), without the head" in card and "## Scores" not in card and "90" not in card
    assert "train with --no-joint-prediction" in card and "**This is not a model of the task**" in card
    with_head = support.fine_tuned("squad", support.SPANS, {}, joint_prediction=False, answerable_classifier=False)
    card = cards.huggingface_card(with_config(with_head), to_huggingface(with_head))
    assert "# squad (qa)" in card and "not a model of the task" not in card


def test_what_is_left_out_is_said_in_words() -> None:
    for part, words in (("generator", "the discriminator, the main network"), ("main", "the generator")):
        model = with_config(support.tiny())
        missing = cards.missing_parts(model, to_huggingface(support.tiny(), part))
        assert any(line.startswith(words) for line in missing), missing
        assert not any("_predictions" in line for line in missing)


def test_a_head_without_counterpart_is_left_out_and_named() -> None:
    heads = {"end_hidden/kernel": [256, 512], "start/kernel": [128, 1], "end/kernel": [512, 1]}
    exported = to_huggingface(support.fine_tuned("squad", heads, {}))
    assert exported.class_name == "ElectraModel" and "joint_prediction" in exported.left_out[0]


def test_networks_that_they_do_not_have_are_refused_with_the_reason() -> None:
    model = support.tiny()
    for override, word in (
        ({"relative_positions": "t5"}, "relative"),
        ({"norm_style": "pre"}, "norm"),
        ({"local_attention": 8}, "local_attention 8"),
    ):
        sizes = config_of(model).model_hparam_overrides | override
        config = golden.config(model_hparam_overrides=sizes)
        with pytest.raises(UserError, match=word):
            to_huggingface(model.changed(hparams=dataclasses.asdict(config)))


def test_shards_old_names_and_padded_tables_are_read(tmp_path: Path) -> None:
    tensors = support.write_crc_directory(tmp_path / "whole", "BertForMaskedLM")
    plain = open_model(tmp_path / "whole")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in tensors.items()
    }
    old["cls.predictions.decoder.bias"] = np.append(old.pop("cls.predictions.bias"), np.ones([8], np.float32))
    table = "bert.embeddings.word_embeddings.weight"
    old[table] = np.concatenate([old[table], np.ones([8, 24], np.float32)])
    folder = tmp_path / "sharded"
    shutil.copytree(tmp_path / "whole", folder)
    (folder / "model.safetensors").unlink()
    names = sorted(old)
    files = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, held in files.items():
        write_tensors(folder / file, {name: old[name] for name in held})
    index = {"weight_map": {name: file for file, held in files.items() for name in held}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(oracle.config_of("BertForMaskedLM") | {"vocab_size": 608}))
    padded = open_model(folder)
    assert padded.weights.keys() == plain.weights.keys() and not padded.left_out
    for name, value in plain.weights.items():
        np.testing.assert_array_equal(padded.weights[name], value)


def test_a_pickle_is_not_opened_but_explained(tmp_path: Path) -> None:
    support.write_crc_directory(tmp_path, "BertForMaskedLM")
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match="pickle"):
        read_model(tmp_path)


def test_the_written_tokenizer_gives_our_ids(tmp_path: Path) -> None:
    model = support.tiny().changed(tokens=(golden.GOLDEN / "tokenizer_vocab.txt").read_text().split())
    ours = WordpieceTokenizer(model.tokens)
    write_tokenizer(tmp_path, model.tokens, model.casing, 512)
    theirs = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    texts = ["Plain words, and some punctuation: 3.5%!", "Müller ging nach München.", "don't", "北京 2008", "x" * 150]
    for text in texts:
        ids, _ = ours.tokenize([text.encode()])
        assert theirs.encode(text).ids == [ours.special.cls, *ids, ours.special.sep], text
    pair = theirs.encode("a", "b")
    assert pair.type_ids == [0, 0, 0, 1, 1]


def test_the_written_tokenizer_cuts_where_the_model_ends(tmp_path: Path) -> None:
    """At as many tokens as there are position embeddings, by transformers and by its file alone."""
    sizes = {"max_position_embeddings": 48}
    model = support.with_crc_weights(sizes, max_seq_length=32)
    write_huggingface(tmp_path, model)
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["model_max_length"] == 48
    assert len(Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("the " * 100).ids) == 48


@pytest.mark.parametrize("casing", [Casing(False, True), Casing(True, False), Casing(True, None)])
def test_the_written_tokenizer_strips_accents_where_ours_does(casing: Casing, tmp_path: Path) -> None:
    write_tokenizer(tmp_path, support.tiny().tokens, casing, 512)
    theirs = Tokenizer.from_file(str(tmp_path / "tokenizer.json")).normalizer.normalize_str("Ärger")
    assert [theirs.encode()] == WordpieceTokenizer(support.tiny().tokens, *casing).normalize(["Ärger".encode()])
    assert casing_of(tmp_path).do_lower_case == casing.do_lower_case


_DEFAULT = {"tokenizer_class": "ElectraTokenizer"}


@pytest.mark.parametrize("given", [_DEFAULT, {"tokenizer_class": "BertTokenizerFast"}, {}, None])
@pytest.mark.parametrize(
    ("said", "casing"),
    [
        ({"do_lower_case": False}, Casing(False, None)),
        ({"do_lower_case": True, "strip_accents": False}, Casing(True, False)),
        ({}, Casing(True, None)),  # their default
    ],
)
def test_of_berts_tokenizers_the_configuration_wins(given, said, casing: Casing, tmp_path: Path) -> None:
    """Follows transformers 4.57 and 5 in tokenizer_config.json and tokenizer.json that disagree."""
    for lower in (True, False):
        normalizer = {"type": "BertNormalizer", "lowercase": lower, "strip_accents": None}
        fast = {"normalizer": normalizer, "pre_tokenizer": {"type": "BertPreTokenizer"}}
        (tmp_path / "tokenizer.json").write_text(json.dumps(fast))
        (tmp_path / "vocab.txt").write_text((golden.CHECKPOINT / "vocab.txt").read_text())
        if given is not None:
            (tmp_path / "tokenizer_config.json").write_text(json.dumps(given | said))
            assert casing_of(tmp_path) == casing
        else:
            assert casing_of(tmp_path) == Casing(True, None)
        for name in ("PreTrainedTokenizerFast", "TokenizersBackend"):  # of which tokenizer.json is all
            (tmp_path / "tokenizer_config.json").write_text(json.dumps(said | {"tokenizer_class": name}))
            assert casing_of(tmp_path) == Casing(lower, None)
        (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(_DEFAULT | {"tokenize_chinese_chars": False}))
    with pytest.raises(UserError, match="tokenize_chinese_chars false"):
        casing_of(tmp_path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Hints(vocab_file="vocab.txt"), "vocab_file: the files of .* hold it already, so leave it out"),
        (
            Hints(num_attention_heads=4, do_lower_case=False),
            "num_attention_heads and do_lower_case: the files of .* hold them already, so leave them out",
        ),
        (Hints(pairs=True), None),
        (Hints(), None),
    ],
)
def test_what_a_directory_says_itself_is_not_to_be_told(given: Hints, message: str | None, tmp_path: Path) -> None:
    checkpoint = str(golden.CHECKPOINT)
    open_model(checkpoint, given._replace(pairs=False))
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(UserError, match=message) if message else contextlib.nullcontext():
        open_model(tmp_path, given)
    with pytest.raises(UserError, match="given for a classifier of Hugging Face"):
        open_model(checkpoint, given._replace(pairs=True))


def test_padding_is_where_the_vocabulary_has_it(tmp_path: Path) -> None:
    model = support.tiny()
    model = model.changed(tokens=model.tokens[::-1])
    write_huggingface(tmp_path, model, "body")
    assert json.loads((tmp_path / "config.json").read_text())["pad_token_id"] == model.tokens.index("[PAD]") > 0


def test_labels_are_in_the_order_of_their_numbers_however_the_file_sorts_them() -> None:
    """transformers sorts the keys of config.json as texts: 0, 1, 10, 11, 2."""
    names = {str(number): f"label {number}" for number in range(12)}
    sorted_as_text = {number: names[number] for number in sorted(names)}
    assert labels_of({"id2label": sorted_as_text}) == [*names.values()]


def test_a_classifier_of_several_labels_at_once_is_read_without_its_head(tmp_path: Path) -> None:
    several: dict[str, Any] = {"problem_type": "multi_label_classification"}
    support.write_crc_directory(tmp_path, _CLASSES, **several)
    model = open_model(tmp_path)
    assert model.task_states is None and "classifier.out_proj.weight" in model.left_out
    support.write_crc_directory(tmp_path, _CLASSES, **several, architectures=None)
    assert open_model(tmp_path).weights.keys() == model.weights.keys()


def test_a_classifier_of_pairs_becomes_a_folder_that_predicts_pairs(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    support.write_crc_directory(tmp_path / "theirs", "ElectraForSequenceClassification")
    done = run_program("convert_model.py", "--from", f"{tmp_path}/theirs", "--to", f"{tmp_path}/ours", "--pairs")
    assert done.returncode == 0 and done.stdout.count("self-check: ") == 1, done
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "-1"  # conversions are checked on the processor
    [answer] = electra.load(str(tmp_path / "ours")).predict([("a b", "c d")])
    [expected] = electra.load(str(tmp_path / "theirs"), pairs=True).predict([("a b", "c d")])
    assert answer == expected


_CONFIG = oracle.config_of(_CLASSES)
_INDEX = "model.safetensors.index.json"
_OUTSIDE = "../outside.safetensors"
_UNCLEAN = {
    "normalizer": {"type": "BertNormalizer", "clean_text": False},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
}
_BEYOND = "beyond the WordPiece vocabulary, which ours cannot have: [E1]"
# Changes of config.json, or what other files say; and the reason.
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("config.json", {"model_type": "roberta"}, "roberta"),
    ("config.json", {"model_type": ["bert"]}, "model_type is"),
    ("config.json", {"hidden_act": "gelu_new"}, "gelu_new"),
    ("config.json", {"layer_norm_eps": 0}, "layer_norm_eps must be above 0"),
    ("config.json", {"position_embedding_type": "relative_key"}, "relative_key"),
    ("config.json", {"is_decoder": True}, "is_decoder"),
    ("config.json", {"hidden_size": "24"}, "hidden_size must be int"),
    ("config.json", {"vocab_size": 599}, "600 tokens"),
    ("config.json", {"architectures": [{"a": 1}]}, "architectures must be a text, got {'a': 1}"),
    ("config.json", {"architectures": "A"}, "architectures must be a list, got 'A'"),
    ("config.json", {"id2label": {"x": "y"}}, "id2label must be an object of numbers and labels"),
    ("config.json", {"id2label": {"0": "a", "1": 5}}, "id2label must name the classes 0 to 1 by texts"),
    ("config.json", {"layer_norm_eps": "tiny"}, "layer_norm_eps must be float, got 'tiny'"),
    ("config.json", {"num_hidden_layers": 2**70}, "num_hidden_layers must be an integer of 64 bits"),
    ("config.json", {"num_hidden_layers": 10**9}, "num_hidden_layers 1000000000 (1000 at most)"),
    ("config.json", {"intermediate_size": 10**9}, "by config.json it is (1000000000, 24)"),
    ("added_tokens.json", {"[E1]": 600}, _BEYOND),
    ("added_tokens.json", {"[E1]": "7"}, "id of the added token [E1] must be an integer, got '7'"),
    ("tokenizer.json", {"added_tokens": [{"content": "[E1]", "id": 600}]}, _BEYOND),
    ("tokenizer.json", {"added_tokens": ["a"]}, "added_tokens must be an object, got 'a'"),
    ("tokenizer.json", {"normalizer": {}, "pre_tokenizer": "x"}, "pre_tokenizer must be an object, got 'x'"),
    ("tokenizer.json", {"normalizer": {"type": "Sequence"}}, "normalizer Sequence; no pre_tokenizer None"),
    ("tokenizer.json", _UNCLEAN, "clean_text false"),
    ("tokenizer_config.json", {"tokenizer_class": 5}, "tokenizer_class must be a text, got 5"),
    ("tokenizer_config.json", {"tokenizer_class": "BertJapaneseTokenizer"}, "tokenizer_class BertJapaneseTokenizer"),
    ("tokenizer_config.json", {"tokenize_chinese_chars": False}, "tokenize_chinese_chars false"),
    ("tokenizer_config.json", {"do_lower_case": False, "strip_accents": True}, "strip_accents true for text that"),
    (_INDEX, {"weight_map": {"a": 3}}, "weight_map, an object of tensors and their files, is needed, got {'a': 3}"),
    (_INDEX, {"weight_map": {"a": _OUTSIDE}}, f"names '{_OUTSIDE}': only files in its own folder are read"),
    (_INDEX, {"weight_map": {"a": "x" * 300}}, "the name is too long"),
]


@pytest.mark.parametrize(("file", "said", "message"), REFUSED)
def test_directories_that_we_cannot_read_are_refused_in_one_line(file: str, said, message: str, tmp_path: Path) -> None:
    support.write_crc_directory(tmp_path / "model", _CLASSES)
    shutil.copy(tmp_path / "model" / "model.safetensors", tmp_path / "outside.safetensors")
    (tmp_path / "model" / file).write_text(json.dumps(_CONFIG | said if file == "config.json" else said))
    with pytest.raises(UserError, match=re.escape(message)) as raised:
        read_model(str(tmp_path / "model"))
    assert "\n" not in str(raised.value)


_QUERY = "electra.encoder.layer.0.attention.self.query.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda value: value.reshape(-1), f"the shapes of {_QUERY} (576,), "),
        (lambda value: value[:, :7], f"the shapes of {_QUERY} (24, 7), "),
        (lambda value: np.full_like(value, np.nan), f"the tensor {_QUERY} holds numbers that are not finite"),
        (lambda value: value.astype(np.int8), f"the tensor {_QUERY} is of type I8"),
    ],
)
def test_tensors_that_are_no_weights_are_refused_by_name(change, message: str, tmp_path: Path) -> None:
    tensors = support.write_crc_directory(tmp_path, "ElectraForPreTraining")
    save_file(tensors | {_QUERY: np.ascontiguousarray(change(tensors[_QUERY]))}, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=re.escape(message)) as refused:
        read_model(str(tmp_path))
    assert str(tmp_path) in str(refused.value)


def test_stored_numbers_of_positions_and_segments_are_passed_over(tmp_path: Path) -> None:
    tensors = support.write_crc_directory(tmp_path, "ElectraForPreTraining")
    numbers = {
        f"electra.embeddings.{name}": np.zeros([1, 512], np.int64) for name in ("position_ids", "token_type_ids")
    }
    save_file(tensors | numbers, tmp_path / "model.safetensors")
    assert read_model(str(tmp_path)).left_out == []


def test_the_card_says_how_it_was_trained_and_not_where(tmp_path: Path) -> None:
    model = support.with_crc_weights(num_train_steps=3000, data_dir="elsewhere")
    write_huggingface(tmp_path, model)
    card = (tmp_path / "README.md").read_text()
    assert '"num_train_steps": 3000' in card and "elsewhere" not in card and "vocab.txt" not in card
    assert "from transformers import AutoTokenizer, ElectraForPreTraining" in card


def test_the_card_of_a_fine_tuned_model_says_task_labels_base_model_scores_and_how_to_use_it(tmp_path: Path) -> None:
    model = support.fine_tuned("cola", support.dense(3), {"labels": ["neg", "neu", "pos"]}, model_name="small_base")
    scores = {"cola": {"dev": {"mcc": 93.33333333333333}}}
    trial = {
        "scores": scores,
        "evaluation": {"features": 65, "examples": {"cola": {"dev": 30}}},
        "errors": {"cola": "a text of the development data"},
    }
    write_folder(tmp_path / "trial", model.changed(scores=trial))
    write_folder(tmp_path / "moved", read_model(str(tmp_path / "trial")))
    assert electra.load(tmp_path / "moved").scores == scores
    write_huggingface(tmp_path, read_model(str(tmp_path / "moved")))
    card = (tmp_path / "README.md").read_text()
    assert "of the development data" not in card
    for words in (
        "pipeline_tag: text-classification",
        "# cola (classification: neg, neu, pos)",
        "- `cola`: classification, 3 labels: neg, neu, pos",
        "- fine-tuned from `small_base`",
        'run = pipeline("text-classification", model="path/of/this/folder", truncation=True, max_length=64)',
        "| cola | dev | mcc | 93.33 |",
        "Scored on 30 examples (cola dev), by one training run",
    ):
        assert words in card, card
    assert card.index("## How to use it") < card.index("## Scores") < card.index("```json")


def test_files_of_tasks_stay_where_they_are_and_are_not_told(tmp_path: Path) -> None:
    own = {"type": "classification", "labels": ["a", "b"]}
    described = own | {"files": {"train": "/home/somebody/train.csv"}}
    heads, state = support.dense(2, "dense"), {"labels": ["a", "b"]}
    model = support.fine_tuned("mine", heads, state, tasks={"mine": described})
    write_huggingface(tmp_path / "theirs", model)
    write_folder(tmp_path / "ours", model)
    texts = [path.read_text() for path in tmp_path.glob("*/*") if path.suffix in (".md", ".json")]
    assert len(texts) > 4 and not any("somebody" in text for text in texts)
    assert read_model(str(tmp_path / "ours")).hparams["tasks"] == {"mine": own}


def test_a_failed_conversion_leaves_no_folder(tmp_path: Path) -> None:
    huge = {_QUERY: np.full([24, 24], 1e6, np.float32)}  # beyond float16
    support.write_crc_directory(tmp_path / "theirs", "ElectraForPreTraining", huge)
    words = ["--from", f"{tmp_path}/theirs", "--to", f"{tmp_path}/ours", "--dtype", "float16"]
    done = run_program("convert_model.py", *words)
    assert done.returncode == 2 and not (tmp_path / "ours").exists(), done
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "kept.txt").write_text("of the user")
    done = run_program("convert_model.py", *words, "--overwrite")
    assert done.returncode == 2 and (tmp_path / "ours" / "kept.txt").exists()


def test_a_conversion_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    support.write_crc_directory(tmp_path / "theirs", "ElectraForPreTraining")
    ours = tmp_path / "ours"
    (ours / "model.ckpt-0.tmp").mkdir(parents=True)
    kept = {"notes.tmp", "mine.txt"}
    for name in (f"model.safetensors.{socket.gethostname()}-4999999.tmp", "model.ckpt-0.tmp/part.data", *kept):
        (ours / name).write_text("half")
    done = run_program("convert_model.py", "--from", f"{tmp_path}/theirs", "--to", str(ours), "--overwrite")
    assert done.returncode == 0, done
    whole = {"config.json", "model.safetensors", "vocab.txt", "huggingface.json"}
    assert {path.name for path in ours.iterdir()} == whole | kept


# Tasks whose meaning transformers' own fields do not hold: the head, its state, hparams, and a row to predict.
_SPAN_LABELS = ["B-PER", "E-PER", "I-PER", "O", "S-PER"]
_PAIR = {"sentence1": "A man sings.", "sentence2": "An elderly man got a home."}
_QUESTION = {"question": card_programs.EXAMPLE_QUESTION, "context": card_programs.EXAMPLE_CONTEXT}
CAME_BACK: dict[str, tuple[dict, dict, dict, dict]] = {
    "sts": (support.dense(1), {}, {}, _PAIR),
    "rte": (support.dense(2), {"labels": ["entailment", "not_entailment"]}, {}, _PAIR),
    "stars": (
        support.dense(1),
        {"range": [1.0, 10.0]},
        {"tasks": {"stars": {"type": "regression", "text_columns": ["review"]}}},
        {"review": "A man sings."},
    ),
    "ner": (
        support.dense(5),
        {"labels": _SPAN_LABELS, "encoding": "BIO", "splits_at_signs": True, "spans": True},
        {"tasks": {"ner": {"type": "tagging"}}},
        {"text": "An elderly man (his wife's) got a home."},
    ),
    "squad": (
        support.SPANS,
        {"v2": True},
        {"joint_prediction": False, "answerable_classifier": False, "qa_na_threshold": -100.0},
        _QUESTION,
    ),
}


@pytest.mark.parametrize("task", CAME_BACK)
def test_a_model_that_comes_back_predicts_what_it_did(task, tmp_path: Path) -> None:
    """transformers' own fields hold no scale, no pairs, no spans, no split at signs and no threshold."""
    heads, state, hparams, row = CAME_BACK[task]
    model = support.fine_tuned(task, heads, state, **hparams)
    [expected] = Predictor(model, model.tokenizer())([row], task)
    convert(tmp_path / "hf", model, exportable.Options())
    assert_same_answer(vars(electra.load(tmp_path / "hf").predict(row)), expected)
    (tmp_path / "new.jsonl").write_text(json.dumps(row) + "\n")
    output = tmp_path / "out.jsonl"
    flags = ["--predict", f"{tmp_path}/new.jsonl", "--model-dir", f"{tmp_path}/hf", "--predict-output", f"{output}"]
    done = run_program("run_finetuning.py", *flags)
    assert done.returncode == 0, done
    assert_same_answer(json.loads(output.read_text()), expected)


def test_scores_of_texts_are_the_same_after_the_way_through_hugging_face(tmp_path: Path) -> None:
    """They depend on how tokens were masked, which transformers' fields do not hold."""
    model = electra.load("electra_mini")
    main = with_config(model.source)
    unusual = main.changed(hparams=main.hparams | {"mask_prob": 0.4, "mask_rates": [0.9, 0.1, 0.0]})
    for part in ("main", "generator"):
        convert(tmp_path / part, unusual, exportable.Options(part=part))
    write_folder(tmp_path / "ours", unusual)
    texts = ["He plays the guitar.", "He plays guitar the."]
    expected = electra.load(tmp_path / "ours").score(texts)
    assert np.abs(expected - model.score(texts)).min() > 0.1
    convert(tmp_path / "again", read_model(str(tmp_path / "main")), exportable.Options())
    for folder in ("main", "again"):
        back = electra.load(tmp_path / folder, generator=tmp_path / "generator")
        np.testing.assert_allclose(back.score(texts), expected, atol=1e-4)


def assert_same_answer(answer: dict[str, Any], expected: dict[str, Any]) -> None:
    """Raises AssertionError unless an answer has all that is expected, numbers to 1e-5."""
    for name, value in expected.items():
        if isinstance(value, (float, dict)) or name == "probabilities":
            value = pytest.approx(value, abs=1e-5)
        if name == "entities":
            value = [entity | {"probability": pytest.approx(entity["probability"], abs=1e-5)} for entity in value]
        assert answer[name] == value, name


def test_a_model_that_learned_another_task_since_is_read_by_its_new_labels(tmp_path: Path) -> None:
    model = support.fine_tuned("ner", support.dense(5), {"labels": _SPAN_LABELS, "encoding": "BIO", "spans": True})
    convert(tmp_path, model, exportable.Options())
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"id2label": {str(number): f"tag {number}" for number in range(5)}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert open_model(tmp_path).task_states == {"tags": {"labels": [f"tag {number}" for number in range(5)]}}
    config["electra_tf2"] = {"hparams": {"task_names": ["ner"], "tasks": {}}, "state": 5}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"config.json: electra_tf2.state must be an object, got 5"):
        _ = open_model(tmp_path).task_states
