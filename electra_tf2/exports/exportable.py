"""A network as a function from ids to outputs, which files for other runtimes hold, and how it is written for them.

    input_ids, attention_mask, token_type_ids: [batch, length]  ->  last_hidden_state, logits, sentence_embedding

`make_exportable` makes the function of a part of a model:

- "main": the main network with its head, or the predictions of a fine-tuned model's heads
- "body": states, and a vector for the whole text
- "generator": the generator's masked language model

`write_network` writes it by a `Runtime` (exports.onnx, exports.litert, or TensorFlow's in exports.saved_model) beside a
model.json and the tokenizer's files, and runs what was written (exports.self_check).

B batch, L length.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf2.corpus.encoding import Encoded
from electra_tf2.exports.card_programs import (
    DETECTOR_LOGITS,
    LANGUAGE_MODEL_LOGITS,
    Program,
    explained_outputs,
    program_of,
)
from electra_tf2.exports.cards import card, sizes_of
from electra_tf2.exports.self_check import certain_ranks, distance, fixed_inputs, largest, without_padding
from electra_tf2.files.writing import write_atomically, write_json
from electra_tf2.finetune.tasks.task import Task
from electra_tf2.formats.huggingface_tokenizer import write_tokenizer_of
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.inference.model_config import config_of, embeds, make_network, pooling_of
from electra_tf2.inference.network import LOGITS, STATES
from electra_tf2.inference.predictor import Predictor
from electra_tf2.model import kernels
from electra_tf2.model.pooling import text_vectors
from electra_tf2.util.errors import UserError

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
SENTENCE = "sentence_embedding"


class Options(NamedTuple):
    """Flags of `electra convert` for the writer of a format."""

    part: str = "main"
    dtype: str = "float32"
    step: int = 0
    adam_slots: bool = False


class Written(NamedTuple):
    """A conversion's result.

    summary: the files, in words. difference: the largest one between our network and what `compared_with` names.
    """

    summary: str
    difference: float
    compared_with: str


# The function.

IdsToOutputs = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]  # int32 [B, L] inputs -> outputs, by name


class Exportable(NamedTuple):
    """A function to be written.

    function: int32 [B, L] inputs by name -> outputs by name. variables: the weights that it reads. about: entries of
    model.json. rows: inputs of the self-check. rows_together: consecutive rows that are read as one example, such as
    the candidates of a question; the number of rows must be a multiple of it.
    """

    function: Callable[[Mapping[str, tf.Tensor]], dict[str, tf.Tensor]]
    variables: Sequence[tf.Variable]
    about: dict[str, Any]
    rows: Mapping[str, np.ndarray]
    rows_together: int = 1

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self.rows)

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs of our own network."""
        with kernels.off():
            outputs = self.function({name: tf.constant(inputs[name], tf.int32) for name in self.inputs})
        return {name: value.numpy() for name, value in outputs.items()}

    def differences(self, run: IdsToOutputs) -> dict[str, float]:
        """For each output, the largest `distance` between a written file's and ours, without padding.

        Ids (of labels, positions) are compared where their probabilities tell them apart.
        """
        ours = self.run(self.rows)
        theirs = dict(run(self.rows))
        assert ours.keys() == theirs.keys(), (sorted(ours), sorted(theirs))
        compared = []
        for name, value in ours.items():
            if value.dtype.kind != "f":
                is_certain = _certain_ids(name, ours)
                if is_certain is None:
                    continue
                ours[name] = np.where(is_certain, value, -1)
                theirs[name] = np.where(is_certain, theirs[name], -1)
            compared.append(name)
        mask = self.rows["attention_mask"]
        ours = without_padding(ours, mask)
        theirs = without_padding(theirs, mask)
        return {name: distance(ours[name], theirs[name]) for name in compared}


