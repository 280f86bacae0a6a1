"""The folder of a fine-tuned model, which is all that evaluation and prediction need of it, wherever it lies.

    config.json    the resolved configuration of the run
    tasks.json     task -> what its head's outputs mean (label names)
    vocab.txt      the vocabulary
    model.ckpt-*   weights; best/ has those that did best, where they were kept

Free of TensorFlow.
"""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.exchange.formats.folders import vocabulary_of
from electra_tf2.finetune.tasks.defaults import pretrained_dir, run_name
from electra_tf2.training.hparams import DeviceHparams
from electra_tf2.util.errors import UserError
from electra_tf2.util.hparams import checked, free_on_resume, layered_by_entry, places, shapes_model
from electra_tf2.util.reading import read_json

TASKS = "tasks.json"


def find_trained(given: Mapping[str, Any], trial: int) -> Path:
    """The folder that --model-dir names, or that of a trial under that name or the default one.

    Raises:
      UserError: no fine-tuned model there.
    """
    default = os.path.join(pretrained_dir(given), "finetuning_models", f"{run_name(given)}_model")
    model_dir = given.get("model_dir") or default
    for folder in (Path(model_dir), Path(f"{model_dir}_{trial}")):
        if (folder / TASKS).is_file():
            return folder
    raise UserError(
        f"neither {model_dir} nor {model_dir}_{trial} holds a fine-tuned model (no {TASKS}): name its folder by "
        "--model-dir, or train first"
    )


def trained_config(folder: Path, hparams: Mapping[str, Any], elsewhere: bool) -> FinetuningConfig:
    """The configuration of a fine-tuned model, with what hparams change for its use.

    Args:
      hparams: unchecked; what a trained model depends on may be repeated, but not changed.
      elsewhere: the model is all that is there: of where things were and what computed them nothing is kept.

    Raises:
      UserError: a configuration that is none; hparams that do not fit the model.
    """
    saved = read_json(folder / "config.json", "configuration of a fine-tuned model")
    fields = {field.name for field in dataclasses.fields(FinetuningConfig)}
    dropped = free_on_resume(FinetuningConfig)
    if elsewhere:
        dropped &= {field.name for field in dataclasses.fields(DeviceHparams)}
        dropped |= places(FinetuningConfig)
    base = checked(FinetuningConfig, {name: saved[name] for name in fields & saved.keys() - dropped})
    merged = layered_by_entry(FinetuningConfig, base, hparams)
    changed = [
        f"{name} was {base[name]!r}, is {merged[name]!r}"
        for name in sorted(shapes_model(FinetuningConfig) & base.keys())
        if merged[name] != base[name]
    ]
    if changed:
        raise UserError(f"{folder} holds a model of other hparams: {'; '.join(changed)}")
    merged |= {"do_train": False, "overwrite": False, "vocab_file": vocabulary_of(folder, saved)}
    if elsewhere:
        merged |= {"pretrained_model_dir": str(folder), "init_checkpoint": None, "model_dir": str(folder)}
    return FinetuningConfig.from_dict(merged)
