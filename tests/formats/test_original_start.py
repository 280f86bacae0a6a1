"""Starting from a TF1 checkpoint of the original: sizes follow from it."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from electra_tf2.config.hparams import layered, with_implied
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.finetune.starts import configuration
from electra_tf2.formats.folders import read_config
from electra_tf2.formats.readers import find_model
from electra_tf2.formats.tf1_checkpoint import hparams_from_shapes
from electra_tf2.pretrain.implied_hparams import implied_hparams
from electra_tf2.util.errors import UserError
from tests.support import golden

CHECKPOINT = str(golden.CHECKPOINT)
# As the golden numbers have it.
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_a_damaged_index_is_one_line(damage: str, tmp_path: Path) -> None:
    shutil.copytree(CHECKPOINT, tmp_path, dirs_exist_ok=True)
    index = tmp_path / "model.ckpt-400.index"
    content = bytearray(index.read_bytes())
    content[200] ^= 255
    index.write_bytes({"cut": bytes(content[:-9]), "changed": bytes(content), "empty": b""}[damage])
    with pytest.raises(UserError, match=r"model\.ckpt-400 cannot be read") as refused:
        find_model(tmp_path).network  # noqa: B018
    assert "\n" not in str(refused.value)


def test_sizes_of_both_networks_vocabulary_and_casing_follow_from_the_checkpoint() -> None:
    given = {"model_name": "electra_small", "init_checkpoint": CHECKPOINT, "max_seq_length": 32} | NO_DROPOUT
    config = PretrainingConfig.from_dict(layered(PretrainingConfig, implied_hparams(given), given))
    expected = golden.config()
    assert config.architecture == expected.architecture
    assert config.generator_architecture == expected.generator_architecture
    assert config.vocab_file == str(golden.CHECKPOINT / "vocab.txt") and config.do_lower_case
    start = {"init_checkpoint": CHECKPOINT, "task_names": ["cola"], "max_seq_length": 32}
    tuned = configuration(start | NO_DROPOUT)
    assert tuned.architecture == expected.architecture and tuned.vocab_size == 600
    given = start | {"model_hparam_overrides": {"num_attention_heads": 4}}  # wins over the shapes
    assert configuration(given).architecture.num_attention_heads == 4


def test_a_users_overrides_replace_entries_of_the_checkpoints_sizes() -> None:
    given: dict[str, Any] = {"model_name": "electra_small", "init_checkpoint": CHECKPOINT, "max_seq_length": 32}
    given["model_hparam_overrides"] = {"num_attention_heads": 4}
    hparams = with_implied(PretrainingConfig, {}, implied_hparams(given), given)
    config = PretrainingConfig.from_dict(hparams)
    expected = golden.config().architecture
    assert config.architecture.num_attention_heads == 4 != expected.num_attention_heads
    assert config.architecture.hidden_size == expected.hidden_size


@pytest.mark.parametrize("width", [64, 128], ids=["narrow", "as wide as the main network"])
def test_a_generator_has_the_feed_forward_width_of_its_variables_and_heads_by_the_originals_rule(width: int) -> None:
    shapes: dict[str, tuple[int, ...]] = {
        "electra/embeddings/word_embeddings": (600, 32),
        "electra/embeddings/position_embeddings": (32, 32),
        "electra/embeddings/token_type_embeddings": (2, 32),
        "electra/encoder/layer_0/intermediate/dense/kernel": (128, 256),
        "discriminator_predictions/dense/kernel": (128, 128),
        "generator/encoder/layer_0/intermediate/dense/kernel": (width, 512),
        "generator/encoder/layer_0/output/dense/kernel": (512, width),
    }
    hparams = hparams_from_shapes(shapes, "here", {"num_attention_heads": 4})
    config = PretrainingConfig.from_dict({"model_name": "x", "max_seq_length": 32} | hparams)
    generator = config.generator_architecture
    assert (generator.hidden_size, generator.intermediate_size) == (width, 512)
    assert generator.num_attention_heads == width // 64 and config.architecture.num_attention_heads == 4


def test_a_folder_of_the_originals_is_found_by_the_models_name(tmp_path: Path) -> None:
    shutil.copytree(CHECKPOINT, tmp_path / "models" / "released")
    config = configuration(
        {"data_dir": str(tmp_path), "model_name": "released", "task_names": ["cola"], "max_seq_length": 32}
    )
    assert config.architecture.hidden_size == 128
    assert config.vocab_file == str(tmp_path / "models" / "released" / "vocab.txt")


def test_other_checkpoints_say_nothing(tmp_path: Path) -> None:
    tf.train.Checkpoint(x=tf.Variable(1.0)).write(str(tmp_path / "x.ckpt"))
    for path in (tmp_path / "x.ckpt", tmp_path / "nothing", ""):
        assert find_model(path).network == {} == find_model(path).generator_hparams


def test_a_configuration_where_one_happens_to_be_is_nobodys_start(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text('{"model_type": "electra", "hidden_size": 48}')
    monkeypatch.chdir(tmp_path)
    assert read_config("") is None and find_model("").network == {}
    assert implied_hparams({"model_name": "electra_small"}) == {}
