"""Folders of models without TensorFlow: config.json, the models shipped with the package, hints where weights lack."""

import contextlib
from pathlib import Path
from typing import Any

from electra_tf2.config.recipes import is_recipe
from electra_tf2.corpus.vocabulary import load_vocab
from electra_tf2.files.reading import is_file, read_json
from electra_tf2.files.writing import is_name_aside
from electra_tf2.formats.checkpoint_files import BEST_FOLDER, find_prefix
from electra_tf2.util.errors import UserError, closest
from electra_tf2.util.progress import warn

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


def is_shipped(path: str | None) -> bool:
    """True for the path of a model that comes with the package."""
    return path is not None and Path(path).resolve().parent == SHIPPED.resolve()


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
    if (folder / "model.json").is_file():
        return "it is an export, which its runtime alone reads: load the model that it was made of"
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
        return (
            "there is no such folder, and models of hubs are not downloaded: "
            f"`hf download {path} --local-dir hf/{name}`, then give that folder"
        )
    return ""


def with_shipped(path: str) -> str:
    """The folder of the shipped model of this name, if the path is a name under which no file lies; else the path."""
    if Path(path).name != path or Path(path).exists() or is_file(f"{path}.index"):
        return path
    return shipped_folder(path) or path


def locate_vocabulary(path: str) -> str:
    """The vocabulary of a shipped model, if the path is the name of one under which no file lies; else the path."""
    folder = with_shipped(path)
    if folder != path:
        return str(Path(folder) / VOCABULARY)
    return path


def locate_model(path: str) -> str:
    """Turns what a user gives as a model, a path or the name of a shipped model, into a path.

    Raises:
      UserError: a name without folders for which there is neither a file nor a shipped model; says where to look.
    """
    is_bare_name = path != "" and Path(path).name == path
    if is_bare_name and is_missing(path):
        raise no_model(path)
    own = Path("data", "models", path)
    if is_bare_name and shipped_folder(path) and not Path(path).exists() and holds_weights(own):
        warn(f"{path} is the shipped model; {own} is another of that name: give that path for your own")
    return with_shipped(path)  # of a path with folders, readers raise UserError if nothing is there


def is_missing(path: str) -> bool:
    """True if nothing lies at the path of a model, and no shipped one has that name."""
    if "://" in path:
        return False  # a file system that only TensorFlow knows
    located = with_shipped(path)
    return not (Path(located).exists() or is_file(f"{located}.index") or is_file(f"{located}.index.json"))


# Models that lie elsewhere, for the errors of all commands that read one.

_LEVELS = 3  # of folders that may be data folders: the working directory and two below
_MOST_FOLDERS = 500  # that are looked into, so that the error comes at once in a large home directory, too
_LISTED = 5  # models that a message names


def no_model(path: str | Path, flag: str = "", has_data_dir: bool = False) -> UserError:
    """Makes the error for a path at which there is no model: where one of that name lies, or else which there are.

    Args:
      flag: flag that names a model, "" outside of programs.
      has_data_dir: whether --data-dir says, too, where models are looked for.
    """
    name = Path(path).name
    folders = nearby_models()
    same_name = [folder for folder in folders if folder.name == name]
    if same_name:
        advice = " or ".join(f"{flag} {folder}".lstrip() for folder in same_name[:_LISTED])
        data_dir = same_name[0].parent.parent
        if has_data_dir and same_name[0].parent.name == "models":
            advice += f", or --data-dir {data_dir}"
        return UserError(f"no model at {path}, but there is one of that name elsewhere: give {advice}")
    hint = no_weights_hint(path)
    if hint:
        return UserError(f"no model at {path}: {hint}")
    if is_recipe(name):
        advice = f"make it by electra pretrain --model-name {name}, or put a released model of that name there"
        return UserError(f"no model at {path}: {advice}. Shipped models are {', '.join(models())}")
    hint = closest(name, models()) or "."
    text = f"no model at {path}{hint} Shipped models are {', '.join(models())}"
    parent = Path(path).parent
    if parent != Path() and parent.is_dir():
        names = sorted(file.name for file in parent.iterdir())[:10]
        text += f"; {parent} holds {', '.join(names) or 'nothing'}"
    elif folders:
        text += f"; yours are {', '.join(str(folder) for folder in folders[:_LISTED])}"
    return UserError(f"{text}. electra pretrain makes one")


def nearby_models() -> list[Path]:
    """Lists the folders of models in the data folders nearby, pre-trained and fine-tuned ones, the newest first."""
    folders: list[Path] = []
    for data_dir in nearby_data_dirs():
        folders += [*pretrained_folders(data_dir), *fine_tuned_folders(data_dir)]
    folders.sort(key=lambda folder: (folder / "config.json").stat().st_mtime, reverse=True)
    return folders


def nearby_data_dirs() -> list[Path]:
    """Finds data folders, whose `models` holds runs: at the working directory and below it, hidden ones left out."""
    data_dirs: list[Path] = []
    level = [Path()]
    looked_into = 0
    for _ in range(_LEVELS):
        next_level: list[Path] = []
        for folder in level:
            looked_into += 1
            if looked_into > _MOST_FOLDERS:
                return data_dirs
            if pretrained_folders(folder) or fine_tuned_folders(folder):
                data_dirs.append(folder)
            next_level += _folders_in(folder)
        level = next_level
    return data_dirs


def _folders_in(folder: Path) -> list[Path]:
    """The folders in a folder that are not hidden, by their names; none if it cannot be read."""
    folders = []
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            if not path.name.startswith(".") and path.is_dir():
                folders.append(path)
    return folders
