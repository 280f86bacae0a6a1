"""The original's TF1 checkpoints and tf-models-official's encoder, out and back."""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.exports import conversions, self_check
from electra_tf2.finetune.starts import configuration
from electra_tf2.formats import tf1_checkpoint, tf_models
from electra_tf2.formats.readers import find_model, open_model, read_model
from electra_tf2.formats.stored_model import Casing, Hints
from electra_tf2.formats.tf1_checkpoint import hparams_from_shapes
from electra_tf2.formats.warm_start import warm_start
from electra_tf2.inference.model_config import generator_architecture, with_config
from electra_tf2.pretrain.implied_hparams import implied_hparams
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from electra_tf2.util.errors import UserError
from tests.support import golden
from tests.support import stored_models as support
from tests.support.vocabularies import CASED, UNCASED


def _write_tf1(folder: Path, adam_slots: bool) -> str:
    model = support.tiny()
    prefix = tf1_checkpoint.write_checkpoint(folder, model.weights, model.architecture, 400, adam_slots)
    (folder / "vocab.txt").write_text((golden.CHECKPOINT / "vocab.txt").read_text())
    return prefix


@pytest.mark.parametrize("adam_slots", [False, True])
def test_a_written_checkpoint_has_the_originals_variables_and_values(adam_slots: bool, tmp_path: Path) -> None:
    prefix = _write_tf1(tmp_path, adam_slots)
    theirs = str(golden.CHECKPOINT / "model.ckpt-400")
    expected = dict(tf.train.list_variables(theirs))
    slots = {f"{name}/{slot}": shape for name, shape in expected.items() for slot in ("adam_m", "adam_v") if shape}
    assert dict(tf.train.list_variables(prefix)) == expected | (slots if adam_slots else {})
    for name in expected:
        np.testing.assert_array_equal(tf.train.load_variable(prefix, name), tf.train.load_variable(theirs, name))
    assert tf.train.latest_checkpoint(str(tmp_path)) == prefix


def test_a_generator_that_the_original_would_not_make_is_warned_of(tmp_path: Path, capsys) -> None:
    model = with_config(support.tiny())
    generator = model.generator_sizes
    assert generator is not None
    tf1_checkpoint.write_folder(tmp_path / "same", model, 400, adam_slots=False)
    assert "cannot go on" not in capsys.readouterr().err
    other = model.changed(generator_sizes=dataclasses.replace(generator, num_attention_heads=4))
    tf1_checkpoint.write_folder(tmp_path / "other", other, 400, adam_slots=False)
    assert "cannot go on with this generator: it has 4 heads" in " ".join(capsys.readouterr().err.split())


def test_sizes_are_read_off_the_shapes(tmp_path: Path) -> None:
    _write_tf1(tmp_path, adam_slots=False)
    model, expected = read_model(str(tmp_path)), golden.config()
    found = model.architecture, generator_architecture(model)
    for one, wanted in zip(found, (expected.architecture, expected.generator_architecture), strict=True):
        names = ("hidden_size", "num_hidden_layers", "num_attention_heads")
        assert [getattr(one, name) for name in names] == [getattr(wanted, name) for name in names]
    assert model.tokens == support.tiny().tokens and model.casing.do_lower_case
    assert conversions.read_back_difference(support.tiny(), model) == 0


def test_heads_and_casing_that_shapes_do_not_tell_come_back_from_the_hparams_beside_them(tmp_path: Path) -> None:
    overrides = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = golden.config(model_hparam_overrides=overrides, do_lower_case=False)
    model = support.tiny().changed(hparams=dataclasses.asdict(config), casing=Casing(False))
    _write_tf1(tmp_path, adam_slots=False)
    (tmp_path / "hparams.json").write_text(json.dumps(tf1_checkpoint.original_hparams(with_config(model))))
    again = read_model(str(tmp_path))
    assert again.architecture.num_attention_heads == 4 and not again.casing.do_lower_case
    assert conversions.read_back_difference(model, again) == 0
    start = find_model(str(tmp_path)).network
    assert start["model_hparam_overrides"]["num_attention_heads"] == 4 and not start["do_lower_case"]
    assert read_model(str(tmp_path), Hints(num_attention_heads=2)).architecture.num_attention_heads == 2
    (tmp_path / "hparams.json").write_text('{"model_hparam_overrides": "2 layers"}')
    assert read_model(str(tmp_path)).architecture.num_attention_heads == 2


