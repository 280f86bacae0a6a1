"""Starting from a TF1 checkpoint of the original: sizes follow from it, read without TensorFlow."""

import shutil
from pathlib import Path

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.formats import original_config
from electra_tf2.formats.folders import read_config
from electra_tf2.formats.readers import find_model
from electra_tf2.util.errors import UserError
from electra_tf2.util.hparams import layered
from tests.support import golden

CHECKPOINT = str(golden.CHECKPOINT)
# As the golden numbers have it.
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def test_names_and_shapes_are_those_that_tensorflow_reads(tmp_path: Path) -> None:
    variables = {f"{'layer_' * (n % 3)}{n}": tf.zeros([n % 5, 300][: n % 3]) for n in range(700)}  # several blocks
    prefix = str(tmp_path / "many.ckpt")
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=list(variables), shape_and_slices=[""] * 700, tensors=list(variables.values())
    )
    for path in (prefix, tf.train.latest_checkpoint(CHECKPOINT)):
        wanted = tf.train.load_checkpoint(path).get_variable_to_shape_map()
        assert original_config.shapes_in(path) == {name: tuple(shape) for name, shape in wanted.items()}


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_damaged_index_is_one_line(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("damaged") / "model.ckpt.index"
    found = bytearray((golden.CHECKPOINT / "model.ckpt-400.index").read_bytes())
    if data.draw(st.booleans()):
        del found[data.draw(st.integers(0, len(found) - 1)) :]
    else:
        found[data.draw(st.integers(0, len(found) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(found)
    try:
        shapes = original_config.shapes_in(str(path.with_suffix("")))
    except UserError as error:
        assert "damaged" in str(error) and "\n" not in str(error)
    else:  # what only a checksum would notice
        assert all(isinstance(size, int) for shape in shapes.values() for size in shape)


def test_sizes_of_both_networks_vocabulary_and_casing_follow_from_the_checkpoint() -> None:
    given = {"model_name": "electra_small", "init_checkpoint": CHECKPOINT, "max_seq_length": 32} | NO_DROPOUT
    config = PretrainingConfig.from_dict(layered(PretrainingConfig, PretrainingConfig.implied(given), given))
    expected = golden.config()
    assert config.architecture == expected.architecture
    assert config.generator_architecture == expected.generator_architecture
    assert config.vocab_file == str(golden.CHECKPOINT / "vocab.txt") and config.do_lower_case
    tuned = FinetuningConfig.from_dict({"init_checkpoint": CHECKPOINT, "task_names": ["cola"]} | NO_DROPOUT)
    assert tuned.architecture == expected.architecture and tuned.vocab_size == 600


def test_a_folder_of_the_originals_is_found_by_the_models_name(tmp_path: Path) -> None:
    shutil.copytree(CHECKPOINT, tmp_path / "models" / "released")
    config = FinetuningConfig.from_dict(
        {"data_dir": str(tmp_path), "model_name": "released", "task_names": ["cola"], "max_seq_length": 32}
    )
    assert config.architecture.hidden_size == 128
    assert config.vocab_file == str(tmp_path / "models" / "released" / "vocab.txt")


def test_what_is_given_wins_over_the_shapes() -> None:
    given = {
        "init_checkpoint": CHECKPOINT,
        "model_hparam_overrides": {"num_attention_heads": 4},
        "task_names": ["cola"],
    }
    assert FinetuningConfig.from_dict(given | {"max_seq_length": 32}).architecture.num_attention_heads == 4


def test_other_checkpoints_say_nothing(tmp_path: Path) -> None:
    tf.train.Checkpoint(x=tf.Variable(1.0)).write(str(tmp_path / "x.ckpt"))
    for path in (tmp_path / "x.ckpt", tmp_path / "nothing", ""):
        assert find_model(path).network == {} == find_model(path).generator_hparams


def test_a_configuration_where_one_happens_to_be_is_nobodys_start(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text('{"model_type": "electra", "hidden_size": 48}')
    monkeypatch.chdir(tmp_path)
    assert read_config("") is None and find_model("").network == {}
    assert PretrainingConfig.implied({"model_name": "electra_small"}) == {}
