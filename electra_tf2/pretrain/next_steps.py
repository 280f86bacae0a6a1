"""Names what comes after pre-training: the formats that a model can be exported to, and commands to paste.

Imports no TensorFlow.
"""

import os
from shlex import quote

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.formats.huggingface_config import export_problems, is_like_modernbert
from electra_tf2.model.architecture import Architecture
from electra_tf2.util.environment import program_called

_DEFAULT_DATA_DIR = "data"
_DETECTORS = {"bert_mini": "electra_mini"}  # recipe of a masked language model -> of the detector that starts from it


def leaves_for_huggingface(network: Architecture) -> bool:
    """True if Hugging Face has a class for a network."""
    model_type = "modernbert" if is_like_modernbert(network) else "bert"
    # Any norm_eps can be written there, and weights that layers share are written for each.
    return not export_problems(network, model_type, exempt=("norm_eps", "share_layers"))


def export_formats(network: Architecture) -> str:
    """Names the formats that a network can be written in."""
    if leaves_for_huggingface(network):
        return "Hugging Face, sentence-transformers, ONNX, LiteRT and SavedModel (electra convert)"
    return "ONNX, LiteRT and SavedModel (electra convert), but not Hugging Face, whose classes lack such a network"


def next_commands(config: PretrainingConfig) -> list[str]:
    """Lines with the commands that come after a run: perhaps a detector; fine-tuning, export, learning curves."""
    folder = config.model_dir
    if os.path.basename(folder) == folder:
        folder = os.path.join(".", folder)  # a path, where a word would be a name
    names_it = f"--model {quote(folder)}"
    if folder == os.path.join(config.data_dir, "models", config.model_name):
        names_it = f"--model {quote(config.model_name)}"
        if config.data_dir != _DEFAULT_DATA_DIR:
            names_it = f"--data-dir {quote(config.data_dir)} {names_it}"

    output_format = "onnx"
    target = f"{config.model_name}_onnx"
    if leaves_for_huggingface(config.architecture):
        output_format = "huggingface"
        target = f"{config.model_name}_hf"

    program = program_called()
    lines = []
    detector = _DETECTORS.get(config.recipe)
    if detector is not None:
        lines.append(
            f"to train a detector from it: {program} pretrain --data-dir {quote(config.data_dir)} --recipe {detector} "
            f"{_schedule_of_detector(config)} --init-checkpoint {quote(folder)} "
            f"--init-generator-checkpoint {quote(folder)} --do-eval"
        )
    return [
        *lines,
        f"to fine-tune it: {program} finetune --train-file TABLE.csv {names_it}",
        f"to export it: {program} convert --model {quote(folder)} --to {quote(target)} --format {output_format}",
        f"to draw its losses: {program} analyze --analysis curves {names_it}",
    ]


def _schedule_of_detector(config: PretrainingConfig) -> str:
    """Flags of a detector's schedule, whose proportions to its masked language model's steps are those of the recipes.

    Args:
      config: of the masked language model.
    """
    steps = max(1, 4 * config.num_train_steps // 3)
    warmup = min(100, steps // 4)
    return f"--num-train-steps {steps} --num-warmup-steps {warmup} --lr-decay-steps {steps // 3}"
