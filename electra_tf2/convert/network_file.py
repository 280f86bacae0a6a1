"""Networks as files for other runtimes: the function that is written, what lies beside it, and its check.

    input_ids, attention_mask, token_type_ids: [batch, length]  ->  last_hidden_state, logits, sentence_embedding

The part says which outputs there are: "main", the main network with its head (of fine-tuned models: what their heads
predict); "body", states and a vector for the whole text; "generator", its masked language model. ONNX
(convert.onnx) and LiteRT (convert.litert) files lie beside a model.json and the tokenizer's files. B batch, L length.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf2.convert import self_check as check
from electra_tf2.convert.huggingface import write_tokenizer_of
from electra_tf2.corpus.encoding import Encoded
from electra_tf2.finetune.tasks.exports import SAMPLES
from electra_tf2.finetune.tasks.task import Task
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.inference.configured import config_of, embeds, make_network, pooling_of
from electra_tf2.inference.network import LOGITS, STATES
from electra_tf2.inference.predictor import Predictor
from electra_tf2.model import kernels
from electra_tf2.model.pooling import text_vectors
from electra_tf2.util.errors import UserError
from electra_tf2.util.files import replacing, write_json

INPUTS = "input_ids", "attention_mask", "token_type_ids"
SENTENCE = "sentence_embedding"
_REPLACED = "positive where a token looks replaced"
_WORDS = "of the masked language model, one for each token of the vocabulary"


Run = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]  # int32 [B, L] inputs -> outputs, by name


class Runtime(NamedTuple):
    """A runtime and its files.

    content: gives the content of a file; raises UserError where it cannot hold the network. load: gives the function
    that a content is, and its outputs' names.
    """

    name: str
    file: str
    content: Callable[["Exportable"], bytes]
    load: Callable[[bytes], tuple[Run, list[str]]]

    def convert(self, folder: Path, model: StoredModel, options: check.Options) -> check.Written:
        """Writes a folder of a part of a model."""
        return write_network(folder, model, exportable(model, options.part), self)


class Exportable(NamedTuple):
    """A function to be written.

    function: int32 [B, L] inputs by name -> outputs by name. variables: those that it reads. about: facts for
    model.json. results: what is compared, by name: of a pre-trained network its outputs at real tokens, of a fine-tuned
    one the answers. inputs: their names.
    """

    function: Callable[[Mapping[str, tf.Tensor]], dict[str, tf.Tensor]]
    variables: Sequence[tf.Variable]
    about: dict[str, Any]
    results: Callable[[Run], dict[str, np.ndarray]]
    inputs: tuple[str, ...] = INPUTS

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Our network's own outputs."""
        with kernels.off():
            found = self.function({name: tf.constant(inputs[name], tf.int32) for name in self.inputs})
        return {name: value.numpy() for name, value in found.items()}

    def difference(self, run: Run) -> float:
        """The largest `self_check.distance` of what a file says from what our network says."""
        ours, theirs = self.results(self.run), self.results(run)
        assert ours.keys() == theirs.keys(), (sorted(ours), sorted(theirs))
        return check.largest(check.distance(value, theirs[name]) for name, value in ours.items())


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
    results = functools.partial(results_on, check.check_inputs(model))
    return Exportable(outputs, network.trainable_variables, about, results)


def results_on(rows: Encoded, run: Run) -> dict[str, np.ndarray]:
    """Outputs on these rows, at real tokens where they are one for each token."""
    return check.at_tokens(run(dict(zip(INPUTS, rows, strict=True))), rows.input_mask)


def fine_tuned(predictor: Predictor, texts: Sequence[tuple[str, str]] = SAMPLES) -> Exportable:
    """The heads' predictions of a fine-tuned model, by "task.name"; of tagging, at every token.

    Compared are the tasks' answers (`Task.answers`) to examples of these texts.

    Raises:
      UserError: the input of a task is more than text.
    """
    refuse_prompts(predictor)
    tasks, marks = predictor.tasks, dict.fromkeys(name for task in predictor.tasks for name in task.further_inputs)

    def function(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        batch = dict(zip(Encoded._fields, (inputs[name] for name in INPUTS), strict=True))
        for task in tasks:
            labels = task.no_labels(inputs[INPUTS[0]]) | {name: inputs[name] for name in task.further_inputs}
            batch |= {f"{task.name}/{name}": value for name, value in labels.items()}
        outputs = zip(tasks, predictor.model.call(batch), strict=True)  # all heads on one encoder
        return {f"{task.name}.{name}": value for task, output in outputs for name, value in output.predictions.items()}

    def results(run: Run) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = {}
        for number, task in enumerate(tasks):
            split = task.samples(texts)
            predictions = predictor.predictions(number, split, functools.partial(head_of, task, run))
            answers = task.answers(split, predictions)
            found |= {f"{task.name}.{name}": value for name, value in check.leaves_of(answers).items()}
        return found

    def head_of(task: Task, run: Run, batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        rows = {name: batch[of] for name, of in zip(INPUTS, Encoded._fields, strict=True)}
        none = np.zeros_like(batch["input_ids"])
        found = run(rows | {name: batch.get(f"{task.name}/{name}", none) for name in marks})
        scope = f"{task.name}."
        own = {name.removeprefix(scope): value for name, value in found.items() if name.startswith(scope)}
        return task.of_batch(own, batch)

    about = {"tasks": {task.name: task.facts() for task in tasks}, "max_length": predictor.config.max_seq_length}
    return Exportable(function, predictor.model.trainable_variables, about, results, (*INPUTS, *marks))


def refuse_prompts(predictor: Predictor) -> None:
    """Raises UserError for tasks whose input is more than text."""
    for task in predictor.tasks:
        if task.prompts:
            raise UserError(
                f"{task.name}: a prompted model reads demonstrations beside its text, which only --format electra keeps"
            )


def exportable(model: StoredModel, part: str) -> Exportable:
    """A part of a network; the main one of a fine-tuned model with its heads."""
    if model.is_fine_tuned and part == "main" and not embeds(model):
        return fine_tuned(Predictor(model, model.tokenizer()))
    return pretrained(model, part)


def write_network(folder: Path, model: StoredModel, made: Exportable, runtime: Runtime) -> check.Written:
    """Writes a network and what lies beside it; model.json last, so that a folder which has it is complete.

    Raises:
      UserError: the file cannot hold the network.
    """
    content = runtime.content(made)
    path = folder / runtime.file
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    run, outputs = runtime.load(path.read_bytes())
    longest = min(512, model.architecture.max_position_embeddings)
    about: dict[str, Any] = {"outputs": sorted(outputs), "inputs": [*made.inputs], "model": config_of(model).model_name}
    about |= {"made_of": model.origin, "max_length": longest}
    about |= {"do_lower_case": model.casing.do_lower_case} | made.about
    write_tokenizer_of(model, folder, about["max_length"])
    write_json(folder / "model.json", about)
    said = f"{path}: {', '.join(about['outputs'])}; {len(content) / 1e6:.1f} MB"
    return check.Written(said, made.difference(run), f"that of {runtime.name}")
