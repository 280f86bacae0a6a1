"""Networks as files for other runtimes: the function that is written, what lies beside it, and its check.

    input_ids, attention_mask, token_type_ids: [batch, length]  ->  last_hidden_state, logits, sentence_embedding

The part says which outputs there are: "main", the main network with its head (of fine-tuned models: what their heads
predict); "body", states and a vector for the whole text; "generator", its masked language model. ONNX (exports.onnx),
LiteRT (exports.litert) and TensorFlow's own format (exports.saved_model) lie beside a model.json and the tokenizer's
files. B batch, L length.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf2.convert.huggingface import write_tokenizer_of
from electra_tf2.corpus.encoding import Encoded
from electra_tf2.exports import self_check as check
from electra_tf2.exports.cards import card, sizes_of
from electra_tf2.files.writing import write_atomically, write_json
from electra_tf2.finetune.tasks.task import Task
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.inference.configured import config_of, embeds, make_network, pooling_of
from electra_tf2.inference.network import LOGITS, STATES
from electra_tf2.inference.predictor import Predictor
from electra_tf2.model import kernels
from electra_tf2.model.pooling import text_vectors
from electra_tf2.util.errors import UserError

INPUTS = "input_ids", "attention_mask", "token_type_ids"
SENTENCE = "sentence_embedding"
_REPLACED = "positive where a token looks replaced"
_WORDS = "of the masked language model, one for each token of the vocabulary"


Run = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]  # int32 [B, L] inputs -> outputs, by name


class Exportable(NamedTuple):
    """A function to be written.

    function: int32 [B, L] inputs by name -> outputs by name. variables: those that it reads. about: facts for
    model.json. rows: the inputs on which what was written is compared.
    """

    function: Callable[[Mapping[str, tf.Tensor]], dict[str, tf.Tensor]]
    variables: Sequence[tf.Variable]
    about: dict[str, Any]
    rows: Mapping[str, np.ndarray]

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self.rows)

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Our network's own outputs."""
        with kernels.off():
            outputs = self.function({name: tf.constant(inputs[name], tf.int32) for name in self.inputs})
        return {name: value.numpy() for name, value in outputs.items()}

    def differences(self, run: Run) -> dict[str, float]:
        """The largest `self_check.distance` of each output that a file gives from ours, at real tokens.

        Numbers of labels and places are not compared: they follow from the scores beside them.
        """
        ours, theirs = self.run(self.rows), run(self.rows)
        assert ours.keys() == theirs.keys(), (sorted(ours), sorted(theirs))
        mask = self.rows["attention_mask"]
        ours, theirs = check.at_tokens(ours, mask), check.at_tokens(theirs, mask)
        compared = [name for name, value in ours.items() if value.dtype.kind == "f"]
        return {name: check.distance(ours[name], theirs[name]) for name in compared}


class Runtime(NamedTuple):
    """A runtime and its files.

    file: name of the file, or of the folder, that holds a network. library: its name on Hugging Face's hub. usage: a
    program that runs it, for its card. write: writes it; raises UserError where it cannot hold the network. load: gives
    the function in it, and its outputs' names.
    """

    name: str
    file: str
    library: str
    usage: str
    write: Callable[[Exportable, Path], None]
    load: Callable[[Path], tuple[Run, list[str]]]

    def convert(self, folder: Path, model: StoredModel, options: check.Options) -> check.Written:
        """Writes a folder of a part of a model."""
        return write_network(folder, model, exportable(model, options.part), self)


def write_network(folder: Path, model: StoredModel, made: Exportable, runtime: Runtime) -> check.Written:
    """Writes a network and what lies beside it; model.json last, so that a folder which has it is complete.

    Raises:
      UserError: the file cannot hold the network.
    """
    path = folder / runtime.file
    runtime.write(made, path)
    run, outputs = runtime.load(path)
    longest = min(512, model.architecture.max_position_embeddings)
    about: dict[str, Any] = {
        "outputs": sorted(outputs),
        "inputs": [*made.inputs],
        "model": config_of(model).model_name,
        "made_of": model.origin,
        "max_length": longest,
        "do_lower_case": model.casing.do_lower_case,
    }
    about |= made.about
    write_tokenizer_of(model, folder, about["max_length"])
    write_atomically(folder / "README.md", _card(model, about, runtime))
    write_json(folder / "model.json", about)
    size = sum(file.stat().st_size for file in [path, *path.rglob("*")] if file.is_file())
    what = f"{path}: {', '.join(about['outputs'])}; {size / 1e6:.1f} MB"
    return check.Written(what, check.largest(made.differences(run).values()), f"that of {runtime.name}")


