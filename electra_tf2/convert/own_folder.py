"""Writing self-contained folders of ours: configuration, weights and vocabulary, wherever they are moved to.

config.json          the resolved configuration of the run that trained it
model.safetensors    weights under our names, float32 or half as wide
vocab.txt            its vocabulary; or tokenizer.json
"""

import dataclasses
from pathlib import Path

from electra_tf2.corpus.vocabulary import TOKENIZER_FILE
from electra_tf2.formats.folders import VOCABULARY
from electra_tf2.formats.stored_model import CLASS_FILE, StoredModel
from electra_tf2.formats.tensor_file import FILE_NAME, write_tensors
from electra_tf2.inference.configured import config_of
from electra_tf2.util.files import write_atomically, write_json
from electra_tf2.util.hparams import places
from electra_tf2.util.reading import read_text


def write_folder(folder: str | Path, model: StoredModel, dtype: str = "float32") -> None:
    """Writes a self-contained folder; config.json last, so that a folder which has one is complete.

    Args:
      dtype: type of the stored weights, one of `tensor_file.DTYPES`.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder / FILE_NAME, model.weights, dtype)
    if model.scores:
        write_json(folder / "scores.json", model.scores)
    vocabulary, other = (TOKENIZER_FILE, VOCABULARY) if model.tokenizer_file else (VOCABULARY, TOKENIZER_FILE)
    if model.tokenizer_file:
        write_atomically(folder / vocabulary, read_text(model.tokenizer_file, "tokenizer"))
    else:
        write_atomically(folder / vocabulary, "".join(f"{token}\n" for token in model.tokens))
    if model.task_states is not None:
        write_json(folder / "tasks.json", model.task_states)
    if model.class_name:
        write_json(folder / CLASS_FILE, {"class": model.class_name})
    absent = {"scores.json": not model.scores, "tasks.json": model.task_states is None, other: True}
    absent[CLASS_FILE] = not model.class_name
    for name in filter(absent.get, absent):  # of a model that was here before
        (folder / name).unlink(missing_ok=True)
    config = config_of(model)
    kept = {name: value for name, value in dataclasses.asdict(config).items() if name not in places(type(config))}
    write_json(folder / "config.json", kept | {"vocab_file": vocabulary}, sort_keys=False)
