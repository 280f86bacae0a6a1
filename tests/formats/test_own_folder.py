"""A run made into a self-contained folder: the same weights, wherever the folder lies."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import electra_tf2 as electra
from electra_tf2.corpus.vocabulary import load_vocab
from electra_tf2.exports.conversions import read_back_difference
from electra_tf2.exports.conversions import to_huggingface as convert
from electra_tf2.exports.exportable import Options
from electra_tf2.exports.self_check import TOLERANCE
from electra_tf2.files.writing import write_json
from electra_tf2.finetune.starts import configuration
from electra_tf2.formats.joining import without_generator
from electra_tf2.formats.readers import find_model, open_model, read_model
from electra_tf2.formats.stored_model import Casing
from electra_tf2.formats.stored_weights import TensorFlowCheckpoint
from electra_tf2.formats.tensor_file import read_tensors, write_tensors
from electra_tf2.formats.warm_start import warm_start
from electra_tf2.model import kernels
from electra_tf2.pretrain.implied_hparams import implied_hparams
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from electra_tf2.training.optimization import AdamW
from electra_tf2.util.errors import UserError
from tests.support import golden
from tests.support import stored_models as support
from tests.support.programs import run_program
from tests.support.stored_models import to_huggingface, write_folder, write_huggingface


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder: a checkpoint of ours with an optimizer's slots, and a configuration with the run's paths."""
    folder = tmp_path_factory.mktemp("run")
    config = golden.config(data_dir="elsewhere")
    model = PretrainingModel(config)
    warm_start(model, open_model(str(golden.CHECKPOINT)))
    optimizer = AdamW(model.trainable_variables, lambda step: 0.0, model.decays)
    saved = tf.train.Checkpoint(model=model, optimizer=optimizer)
    tf.train.CheckpointManager(saved, str(folder), 1, checkpoint_name="model.ckpt").save(400)
    (folder / "config.json").write_text(config.to_json())
    return folder


def _write(run: Path, target: Path, dtype: str = "float32") -> Mapping[str, np.ndarray]:
    model = read_model(str(run))
    write_folder(target, model, dtype)
    return model.weights


def test_a_moved_folder_holds_the_runs_weights_vocabulary_and_sizes(run: Path, tmp_path: Path) -> None:
    weights = _write(run, tmp_path / "written")
    moved = tmp_path / "moved"
    shutil.move(tmp_path / "written", moved)
    model = PretrainingModel(golden.config())
    report = warm_start(model, open_model(str(moved)))
    assert not report.missing and not report.unused
    original = open_model(str(golden.CHECKPOINT))
    for variable in model.trainable_variables:
        name = variable.name.split(":")[0]
        np.testing.assert_array_equal(variable.numpy(), original.weights[name])
        np.testing.assert_array_equal(variable.numpy(), weights[name])
    hparams = find_model(moved).network
    assert hparams["vocab_size"] == 600 and hparams["model_hparam_overrides"]["hidden_size"] == 128
    assert load_vocab(hparams["vocab_file"]) == load_vocab(golden.CHECKPOINT / "vocab.txt")
    assert Path(hparams["vocab_file"]).parent == moved
    assert "elsewhere" not in (moved / "config.json").read_text()