def _card(model: StoredModel, about: dict[str, Any], runtime: Runtime) -> str:
    """The card of a folder that `about`, the content of its model.json, describes."""
    inputs = ", ".join(f"`{name}`" for name in about["inputs"])
    outputs = ", ".join(f"`{name}`" for name in about["outputs"])
    lines = [
        f"- `{runtime.file}`, for {runtime.name}: converted from {model.origin}",
        f"- inputs, integers [batch, length]: {inputs}; at most {about['max_length']} tokens",
        f"- outputs: {outputs}",
        "- `model.json`: the same for programs, with labels or scale; `tokenizer.json`: how text becomes ids",
    ]
    if LOGITS in about:
        lines.append(f"- `{LOGITS}`: {about[LOGITS]}")
    return card(model, [f"library_name: {runtime.library}"], [sizes_of(model), "\n".join(lines)], runtime.usage)


def exportable(model: StoredModel, part: str) -> Exportable:
    """A part of a network; the main one of a fine-tuned model with its heads."""
    if model.is_fine_tuned and part == "main" and not embeds(model):
        return fine_tuned(Predictor(model, model.tokenizer()), check.check_inputs(model))
    return pretrained(model, part)


def pretrained(model: StoredModel, part: str) -> Exportable:
    """A part of a pre-trained network.

    Raises:
      UserError: the model has no such part.
    """
    network = make_network(model)
    if part == "generator" and network.generator is None:
        raise UserError(
            "--part generator writes a masked language model, but this generator is two towers: choose another part"
            if network.towers is not None
            else "this model has no generator of its own"
        )
    head, pooling = network.head_of(part), pooling_of(model)

    def outputs(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        ids, mask, segments = (inputs[name] for name in INPUTS)
        found = network.outputs(part, ids, mask, segments)
        if part == "generator":
            return {LOGITS: found[LOGITS]}
        if LOGITS not in found:
            found[SENTENCE] = text_vectors(found[STATES], mask, pooling, network.projection)
        return found

    about = {"pooling": pooling} if head is None else {LOGITS: _REPLACED if head is network.detector else _WORDS}
    rows = dict(zip(INPUTS, check.check_inputs(model), strict=True))
    return Exportable(outputs, network.trainable_variables, about, rows)


def fine_tuned(predictor: Predictor, encoded: Encoded) -> Exportable:
    """Predictions of a fine-tuned model's heads, by "task.name"; of tagging, at every token.

    Args:
      encoded: rows on which what was written is compared.

    Raises:
      UserError: the input of a task is more than text.
    """
    refuse_prompts(predictor)
    tasks = predictor.tasks
    read_by_heads = list(dict.fromkeys(name for task in tasks for name in head_inputs(task)))

    def function(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        ids, mask, segments = (inputs[name] for name in INPUTS)
        batch = {"input_ids": ids, "input_mask": mask, "segment_ids": segments}
        for task in tasks:
            labels = zero_labels(task, ids) | {name: inputs[name] for name in head_inputs(task)}
            batch |= {f"{task.name}/{name}": value for name, value in labels.items()}
        predictions: dict[str, tf.Tensor] = {}
        for task, output in zip(tasks, predictor.model.call(batch), strict=True):  # all heads on one encoder
            predictions |= {f"{task.name}.{name}": value for name, value in output.predictions.items()}
        return predictions

    # Candidates come together, as many as every task has, and are different texts.
    together = math.lcm(*(task.predicted_choices for task in tasks))
    rows = dict(zip(INPUTS, (np.tile(value, (together, 1)) for value in encoded), strict=True))
    for number, name in enumerate(read_by_heads, start=1):
        rows[name] = np.zeros_like(rows["input_ids"])
        rows[name][:, number] = 1
    about = {"tasks": {task.name: facts(task) for task in tasks}, "max_length": predictor.config.max_seq_length}
    return Exportable(function, predictor.model.trainable_variables, about, rows)


def facts(task: Task) -> dict[str, Any]:
    """Describes a task in an exported file: its kind, and what its head's outputs mean."""
    return {"kind": task.config.kind_of(task.name)} | task.state()


def head_inputs(task: Task) -> list[str]:
    """Names of the labels that a trained head reads, too."""
    return [name for name, label in task.labels.items() if label.is_input]


def zero_labels(task: Task, input_ids: tf.Tensor) -> dict[str, tf.Tensor]:
    """Labels for a head that predicts, whose losses are not asked for, for input_ids int32 [B, L]."""
    rows, length = tf.unstack(tf.shape(input_ids))
    shapes = {name: [rows, length] if label.per_token else [rows] for name, label in task.labels.items()}
    return {name: tf.zeros(shapes[name], label.dtype) for name, label in task.labels.items()}


def refuse_prompts(predictor: Predictor) -> None:
    """Raises UserError for tasks whose input is more than text."""
    if predictor.config.prompt:
        raise UserError(
            f"{', '.join(predictor.config.task_names)}: a prompted model reads demonstrations beside its text, which "
            "only --format electra keeps"
        )
