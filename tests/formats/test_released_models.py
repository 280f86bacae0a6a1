"""The models that come with this repository: complete, small, found by name where the user has no run of that name."""

import json
from pathlib import Path

import pytest

from electra_tf2.config.recipes import recipe_names
from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.vocabulary import load_vocab
from electra_tf2.finetune.starts import configuration
from electra_tf2.formats.folders import SHIPPED
from electra_tf2.formats.tensor_file import read_tensors

NAMES = sorted(folder.name for folder in SHIPPED.iterdir() if folder.is_dir())


def config(tmp_path: Path, **hparams: object) -> FinetuningConfig:
    return configuration({"data_dir": str(tmp_path), "model_name": NAMES[0]} | hparams)


@pytest.mark.parametrize("name", NAMES)
def test_a_released_model_is_whole_small_and_made_by_a_recipe(name: str) -> None:
    folder = SHIPPED / name
    card = (folder / "README.md").read_text(encoding="utf-8")
    saved = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert saved.get("recipe") in recipe_names() or "6585524" in card
    assert len(load_vocab(str(folder / saved["vocab_file"]))) == saved["vocab_size"]
    weights = read_tensors(folder / "model.safetensors")
    assert weights["electra/embeddings/word_embeddings"].shape == (saved["vocab_size"], saved["embedding_size"])
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    assert sizes.pop("model.safetensors") < 12e6 and sum(sizes.values()) < 0.15e6
    assert "Licence" in card


def test_fine_tuning_starts_from_it_by_name_and_writes_beside_the_users_models(tmp_path: Path) -> None:
    found = config(tmp_path)
    assert found.init_checkpoint == str(SHIPPED / NAMES[0])
    assert found.vocab_file == str(SHIPPED / NAMES[0] / "vocab.txt")
    assert Path(found.model_dir).is_relative_to(tmp_path) and Path(found.results_dir).is_relative_to(tmp_path)
    assert found.layerwise_lr_decay == 1.0  # of its recipe
    random = config(tmp_path, random_init=True)
    assert random.init_checkpoint is None and random.architecture == found.architecture


def test_a_run_of_the_users_of_that_name_comes_first(tmp_path: Path) -> None:
    own = tmp_path / "models" / NAMES[0]
    own.mkdir(parents=True)
    (own / "config.json").write_text((SHIPPED / NAMES[0] / "config.json").read_text(encoding="utf-8"))
    assert config(tmp_path).init_checkpoint == str(own)