def test_a_checkpoint_that_differs_from_its_checksums_is_not_read(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    write_json(folder / "model.ckpt-400.json", {"sha256": {"model.ckpt-400.index": "0" * 64}})
    with pytest.raises(
        UserError, match=r"model\.ckpt-400 is damaged: model\.ckpt-400\.index differs from its checksum"
    ):
        read_model(str(folder))


def test_one_checkpoint_of_a_run_is_what_the_runs_configuration_says(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    config = golden.config(data_dir="elsewhere", model_hparam_overrides={"num_attention_heads": 4})
    (folder / "config.json").write_text(config.to_json())
    (prefix,) = (path.with_suffix("") for path in folder.glob("model.ckpt-*.index"))
    model = read_model(str(prefix))
    assert model.architecture.num_attention_heads == 4 and model.is_run
    data = next(folder.glob("model.ckpt-*.data*"))
    data.write_bytes(data.read_bytes()[:3000])
    with pytest.raises(UserError, match=r"model\.ckpt-400 cannot be read"):
        read_model(str(prefix))
    write_folder(tmp_path / "written", model, "float32")
    file = tmp_path / "written" / "model.safetensors"
    assert read_model(str(file)).architecture.num_attention_heads == 4
    (tmp_path / "written" / "config.json").unlink()
    with pytest.raises(UserError, match="give a model's folder"):
        read_model(str(file))


def test_a_fine_tuned_model_with_the_name_of_a_shipped_one_keeps_its_own_network(run: Path, tmp_path: Path) -> None:
    _write(run, tmp_path / "tuned")
    given = {"pretrained_model_dir": str(tmp_path / "tuned"), "task_names": ["cola"]}
    own = configuration(given)
    saved = json.loads(own.to_json()) | {"model_name": "electra_mini"}
    write_json(tmp_path / "tuned" / "config.json", saved)
    assert read_model(str(tmp_path / "tuned")).architecture == own.architecture


@pytest.mark.parametrize("name", ["vocab_size", "do_lower_case"])
def test_what_a_configuration_lacks_is_named(name: str, run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({key: value for key, value in config.items() if key != name}))
    with pytest.raises(UserError, match=f"is not the configuration of a model: it lacks {name}"):
        read_model(tmp_path)


def test_a_model_that_keeps_accents_says_so_wherever_it_goes(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "models" / "run"
    shutil.copytree(run, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"do_strip_accents": False}))
    model = read_model(str(folder))
    write_huggingface(tmp_path / "theirs", model)
    write_folder(tmp_path / "ours", read_model(str(tmp_path / "theirs")))
    for place in (folder, tmp_path / "theirs", tmp_path / "ours"):
        assert read_model(str(place)).casing == Casing(True, False)
        given = {"init_checkpoint": str(place), "data_dir": "nowhere", "task_names": ["cola"]}
        assert configuration(given).do_strip_accents is False
        assert implied_hparams({"init_checkpoint": str(place)})["do_strip_accents"] is False


def test_bfloat16_weights_are_the_nearest_and_half_as_large(run: Path, tmp_path: Path) -> None:
    weights = _write(run, tmp_path / "whole")
    _write(run, tmp_path / "half", "bfloat16")
    stored = open_model(str(tmp_path / "half")).weights
    assert stored.keys() == weights.keys()
    for name, value in weights.items():
        np.testing.assert_array_equal(stored[name], tf.cast(tf.cast(value, tf.bfloat16), tf.float32).numpy())
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("half", "whole")]
    assert sizes[0] < 0.55 * sizes[1]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    write_tensors(tmp_path / "model.safetensors", {"x": np.ones([3, 2])})
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[:-5])
    with pytest.raises(UserError, match=r"model\.safetensors"):
        read_tensors(tmp_path / "model.safetensors")
    with pytest.raises(UserError, match="nothing_here"):
        open_model(str(tmp_path / "nothing_here"))


def test_the_main_network_alone_is_as_before_and_has_no_generator(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "main"
    written = run_program("convert_model.py", "--from", str(run), "--to", str(folder), "--part", "main")
    assert written.returncode == 0 and "our network and that of the folder" in written.stdout, written
    whole, alone = read_model(str(run)).weights, read_model(str(folder))
    assert {name for name in whole if name not in alone.weights} == {n for n in whole if n.startswith("generator")}
    for name, value in alone.weights.items():
        np.testing.assert_array_equal(value, whole[name])
    model = PretrainingModel(golden.config())
    report = warm_start(model, open_model(str(folder)))
    assert not report.unused and all(name.startswith("generator") for name in report.missing)
    for words, message in (
        (("--from", str(folder)), "has no generator that could be left out"),
        (("--from", str(run), "--format", "tf1"), "--part main: --format tf1 offers no choice of a part"),
    ):
        refused = run_program("convert_model.py", *words, "--to", str(tmp_path / "none"), "--part", "main")
        assert refused.returncode == 2 and message in refused.stderr and not (tmp_path / "none").exists()


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_checkpoint_of_numbers_that_are_not_finite_is_refused_by_name(number: float, tmp_path: Path) -> None:
    saved = tf.train.Checkpoint(a=tf.Variable([1.0, number], name="electra/a"), b=tf.Variable([2.0], name="electra/b"))
    checkpoint = TensorFlowCheckpoint(saved.write(str(tmp_path / "model.ckpt")))
    assert checkpoint["electra/b"] == 2
    with pytest.raises(UserError, match="the tensor electra/a holds numbers that are not finite"):
        checkpoint["electra/a"]


def test_electric_without_its_towers_scores_as_before(tmp_path: Path) -> None:
    whole = support.with_crc_weights(electra_objective=False, electric_objective=True)
    write_folder(tmp_path, without_generator(whole))
    texts = ["the man went to the house", "of the"]
    np.testing.assert_allclose(electra.load(tmp_path).score(texts), electra.Model(whole).score(texts), rtol=1e-6)


def test_a_folder_that_is_written_again_keeps_nothing_of_the_model_before(run: Path, tmp_path: Path) -> None:
    model = read_model(str(run))
    write_folder(tmp_path, model.changed(scores={"disc_auc": 0.9}))
    (tmp_path / "tokenizer.json").write_text("{}")
    write_folder(tmp_path, model.changed(scores={}))
    assert read_model(str(tmp_path)).scores == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors", "vocab.txt"]
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "model.safetensors.index.json").write_text('{"weight_map": {"a": "b.safetensors"}}')
    assert convert(theirs, model, Options()).difference < TOLERANCE


