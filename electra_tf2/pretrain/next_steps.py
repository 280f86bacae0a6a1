"""What can be done with a model once it is pre-trained: where it can be exported, and commands to paste.

Imports no TensorFlow.
"""

import os
from shlex import quote

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.formats.huggingface_config import export_problems, is_like_modernbert
from electra_tf2.model.architecture import Architecture
from electra_tf2.util.environment import program_called

_DEFAULT_DATA_DIR = "data"


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
    """Lines with the commands that come after a run: fine-tuning, export, learning curves."""
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
    return [
        f"to fine-tune it: {program} finetune --train-file TABLE.csv {names_it}",
        f"to export it: {program} convert --model {quote(folder)} --to {quote(target)} --format {output_format}",
        f"to draw its losses: {program} analyze --analysis curves {names_it}",
    ]
