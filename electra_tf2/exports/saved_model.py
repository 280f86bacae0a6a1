"""Writes SavedModels for TensorFlow and TensorFlow Serving. Loading them needs none of our code.

Encoders, models of text vectors and classifiers take strings, with the tokenizer (tensorflow_text) inside:

    import tensorflow as tf, tensorflow_text
    model = tf.saved_model.load("exported/1")
    model.signatures["states"](text=tf.constant(["A sentence."], tf.string))

A pre-trained model has the signatures `states` (text), `pair_states` (text, text_pair) and, with a detector of replaced
tokens, `replaced` (text). A classifier has one for each task, with the task's name. Models with other heads take ids,
like ONNX and LiteRT files (exports.exportable). Batch and length are dynamic.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.exports.cards import saved_model_usage
from electra_tf2.exports.exportable import (
    Exportable,
    IdsToOutputs,
    Options,
    Runtime,
    Written,
    exportable,
    write_network,
    zero_labels,
)
from electra_tf2.exports.graph_tokenizer import GraphTokenizer
from electra_tf2.exports.self_check import SENTENCES, distance, largest
from electra_tf2.files.reading import no_pattern
from electra_tf2.finetune.tasks.targets import Scale, Target, probabilities
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.inference.model import Model
from electra_tf2.inference.model_config import config_of, embeds, make_network, pooling_of
from electra_tf2.inference.network import Network
from electra_tf2.inference.predictor import Predictor
from electra_tf2.model import kernels
from electra_tf2.model.pooling import text_vectors
from electra_tf2.settings.kinds import kind_named

_COLUMNS = ("text", "text_pair")
# Texts of the self-check; a task of single texts reads the first of each pair.
_PAIRS = (("A first text.", "And a second one, Müller's: 42!"), ("Short.", "Of it."))
_COMPARED_WITH = "the SavedModel, from strings"


class Signature(NamedTuple):
    """A function of a SavedModel, from strings [B] by the names `inputs` to tensors by name."""

    inputs: tuple[str, ...]
    function: Callable[..., dict[str, tf.Tensor]]


def convert(folder: Path, model: StoredModel, options: Options) -> Written:
    """Writes a SavedModel, which takes strings if the model's tokenizer and heads allow it."""
    del options
    if not takes_strings(model):
        return write_network(folder, model, exportable(model, "main"), RUNTIME)
    if model.is_fine_tuned and not embeds(model):
        return convert_classifier(folder, model)
    return convert_encoder(folder, model)


def takes_strings(model: StoredModel) -> bool:
    """True for encoders and classifiers whose tokenizer is WordPiece, the one that tensorflow_text has."""
    if model.tokenizer_file:
        return False
    config = config_of(model)
    if not isinstance(config, FinetuningConfig) or embeds(model):
        return True
    return not config.prompt and all(kind_named(config.kind_of(name)).plain_texts for name in config.task_names)


# SavedModels that take strings.


def convert_encoder(folder: Path, model: StoredModel) -> Written:
    tokenizer = tokenizer_of(model, model.max_length)
    network = make_network(model)
    pooling = pooling_of(model) if embeds(model) else "cls"
    signatures = encoder_signatures(network, tokenizer, pooling)
    written = write_signatures(folder, signatures, network.trainable_variables, tokenizer)
    difference = difference_of_states(model, load_saved(written))
    return Written(f"{written} with signatures {', '.join(signatures)}", difference, _COMPARED_WITH)


def convert_classifier(folder: Path, model: StoredModel) -> Written:
    positions = model.architecture.max_position_embeddings
    tokenizer = tokenizer_of(model, min(positions, model.hparams["max_seq_length"]))
    predictor = Predictor(model, model.tokenizer())
    signatures = task_signatures(predictor, tokenizer)
    written = write_signatures(folder, signatures, predictor.model.trainable_variables, tokenizer)
    difference = difference_of_answers(predictor, load_saved(written), _PAIRS)
    return Written(f"{written} with signatures {', '.join(signatures)}", difference, _COMPARED_WITH)


