"""SavedModels of tokenizer and network, strings in, for plain TensorFlow with tensorflow_text and for Serving.

    import tensorflow as tf, tensorflow_text
    model = tf.saved_model.load("exported/1")
    model.signatures["states"](text=tf.constant(["A sentence."]))

Signatures of a pre-trained model: `states` (text), `pair_states` (text, text_pair) and, where it detects replaced
tokens, `replaced` (text). Those of a fine-tuned one come from finetune.serving. Batch and length are dynamic; nothing
of our code is needed to load it.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from electra_tf2.exchange.graph_tokenizer import GraphTokenizer
from electra_tf2.exchange.network import Network
from electra_tf2.exchange.sources import Model
from electra_tf2.model import kernels

# Inputs and outputs of a signature by name.
Signature = tuple[tuple[str, ...], Callable[..., dict[str, tf.Tensor]]]


class _Served(tf.Module):
    """Content of a SavedModel: the weights and the tokenizer that its signatures use.

    No Keras layers, which would be described in it, with warnings, for a Keras that cannot build them.
    """

    def __init__(self, variables: Sequence[tf.Variable], tokenizer: GraphTokenizer) -> None:
        super().__init__()
        self.weights = list(variables)
        self.tokenizer = tokenizer


def pretrained_signatures(network: Network, tokenizer: GraphTokenizer) -> dict[str, Signature]:
    """Makes `states`, `pair_states` and, with a detector, `replaced`; the first is the default."""

    def described(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        states = network.states(**inputs)
        mask = inputs["input_mask"]
        tokens = tokenizer.tokens(inputs["input_ids"], mask)
        return {"tokens": tokens, "mask": mask, "states": states, "sentence": states[:, 0]}

    def states(text: tf.Tensor) -> dict[str, tf.Tensor]:
        return described(tokenizer.rows(text))

    def pair_states(text: tf.Tensor, text_pair: tf.Tensor) -> dict[str, tf.Tensor]:
        return described(tokenizer.rows(text, text_pair))

    def replaced(text: tf.Tensor) -> dict[str, tf.Tensor]:
        inputs = tokenizer.rows(text)
        mask = inputs["input_mask"]
        probabilities = tf.nn.sigmoid(network.replaced_logits(**inputs)) * tf.cast(mask, tf.float32)
        return {"tokens": tokenizer.tokens(inputs["input_ids"], mask), "mask": mask, "probabilities": probabilities}

    signatures: dict[str, Signature] = {
        "states": (("text",), states),
        "pair_states": (("text", "text_pair"), pair_states),
    }
    if network.detector is not None:
        signatures["replaced"] = (("text",), replaced)
    return signatures


def tokenizer_of(model: Model, max_length: int = 512) -> GraphTokenizer:
    longest = min(max_length, model.architecture.max_position_embeddings)
    return GraphTokenizer(model.tokens, model.casing, longest)


def write_saved_model(
    folder: str | Path,
    signatures: Mapping[str, Signature],
    variables: Sequence[tf.Variable],
    tokenizer: GraphTokenizer,
) -> Path:
    """Writes version 1 into a folder, as TensorFlow Serving wants it.

    Args:
      signatures: by name, the names of inputs, each a string [B], and the function; the first is `serving_default`.
      variables, tokenizer: those that the functions use.

    Returns:
      The SavedModel's folder, `folder`/1.
    """
    served = _Served(variables, tokenizer)
    functions: dict[str, Any] = {}
    with kernels.off():
        for name, (inputs, function) in signatures.items():
            specs = {argument: tf.TensorSpec([None], tf.string, name=argument) for argument in inputs}
            functions[name] = tf.function(function, autograph=False).get_concrete_function(**specs)
    functions["serving_default"] = next(iter(functions.values()))
    target = Path(folder) / "1"
    tf.saved_model.save(served, str(target), signatures=functions)
    return target
