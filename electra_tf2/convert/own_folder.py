"""Writing self-contained folders of ours: configuration, weights and vocabulary, wherever they are moved to.

config.json          the resolved configuration of the run that trained it
model.safetensors    weights under our names, float32 or half as wide
vocab.txt            its vocabulary; or tokenizer.json
"""

import dataclasses
from pathlib import Path

from electra_tf2.config.hparams import places
from electra_tf2.corpus.vocabulary import TOKENIZER_FILE
from electra_tf2.exports.self_check import Options, Written, read_back_difference
from electra_tf2.files.reading import read_text
from electra_tf2.files.writing import write_atomically, write_json
from electra_tf2.formats.folders import VOCABULARY
from electra_tf2.formats.readers import read_model
from electra_tf2.formats.stored_model import CLASS_FILE, StoredModel
from electra_tf2.formats.tensor_file import FILE_NAME, write_tensors
from electra_tf2.inference.configured import config_of, without_generator


def convert(folder: Path, model: StoredModel, options: Options) -> Written:
    """Writes a folder as `write_folder`; without its generator where that is asked for."""
    model = without_generator(model) if options.part == "main" else model
    what = f"{folder}: config.json, {FILE_NAME}, {write_folder(folder, model, options.dtype)}"
    return Written(what, read_back_difference(model, read_model(folder)), "that of the folder")


def write_folder(folder: str | Path, model: StoredModel, dtype: str = "float32") -> str:
    """Writes a self-contained folder; config.json last, so that a folder which has one is complete.

    Args:
      dtype: type of the stored weights, one of `tensor_file.DTYPES`.

    Returns:
      Name of the vocabulary's file.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder / FILE_NAME, model.weights, dtype)
    vocabulary = write_vocabulary(folder, model)
    about = {"scores.json": model.scores, "tasks.json": model.task_states}
    about[CLASS_FILE] = {"class": model.class_name} if model.class_name else None
    for name, value in about.items():
        if value:
            write_json(folder / name, value)
        else:  # of a model that was here before
            (folder / name).unlink(missing_ok=True)
    config = config_of(model)
    kept = {name: value for name, value in dataclasses.asdict(config).items() if name not in places(type(config))}
    write_json(folder / "config.json", kept | {"vocab_file": vocabulary}, sort_keys=False)
    return vocabulary


def write_vocabulary(folder: Path, model: StoredModel) -> str:
    """Writes vocab.txt, or a tokenizer.json as it came, and removes the other. Returns the file's name."""
    name, other = (TOKENIZER_FILE, VOCABULARY) if model.tokenizer_file else (VOCABULARY, TOKENIZER_FILE)
    text = read_text(model.tokenizer_file, "tokenizer") if model.tokenizer_file else None
    write_atomically(folder / name, "".join(f"{token}\n" for token in model.tokens) if text is None else text)
    (folder / other).unlink(missing_ok=True)
    return name
