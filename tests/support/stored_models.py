"""Models of ours in memory, with the golden checkpoint's or made-up weights, for tests of files and conversions."""

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import numpy as np

from electra_tf2.exports.cards import huggingface_card
from electra_tf2.finetune.starts import configuration
from electra_tf2.formats import electra_folder, huggingface_export
from electra_tf2.formats.huggingface_export import Exported
from electra_tf2.formats.readers import read_model
from electra_tf2.formats.stored_model import Casing, StoredModel
from electra_tf2.formats.tensor_file import write_tensors
from electra_tf2.inference.model_config import with_config
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from tests.support import golden
from tests.support import huggingface_oracle as oracle

SMALL = {"hidden_size": 96, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
GOLDEN = functools.cache(lambda: golden.load_arrays("huggingface"))


@functools.cache
def tiny() -> StoredModel:
    """The original's checkpoint: ELECTRA, 2 layers of 128, embeddings of 32."""
    return read_model(str(golden.CHECKPOINT))


def with_crc_weights(model_hparam_overrides: Any = None, **overrides: Any) -> StoredModel:
    """A pre-training model of these hparams, small unless told else, whose weights are a function of their names."""
    sizes = SMALL | (model_hparam_overrides or {})
    return _with_crc_weights(json.dumps(overrides | {"model_hparam_overrides": sizes}))


@functools.cache
def _with_crc_weights(overrides: str) -> StoredModel:
    return of_network(golden.model_with_crc_values(**json.loads(overrides)))


def of_network(network: PretrainingModel) -> StoredModel:
    weights = {variable.name.split(":")[0]: variable.numpy() for variable in network.trainable_variables}
    return tiny().changed(path="nowhere", hparams=dataclasses.asdict(network.config), weights=weights, is_run=True)


def write_folder(folder: str | Path, model: StoredModel, dtype: str = "float32") -> None:
    """Writes a folder of ours, as convert_model.py does."""
    electra_folder.write_folder(folder, with_config(model), dtype)


def to_huggingface(model: StoredModel, part: str = "main") -> Exported:
    return huggingface_export.to_huggingface(with_config(model), part)


def write_huggingface(folder: str | Path, model: StoredModel, part: str = "main") -> None:
    """Writes a Hugging Face directory with its card, as convert_model.py does."""
    model = with_config(model)
    exported = huggingface_export.to_huggingface(model, part)
    huggingface_export.write_directory(folder, model, exported, card=huggingface_card(model, exported))


def dense(outputs: int, *names: str, inputs: int = 128) -> dict[str, list[int]]:
    """Shapes of dense layers of a head; "dense" where none is named."""
    shapes = {}
    for name in names or ("dense",):
        shapes[f"{name}/kernel"] = [inputs, outputs]
        shapes[f"{name}/bias"] = [outputs]
    return shapes


SPANS = dense(1, "start", "end")


def fine_tuned(task: str, heads: dict[str, list[int]], state: dict[str, Any], **hparams: Any) -> StoredModel:
    """The tiny encoder's first layer with a random head: name below task_specific/<task> -> shape."""
    return fine_tuned_together({task: (heads, state)}, **hparams)


def fine_tuned_together(learned: dict[str, tuple[dict[str, list[int]], dict[str, Any]]], **hparams: Any) -> StoredModel:
    """The same of several tasks, each with its head and state."""
    defaults = {
        "task_names": [*learned],
        "vocab_file": str(golden.CHECKPOINT / "vocab.txt"),
        "vocab_size": 600,
        "embedding_size": 32,
        "max_seq_length": 64,
        "model_hparam_overrides": tiny().hparams["model_hparam_overrides"] | {"num_hidden_layers": 1},
    }
    config = configuration(defaults | hparams)
    weights = {}
    for name, value in tiny().weights.items():
        if name.startswith("electra/") and "/layer_1/" not in name:
            weights[name] = value
    states = {}
    for task, (heads, state) in learned.items():
        states[task] = state
        random = np.random.RandomState(3)
        for name, shape in heads.items():
            weights[f"task_specific/{task}/{name}"] = random.standard_normal(shape).astype(np.float32) * 0.2
    return tiny().changed(
        path="nowhere", task_states=states, is_run=True, hparams=dataclasses.asdict(config), weights=weights
    )


def write_crc_directory(
    folder: Path, class_name: str, changed: dict[str, np.ndarray] | None = None, **config: Any
) -> dict[str, np.ndarray]:
    """A Hugging Face directory of a small model with weights that follow from their names, but for the changed ones,
    and fields of its configuration; returns its tensors."""
    shapes = []
    for line in GOLDEN()[f"{class_name}/shapes"]:
        name, sizes = str(line).split(" ")
        shapes.append((name, tuple(int(size) for size in sizes.split(","))))
    tensors = oracle.crc_tensors(shapes) | (changed or {})
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(oracle.config_of(class_name) | config))
    (folder / "vocab.txt").write_text((golden.CHECKPOINT / "vocab.txt").read_text())
    return tensors


LOWER = Casing(True)
