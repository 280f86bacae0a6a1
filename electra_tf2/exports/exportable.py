"""A network as a function from ids to outputs, which is what files for other runtimes hold, and its self-check.

    input_ids, attention_mask, token_type_ids: [batch, length]  ->  last_hidden_state, logits, sentence_embedding

`exportable` makes the function of a part of a model: "main", the main network with its head (of fine-tuned models: what
their heads predict); "body", states and a vector for the whole text; "generator", its masked language model.
`write_network` writes it by a `Runtime`, ONNX's (exports.onnx), LiteRT's (exports.litert) or TensorFlow's own
(exports.saved_model), beside a model.json and the tokenizer's files, and runs what was written on fixed sentences.

B batch, L length.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf2.corpus.encoding import Encoded, Text, encode
from electra_tf2.exports.cards import card, sizes_of
from electra_tf2.files.writing import write_atomically, write_json
from electra_tf2.finetune.tasks.task import Task
from electra_tf2.formats.huggingface_tokenizer import write_tokenizer_of
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.inference.configured import config_of, embeds, make_network, pooling_of
from electra_tf2.inference.network import LOGITS, STATES
from electra_tf2.inference.predictor import Predictor
from electra_tf2.model import kernels
from electra_tf2.model.pooling import text_vectors
from electra_tf2.util.errors import UserError

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
SENTENCE = "sentence_embedding"
TOLERANCE = 1e-5  # in float32; narrower weights differ by more, which is reported
SENTENCES: tuple[Text, ...] = (
    "The generator replaces some words, and the discriminator says which.",
    ("A pair of sentences has two segments.", "The second is this one, Müller's: 北京 42!"),
    "Short.",
)
_REPLACED = "positive where a token looks replaced"
_WORDS = "of the masked language model, one for each token of the vocabulary"


class Options(NamedTuple):
    """Wishes of whoever converts: flags of convert_model.py."""

    part: str = "main"
    dtype: str = "float32"
    step: int = 0
    adam_slots: bool = False


class Written(NamedTuple):
    """A conversion's files in words, and the largest difference between our network and what it is `compared` with."""

    what: str
    difference: float
    compared: str


# Differences.


def fixed_inputs(model: StoredModel, sentences: Sequence[Text] = SENTENCES) -> Encoded:
    """Encodes the sentences by which every conversion is checked, in the model's vocabulary."""
    return encode(model.tokenizer(), sentences, model.architecture.max_position_embeddings)


def distance(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference; where values go beyond 1, as a share of the largest of them.

    Sums of float32 round in proportion to their largest terms, and the logits of a trained language model go to 30.
    Infinite for other texts, or numbers of another shape.
    """
    if ours.shape != theirs.shape or ours.dtype.kind == "U":
        return 0.0 if np.array_equal(ours, theirs) else np.inf
    scale = max(1.0, np.abs(ours).max())
    return float(np.abs(ours - theirs).max() / scale)


def largest(differences: Iterable[float]) -> float:
    """The largest number; NaN if one is, which max() may pass over."""
    return float(np.max(np.fromiter(differences, np.float64)))


def largest_at_tokens(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray], encoded: Encoded) -> float:
    """The largest `distance` at real tokens; states beyond a row's end mean nothing."""
    assert ours.keys() == theirs.keys(), (sorted(ours), sorted(theirs))
    ours = at_tokens(ours, encoded.input_mask)
    theirs = at_tokens(theirs, encoded.input_mask)
    return largest(distance(value, theirs[name]) for name, value in ours.items())


def at_tokens(outputs: Mapping[str, np.ndarray], input_mask: np.ndarray) -> dict[str, np.ndarray]:
    """Outputs [tokens, ...] where there is one for each token, [B, L, ...]; others as they are."""
    is_real = input_mask.astype(bool)
    chosen = {}
    for name, value in outputs.items():
        is_of_tokens = value.shape[:2] == is_real.shape
        chosen[name] = value[is_real] if is_of_tokens else value
    return chosen


def report(difference: float, dtype: str, what: str) -> str:
    """A line on how large a difference is.

    Raises:
      UserError: the difference is beyond `TOLERANCE` and the weights are float32, or it is no number: float16 holds
        nothing beyond 65,504.
    """
    line = f"self-check: {what}: largest difference {difference:.2e} on {len(SENTENCES)} inputs"
    if dtype == "float32" and not difference <= TOLERANCE:  # so that NaN is refused, too
        raise UserError(
            f"{line}, above {TOLERANCE:g}: the conversion is wrong; nothing that was written should be used"
        )
    if not np.isfinite(difference):
        raise UserError(f"{line}: {dtype} cannot hold these weights; nothing that was written should be used")
    return line if dtype == "float32" else f"{line} ({dtype} weights)"


# The function.

IdsToOutputs = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]  # int32 [B, L] inputs -> outputs, by name


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
        """Outputs of our own network."""
        with kernels.off():
            outputs = self.function({name: tf.constant(inputs[name], tf.int32) for name in self.inputs})
        return {name: value.numpy() for name, value in outputs.items()}

    def differences(self, run: IdsToOutputs) -> dict[str, float]:
        """The largest `distance` of each output that a file gives from ours, at real tokens.

        Numbers of labels and places are not compared: they follow from the scores beside them.
        """
        ours = self.run(self.rows)
        theirs = run(self.rows)
        assert ours.keys() == theirs.keys(), (sorted(ours), sorted(theirs))
        mask = self.rows["attention_mask"]
        ours = at_tokens(ours, mask)
        theirs = at_tokens(theirs, mask)
        differences = {}
        for name, value in ours.items():
            if value.dtype.kind == "f":
                differences[name] = distance(value, theirs[name])
        return differences


