"""Writing a self-contained folder in our own format (exchange.folders describes it)."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from corpus.vocabulary import load_vocab
from exchange.folders import VOCABULARY
from exchange.tensor_file import FILE_NAME, write_tensors
from util.files import write_atomically

# Where a run found its data and put its files: of no use elsewhere.
_PLACES = (
    "data_dir", "model_dir", "results_dir", "results_txt", "results_json", "pretrain_tfrecords", "eval_tfrecords",
    "pretrained_model_dir", "raw_data_dir", "test_predictions", "init_checkpoint", "init_generator_checkpoint",
    "tpu_name", "tpu_zone", "gcp_project", "tpu_job_name",
)  # fmt: skip


def write_folder(
    folder: str | Path, config: Mapping[str, Any], weights: Mapping[str, np.ndarray], dtype: str = "float32"
) -> None:
    """Writes a self-contained folder; config.json last, so that a folder which has one is complete.

    Args:
      config: of the run, its `vocab_file` the vocabulary to copy.
      weights: our variable names -> arrays.
      dtype: of the stored weights (`tensor_file.DTYPES`).
    """
    folder = Path(folder)
    tokens = load_vocab(config["vocab_file"])
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder / FILE_NAME, weights, dtype)
    write_atomically(folder / VOCABULARY, "".join(f"{token}\n" for token in tokens))
    kept = {name: value for name, value in config.items() if name not in _PLACES} | {"vocab_file": VOCABULARY}
    write_atomically(folder / "config.json", json.dumps(kept, indent=2) + "\n")
