"""One vector for a whole text, as a model was trained to make it; formats that hold such vectors take it from here."""

from typing import NamedTuple

import numpy as np

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.exchange.sources import Model

_PROJECTION = "/projection/kernel"  # below a task's scope


class Pooling(NamedTuple):
    """How a text's vector comes from its states; it has length 1.

    mode: "mean" of all tokens' states, special ones too, or "cls", that of [CLS]. projection: scope of a linear map
    that follows; "": none.
    """

    mode: str = "mean"
    projection: str = ""

    def width(self, model: Model) -> int:
        """Numbers of a vector."""
        kernel = model.weights.get(f"{self.projection}/kernel")
        return model.architecture.hidden_size if kernel is None else kernel.shape[1]

    def vectors(self, model: Model, states: np.ndarray, input_mask: np.ndarray) -> np.ndarray:
        """float32 [B, H or the projection's width] of states [B, L, H]."""
        marks = input_mask[:, :, np.newaxis]
        found = (states * marks).sum(1) / marks.sum(1) if self.mode == "mean" else states[:, 0]
        if self.projection:
            found = found @ model.weights[f"{self.projection}/kernel"] + model.weights[f"{self.projection}/bias"]
        return (found / np.linalg.norm(found, axis=-1, keepdims=True)).astype(np.float32)


def embeds(model: Model) -> bool:
    """True if a model was fine-tuned to make vectors of texts."""
    config = model.config
    return isinstance(config, FinetuningConfig) and "embedding" in map(config.kind_of, config.task_names)


def pooling_of(model: Model) -> Pooling:
    """As the model was trained, or the mean where it was not."""
    if not embeds(model):
        return Pooling()
    assert isinstance(model.config, FinetuningConfig)
    projections = [name.removesuffix("/kernel") for name in model.weights if name.endswith(_PROJECTION)]
    return Pooling(model.config.classifier_pooling, *projections[:1])