def _certain_ids(name: str, outputs: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Tells which ids of an output rounding cannot exchange, bool in its shape; None: no output tells.

    Args:
      name: of the output, "task.name" as the heads of finetune/tasks/ call it.
    """
    if name.endswith("_top_index"):  # of question answering, the most probable starts or ends
        log_probabilities = outputs.get(name.removesuffix("index") + "log_probs")
        if log_probabilities is None:
            return None
        return certain_ranks(log_probabilities)
    return None


def make_exportable(model: StoredModel, part: str) -> Exportable:
    """Makes the function of a part of a model: "main", "body" or "generator"."""
    if model.is_fine_tuned and part == "main" and not embeds(model):
        return make_exportable_heads(Predictor(model, model.tokenizer()), fixed_inputs(model))
    return make_exportable_network(model, part)


def make_exportable_network(model: StoredModel, part: str) -> Exportable:
    """Makes the function of a part of a pre-trained network, or of a model of text vectors.

    Raises:
      UserError: the model has no such part.
    """
    network = make_network(model)
    if part == "generator" and network.generator is None:
        if network.towers is not None:
            raise UserError(
                "--part generator writes a masked language model, but this generator is two towers: choose another part"
            )
        raise UserError("this model has no generator of its own")
    pooling = pooling_of(model)
    head = network.head_of(part)
    if head is None:
        about = {"pooling": pooling}
    elif head is network.detector:
        about = {LOGITS: DETECTOR_LOGITS}
    else:
        about = {LOGITS: LANGUAGE_MODEL_LOGITS}

    def outputs(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        ids, mask, segments = (inputs[name] for name in INPUTS)
        computed = network.outputs(part, ids, mask, segments)
        if part == "generator":
            return {LOGITS: computed[LOGITS]}
        if head is None:
            computed[SENTENCE] = text_vectors(computed[STATES], mask, pooling, network.projection)
        return computed

    rows = dict(zip(INPUTS, fixed_inputs(model), strict=True))
    return Exportable(outputs, network.trainable_variables, about, rows)


def make_exportable_heads(predictor: Predictor, encoded: Encoded) -> Exportable:
    """Makes the function of a fine-tuned model, whose outputs are its heads' predictions by "task.name".

    Args:
      encoded: inputs of the self-check.

    Raises:
      UserError: a task reads more than text.
    """
    refuse_prompts(predictor)
    tasks = predictor.tasks

    def function(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        ids, mask, segments = (inputs[name] for name in INPUTS)
        batch = {"input_ids": ids, "input_mask": mask, "segment_ids": segments}
        for task in tasks:
            labels = zero_labels(task, ids)
            for name in head_inputs(task):
                labels[name] = inputs[name]
            for name, value in labels.items():
                batch[f"{task.name}/{name}"] = value
        predictions: dict[str, tf.Tensor] = {}
        task_outputs = predictor.model.call(batch)  # the encoder runs once for all heads
        for task, output in zip(tasks, task_outputs, strict=True):
            for name, value in output.predictions.items():
                predictions[f"{task.name}.{name}"] = value
        return predictions

    # A multiple-choice head reads the candidates of a question as consecutive rows. Each row of the self-check is
    # repeated, so that the number of rows is a multiple of every task's number of candidates.
    rows_together = math.lcm(*(head.choices for head in predictor.model.heads))
    rows = {name: np.tile(value, (rows_together, 1)) for name, value in zip(INPUTS, encoded, strict=True)}
    # Inputs that mark a span of tokens get a span of one token, each input a different one.
    marked_position = 1
    for task in tasks:
        for name in head_inputs(task):
            if name not in rows:
                rows[name] = np.zeros_like(rows["input_ids"])
                rows[name][:, marked_position] = 1
                marked_position += 1
    about = {"tasks": {task.name: facts(task) for task in tasks}, "max_length": predictor.config.max_seq_length}
    return Exportable(function, predictor.model.trainable_variables, about, rows, rows_together)


def facts(task: Task) -> dict[str, Any]:
    """Describes a task in model.json: its kind, and what its head's outputs mean."""
    config = task.config
    described = {"kind": config.kind_of(task.name)} | task.state()
    if described["kind"] == "qa":
        described["max_answer_length"] = config.max_answer_length
        if described.get("v2"):
            described["qa_na_threshold"] = config.qa_na_threshold
    return described


def head_inputs(task: Task) -> list[str]:
    """Names of a task's labels that its head also reads when it predicts."""
    return [name for name, label in task.labels.items() if label.is_input]


def zero_labels(task: Task, input_ids: tf.Tensor) -> dict[str, tf.Tensor]:
    """Zeros as labels, which heads need to predict though no loss is computed.

    Args:
      input_ids: int32 [B, L].
    """
    rows, length = tf.unstack(tf.shape(input_ids))
    labels = {}
    for name, label in task.labels.items():
        shape = [rows, length] if label.per_token else [rows]
        labels[name] = tf.zeros(shape, label.dtype)
    return labels


def refuse_prompts(predictor: Predictor) -> None:
    """Raises UserError for a prompted model, whose input is more than text."""
    if predictor.config.prompt:
        raise UserError(
            f"{', '.join(predictor.config.task_names)}: a prompted model reads demonstrations beside its text, which "
            "only --format electra keeps"
        )


# Writing.


class Runtime(NamedTuple):
    """A runtime and its files.

    file: name of the file or folder that holds a network. form: what that is, for its card. library: the runtime's name
    on Hugging Face's hub. usage: (file, program) -> its text, which runs the file, for its card. write: writes the
    file, or raises UserError if it cannot hold the network. load: gives the function in a file, and the names of its
    outputs.
    """

    name: str
    file: str
    form: str
    library: str
    usage: Callable[[str, Program], str]
    write: Callable[[Exportable, Path], None]
    load: Callable[[Path], tuple[IdsToOutputs, list[str]]]

    def convert(self, folder: Path, model: StoredModel, options: Options) -> Written:
        """Writes a folder with a part of a model."""
        return write_network(folder, model, make_exportable(model, options.part), self)


def write_network(folder: Path, model: StoredModel, network: Exportable, runtime: Runtime) -> Written:
    """Writes a network and the files beside it. model.json comes last: a folder that has it is complete.

    Raises:
      UserError: the runtime's file cannot hold the network.
    """
    path = folder / runtime.file
    runtime.write(network, path)
    run, outputs = runtime.load(path)
    about: dict[str, Any] = {
        "outputs": sorted(outputs),
        "inputs": [*network.inputs],
        "model": config_of(model).model_name,
        "made_of": model.origin,
        "max_length": model.max_length,
        "do_lower_case": model.casing.do_lower_case,
    }
    about |= network.about  # for a fine-tuned model with its own max_length
    write_tokenizer_of(model, folder, about["max_length"])
    program = program_of(model, about, network.rows_together, network.inputs[len(INPUTS) :])
    write_atomically(folder / "README.md", _card(model, about, runtime, program))
    write_json(folder / "model.json", about)
    written_files = [path, *path.rglob("*")]  # a SavedModel is a folder
    size = sum(file.stat().st_size for file in written_files if file.is_file())
    summary = f"{path}: {', '.join(about['outputs'])}; {size / 1e6:.1f} MB"
    return Written(summary, largest(network.differences(run).values()), f"that of {runtime.name}")


def _card(model: StoredModel, about: dict[str, Any], runtime: Runtime, program: Program) -> str:
    """The card of a folder whose model.json contains `about`."""
    inputs = ", ".join(f"`{name}`" for name in about["inputs"])
    outputs = ", ".join(f"`{name}`" for name in about["outputs"])
    lines = [
        f"- `{runtime.file}`, {runtime.form} for {runtime.name}: converted from {model.origin}",
        f"- inputs, integers [batch, length]: {inputs}; at most {about['max_length']} tokens",
        f"- outputs: {outputs}",
        "- `model.json`: the same for programs, with labels or scale; `tokenizer.json`: how text becomes ids",
    ]
    if LOGITS in about:
        lines.append(f"- `{LOGITS}`: {about[LOGITS]}")
    lines += explained_outputs(model, about)
    usage = runtime.usage(runtime.file, program)
    return card(model, [f"library_name: {runtime.library}"], [sizes_of(model), "\n".join(lines)], usage)
