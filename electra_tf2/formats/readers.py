"""Detects the format of the model at a path, and opens it as a StoredModel.

    open_model(path)   raises UserError where there is no model; files are read when their content is asked for
    find_model(path)   the same, but gives an empty StoredModel where there is none
    read_model(path)   the same as open_model, with all files read now

The formats and how they are told apart:

- our folders, of runs and of `electra convert`: config.json is the resolved configuration, without a `model_type`
- Hugging Face directories: config.json has a `model_type`
- checkpoints without a config.json: the original's, and those of tf-models-official's encoder
"""

from pathlib import Path

from electra_tf2.formats.checkpoint_files import find_prefix
from electra_tf2.formats.electra_folder import ElectraFolder
from electra_tf2.formats.folders import holds_weights, no_weights_hint, read_config, with_shipped
from electra_tf2.formats.huggingface import HuggingFaceDirectory
from electra_tf2.formats.huggingface_config import is_huggingface
from electra_tf2.formats.stored_model import NO_HINTS, Hints, StoredModel, weights_module
from electra_tf2.formats.tf1_checkpoint import BareCheckpoint
from electra_tf2.util.errors import UserError


def find_model(path: str | Path, hints: Hints = NO_HINTS) -> StoredModel:
    """The model at a path, or the shipped one of that name; an empty one where there is none, and for "".

    Raises:
      UserError: config.json is no JSON object.
    """
    if not str(path):
        return StoredModel(path)
    path = with_shipped(str(path))
    folder = Path(path)
    checkpoint = ""
    config = read_config(folder)
    if config is None:
        # Not a folder with a config.json: perhaps the path of a checkpoint, or of a file of weights, beside one.
        if folder.suffix == ".safetensors":
            checkpoint = str(path)
        else:
            checkpoint = find_prefix(folder) or ""
        if not checkpoint:
            return StoredModel(path)
        folder = Path(checkpoint).parent
        config = read_config(folder)
    if config is None:
        return BareCheckpoint(checkpoint, hints)
    if is_huggingface(config):
        return HuggingFaceDirectory(folder, config, hints)
    return ElectraFolder(folder, config, hints, checkpoint)


def open_model(path: str | Path, hints: Hints = NO_HINTS) -> StoredModel:
    """The model at a path, or the shipped one of that name.

    Raises:
      UserError: there is no model, with what was looked for; or the model's own files hold what a hint tells.
    """
    model = find_model(path, hints)
    redundant = [name for name in model.hints_in_files if getattr(hints, name) is not None]
    if redundant:
        pronoun = "it" if len(redundant) == 1 else "them"
        raise UserError(
            f"{' and '.join(redundant)}: the files of {path} hold {pronoun} already, so leave {pronoun} out"
        )
    if hints.pairs and not isinstance(model, HuggingFaceDirectory):
        raise UserError(f"pairs: given for a classifier of Hugging Face, but {path} is none")
    if isinstance(model, ElectraFolder) and not model.checkpoint and not holds_weights(model.folder):
        # Before anything else of the folder is read: what is wrong with it otherwise does not matter yet.
        raise UserError(f"no checkpoint at {str(path)!r}: {no_weights_hint(path) or 'it holds no weights'}")
    if type(model) is StoredModel:
        # No file of this machine. TensorFlow also knows other file systems (gs://...).
        return BareCheckpoint(weights_module().find_checkpoint(str(path)), hints)
    return model


def read_model(path: str | Path, hints: Hints = NO_HINTS) -> StoredModel:
    """Reads all of the model at a path.

    Raises:
      UserError: there is no model, or one with missing or damaged files; names them.
    """
    model = open_model(path, hints)
    for name in ("network", "hparams", "tokens", "casing", "task_states", "scores", "left_out", "class_name"):
        getattr(model, name)  # reads it, and raises UserError for what is damaged
    return model.changed(weights=dict(model.weights))
