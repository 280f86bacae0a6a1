"""Folders that hold a whole model: configuration, weights and vocabulary, wherever they are moved to.

    config.json          the resolved configuration of the run that trained it
    model.safetensors    weights under our names, float32 or half as wide
    vocab.txt            its vocabulary

A run's own folder has config.json and TensorFlow checkpoints; `convert_model.py` makes a self-contained one of it.
Imports neither TensorFlow nor numpy: configurations take sizes, casing and vocabulary from here (`network_hparams`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from util.errors import UserError
from util.reading import is_file, read_json

VOCABULARY = "vocab.txt"
# Of a configuration: what describes the network and its input, so that nobody needs to repeat it.
NETWORK_HPARAMS = (
    "model_size",
    "model_hparam_overrides",
    "embedding_size",
    "vocab_size",
    "do_lower_case",
    "vocab_file",
)


def read_config(folder: str | Path) -> dict[str, Any] | None:
    """The content of a folder's config.json; None without one.

    Raises:
      UserError: it is no JSON object.
    """
    path = Path(folder) / "config.json"
    return read_json(path, "configuration") if is_file(path) else None


def vocabulary_of(folder: str | Path, config: Mapping[str, Any]) -> str:
    """Path of a model's vocabulary: the folder's own, or else the one that its configuration names."""
    own = Path(folder) / VOCABULARY
    return str(own) if own.is_file() else config["vocab_file"]


def network_hparams(folder: str | Path) -> dict[str, Any]:
    """The hparams of the network in a folder of ours (`NETWORK_HPARAMS`); {} if there is no configuration.

    Raises:
      UserError: config.json is not that of a model of ours.
    """
    config = read_config(folder)
    if config is None:
        return {}
    missing = [name for name in NETWORK_HPARAMS if name not in config]
    if missing:
        raise UserError(f"{folder}/config.json is not the configuration of a model: it lacks {', '.join(missing)}")
    hparams = {name: config[name] for name in NETWORK_HPARAMS}
    return hparams | {"vocab_file": vocabulary_of(folder, config)}
