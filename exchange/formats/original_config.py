"""What network a TF1 checkpoint of the original holds.

Such a checkpoint says nothing of itself, so sizes are read off the shapes of its variables. The number of heads cannot
be: it is told, or that of an hparams.json beside it, which convert_model.py writes, or else follows the papers' rule
(width / 64). Imports neither TensorFlow nor numpy (exchange.formats.folders calls this for configurations).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from electra_tf2.exchange.formats.checkpoint_index import Shape
from electra_tf2.model.architecture import HEAD_SIZE
from electra_tf2.util.errors import UserError
from electra_tf2.util.reading import is_file, read_json

HPARAMS = "hparams.json"
_OVERRIDES = ("num_attention_heads", "hidden_act")
WORDS = "electra/embeddings/word_embeddings"
# Those of pre-training that say how the generator's network differs from the main one.
GENERATOR_HPARAMS = ("generator_hidden_size", "generator_layers", "untied_generator_embeddings")


def hparams_beside(prefix: str) -> dict[str, Any]:
    """Of an hparams.json beside a checkpoint what shapes do not tell: heads, activation and casing; {} without one.

    Raises:
      UserError: it is no JSON object.
    """
    path = Path(prefix).parent / HPARAMS
    said = read_json(path, "hparams") if is_file(path) else {}
    overrides = said.get("model_hparam_overrides")
    said |= overrides if isinstance(overrides, dict) else {}
    return {name: said[name] for name in (*_OVERRIDES, "do_lower_case") if name in said}


def hparams_of(shapes: Mapping[str, Shape], where: str, said: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The hparams of pre-training that make a model with these variables.

    Args:
      shapes: of the variables, under our names or the original's.
      said: what shapes do not tell, as `hparams_beside`.

    Raises:
      UserError: there is no encoder of ELECTRA's among them.
    """
    words = shapes.get(WORDS)
    if words is None:
        raise UserError(f"{where} holds no ELECTRA encoder: no {WORDS} among its variables")
    layers, hidden, inner = _encoder_sizes(shapes, "electra", where)
    overrides = {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_attention_heads": max(1, hidden // HEAD_SIZE),
        "max_position_embeddings": shapes["electra/embeddings/position_embeddings"][0],
        "type_vocab_size": shapes.get("electra/embeddings/token_type_embeddings", (0,))[0],
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
    """Layers, width, width of the feed-forward."""
    layers = 0
    while f"{scope}/encoder/layer_{layers}/intermediate/dense/kernel" in shapes:
        layers += 1
    if not layers:
        raise UserError(f"{where} holds no layers of {scope!r}")
    hidden, inner = shapes[f"{scope}/encoder/layer_0/intermediate/dense/kernel"]
    return layers, hidden, inner