def test_what_is_read_back_differs_where_any_variable_does(run: Path) -> None:
    model = support.with_crc_weights(electra_objective=False, electric_objective=True)
    changed = "cloze_predictions/output_bias"
    assert read_back_difference(model, model) == 0
    other = model.changed(weights=dict(model.weights) | {changed: model.weights[changed] + 7})
    assert read_back_difference(model, other) > 0.1
    lacking = model.changed(weights={name: value for name, value in model.weights.items() if name != changed})
    assert read_back_difference(model, lacking) == np.inf


@pytest.mark.parametrize(
    ("towers", "hparams"),
    [
        (False, {}),
        (True, {}),
        (False, {"generator_sample_mode": "zero_dropout"}),
        (True, {"untied_generator_embeddings": True}),
    ],
)
def test_a_generator_reads_the_tables_that_it_was_trained_with(towers: bool, hparams: dict) -> None:
    """Whichever of them are the main network's."""
    objective = {"electra_objective": False, "electric_objective": True} if towers else {}
    trained: Any = golden.model_with_crc_values(**hparams, **objective, model_hparam_overrides=support.SMALL)
    source = support.of_network(trained)
    loaded: Any = electra.Model(source).network
    ids = tf.constant(np.random.RandomState(0).randint(5, 600, [2, 9]))
    inputs = ids, tf.ones_like(ids), tf.zeros_like(ids)
    names = ("input_ids", "input_mask", "segment_ids")
    rows = SimpleNamespace(**dict(zip(names, inputs, strict=True)), masked_input_ids=ids, positions=ids[:, :1] * 0)
    with kernels.off():
        if towers:
            theirs, ours = (network(rows).cloze.logits for network in (trained.generator, loaded.towers))
        else:
            theirs, ours = (network(*inputs).sequence for network in (trained.generator.encoder, loaded.generator))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("hparams", [{"corrective_lm_objective": True}, {"replace_mlm_objective": True}])
def test_one_network_that_is_its_own_generator_fills_with_the_head_that_read_masks(hparams: dict) -> None:
    model = electra.Model(support.with_crc_weights(electra_objective=False, untied_generator=False, **hparams))
    assert {name.split("/")[0] for name in model.source.weights} >= {"clm_predictions", "generator_predictions"}
    head = model.network.language_model
    assert head is not None and head.scope == "generator_predictions"


def test_scores_of_what_never_read_a_mask_say_so() -> None:
    alone = without_generator(support.with_crc_weights(electra_objective=False, corrective_lm_objective=True))
    assert "never read a [MASK]" in electra.Model(alone).scorer().note
    uniform = support.with_crc_weights(uniform_generator=True)
    uniform = uniform.changed(
        weights=dict(uniform.weights)
        | dict(support.with_crc_weights(generator_hidden_size=1.0, generator_layers=1.0).weights)
    )
    with pytest.raises(UserError, match="a model of uniform_generator was trained without a generator"):
        electra.Model(uniform).scorer()
    assert electra.Model(uniform).scorer("detector").kind == "detector"


def test_a_head_that_judges_candidates_is_no_regression_of_hugging_faces() -> None:
    exported = to_huggingface(support.fine_tuned("multirc", support.dense(2), {}))
    assert exported.class_name == "ElectraModel" and exported.left_out == ["task_specific"]
