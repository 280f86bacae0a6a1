"""Configurations in folders, and the models that come with the package."""

from pathlib import Path
from typing import Any

from electra_tf2.corpus.vocabulary import load_vocab
from electra_tf2.files.reading import is_file, read_json
from electra_tf2.util.errors import UserError, closest

VOCABULARY = "vocab.txt"
RELEASED = Path(__file__).resolve().parents[1] / "pretrained"


def read_config(folder: str | Path) -> dict[str, Any] | None:
    """Reads a folder's config.json; None without one, or for "", which is no folder.

    Raises:
      UserError: it is no JSON object.
    """
    path = Path(folder) / "config.json"
    return read_json(path, "configuration") if folder != "" and is_file(path) else None


def released(name: str) -> str:
    """Path of the shipped model of that name; "" if there is none."""
    folder = RELEASED / name
    return str(folder) if name and (folder / "config.json").is_file() else ""


def models() -> dict[str, str]:
    """Lists the models that come with the package: name -> what it is, the first sentence of its README.md."""
    found = {}
    for path in sorted(RELEASED.glob("*/config.json")):
        readme = path.with_name("README.md")
        text = readme.read_text(encoding="utf-8").split("\n\n") if readme.is_file() else []
        found[path.parent.name] = " ".join("".join(text[1:2]).split()).partition(". ")[0]
    return found


def vocabulary_hparams(path: str) -> dict[str, int]:
    """The vocab_size of a vocabulary; {} where there is none.

    Raises:
      UserError: a file that is no vocabulary.
    """
    return {"vocab_size": len(load_vocab(path))} if is_file(path) else {}


_OTHER_WEIGHTS = {
    "pytorch_model.bin": "a pickle",
    "tf_model.h5": "weights of transformers' TensorFlow classes",
    "flax_model.msgpack": "weights of transformers' Flax classes",
    "model.onnx": "a program",
}


def what_lies_at(path: str | Path) -> str:
    """Says what lies in the place of a model of ours and how to make one of it; "" where nothing is known.

    Every reader of models ends its message with this where it finds no weights.
    """
    folder = Path(path)
    for name, what in _OTHER_WEIGHTS.items():
        if (folder / name).is_file():
            return (
                f"{name} is {what}, which is not read: load it with transformers and save it again with "
                "save_pretrained, which writes safetensors"
            )
    snapshots = sorted((folder / "snapshots").glob("*/config.json"))
    if snapshots:
        return f"it is a hub's cache: give the folder of a snapshot, {snapshots[-1].parent}"
    inner = sorted(folder.glob("*/config.json"))
    if inner:
        return f"a folder in it has a config.json: give {inner[0].parent}"
    words = str(path).split("/")
    if len(words) == 2 and all(words) and not folder.parent.exists():
        return (
            f"models of hubs are not downloaded: `hf download {path} --local-dir hf/{words[1]}`, then give that folder"
        )
    return ""


def located(path: str) -> str:
    """Path of a model: as it is where something is there, or else the folder of the shipped model of that name.

    Raises:
      UserError: a bare name of nothing; lists the shipped models.
    """
    if not path or Path(path).name != path or Path(path).exists() or is_file(f"{path}.index"):
        return path
    if not released(path):
        known = models()
        raise UserError(
            f"no checkpoint at {path!r}, and no shipped model of that name{closest(path, known)} "
            f"(there are {', '.join(known)})"
        )
    return released(path)
