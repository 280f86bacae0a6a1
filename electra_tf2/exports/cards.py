"""Model cards: the README.md that is written beside an exported model, as Hugging Face's hub shows it.

It describes the model, how to use it and how it was trained; for a fine-tuned model also the task, its labels, the
pre-trained model and the scores. The header has no licence and no language, which are the data's, and no base_model,
which the hub would take for the name of a repository.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from electra_tf2.config.hparams import default_of, places
from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.formats.huggingface import Exported
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.inference.model_config import config_of
from electra_tf2.util.progress import counted

FOLDER = "path/of/this/folder"  # stands in a card's programs; the user replaces it
# The end of a class's name -> Hugging Face's name for the task that it does.
_PIPELINES = {
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMaskedLM": "fill-mask",
    "Model": "feature-extraction",
}
_EXAMPLES = {
    "text-classification": '"A text."',
    "token-classification": '"A text."',
    "question-answering": 'question="Who?", context="A text about somebody."',
    "fill-mask": '"A {mask} text."',
    "feature-extraction": '"A text."',
}
_DIGITS = 4  # of scores


def card(model: StoredModel, header: Sequence[str], about: Sequence[str], usage: str) -> str:
    """Writes a card in Markdown, with the YAML header that the hub reads.

    Args:
      header: lines of YAML. about: paragraphs on the files. usage: a program that runs the model.
    """
    paragraphs = ["\n".join(["---", *header, "---"]), f"# {title(model)}", *about]
    if model.is_fine_tuned:
        paragraphs += _tasks(model)
    paragraphs += ["## How to use it", f"```python\n{usage.strip()}\n```"]
    paragraphs += _scores(model)
    paragraphs += ["## Training", training(model)]
    return "\n\n".join(paragraphs) + "\n"


def huggingface_card(model: StoredModel, exported: Exported) -> str:
    """The card of a directory for transformers."""
    class_name = exported.class_name
    header = ["library_name: transformers", "tags:", "- electra"]
    pipeline = pipeline_of(class_name)
    if pipeline:
        header.append(f"pipeline_tag: {pipeline}")
    about = [f"Class: `{class_name}`. Converted from {model.origin}.", sizes_of(model)]
    if exported.left_out:
        left_out = "\n".join(f"- {what}" for what in exported.left_out)
        about.append(f"Not in this directory, as the class has no such part:\n\n{left_out}")
    if exported.config.get("problem_type") == "regression":
        about.append("The number that it gives is on the scale from 0 to 1 that was learned.")
    finds_spans = False
    for task in model.task_states or {}:
        finds_spans = finds_spans or bool(_types_of_spans(model, task))
    mask = model.tokens[model.tokenizer().special.mask]
    return card(model, header, about, transformers_usage(class_name, mask, finds_spans))


def title(model: StoredModel) -> str:
    """The name of a pre-trained model; the tasks of a fine-tuned one, with the labels of the first."""
    config = config_of(model)
    if not isinstance(config, FinetuningConfig):
        return config.model_name
    first_task = config.task_names[0]
    description = config.kind_of(first_task)
    labels = _types_of_spans(model, first_task) or labels_of(model, first_task)
    if 0 < len(labels) <= 5:  # more do not fit into a heading
        description += f": {', '.join(labels)}"
    return f"{', '.join(config.task_names)} ({description})"


def labels_of(model: StoredModel, task: str) -> list[str]:
    """Labels of a fine-tuned model's task; [] for regression and question answering."""
    task_states = model.task_states or {}
    state = task_states.get(task, {})
    return [str(label) for label in state.get("labels", [])]


def _types_of_spans(model: StoredModel, task: str) -> list[str]:
    """Types of the spans that a tagger finds; none of taggers of single words, and other tasks."""
    state = (model.task_states or {}).get(task, {})
    if "encoding" not in state:
        return []
    return sorted({label.partition("-")[2] for label in labels_of(model, task)} - {""})


