"""SavedModels of tokenizer and network, strings in, for plain TensorFlow with tensorflow_text and for Serving.

    import tensorflow as tf, tensorflow_text
    model = tf.saved_model.load("exported/1")
    model.signatures["states"](text=tf.constant(["A sentence."]))

Signatures of a pre-trained model: `states` (text), `pair_states` (text, text_pair) and, where it detects replaced
tokens, `replaced` (text). Of a fine-tuned one each task says its own (`Task.signature`). Batch and length are dynamic;
nothing of our code is needed to load it.
"""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.convert import self_check as check
from electra_tf2.convert.network_file import refuse_prompts
from electra_tf2.corpus.graph_tokenizer import GraphTokenizer
from electra_tf2.finetune.tasks.exports import SAMPLES, Signature, strings
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.inference.configured import make_network
from electra_tf2.inference.model import Model
from electra_tf2.inference.network import Network
from electra_tf2.inference.predictor import Predictor
from electra_tf2.model import kernels
from electra_tf2.util.reading import no_pattern


def convert(folder: Path, model: StoredModel, options: check.Options) -> check.Written:
    """Writes a SavedModel with the tokenizer inside."""
    tokenizer = tokenizer_of(model, model.hparams["max_seq_length"] if model.is_fine_tuned else 512)
    if model.is_fine_tuned:
        predictor = Predictor(model, model.tokenizer())
        signatures, variables = task_signatures(predictor, tokenizer), predictor.model.trainable_variables
        difference = functools.partial(difference_from_strings, predictor, signatures)
    else:
        network = make_network(model)
        signatures, variables = pretrained_signatures(network, tokenizer), network.trainable_variables
        difference = functools.partial(difference_of_states, model)
    written = write_saved_model(folder, signatures, variables, tokenizer)
    with no_pattern(written) as readable:
        loaded = tf.saved_model.load(readable)
    what = f"{written} with signatures {', '.join(signatures)}"
    return check.Written(what, difference(loaded), "the SavedModel, from strings")


def difference_of_states(model: StoredModel, loaded: Any) -> float:
    """The largest difference between our states and those of a loaded SavedModel, from strings."""
    differences = []
    for sentence, ours in zip(check.SENTENCES, Model(model).states(check.SENTENCES), strict=True):
        name, texts = ("states", [sentence]) if isinstance(sentence, str) else ("pair_states", [*sentence])
        given = zip(("text", "text_pair"), texts, strict=False)
        theirs = loaded.signatures[name](**{column: tf.constant([text]) for column, text in given})
        differences.append(check.distance(ours.vectors, theirs["states"][0].numpy()))
    return check.largest(differences)


def pretrained_signatures(network: Network, tokenizer: GraphTokenizer) -> dict[str, Signature]:
    """Makes `states`, `pair_states` and, with a detector, `replaced`; the first is the default."""

    def rows(*texts: tf.Tensor | None) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        inputs = tokenizer.rows(*texts)
        mask = inputs["input_mask"]
        return inputs, {"tokens": tokenizer.tokens(inputs["input_ids"], mask), "mask": mask}

    def states(text: tf.Tensor, text_pair: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        inputs, tokens = rows(text, text_pair)
        found = network.states(**inputs)
        return tokens | {"states": found, "sentence": found[:, 0]}

    def replaced(text: tf.Tensor) -> dict[str, tf.Tensor]:
        inputs, tokens = rows(text)
        probabilities = tf.nn.sigmoid(network.replaced_logits(**inputs)) * tf.cast(tokens["mask"], tf.float32)
        return tokens | {"probabilities": probabilities}

    signatures = {
        "states": Signature(strings("text"), states),
        "pair_states": Signature(strings("text", "text_pair"), states),
    }
    if network.detector is not None:
        signatures["replaced"] = Signature(strings("text"), replaced)
    return signatures


def task_signatures(predictor: Predictor, tokenizer: GraphTokenizer) -> dict[str, Signature]:
    """A signature for each task, by its name; the first is the default.

    Raises:
      UserError: a task whose input is more than text.
    """
    refuse_prompts(predictor)

    def predict(number: int, inputs: dict[str, tf.Tensor], **labels: tf.Tensor) -> dict[str, tf.Tensor]:
        task = predictor.tasks[number]
        labels = task.no_labels(inputs["input_ids"]) | labels
        batch = inputs | {f"{task.name}/{name}": value for name, value in labels.items()}
        return predictor.model.predict(batch, number).predictions

    return {
        task.name: task.signature(tokenizer, functools.partial(predict, number))
        for number, task in enumerate(predictor.tasks)
    }


def difference_from_strings(
    predictor: Predictor,
    signatures: Mapping[str, Signature],
    loaded: Any,
    texts: Sequence[tuple[str, str]] = SAMPLES,
) -> float:
    """The largest difference of a loaded SavedModel's numbers from those of `predict`, on examples of these texts."""
    differences: list[float] = []
    for number, task in enumerate(predictor.tasks):
        split = task.samples(texts)
        answers = task.served_numbers(split, predictor.predictions(number, split))
        for example, ours in zip(split.examples, answers, strict=True):
            inputs = signatures[task.name].example(example)
            given = {name: tf.constant([value]) for name, value in inputs.items()}
            served = loaded.signatures[task.name](**given)
            shared = [name for name in served.keys() & ours.keys() if served[name].dtype != tf.string]
            assert shared or not ours, f"{task.name}: nothing to compare in {sorted(served)}"
            differences += [_difference(served[name][0].numpy(), ours[name]) for name in shared]
    return check.largest(differences)


def _difference(found: np.ndarray, ours: Any) -> float:
    """Largest difference of a number or a row of numbers, which may be padded."""
    expected = np.atleast_1d(list(ours.values()) if isinstance(ours, dict) else ours)
    return check.largest(np.abs(np.atleast_1d(found)[: len(expected)] - expected))


def tokenizer_of(model: StoredModel, max_length: int = 512) -> GraphTokenizer:
    longest = min(max_length, model.architecture.max_position_embeddings)
    return GraphTokenizer(model.tokens, *model.casing, longest)


def write_saved_model(
    folder: str | Path,
    signatures: Mapping[str, Signature],
    variables: Sequence[tf.Variable],
    tokenizer: GraphTokenizer,
) -> Path:
    """Writes version 1 into a folder, as TensorFlow Serving wants it.

    Args:
      signatures: by name; the first is `serving_default`.
      variables, tokenizer: those that the functions use.

    Returns:
      The SavedModel's folder, `folder`/1.
    """
    served = tf.Module()  # no Keras layers, which would be described, with warnings, for a Keras that cannot build them
    served.weights, served.tokenizer = list(variables), tokenizer
    functions: dict[str, Any] = {}
    with kernels.off():
        for name, one in signatures.items():
            functions[name] = tf.function(one.function, autograph=False).get_concrete_function(**one.inputs)
    functions["serving_default"] = next(iter(functions.values()))
    target = Path(folder) / "1"
    tf.saved_model.save(served, str(target), signatures=functions)
    return target
