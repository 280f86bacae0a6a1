"""What network a TF1 checkpoint of the original holds.

Such a checkpoint says nothing of itself, so sizes are read off the shapes of its variables; the number of heads cannot
be and follows the papers' rule (width / 64) unless told. Imports neither TensorFlow nor numpy (formats.folders calls
this for configurations).
"""

from collections.abc import Mapping
from typing import Any

from formats.checkpoint_index import Shape
from model.architecture import HEAD_SIZE
from util.errors import UserError

WORDS = "electra/embeddings/word_embeddings"
# Those of pre-training that say how the generator's network differs from the main one.
GENERATOR_HPARAMS = ("generator_hidden_size", "generator_layers", "untied_generator_embeddings")


def hparams_of(shapes: Mapping[str, Shape], where: str, num_attention_heads: int | None = None) -> dict[str, Any]:
    """The hparams of pre-training that make a model with these variables.

    Args:
      shapes: of the variables, under our names or the original's.
      num_attention_heads: of the main network; None: its width / 64.

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
        "num_attention_heads": num_attention_heads or max(1, hidden // HEAD_SIZE),
        "max_position_embeddings": shapes["electra/embeddings/position_embeddings"][0],
        "type_vocab_size": shapes.get("electra/embeddings/token_type_embeddings", (0,))[0],
    }
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
