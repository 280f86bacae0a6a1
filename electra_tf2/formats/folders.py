"""Folders of models without TensorFlow: config.json, the models shipped with the package, hints where weights lack."""

from pathlib import Path
from typing import Any

from electra_tf2.corpus.vocabulary import load_vocab
from electra_tf2.files.reading import is_file, read_json
from electra_tf2.files.writing import is_name_aside
from electra_tf2.formats.checkpoint_files import BEST_FOLDER, find_prefix
from electra_tf2.util.errors import UserError, closest

VOCABULARY = "vocab.txt"
SCORES = "scores.json"  # of a fine-tuned model, written last; or of the run of a model that was converted
SHIPPED = Path(__file__).resolve().parents[1] / "pretrained"


def read_config(folder: str | Path) -> dict[str, Any] | None:
    """Reads a folder's config.json; None if there is none, or if the folder is "".

    Raises:
      UserError: it is no JSON object.
    """
    path = Path(folder) / "config.json"
    if folder == "" or not is_file(path):
        return None
    return read_json(path, "configuration")


def shipped_folder(name: str) -> str:
    """Path of the shipped model with this name; "" if there is none."""
    folder = SHIPPED / name
    if name and (folder / "config.json").is_file():
        return str(folder)
    return ""


def models() -> dict[str, str]:
    """Lists the models that come with the package: name -> description, the first sentence of its README.md."""
    descriptions = {}
    for path in sorted(SHIPPED.glob("*/config.json")):
        name = path.parent.name
        readme = path.with_name("README.md")
        descriptions[name] = _first_sentence(readme) if readme.is_file() else ""
    return descriptions


def pretrained_folders(data_dir: str | Path) -> list[Path]:
    """The folders of a data folder's pre-trained models, and of those that are being trained, by their names."""
    return _folders_of_runs(Path(data_dir, "models"), "*")


def fine_tuned_folders(data_dir: str | Path) -> list[Path]:
    """The folders of a data folder's fine-tuned models, and of those that are being trained, by their names."""
    return _folders_of_runs(Path(data_dir, "models"), "*/finetuning_models/*")


def _folders_of_runs(models_dir: Path, pattern: str) -> list[Path]:
    """Folders with a configuration, but for those that --overwrite renamed, at any depth."""
    folders = []
    for path in models_dir.glob(f"{pattern}/config.json"):
        names = path.parent.relative_to(models_dir).parts
        if not any(is_name_aside(name) for name in names):
            folders.append(path.parent)
    return sorted(folders)


def _first_sentence(readme: Path) -> str:
    """The first sentence below a README's title, on one line; "" if there is nothing below the title."""
    paragraphs = readme.read_text(encoding="utf-8").split("\n\n")
    if len(paragraphs) < 2:
        return ""
    line = " ".join(paragraphs[1].split())
    return line.partition(". ")[0]


def vocabulary_hparams(path: str) -> dict[str, int]:
    """The hparam that a vocabulary file implies, vocab_size; {} if there is no such file.

    Raises:
      UserError: the file is no vocabulary.
    """
    if not is_file(path):
        return {}
    return {"vocab_size": len(load_vocab(path))}


_UNREADABLE_WEIGHTS = {
    "pytorch_model.bin": "a pickle",
    "tf_model.h5": "weights of transformers' TensorFlow classes",
    "flax_model.msgpack": "weights of transformers' Flax classes",
    "model.onnx": "a program",
}


def holds_weights(folder: str | Path) -> bool:
    """True if a folder holds weights that are read: a checkpoint, perhaps the best one alone, or safetensors."""
    for place in (Path(folder), Path(folder, BEST_FOLDER)):
        if find_prefix(place) is not None or any(place.glob("*.safetensors")):
            return True
    return False


def no_weights_hint(path: str | Path) -> str:
    """Ends the error of a reader that finds no weights: what lies there instead, and what to do; "" if unknown."""
    folder = Path(path)
    config = read_config(folder) or {}
    if "train_batch_size" in config and not holds_weights(folder):
        return "nothing was trained there yet: it holds the settings of a run, but no checkpoint"
    for name, content in _UNREADABLE_WEIGHTS.items():
        if (folder / name).is_file():
            return (
                f"{name} is {content}, which is not read: load it with transformers and save it again with "
                "save_pretrained, which writes safetensors"
            )
    snapshots = sorted((folder / "snapshots").glob("*/config.json"))
    if snapshots:
        return f"it is a hub's cache: give the folder of a snapshot, {snapshots[-1].parent}"
    inner = sorted(folder.glob("*/config.json"))
    if inner:
        return f"a folder in it has a config.json: give {inner[0].parent}"
    # A hub's names are "owner/name", which look like paths.
    owner, slash, name = str(path).partition("/")
    is_hub_name = owner and slash and name and "/" not in name
    if is_hub_name and not folder.parent.exists():
        return f"models of hubs are not downloaded: `hf download {path} --local-dir hf/{name}`, then give that folder"
    return ""


def locate_model(path: str) -> str:
    """Turns what a user gives as a model, a path or the name of a shipped model, into a path.

    Raises:
      UserError: a name without folders for which there is neither a file nor a shipped model; lists these.
    """
    is_bare_name = path != "" and Path(path).name == path
    if not is_bare_name:
        return path  # readers raise UserError if nothing is there
    if Path(path).exists() or is_file(f"{path}.index"):
        return path
    shipped = shipped_folder(path)
    if shipped:
        return shipped
    names = models()
    raise UserError(
        f"no checkpoint at {path!r}, and no shipped model of that name{closest(path, names)} "
        f"(there are {', '.join(names)})"
    )