def sizes_of(model: StoredModel) -> str:
    """A sentence on layers, heads and vocabulary."""
    sizes = model.architecture
    if model.tokenizer_file:  # not WordPiece's
        vocabulary = "vocabulary"
    elif model.casing.do_lower_case:
        vocabulary = "uncased WordPiece vocabulary"
    else:
        vocabulary = "cased WordPiece vocabulary"
    return (
        f"{counted(sizes.num_hidden_layers, 'layer')} of {sizes.hidden_size} with "
        f"{counted(sizes.num_attention_heads, 'head')}, embeddings of {sizes.embedding_size}, {vocabulary} of "
        f"{len(model.tokens):,} tokens."
    )


def _tasks(model: StoredModel) -> list[str]:
    """Lists the tasks of a fine-tuned model with their labels, and the model that it was trained from."""
    config = config_of(model)
    assert isinstance(config, FinetuningConfig)
    lines = []
    for task in config.task_names:
        labels = labels_of(model, task)
        line = f"- `{task}`: {config.kind_of(task)}"
        types = _types_of_spans(model, task)
        if types:
            line += f", spans of {counted(len(types), 'type')}: {', '.join(types)}"
        elif labels:
            line += f", {counted(len(labels), 'label')}: {', '.join(labels)}"
        lines.append(line)
    lines.append(f"- fine-tuned from `{config.model_name}`, on inputs of at most {config.max_seq_length} tokens")
    return ["## Task", "\n".join(lines)]


def _scores(model: StoredModel) -> list[str]:
    """The scores: a table with the number of examples for a fine-tuned model, JSON for others; [] if there are none."""
    if not model.scores:
        return []
    by_task = model.scores.get("scores")
    if not model.is_fine_tuned or not isinstance(by_task, Mapping):
        scores = json.dumps(_rounded(model.scores), indent=2, sort_keys=True)
        return ["## Scores", f"```json\n{scores}\n```"]
    rows = []
    for task, by_split in by_task.items():
        for split, values in by_split.items():
            for metric, value in values.items():
                rows.append(f"| {task} | {split} | {metric} | {_rounded(value)} |")
    table = "\n".join(["| task | split | metric | score |", "|---|---|---|---|", *rows])
    paragraphs = ["## Scores", table]
    evaluated = model.scores.get("evaluation", {}).get("features")
    if evaluated:
        paragraphs.append(f"Scored on {counted(evaluated, 'input')} in all, in percent, by one training run.")
    return paragraphs


def _rounded(value: Any) -> Any:
    """Rounds the floats in a value of JSON to four digits."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, Mapping):
        return {name: _rounded(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    return value


def training(model: StoredModel) -> str:
    """The hparams of the run that trained a model, without defaults and without paths of the machine that trained."""
    if not model.is_run:
        return "See the model that it was converted from."
    config = config_of(model)
    paths = {"vocab_file", *places(type(config))}
    changed = {}
    for field in dataclasses.fields(config):
        if field.name in paths:
            continue
        default = default_of(field)
        value = getattr(config, field.name)
        if value != default:
            changed[field.name] = value
    hparams = json.dumps(changed, indent=2, sort_keys=True)
    return f"Settings other than the defaults:\n\n```json\n{hparams}\n```"


# Programs that run a model, as text for its card.


def pipeline_of(class_name: str) -> str:
    """Hugging Face's name for the task that a class does; "" if no pipeline runs it."""
    for ending, task in _PIPELINES.items():
        if class_name.endswith(ending):
            return task
    return ""


def transformers_usage(class_name: str, mask: str, finds_spans: bool) -> str:
    """Shows how transformers runs a class.

    Args:
      mask: the token that the vocabulary has for [MASK].
      finds_spans: a tagger of spans, which has learned the tags of words at their first pieces.
    """
    task = pipeline_of(class_name)
    if not task:
        return f"""
from transformers import AutoTokenizer, {class_name}

tokenizer = AutoTokenizer.from_pretrained("{FOLDER}")
model = {class_name}.from_pretrained("{FOLDER}")
print(model(**tokenizer("A text.", return_tensors="pt")).logits)  # positive where a token looks replaced
"""
    grouping = ', aggregation_strategy="first"' if finds_spans else ""
    example = _EXAMPLES[task].replace("{mask}", mask)
    return f"""
from transformers import pipeline

run = pipeline("{task}", model="{FOLDER}"{grouping})
print(run({example}))
"""


