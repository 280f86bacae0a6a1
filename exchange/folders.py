"""Folders that hold a whole model: configuration, weights and vocabulary, wherever they are moved to.

    config.json          the resolved configuration of the run that trained it
    model.safetensors    weights under our names, float32 or half as wide
    vocab.txt            its vocabulary

A run's own folder has config.json and TensorFlow checkpoints; `convert_model.py` makes a self-contained one of it. A
Hugging Face directory is one of the same kind with another config.json, told apart by its `model_type`.
Imports neither TensorFlow nor numpy: configurations take sizes, casing and vocabulary from here (`network_hparams`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exchange.huggingface_config import casing_of, is_huggingface, network_of
from util.errors import UserError
from util.reading import is_file, read_json

VOCABULARY = "vocab.txt"
RELEASED = Path(__file__).resolve().parent.parent / "models"
# Of a configuration: what describes the network and its input, so that nobody needs to repeat it.
NETWORK_HPARAMS = (
    "model_size",
    "model_hparam_overrides",
    "embedding_size",
    "vocab_size",
    "do_lower_case",
    "vocab_file",
)
# Where a run found its data and put its files: of no use elsewhere.
PLACES = (
    "data_dir", "model_dir", "results_dir", "results_txt", "results_json", "pretrain_tfrecords", "eval_tfrecords",
    "pretrained_model_dir", "raw_data_dir", "test_predictions", "init_checkpoint", "init_generator_checkpoint",
    "tpu_name", "tpu_zone", "gcp_project", "tpu_job_name",
)  # fmt: skip


def read_config(folder: str | Path) -> dict[str, Any] | None:
    """The content of a folder's config.json; None without one.

    Raises:
      UserError: it is no JSON object.
    """
    path = Path(folder) / "config.json"
    return read_json(path, "configuration") if is_file(path) else None


def released(name: str) -> str:
    """The self-contained folder of that name that comes with this repository, in models/; "" if there is none."""
    folder = RELEASED / name
    return str(folder) if name and (folder / "config.json").is_file() else ""


def vocabulary_of(folder: str | Path, config: Mapping[str, Any]) -> str:
    """Path of a model's vocabulary: the folder's own, or else the one that its configuration names.

    Raises:
      UserError: no vocabulary in the folder, and none that its configuration names.
    """
    own = Path(folder) / VOCABULARY
    if own.is_file():
        return str(own)
    if is_huggingface(config):
        raise UserError(
            f"{folder} has no {VOCABULARY}: make a folder with one by convert_model.py --from {folder} --to FOLDER"
        )
    if "vocab_file" not in config:
        raise UserError(f"{Path(folder) / 'config.json'} is no configuration of a run: it lacks vocab_file")
    return config["vocab_file"]


def network_hparams(folder: str | Path) -> dict[str, Any]:
    """The hparams of the network in a folder, ours or Hugging Face's: `NETWORK_HPARAMS`; {} without a config.json.

    Raises:
      UserError: config.json is not that of a model, or of a network that we do not have.
    """
    config = read_config(folder)
    if config is None:
        return {}
    if is_huggingface(config):
        hparams = network_of(config, Path(folder))
        hparams["do_lower_case"] = casing_of(Path(folder)).do_lower_case
    else:
        missing = [name for name in NETWORK_HPARAMS if name not in config]
        if missing:
            raise UserError(f"{folder}/config.json is not the configuration of a model: it lacks {', '.join(missing)}")
        hparams = {name: config[name] for name in NETWORK_HPARAMS}
    return hparams | {"vocab_file": vocabulary_of(folder, config)}