def _write_original(folder: Path) -> None:
    _write_tf1(folder, adam_slots=False)


def _write_tf_models(folder: Path) -> None:
    pytest.importorskip("official.nlp.modeling.networks", reason="the extra tf-models is not installed")
    tf_models.write_checkpoint(folder, support.tiny().weights, support.tiny().architecture)


@pytest.mark.parametrize("write", [_write_original, _write_tf_models])
def test_casing_follows_from_a_released_vocabulary_beside_any_checkpoint(write, tmp_path: Path) -> None:
    write(tmp_path)
    tokens = (golden.CHECKPOINT / "vocab.txt").read_text().splitlines()
    kept = tokens[: -len(UNCASED)]
    for words, lower_cased in ((UNCASED, True), (CASED, False)):
        if not lower_cased:
            kept[300:] = [token.title() for token in kept[300:]]
        (tmp_path / "vocab.txt").write_text("\n".join(kept + words) + "\n", encoding="utf-8")
        model = read_model(str(tmp_path))
        assert model.casing == Casing(lower_cased)
        assert model.hparams["do_lower_case"] == model.network["do_lower_case"] == lower_cased
        assert with_config(model).resolved_hparams["do_lower_case"] == lower_cased
        [ids] = model.tokenizer().pieces(["The"])
        assert [model.tokens[token_id] for token_id in ids] == ["the" if lower_cased else "The"]
        start = {"init_checkpoint": str(tmp_path), "task_names": ["cola"], "max_seq_length": 32}
        assert configuration(start).do_lower_case == lower_cased
        pretraining = {"model_name": "electra_small", "init_checkpoint": str(tmp_path), "max_seq_length": 32}
        assert implied_hparams(pretraining)["do_lower_case"] == lower_cased
        assert read_model(str(tmp_path), Hints(do_lower_case=not lower_cased)).casing.do_lower_case != lower_cased


def test_a_vocabulary_with_accents_keeps_them(tmp_path: Path) -> None:
    _write_tf1(tmp_path, adam_slots=False)
    tokens = (golden.CHECKPOINT / "vocab.txt").read_text().splitlines()
    accented = ["été", "à", "##é", "œuvre", "français"]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens[: -len(accented)] + accented) + "\n", encoding="utf-8")
    model = read_model(str(tmp_path))
    assert model.casing == Casing(True, strip_accents=False)
    [ids] = model.tokenizer().pieces(["Été"])
    assert [model.tokens[token_id] for token_id in ids] == ["été"]
    start = {"init_checkpoint": str(tmp_path), "task_names": ["cola"], "max_seq_length": 32}
    assert configuration(start).do_strip_accents is False


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"electra_objective": False}, {"electra_objective": False}),
        ({"electra_objective": False, "electric_objective": True}, {"electric_objective": True}),
        ({"untied_generator": False}, {"electra_objective": True, "untied_generator": False}),
        ({"untied_generator_embeddings": True}, {"untied_generator_embeddings": True}),
    ],
    ids=["bert", "electric", "tied", "own embeddings"],
)
def test_kinds_of_models_are_told_apart(overrides, expected) -> None:
    model = support.with_crc_weights(**overrides)
    hparams = hparams_from_shapes({name: value.shape for name, value in model.weights.items()}, "checkpoint")
    assert hparams | expected == hparams
    found = PretrainingConfig.from_dict({"model_name": "x", "max_seq_length": 32} | hparams)
    assert found.architecture.hidden_size == 96
    assert found.generator_architecture.hidden_size == generator_architecture(model).hidden_size