def encoder_signatures(network: Network, tokenizer: GraphTokenizer, pooling: str) -> dict[str, Signature]:
    """Makes the signatures of a pre-trained model; the first is the default.

    Args:
      pooling: how the output `sentence` is made. A model of text vectors has its own, others "cls".
    """

    def rows(*texts: tf.Tensor | None) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        inputs = tokenizer.rows(*texts)
        mask = inputs["input_mask"]
        return inputs, {"tokens": tokenizer.tokens(inputs["input_ids"], mask), "mask": mask}

    def states(text: tf.Tensor, text_pair: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        inputs, tokens = rows(text, text_pair)
        sequence = network.states(**inputs)
        sentence = sequence[:, 0]
        if pooling == "mean" or network.projection is not None:
            sentence = text_vectors(sequence, inputs["input_mask"], pooling, network.projection)
        return tokens | {"states": sequence, "sentence": sentence}

    def replaced(text: tf.Tensor) -> dict[str, tf.Tensor]:
        inputs, tokens = rows(text)
        probabilities = tf.nn.sigmoid(network.replaced_logits(**inputs))
        return tokens | {"probabilities": probabilities * tf.cast(tokens["mask"], tf.float32)}

    signatures = {"states": Signature(("text",), states), "pair_states": Signature(("text", "text_pair"), states)}
    if network.detector is not None:
        signatures["replaced"] = Signature(("text",), replaced)
    return signatures


def task_signatures(predictor: Predictor, tokenizer: GraphTokenizer) -> dict[str, Signature]:
    """Makes the signatures of a classifier, one for each task; the first is the default."""
    return {task.name: _task_signature(predictor, index, tokenizer) for index, task in enumerate(predictor.tasks)}


def _task_signature(predictor: Predictor, index: int, tokenizer: GraphTokenizer) -> Signature:
    """Makes a task's signature, from string [B], twice for pairs, to the outputs of `served`."""
    task = predictor.tasks[index]
    [text_keys] = task.text_keys
    names = _COLUMNS[: len(text_keys)]

    def answer(**columns: tf.Tensor) -> dict[str, tf.Tensor]:
        texts = [columns[name] for name in names]
        batch = tokenizer.rows(*texts)
        for name, value in zero_labels(task, batch["input_ids"]).items():
            batch[f"{task.name}/{name}"] = value
        return served(task.target, predictor.model.predict(batch, index).predictions)

    return Signature(names, answer)


def served(target: Target, predictions: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Outputs of a classifier that takes strings.

    Returns:
      `value`, float32 [B], for regression. For classification `label`, string [B], `probabilities`, float32 [B, C], and
      `labels`, string [B, C], the label of each probability.
    """
    if isinstance(target, Scale):
        return {"value": predictions["value"]}
    labels = tf.constant(target.names)
    logits = predictions["logits"]
    return {
        "label": tf.gather(labels, tf.argmax(logits, -1)),
        "probabilities": tf.cast(probabilities(logits), tf.float32),
        "labels": tf.tile(labels[tf.newaxis], [tf.shape(logits)[0], 1]),
    }


def write_signatures(
    folder: str | Path,
    signatures: Mapping[str, Signature],
    variables: Sequence[tf.Variable],
    tokenizer: GraphTokenizer,
) -> Path:
    """Writes a SavedModel into the subfolder 1, since TensorFlow Serving wants a folder for each version.

    Args:
      signatures: by name; the first becomes the default.
      variables, tokenizer: those that the signatures use.

    Returns:
      The subfolder.
    """
    functions: dict[str, Any] = {}
    with kernels.off():
        for name, signature in signatures.items():
            specs = {column: tf.TensorSpec([None], tf.string, name=column) for column in signature.inputs}
            functions[name] = tf.function(signature.function, autograph=False).get_concrete_function(**specs)
    functions["serving_default"] = next(iter(functions.values()))
    target = Path(folder) / "1"
    tf.saved_model.save(_module(variables, tokenizer), str(target), signatures=functions)
    return target


def difference_of_states(model: StoredModel, loaded: Any) -> float:
    """The largest difference between our states and those of a loaded SavedModel, from strings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the vocabulary may lack some tokens of the fixed sentences
        all_states = Model(model).states(SENTENCES)
    differences = []
    for sentence, ours in zip(SENTENCES, all_states, strict=True):
        if isinstance(sentence, str):
            theirs = loaded.signatures["states"](text=tf.constant([sentence]))
        else:
            first, second = sentence
            theirs = loaded.signatures["pair_states"](text=tf.constant([first]), text_pair=tf.constant([second]))
        differences.append(distance(ours.vectors, theirs["states"][0].numpy()))
    return largest(differences)


def difference_of_answers(predictor: Predictor, loaded: Any, pairs: Sequence[tuple[str, str]]) -> float:
    """The largest difference between our predictions for texts and those of a loaded SavedModel."""
    differences: list[float] = []
    for task in predictor.tasks:
        [text_keys] = task.text_keys
        texts = [pair[: len(text_keys)] for pair in pairs]
        columns = {}
        for index, _ in enumerate(text_keys):  # one text or two
            columns[_COLUMNS[index]] = tf.constant([pair[index] for pair in pairs])
        outputs = loaded.signatures[task.name](**columns)
        if "probabilities" in outputs:
            theirs = outputs["probabilities"]
        else:
            theirs = outputs["value"][:, tf.newaxis]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # texts may be truncated, and tokens unknown
            answers = predictor(texts, task.name)
        for answer, their_values in zip(answers, theirs.numpy(), strict=True):
            our_values = [answer["label"]]
            if "probabilities" in answer:
                our_values = list(answer["probabilities"].values())
            differences.append(float(np.abs(their_values - our_values).max()))
    return largest(differences)


def tokenizer_of(model: StoredModel, max_length: int) -> GraphTokenizer:
    return GraphTokenizer(model.tokens, *model.casing, max_length)


# SavedModels that take ids.


def write(network: Exportable, path: Path) -> None:
    """Writes a SavedModel with the function as its only signature."""
    specs = {name: tf.TensorSpec([None, None], tf.int32, name=name) for name in network.inputs}

    def function(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return network.function(inputs)

    with kernels.off():
        concrete = tf.function(function, autograph=False).get_concrete_function(**specs)
    tf.saved_model.save(_module(network.variables), str(path), signatures={"serving_default": concrete})


def load(path: Path) -> tuple[IdsToOutputs, list[str]]:
    """Loads a SavedModel that takes ids.

    Returns:
      The function, and the names of its outputs.
    """
    loaded = load_saved(path)
    signature = loaded.signatures["serving_default"]

    def run(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        tensors = {name: tf.constant(value, tf.int32) for name, value in inputs.items()}
        assert loaded is not None  # keeps the variables alive, which the signature does not
        return {name: value.numpy() for name, value in signature(**tensors).items()}

    return run, [*signature.structured_outputs]


RUNTIME = Runtime("TensorFlow", "1", "tensorflow", saved_model_usage("1"), write, load)


def load_saved(path: Path) -> Any:
    with no_pattern(path) as readable:
        return tf.saved_model.load(readable)


def _module(variables: Sequence[tf.Variable], tokenizer: GraphTokenizer | None = None) -> tf.Module:
    """Makes the module to save. It holds no Keras layers, since their stored description would need our classes."""
    module = tf.Module()
    module.weights = list(variables)
    module.tokenizer = tokenizer
    return module
