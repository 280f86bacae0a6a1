"""Writing a self-contained folder in our own format (exchange.formats.folders describes it)."""

import json
from pathlib import Path

from electra_tf2.exchange.formats.folders import VOCABULARY
from electra_tf2.exchange.sources import Model
from electra_tf2.exchange.tensor_file import FILE_NAME, write_tensors
from electra_tf2.util.files import write_atomically, write_json
from electra_tf2.util.hparams import places


def write_folder(folder: str | Path, model: Model, dtype: str = "float32") -> None:
    """Writes a self-contained folder; config.json last, so that a folder which has one is complete.

    Args:
      dtype: of the stored weights (`tensor_file.DTYPES`).
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder / FILE_NAME, model.weights, dtype)
    if model.scores:
        write_json(folder / "scores.json", model.scores)
    write_atomically(folder / VOCABULARY, "".join(f"{token}\n" for token in model.tokens))
    if model.task_states is not None:
        write_json(folder / "tasks.json", model.task_states)
    elsewhere = places(type(model.config))
    config = {name: value for name, value in json.loads(model.config.to_json()).items() if name not in elsewhere}
    write_atomically(folder / "config.json", json.dumps(config | {"vocab_file": VOCABULARY}, indent=2) + "\n")
