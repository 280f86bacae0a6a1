"""Folders that hold a whole model: configuration, weights and vocabulary, wherever they are moved to.

    config.json          the resolved configuration of the run that trained it
    model.safetensors    weights under our names, float32 or half as wide
    vocab.txt            its vocabulary

A run's own folder has config.json and TensorFlow checkpoints; `convert_model.py` makes a self-contained one of it. A
Hugging Face directory is one of the same kind with another config.json, told apart by its `model_type`. A TF1
checkpoint of the original has no config.json; its network is what the shapes of its variables say.
Imports neither TensorFlow nor numpy: configurations take sizes, casing and vocabulary from here (`network_hparams`).
"""

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from electra_tf2.corpus.vocabulary import TOKENIZER_FILE, load_tokens, load_vocab
from electra_tf2.formats.huggingface_config import casing_of, is_huggingface, network_of
from electra_tf2.formats.original_config import (
    GENERATOR_HPARAMS,
    WORDS,
    Shape,
    find_prefix,
    hparams_beside,
    hparams_of,
    shapes_in,
)
from electra_tf2.util.errors import UserError
from electra_tf2.util.hparams import closest
from electra_tf2.util.reading import is_file, read_json

VOCABULARY = "vocab.txt"
RELEASED = Path(__file__).resolve().parents[1] / "pretrained"
# Hparams that describe the network and its input.
NETWORK_HPARAMS = (
    "model_size",
    "model_hparam_overrides",
    "embedding_size",
    "vocab_size",
    "do_lower_case",
    "vocab_file",
)
_ACCENTS = "do_strip_accents"  # also one of them, which older configurations of pre-training do not say


def read_config(folder: str | Path) -> dict[str, Any] | None:
    """Reads a folder's config.json; None without one, or for "", which is no folder.

    Raises:
      UserError: it is no JSON object.
    """
    path = Path(folder) / "config.json"
    return read_json(path, "configuration") if folder != "" and is_file(path) else None


def config_of(path: str | Path) -> dict[str, Any] | None:
    """`read_config` of a folder, or of the folder that a checkpoint lies in."""
    found = read_config(path)
    prefix = find_prefix(path) if found is None and str(path) else None
    return found if prefix is None else read_config(Path(prefix).parent)


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


def vocabulary_of(folder: str | Path, config: Mapping[str, Any]) -> str:
    """Finds a model's vocabulary: the folder's own, or else the one that its configuration names.

    Raises:
      UserError: no vocabulary in the folder, and none that its configuration names.
    """
    for name in (VOCABULARY, TOKENIZER_FILE):
        if (own := Path(folder) / name).is_file():
            return str(own)
    if is_huggingface(config):
        raise UserError(f"{folder} has neither {VOCABULARY} nor {TOKENIZER_FILE}: its vocabulary is needed")
    if "vocab_file" not in config:
        raise UserError(f"{Path(folder) / 'config.json'} is no configuration of a run: it lacks vocab_file")
    return config["vocab_file"]


def network_hparams(folder: str | Path) -> dict[str, Any]:
    """Reads the `NETWORK_HPARAMS` of a folder or a checkpoint, of ours, of Hugging Face or of the original.

    The original's checkpoints tell only some of them. {} where there is no model.

    Raises:
      UserError: config.json is not that of a model, or of a network that we do not have; a damaged checkpoint.
    """
    config = read_config(folder)
    if config is None:
        return _network_of_checkpoint(folder)
    if is_huggingface(config):
        hparams = network_of(config, Path(folder))
        hparams |= casing_of(Path(folder)).hparams
    else:
        missing = [name for name in NETWORK_HPARAMS if name not in config]
        if missing:
            raise UserError(f"{folder}/config.json is not the configuration of a model: it lacks {', '.join(missing)}")
        hparams = {name: config[name] for name in (*NETWORK_HPARAMS, _ACCENTS) if name in config}
    return hparams | {"vocab_file": vocabulary_of(folder, config)}


def generator_hparams(path: str | Path) -> dict[str, Any]:
    """Reads the sizes of the generator in a checkpoint of the original; {} for everything else.

    They need not be those of a recipe: the generator of the released small model is as wide as the discriminator.
    """
    prefix, shapes = _original(path)
    hparams = hparams_of(shapes, prefix) if shapes else {}
    return {name: hparams[name] for name in GENERATOR_HPARAMS if name in hparams}


def check_shared_vocabulary(name: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Raises UserError if a model that is to read a run's token ids has another vocabulary or another casing.

    Args:
      name: what messages call the model.
      theirs, ours: `network_hparams` of the model and of the run. Where one has no file of its vocabulary, only the
        number of tokens is compared.
    """
    files = theirs.get("vocab_file", ""), ours["vocab_file"]
    if theirs["vocab_size"] != ours["vocab_size"]:
        raise UserError(
            f"{name} has a vocabulary of {theirs['vocab_size']}, this run one of {ours['vocab_size']}"
            f" ({files[0] or 'no file'}; {files[1]})"
        )
    if all(map(is_file, files)):
        pairs = zip_longest(*map(load_tokens, files))
        differing = next(((number, pair) for number, pair in enumerate(pairs) if pair[0] != pair[1]), None)
        if differing is not None:
            number, (there, here) = differing
            raise UserError(
                f"{name} has another vocabulary, {files[0]}, than this run, {files[1]}: token {number} is {there!r} "
                f"there and {here!r} here"
            )
    casing = theirs.get("do_lower_case", ours["do_lower_case"])
    if casing != ours["do_lower_case"]:
        raise UserError(
            f"{name} has do_lower_case {casing} ({files[0] or 'no vocabulary'}), this run {ours['do_lower_case']} "
            f"({files[1]}): both must read the same text"
        )


def is_uncased(tokens: Iterable[str]) -> bool:
    """True if no token but the special ones begins with a capital."""
    return not any(token[:1].isupper() for token in tokens if not token.startswith("["))


def _network_of_checkpoint(path: str | Path) -> dict[str, Any]:
    """`network_hparams` of the run in whose folder a checkpoint lies, or of the original's checkpoint."""
    prefix, shapes = _original(path)
    folder = Path(prefix).parent
    if not shapes:
        return network_hparams(folder) if prefix and read_config(folder) is not None else {}
    said = hparams_beside(prefix)
    hparams = hparams_of(shapes, prefix, said)
    found = {name: hparams[name] for name in NETWORK_HPARAMS if name in hparams}
    vocabulary = folder / VOCABULARY
    if vocabulary.is_file():
        lower = said.get("do_lower_case", is_uncased(load_vocab(vocabulary)))
        found |= {"vocab_file": str(vocabulary), "do_lower_case": lower}
    return found


def _original(path: str | Path) -> tuple[str, dict[str, Shape]]:
    """Prefix of the checkpoint at a path ("" without one) and shapes of its variables, if it is the original's."""
    if not str(path) or read_config(path) is not None:
        return "", {}
    prefix = find_prefix(path) or ""
    shapes = shapes_in(prefix) if prefix and read_config(Path(prefix).parent) is None else {}
    return prefix, shapes if WORDS in shapes else {}
