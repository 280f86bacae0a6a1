"""Functions of a SavedModel, strings in and answers out, as tasks say them (`Task.signature`)."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import tensorflow as tf

if TYPE_CHECKING:  # tasks need no tensorflow_text
    from electra_tf2.corpus.graph_tokenizer import GraphTokenizer as GraphTokenizer
else:
    GraphTokenizer = Any

SAMPLES = (("A first text.", "And a second one, Müller's: 42!"), ("Short.", "Of it."))  # of exported files' self-check


class Signature(NamedTuple):
    """A function of a SavedModel.

    inputs: their types by name; the first axis is the batch's. function: tensors by these names -> answers by name.
    example: an example of a Split -> its inputs, without the batch's axis.
    """

    inputs: dict[str, tf.TensorSpec]
    function: Callable[..., dict[str, tf.Tensor]]
    example: Callable[[Any], Mapping[str, Any]] = dict


def strings(*names: str) -> dict[str, tf.TensorSpec]:
    """Inputs string [B]."""
    return {name: tf.TensorSpec([None], tf.string, name=name) for name in names}


class Predict(Protocol):
    """The head's predictions."""

    def __call__(self, inputs: dict[str, tf.Tensor], **labels: tf.Tensor) -> dict[str, tf.Tensor]:
        """int32 [B, L] input_ids, input_mask, segment_ids, and the labels that are not those of `Task.no_labels`."""
