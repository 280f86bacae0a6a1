"""A model of ours in the architecture of ModernBERT, small enough to be compared in all its numbers."""

from typing import Any

from electra_tf2.formats.stored_model import StoredModel
from tests.support import stored_models as support

SIZES = {"hidden_size": 24, "num_hidden_layers": 4, "num_attention_heads": 2, "max_position_embeddings": 64}
SWITCHES = SIZES | {"architecture": "modernbert", "local_attention": 12}


def modern(**hparams: Any) -> StoredModel:
    """A model of ours in this architecture."""
    model = support.with_crc_weights(SWITCHES | hparams.pop("sizes", {}), **hparams)
    # Small enough that float32 has 1e-5 in logits.
    halves = {name: value if name.endswith("gamma") else 0.5 * value for name, value in model.weights.items()}
    return model.changed(weights=halves)