def exportable(model: StoredModel, part: str) -> Exportable:
    """A part of a network; the main one of a fine-tuned model with its heads."""
    if model.is_fine_tuned and part == "main" and not embeds(model):
        return fine_tuned(Predictor(model, model.tokenizer()), fixed_inputs(model))
    return pretrained(model, part)


def pretrained(model: StoredModel, part: str) -> Exportable:
    """A part of a pre-trained network.

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

    def outputs(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        ids, mask, segments = (inputs[name] for name in INPUTS)
        computed = network.outputs(part, ids, mask, segments)
        if part == "generator":
            return {LOGITS: computed[LOGITS]}
        if LOGITS not in computed:
            computed[SENTENCE] = text_vectors(computed[STATES], mask, pooling, network.projection)
        return computed

    head = network.head_of(part)
    if head is None:
        about = {"pooling": pooling}
    elif head is network.detector:
        about = {LOGITS: _REPLACED}
    else:
        about = {LOGITS: _WORDS}
    rows = dict(zip(INPUTS, fixed_inputs(model), strict=True))
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
        for task, output in zip(tasks, predictor.model.call(batch), strict=True):  # all heads on one encoder
            for name, value in output.predictions.items():
                predictions[f"{task.name}.{name}"] = value
        return predictions

    # A task of choices reads the candidates of a question together, as one batch: each row is repeated, so that the
    # rows divide by the number of candidates of every task.
    together = math.lcm(*(head.choices for head in predictor.model.heads))
    rows = {name: np.tile(value, (together, 1)) for name, value in zip(INPUTS, encoded, strict=True)}
    marks = 1
    for task in tasks:
        for name in head_inputs(task):
            if name not in rows:  # marks of a span: one token, another one for each input
                rows[name] = np.zeros_like(rows["input_ids"])
                rows[name][:, marks] = 1
                marks += 1
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
    labels = {}
    for name, label in task.labels.items():
        shape = [rows, length] if label.per_token else [rows]
        labels[name] = tf.zeros(shape, label.dtype)
    return labels


def refuse_prompts(predictor: Predictor) -> None:
    """Raises UserError for tasks whose input is more than text."""
    if predictor.config.prompt:
        raise UserError(
            f"{', '.join(predictor.config.task_names)}: a prompted model reads demonstrations beside its text, which "
            "only --format electra keeps"
        )


# Writing.


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
    load: Callable[[Path], tuple[IdsToOutputs, list[str]]]

    def convert(self, folder: Path, model: StoredModel, options: Options) -> Written:
        """Writes a folder of a part of a model."""
        return write_network(folder, model, exportable(model, options.part), self)


def write_network(folder: Path, model: StoredModel, made: Exportable, runtime: Runtime) -> Written:
    """Writes a network and what lies beside it; model.json last, so that a folder which has it is complete.

    Raises:
      UserError: the file cannot hold the network.
    """
    path = folder / runtime.file
    runtime.write(made, path)
    run, outputs = runtime.load(path)
    about: dict[str, Any] = {
        "outputs": sorted(outputs),
        "inputs": [*made.inputs],
        "model": config_of(model).model_name,
        "made_of": model.origin,
        "max_length": min(512, model.architecture.max_position_embeddings),
        "do_lower_case": model.casing.do_lower_case,
    }
    about |= made.about  # with max_length of a fine-tuned model
    write_tokenizer_of(model, folder, about["max_length"])
    write_atomically(folder / "README.md", _card(model, about, runtime))
    write_json(folder / "model.json", about)
    size = sum(file.stat().st_size for file in [path, *path.rglob("*")] if file.is_file())
    what = f"{path}: {', '.join(about['outputs'])}; {size / 1e6:.1f} MB"
    return Written(what, largest(made.differences(run).values()), f"that of {runtime.name}")


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
