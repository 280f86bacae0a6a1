"""Finds out what lies at a path, and reads it: gives a StoredModel of the format that it is.

    open_model(path)   of a run, a self-contained folder of ours, a Hugging Face directory, a checkpoint of the original
                       or of tf-models-official's encoder; read when it is asked for
    find_model(path)   the same, but an empty StoredModel where there is no model
    read_model(path)   the same, all of it read now

A folder of ours has config.json (the resolved configuration of its run), vocab.txt or tokenizer.json, and its weights
in model.safetensors or TensorFlow's checkpoints. Hugging Face's config.json has a `model_type`. Sizes of a checkpoint
without a config.json follow from the shapes of its variables.
"""

from pathlib import Path

from electra_tf2.formats.checkpoint_files import find_prefix
from electra_tf2.formats.folders import holds_weights, read_config, what_lies_at
from electra_tf2.formats.huggingface import HuggingFaceDirectory
from electra_tf2.formats.huggingface_config import is_huggingface
from electra_tf2.formats.original import BareCheckpoint
from electra_tf2.formats.own import OwnFolder
from electra_tf2.formats.stored_model import NOTHING, Given, StoredModel, weights_module
from electra_tf2.util.errors import UserError


def find_model(path: str | Path, given: Given = NOTHING) -> StoredModel:
    """The model at a path; an empty one where there is none, and for "".

    Raises:
      UserError: config.json is no JSON object.
    """
    if not str(path):
        return StoredModel(path)
    folder = Path(path)
    checkpoint = ""
    config = read_config(folder)
    if config is None:  # perhaps the path of one of its checkpoints, or of its file of weights
        checkpoint = str(path) if folder.suffix == ".safetensors" else find_prefix(folder) or ""
        if not checkpoint:
            return StoredModel(path)
        folder = Path(checkpoint).parent
        config = read_config(folder)
    if config is None:
        return BareCheckpoint(checkpoint, given)
    if is_huggingface(config):
        return HuggingFaceDirectory(folder, config, given)
    return OwnFolder(folder, config, given, checkpoint)


def open_model(path: str | Path, given: Given = NOTHING) -> StoredModel:
    """The model at a path.

    Raises:
      UserError: nothing is there, with what was looked for; or something is given that its own files hold.
    """
    model = find_model(path, given)
    idle = [name for name in model.answered_by_files if getattr(given, name) is not None]
    if idle:
        pronoun = "it" if len(idle) == 1 else "them"
        raise UserError(f"{' and '.join(idle)}: the files of {path} hold {pronoun} already, so leave {pronoun} out")
    if given.pairs and not isinstance(model, HuggingFaceDirectory):
        raise UserError(f"pairs: given for a classifier of Hugging Face, but {path} is none")
    if isinstance(model, OwnFolder) and not model.checkpoint and not holds_weights(model.folder):
        # Before anything else of the folder is read: what is wrong with it otherwise does not matter yet.
        raise UserError(f"no checkpoint at {str(path)!r}: {what_lies_at(path) or 'it holds no weights'}")
    if type(model) is StoredModel:  # no file of this machine; TensorFlow also knows other file systems
        return BareCheckpoint(weights_module().find_checkpoint(str(path)), given)
    return model


def read_model(path: str | Path, given: Given = NOTHING) -> StoredModel:
    """Reads all of the model at a path.

    Raises:
      UserError: nothing is there, or nothing that can be read; names what is missing.
    """
    model = open_model(path, given)
    for name in ("network", "hparams", "tokens", "casing", "task_states", "scores", "left_out", "class_name"):
        getattr(model, name)  # reads it, and raises UserError for what is damaged
    return model.changed(weights=dict(model.weights))
