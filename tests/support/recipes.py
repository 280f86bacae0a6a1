"""Recipes at tiny sizes, with the files that papers' recipes read; none of it knows a paper by name."""

import importlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from electra_tf2.config.hparams import layered
from electra_tf2.config.papers import paper_names
from electra_tf2.config.recipes import read_recipe, recipe_names
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.implied_hparams import implied_hparams
from electra_tf2.pretrain.pretraining_model import make_model
from tests.support import golden

VOCAB = str(golden.CHECKPOINT / "vocab.txt")
SIZES = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 128}


def recipes_of_papers() -> list[str]:
    return [name for name in recipe_names() if read_recipe(name).get("paper")]


def write_files(folder: Path, length: int) -> None:
    """Writes the tables that papers read, as `write_files` of their tests do, and teachers: an ELECTRA and a BERT."""
    for paper in paper_names():
        if importlib.util.find_spec(f"tests.papers.test_{paper}"):
            module = importlib.import_module(f"tests.papers.test_{paper}")
            if hasattr(module, "write_files"):
                module.write_files(folder)
    for name in ("electra_small", "bert_small"):
        config = config_of(name, folder, False, {"max_seq_length": length})
        tf.train.Checkpoint(model=make_model(config)).save(str(folder / name / "model.ckpt"))
        (folder / name / "config.json").write_text(config.to_json())


def is_taught(recipe: str) -> bool:
    """True if a recipe wants a teacher, which it leaves to the user."""
    config_class = PretrainingConfig.extended(read_recipe(recipe))
    return "teacher" in config_class.__dataclass_fields__


def config_of(recipe: str, folder: Path, teacher: bool, hparams: Mapping[str, Any]) -> PretrainingConfig:
    """A recipe with its own mechanisms, of tiny sizes, with the files of `write_files`. Arguments as `tiny_hparams`."""
    tiny = tiny_hparams(recipe, folder, teacher, hparams)
    return PretrainingConfig.from_dict(layered(PretrainingConfig, implied_hparams(tiny), tiny))


def tiny_hparams(recipe: str, folder: Path, teacher: bool, hparams: Mapping[str, Any]) -> dict[str, Any]:
    """Hparams of a recipe with its own mechanisms, of tiny sizes, with the files of `write_files`.

    Args:
      teacher: whether a recipe that wants a teacher has one.
      hparams: more of them.
    """
    full = read_recipe(recipe)
    sizes = full.get("model_hparam_overrides", {}) | SIZES
    tiny: dict[str, Any] = {
        "model_name": recipe,
        "data_dir": str(folder),
        "vocab_file": VOCAB,
        "vocab_size": 600,
        "model_hparam_overrides": sizes,
        "model_size": "small",
        "embedding_size": 64 if full.get("embedding_size", 128) != 128 else 32,
        # Where tasks take turns, the program holds a byte for each step, that of its task: few enough for a test.
        "num_train_steps": 100_000,
    }
    if full.get("generator_embedding_size"):
        tiny["generator_embedding_size"] = tiny["embedding_size"]
    if full.get("generator_exits"):
        tiny["generator_exits"] = [1, 2, 3]
        sizes["num_hidden_layers"] = 4
    else:
        tiny["generator_layers"] = 1.0
    if teacher and is_taught(recipe):
        tiny["teacher"] = str(folder / recipe.removesuffix("_distilled"))
    if full.get("freeze_generator"):
        tiny["init_generator_checkpoint"] = "given"
    return full | tiny | dict(hparams)
