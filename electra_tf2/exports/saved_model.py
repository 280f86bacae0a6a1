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
from electra_tf2.corpus.encoding import Text, encode
from electra_tf2.exports.card_programs import saved_model_usage
from electra_tf2.exports.exportable import (
    Exportable,
    IdsToOutputs,
    Options,
    Runtime,
    Written,
    make_exportable,
    write_network,
    zero_labels,
)
from electra_tf2.exports.graph_tokenizer import GraphTokenizer
from electra_tf2.exports.self_check import SENTENCES, certain_ranks, distance, largest
from electra_tf2.files.reading import no_pattern
from electra_tf2.finetune.tasks.targets import Scale, Target, probabilities
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.inference.model import Model
from electra_tf2.inference.model_config import config_of, embeds, make_network, pooling_in_files
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
        return write_network(folder, model, make_exportable(model, "main"), RUNTIME)
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
    signatures = encoder_signatures(network, tokenizer, pooling_in_files(model))
    written = write_signatures(folder, signatures, network.trainable_variables, tokenizer)
    difference = difference_of_states(model, load_saved(written))
    return Written(f"{written} with signatures {', '.join(signatures)}", difference, _COMPARED_WITH)


def convert_classifier(folder: Path, model: StoredModel) -> Written:
    predictor = Predictor(model, model.tokenizer())
    tokenizer = tokenizer_of(model, predictor.config.max_seq_length)
    signatures = task_signatures(predictor, tokenizer)
    written = write_signatures(folder, signatures, predictor.model.trainable_variables, tokenizer)
    difference = difference_of_answers(predictor, load_saved(written), _PAIRS)
    return Written(f"{written} with signatures {', '.join(signatures)}", difference, _COMPARED_WITH)


def encoder_signatures(network: Network, tokenizer: GraphTokenizer, pooling: str) -> dict[str, Signature]:
    """Makes the signatures of an encoder; the first is the default.

    Args:
      pooling: that of a model of text vectors, whose output `sentence` has length 1. "": the model is none, so that
        `sentence` is the state of [CLS].
    """

    def rows(*texts: tf.Tensor | None) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        inputs = tokenizer.rows(*texts)
        mask = inputs["input_mask"]
        return inputs, {"tokens": tokenizer.tokens(inputs["input_ids"], mask), "mask": mask}

    def states(text: tf.Tensor, text_pair: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        inputs, tokens = rows(text, text_pair)
        sequence = network.states(**inputs)
        if pooling:
            sentence = text_vectors(sequence, inputs["input_mask"], pooling, network.projection)
        else:
            sentence = sequence[:, 0]
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
    """Makes a task's signature, from string [B], twice for pairs, to `classifier_outputs`."""
    task = predictor.tasks[index]
    [text_keys] = task.text_keys
    names = _COLUMNS[: len(text_keys)]

    def answer(**columns: tf.Tensor) -> dict[str, tf.Tensor]:
        texts = [columns[name] for name in names]
        batch = tokenizer.rows(*texts)
        for name, value in zero_labels(task, batch["input_ids"]).items():
            batch[f"{task.name}/{name}"] = value
        return classifier_outputs(task.target, predictor.model.predict(batch, index).predictions)

    return Signature(names, answer)


def classifier_outputs(target: Target, predictions: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Makes the outputs of a classifier that takes strings.

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
    """The largest difference between what Python's calls give and the outputs of a loaded SavedModel, from strings."""
    python = Model(model)
    differences = []
    for text in SENTENCES:
        if isinstance(text, str):
            columns = {"text": tf.constant([text])}
            signatures = ["states"]
            if python.network.detector is not None:
                signatures.append("replaced")
        else:
            first, second = text
            columns = {"text": tf.constant([first]), "text_pair": tf.constant([second])}
            signatures = ["pair_states"]
        for name in signatures:
            ours = _python_outputs(python, name, text)
            theirs = _arrays(loaded.signatures[name](**columns))
            assert ours.keys() == theirs.keys(), (sorted(ours), sorted(theirs))
            for output, value in ours.items():
                differences.append(distance(value, theirs[output]))
    return largest(differences)


def _python_outputs(python: Model, signature: str, text: Text) -> dict[str, np.ndarray]:
    """Makes the outputs of a signature for a text by the calls that Python has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the vocabulary may lack some tokens of the fixed sentences
        [states] = python.states([text])
        sentence = states.sentence
        if pooling_in_files(python.source):
            [sentence] = python.embed([text])
        encoded = encode(python.tokenizer, [text], python.max_length)
    outputs = {"tokens": np.array([states.tokens]), "mask": encoded.input_mask}
    if signature == "replaced":
        # Not `Model.replaced`, which reads a text that is too long in windows.
        with kernels.off():
            logits = python.network.replaced_logits(*encoded)
        return outputs | {"probabilities": tf.nn.sigmoid(logits).numpy()}
    return outputs | {"states": states.vectors[np.newaxis], "sentence": sentence[np.newaxis]}


def difference_of_answers(predictor: Predictor, loaded: Any, pairs: Sequence[tuple[str, str]]) -> float:
    """The largest difference between our predictions for texts and those of a loaded SavedModel."""
    differences: list[float] = []
    for task in predictor.tasks:
        [text_keys] = task.text_keys
        texts = [pair[: len(text_keys)] for pair in pairs]
        columns = {}
        for index, _ in enumerate(text_keys):  # one text or two
            columns[_COLUMNS[index]] = tf.constant([pair[index] for pair in pairs])
        outputs = _arrays(loaded.signatures[task.name](**columns))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # texts may be truncated, and tokens unknown
            answers = predictor(texts, task.name)
        labels = np.array([answer["label"] for answer in answers])
        if "value" in outputs:
            differences.append(distance(labels, outputs["value"]))
            continue
        probabilities = np.array([list(answer["probabilities"].values()) for answer in answers])
        names = np.array([list(answer["probabilities"]) for answer in answers])
        differences.append(distance(probabilities, outputs["probabilities"]))
        differences.append(distance(names, outputs["labels"]))
        best_first = np.sort(probabilities)[:, ::-1]
        least = np.finfo(best_first.dtype).tiny  # a probability may be 0, whose logarithm is none
        is_certain = certain_ranks(np.log(np.maximum(best_first, least)))[:, 0]
        differences.append(distance(labels[is_certain], outputs["label"][is_certain]))
    return largest(differences)


def _arrays(outputs: Mapping[str, tf.Tensor]) -> dict[str, np.ndarray]:
    """Turns the outputs of a signature into arrays, strings among them."""
    arrays = {}
    for name, value in outputs.items():
        array = value.numpy()
        if value.dtype == tf.string:  # an array of objects, bytes
            array = np.char.decode(array.astype(bytes), "utf-8")
        arrays[name] = array
    return arrays


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


RUNTIME = Runtime("TensorFlow", "1", "a SavedModel", "tensorflow", saved_model_usage, write, load)


def load_saved(path: Path) -> Any:
    with no_pattern(path) as readable:
        return tf.saved_model.load(readable)


def _module(variables: Sequence[tf.Variable], tokenizer: GraphTokenizer | None = None) -> tf.Module:
    """Makes the module to save. It holds no Keras layers, since their stored description would need our classes."""
    module = tf.Module()
    module.weights = list(variables)
    module.tokenizer = tokenizer
    return module