class InputFacts(NamedTuple):
    """What a program has to know of a network's inputs beside model.json and the tokenizer's file.

    pad_id: id of the padding. rows_together: rows that lie together and are read as one example, the candidates of a
    question. marks: inputs that mark tokens of the text.
    """

    pad_id: int
    rows_together: int
    marks: Sequence[str]


def _tokenization(import_line: str, integer_type: str, facts: InputFacts) -> str:
    """The start of a program, which makes `inputs` with the tokenizer's file."""
    return f"""
import json

import numpy as np
{import_line}
from tokenizers import Tokenizer

with open("{FOLDER}/model.json") as file:
    about = json.load(file)
tokenizer = Tokenizer.from_file("{FOLDER}/tokenizer.json")
tokenizer.enable_truncation(about["max_length"])  # tokens that the model reads; longer texts are cut
tokenizer.enable_padding(pad_id={facts.pad_id})
{_texts(facts.rows_together)}
rows = tokenizer.encode_batch(texts)
inputs = {{
    "input_ids": np.array([row.ids for row in rows], np.{integer_type}),
    "attention_mask": np.array([row.attention_mask for row in rows], np.{integer_type}),
    "token_type_ids": np.array([row.type_ids for row in rows], np.{integer_type}),
}}
{_marks(facts.marks)}"""


def _texts(rows_together: int) -> str:
    """Lines of a program that make `texts`."""
    if rows_together == 1:
        return 'texts = ["A sentence.", "And another one."]'
    lines = ["# A question with its candidates, whose rows lie together.", "texts = ["]
    for number in range(1, rows_together + 1):
        lines.append(f'    ("A question?", "Answer {number}."),')
    lines.append("]")
    return "\n".join(lines)


def _marks(names: Sequence[str]) -> str:
    """Lines of a program that make the inputs which mark a span of the text."""
    lines = []
    if names:
        lines.append("# 1 at the tokens of a marked span, here a single one.")
    for position, name in enumerate(names, start=1):
        lines.append(f'inputs["{name}"] = np.zeros_like(inputs["input_ids"])')
        lines.append(f'inputs["{name}"][:, {position}] = 1')
    return "".join(f"{line}\n" for line in lines)


def onnx_usage(file: str, facts: InputFacts) -> str:
    """Shows how ONNX Runtime runs a file."""
    start = _tokenization("import onnxruntime", "int64", facts)
    return f"""{start}
session = onnxruntime.InferenceSession("{FOLDER}/{file}")
taken = [entry.name for entry in session.get_inputs()]
values = session.run(None, {{name: inputs[name] for name in taken}})
for output, value in zip(session.get_outputs(), values):
    print(output.name, value.shape)
"""


def litert_usage(file: str, facts: InputFacts) -> str:
    """Shows how LiteRT runs a file."""
    start = _tokenization("from ai_edge_litert.interpreter import Interpreter", "int32", facts)
    return f"""{start}
run = Interpreter(model_path="{FOLDER}/{file}").get_signature_runner()
for name, value in run(**inputs).items():
    print(name, value.shape)
"""


def saved_model_usage(folder: str, facts: InputFacts) -> str:
    """Shows how TensorFlow runs a SavedModel of ids."""
    start = _tokenization("import tensorflow as tf", "int32", facts)
    return f"""{start}
model = tf.saved_model.load("{FOLDER}/{folder}")
tensors = {{name: tf.constant(value) for name, value in inputs.items()}}
for name, value in model.signatures["serving_default"](**tensors).items():
    print(name, value.shape)
"""
