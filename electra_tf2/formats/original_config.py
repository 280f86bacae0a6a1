"""Network in a TF1 checkpoint of the original, which says nothing of itself: sizes are read off the shapes of its
variables.

The number of heads is given, or that of an hparams.json beside it (convert_model.py writes one), or else follows the
papers' rule (width / 64). Imports neither TensorFlow nor numpy.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from electra_tf2.files.reading import is_file, read_json, read_text
from electra_tf2.model.architecture import HEAD_SIZE
from electra_tf2.util.errors import UserError

HPARAMS = "hparams.json"
_OVERRIDES = ("num_attention_heads", "hidden_act")
WORDS = "electra/embeddings/word_embeddings"
# Hparams of pre-training by which the generator's network differs from the main one.
GENERATOR_HPARAMS = ("generator_hidden_size", "generator_layers", "untied_generator_embeddings")

Shape = tuple[int, ...]
_POSITIONS = "electra/embeddings/position_embeddings"


def hparams_beside(prefix: str) -> dict[str, Any]:
    """Reads what shapes do not say from an hparams.json beside a checkpoint: heads, activation, casing; {} without it.

    Raises:
      UserError: it is no JSON object.
    """
    path = Path(prefix).parent / HPARAMS
    said = read_json(path, "hparams") if is_file(path) else {}
    overrides = said.get("model_hparam_overrides")
    said |= overrides if isinstance(overrides, dict) else {}
    return {name: said[name] for name in (*_OVERRIDES, "do_lower_case") if name in said}


def hparams_of(shapes: Mapping[str, Shape], where: str, said: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Hparams of pre-training that make a model with these variables.

    Args:
      shapes: shapes by variable, under our names or the original's.
      said: what shapes do not say, as `hparams_beside`.

    Raises:
      UserError: there is no encoder of ELECTRA's among them.
    """
    words = shapes.get(WORDS)
    if words is None:
        raise UserError(f"{where} holds no ELECTRA encoder: no {WORDS} among its variables")
    positions = shapes.get(_POSITIONS, ())
    for name, shape in ((WORDS, words), (_POSITIONS, positions)):
        _check_table(name, shape, where)
    layers, hidden, inner = _encoder_sizes(shapes, "electra", where)
    overrides = {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_attention_heads": max(1, hidden // HEAD_SIZE),
        "max_position_embeddings": positions[0],
        "type_vocab_size": (shapes.get("electra/embeddings/token_type_embeddings") or (0,))[0],
    }
    overrides |= {name: value for name, value in (said or {}).items() if name in _OVERRIDES}
    hparams: dict[str, Any] = {
        "model_size": "large" if hidden >= 1024 else "base" if hidden >= 768 else "small",
        "model_hparam_overrides": overrides,
        "embedding_size": words[1],
        "vocab_size": words[0],
        "electra_objective": "discriminator_predictions/dense/kernel" in shapes,
    }
    towers = "generator_ltr/encoder/layer_0/output/dense/kernel" in shapes
    if towers and hparams["electra_objective"]:
        hparams |= {"electra_objective": False, "electric_objective": True, "two_tower_generator": True}
    own = next(
        (s for s in ("generator", "generator_ltr") if f"{s}/encoder/layer_0/output/dense/kernel" in shapes), None
    )
    hparams["untied_generator"] = own is not None
    if own is not None:
        generator_layers, generator_hidden, _ = _encoder_sizes(shapes, own, where)
        hparams["generator_hidden_size"] = generator_hidden / hidden
        hparams["generator_layers"] = generator_layers / layers
        hparams["untied_generator_embeddings"] = f"{own}/embeddings/word_embeddings" in shapes
    return hparams


def _encoder_sizes(shapes: Mapping[str, Shape], scope: str, where: str) -> tuple[int, int, int]:
    """Layers, width, and width of the feed-forward network."""
    layers = 0
    while f"{scope}/encoder/layer_{layers}/intermediate/dense/kernel" in shapes:
        layers += 1
    if not layers:
        raise UserError(f"{where} holds no layers of {scope!r}")
    kernel = f"{scope}/encoder/layer_0/intermediate/dense/kernel"
    _check_table(kernel, shapes[kernel], where)
    hidden, inner = shapes[kernel]
    return layers, hidden, inner


def _check_table(name: str, shape: Shape, where: str) -> None:
    """Raises UserError for the shape of a variable that has no rows and columns."""
    if len(shape) != 2 or min(shape) < 1:
        raise UserError(f"{where}: {name} must have rows and columns, but its shape is {shape or 'missing'}")


def find_prefix(path: str | Path) -> str | None:
    """Finds the checkpoint at a path: itself a prefix, or in a folder the one that its file `checkpoint` names, or the
    last of those that are there."""
    if is_file(f"{path}.index"):
        return str(path)
    state = Path(path) / "checkpoint"
    if is_file(state):
        named = re.search(r'^model_checkpoint_path: "(.*)"', read_text(state, "checkpoint"), re.MULTILINE)
        prefix = str(Path(path) / named[1]) if named else None  # an absolute name replaces the folder
        if prefix and is_file(f"{prefix}.index"):
            return prefix
    indices = (re.fullmatch(r"(model\.ckpt-(\d+))\.index", file.name) for file in Path(path).glob("model.ckpt-*.index"))
    steps = [(int(match[2]), match[1]) for match in indices if match]
    return str(Path(path) / max(steps)[1]) if steps else None
