"""Writing a TF1 checkpoint that the original program loads: its variables are ours, with query, key and value apart.

formats.original_config finds out what network such a checkpoint holds.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.convert.own_folder import write_vocabulary
from electra_tf2.exports.self_check import Options, Written, read_back_difference
from electra_tf2.files.writing import write_atomically, write_json
from electra_tf2.formats import ELSEWHERE
from electra_tf2.formats.huggingface_config import export_problems
from electra_tf2.formats.original_config import HPARAMS
from electra_tf2.formats.readers import read_model
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.formats.weights import original_names
from electra_tf2.inference.configured import config_of
from electra_tf2.model.architecture import Architecture
from electra_tf2.util.errors import UserError

# First parts of the names of variables that the original has.
_SCOPES = (
    "electra",
    "generator",
    "generator_ltr",
    "generator_rtl",
    "generator_predictions",
    "cloze_predictions",
    "discriminator_predictions",
    "task_specific",
)
# Hparams that the original has, too.
_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act",
          "max_position_embeddings", "type_vocab_size")  # fmt: skip
_OF_PRETRAINING = ("electra_objective", "electric_objective", "two_tower_generator", "untied_generator",
                   "untied_generator_embeddings", "generator_layers", "generator_hidden_size")  # fmt: skip


def convert(folder: Path, model: StoredModel, options: Options) -> Written:
    """Writes a checkpoint as `write_checkpoint`, and beside it vocabulary and hparams."""
    prefix = write_checkpoint(folder, model.weights, model.architecture, options.step, options.adam_slots)
    write_vocabulary(folder, model)
    write_json(folder / HPARAMS, original_hparams(config_of(model)), sort_keys=False)
    what = f"{prefix}; {HPARAMS} holds the --hparams that the original needs with it"
    return Written(what, read_back_difference(model, read_model(folder)), "the checkpoint's")


def write_checkpoint(
    folder: str | Path, weights: Mapping[str, np.ndarray], architecture: Architecture, step: int, adam_slots: bool
) -> str:
    """Writes a TF1 checkpoint `model.ckpt-<step>` that the original's programs load.

    Args:
      weights: arrays by our names.
      architecture: sizes of the main network.
      adam_slots: also write the optimizer's slots, as zeros, which the original wants to resume a run.

    Returns:
      Its prefix.

    Raises:
      UserError: the model has parts that the original has not.
    """
    problems = export_problems(architecture)
    for scope in ("generator", "generator_ltr"):  # there all tables of a generator are its own, as wide as it, or none
        own = [name for name in weights if name.startswith(f"{scope}/embeddings/")]
        if own and (
            f"{scope}/embeddings/word_embeddings" not in own or f"{scope}/embeddings_project/kernel" in weights
        ):
            problems.append("generator that shares some embeddings, or has its own of another width than its layers")
    if problems:
        raise UserError(f"the original program has no {'; no '.join(problems)}: {ELSEWHERE}")
    unknown = sorted({name.split("/")[0] for name in weights} - {*_SCOPES})
    if unknown:
        raise UserError(f"the original program has no place for the weights of {', '.join(unknown)}: {ELSEWHERE}")
    values: dict[str, np.ndarray] = {}
    for name, value in weights.items():
        names = original_names(name)
        values.update(zip(names, np.split(value.astype(np.float32), len(names), axis=-1), strict=True))
    trained = list(values)
    if adam_slots:
        for slot in ("adam_m", "adam_v"):
            values |= {f"{name}/{slot}": np.zeros_like(values[name]) for name in trained}
    values["global_step"] = np.asarray(step, np.int64)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    prefix = str(folder / f"model.ckpt-{step}")
    order = sorted(values)
    with tf.device("CPU:0"):
        sharded = f"{prefix}.tmp/part"
        tf.raw_ops.SaveV2(
            prefix=sharded, tensor_names=order, shape_and_slices=[""] * len(order), tensors=[values[n] for n in order]
        )
        tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=[sharded], destination_prefix=prefix, delete_old_dirs=True)
    write_atomically(folder / "checkpoint", f'model_checkpoint_path: "model.ckpt-{step}"\n')
    return prefix


def original_hparams(config: PretrainingConfig | FinetuningConfig) -> dict[str, Any]:
    """Hparams with which the original program builds this model."""
    architecture = config.architecture
    hparams = {
        "model_size": config.model_size,
        "vocab_size": config.vocab_size,
        "embedding_size": config.embedding_size,
        "do_lower_case": config.do_lower_case,
        "model_hparam_overrides": {name: getattr(architecture, name) for name in _SIZES},
    }
    hparams |= {name: getattr(config, name) for name in _OF_PRETRAINING if hasattr(config, name)}
    return hparams