def test_what_the_original_has_not_is_refused(tmp_path: Path) -> None:
    coco = support.with_crc_weights(electra_objective=False, corrective_lm_objective=True)
    with pytest.raises(UserError, match="copy_predictions"):
        tf1_checkpoint.write_checkpoint(tmp_path, coco.weights, coco.architecture, 0, False)
    rotary = golden.config(model_hparam_overrides={"relative_positions": "rotary"})
    with pytest.raises(UserError, match="relative"):
        tf1_checkpoint.write_checkpoint(tmp_path, support.tiny().weights, rotary.architecture, 0, False)
    model = support.with_crc_weights(generator_sample_mode="zero_dropout")
    with pytest.raises(UserError, match="no generator that shares some embeddings, or has its own"):
        tf1_checkpoint.write_checkpoint(tmp_path, model.weights, model.architecture, 0, False)
    assert not list(tmp_path.iterdir())


def test_tf_models_computes_our_states_and_gives_our_weights_back(tmp_path: Path) -> None:
    networks = pytest.importorskip("official.nlp.modeling.networks", reason="the extra tf-models is not installed")
    model = support.tiny()
    prefix = tf_models.write_checkpoint(tmp_path, model.weights, model.architecture)
    (tmp_path / "vocab.txt").write_text((golden.CHECKPOINT / "vocab.txt").read_text())
    assert conversions.tf_models_difference(model, prefix) < 1e-5
    again = read_model(str(tmp_path))
    assert set(again.weights) == {name for name in model.weights if name.startswith("electra/")}
    for name, value in again.weights.items():
        np.testing.assert_array_equal(value, model.weights[name], err_msg=name)
    assert again.architecture == model.architecture
    assert all("pooler" in name for name in again.left_out) and again.left_out
    start = {"init_checkpoint": str(tmp_path), "task_names": ["cola"], "max_seq_length": 32}
    assert configuration(start).architecture == model.architecture
    report = warm_start(PretrainingModel(golden.config()), open_model(tmp_path))
    assert {name for name in model.weights if name.startswith("electra/")} == {*report.loaded} and not report.unused
    a = model.architecture
    second = networks.BertEncoderV2(
        a.vocab_size, a.hidden_size, a.num_hidden_layers, a.num_attention_heads, a.max_position_embeddings,
        a.type_vocab_size, a.intermediate_size, tf_models.exact_gelu, embedding_width=a.embedding_size,
    )  # fmt: skip
    ids = tf.constant([[2, 7, 9, 3]])
    second({"input_word_ids": ids, "input_mask": tf.ones_like(ids), "input_type_ids": tf.zeros_like(ids)})
    tf.train.Checkpoint(encoder=second).write(str(tmp_path / "second-1"))
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "second-1"\n')
    assert set(read_model(str(tmp_path)).weights) == set(again.weights)


def test_without_tf_models_the_format_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "official.nlp.modeling", None)
    model = support.tiny()
    with pytest.raises(UserError, match=r"pip install '\.\[tf-models\]'"):
        tf_models.write_checkpoint(tmp_path, model.weights, model.architecture)


def test_the_self_check_does_not_pass_over_what_is_no_number() -> None:
    name = "generator_predictions/dense/kernel"
    weights = support.tiny().weights
    broken = support.tiny().changed(weights={**weights, name: np.full_like(weights[name], np.nan)})
    with pytest.raises(UserError, match="the conversion is wrong"):
        self_check.report(conversions.read_back_difference(support.tiny(), broken), "float32", "a copy")
    with pytest.raises(UserError, match="float16 cannot hold these weights"):
        self_check.report(np.inf, "float16", "a copy")
    assert "float16 weights" in self_check.report(1e-3, "float16", "a copy")
