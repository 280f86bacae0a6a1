"""Model cards: the README.md that is written beside an exported model, as Hugging Face's hub shows it.

It describes the model, how to use it and how it was trained; for a fine-tuned model also the task, its labels, the
pre-trained model and the scores. The header has no licence and no language, which are the data's, and no base_model,
which the hub would take for the name of a repository.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from electra_tf2.config.hparams import default_of, places
from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.exports.transformers_programs import explained_program, explained_scores, transformers_usage
from electra_tf2.formats.huggingface_export import Exported
from electra_tf2.formats.stored_model import DETECTOR, MASKED_LM, StoredModel
from electra_tf2.inference.model_config import config_of
from electra_tf2.pretrain.diagnosis import ON_TRAINING_RECORDS
from electra_tf2.settings.kinds import kind_named
from electra_tf2.util.progress import counted

# The end of a class's name -> Hugging Face's name for the task that it does.
_PIPELINES = {
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMaskedLM": "fill-mask",
    "Model": "feature-extraction",
}
# Scopes of weights that a directory may lack -> what they are, in words.
_PARTS = {
    "generator": "the generator: --part generator writes it",
    "generator_ltr": "the second tower of the generator",
    MASKED_LM: "the masked language model's last layers",
    DETECTOR: "the last layers of the discriminator, which find replaced tokens",
    "clm_predictions": "the layers that correct replaced tokens",
    "copy_predictions": "the layer that tells which tokens to keep when correcting",
}
_OTHER_FORMATS = "--format onnx and saved_model keep it"
_DIGITS = 4  # of scores


def card(
    model: StoredModel,
    header: Sequence[str],
    about: Sequence[str],
    usage: str,
    has_head: bool = True,
    about_scores: str = "",
) -> str:
    """Writes a card in Markdown, with the YAML header that the hub reads.

    Args:
      header: lines of YAML. about: paragraphs on the files. usage: a program that runs the model.
      has_head: False if the files lack what does a fine-tuned model's task: neither title nor scores are the task's.
      about_scores: says that the program has other scores, and why; "": it has the same.
    """
    heading = title(model) if has_head else f"The encoder of {title(model)}, without the head"
    paragraphs = ["\n".join(["---", *header, "---"]), f"# {heading}", *about]
    if model.is_fine_tuned:
        paragraphs += _tasks(model, has_head)
    paragraphs += ["## How to use it", f"```python\n{usage.strip()}\n```"]
    if has_head:
        paragraphs += _scores(model, about_scores)
    paragraphs += ["## Training", training(model)]
    return "\n\n".join(paragraphs) + "\n"


def huggingface_card(model: StoredModel, exported: Exported) -> str:
    """The card of a directory for transformers."""
    class_name = exported.class_name
    has_head = not lacks_head(model, exported)
    header = ["library_name: transformers", "tags:", f"- {exported.family.lower()}"]
    pipeline = pipeline_of(class_name)
    if pipeline:
        header.append(f"pipeline_tag: {pipeline}")
    about = []
    missing = missing_parts(model, exported)
    if not has_head:
        about.append("**This is not a model of the task**: it computes states of tokens, and answers nothing.")
    about += [f"Class: `{class_name}`. Converted from {model.origin}.", sizes_of(model)]
    if missing:
        listed = "\n".join(f"- {part}" for part in missing)
        about.append(f"Not in this directory:\n\n{listed}")
    about += explained_program(model, class_name)
    return card(
        model, header, about, transformers_usage(model, class_name), has_head, explained_scores(model, class_name)
    )


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
    state = model.state_of(task)
    return [str(label) for label in state.get("labels", [])]


def _types_of_spans(model: StoredModel, task: str) -> list[str]:
    """Types of the spans that a tagger finds; none of taggers of single words, and other tasks."""
    state = model.state_of(task)
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


def _tasks(model: StoredModel, has_head: bool) -> list[str]:
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
    start = _name_of_start(model, "init_checkpoint") or config.model_name
    lines.append(f"- fine-tuned from `{start}`, on inputs of at most {config.max_seq_length} tokens")
    heading = "## Task" if has_head else "## What the encoder was trained on"
    return [heading, "\n".join(lines)]


def _scores(model: StoredModel, about_scores: str) -> list[str]:
    """The scores: a table with the number of examples for a fine-tuned model, JSON for others; [] if there are none."""
    if not model.scores:
        return []
    by_task = model.scores.get("scores")
    if not model.is_fine_tuned or not isinstance(by_task, Mapping):
        scores = json.dumps(_rounded(_without_repetition(model.scores)), indent=2, sort_keys=True)
        return ["## Scores", _about_evaluation(model.scores), f"```json\n{scores}\n```"]
    rows = []
    for task, by_split in by_task.items():
        for split, values in by_split.items():
            for metric, value in values.items():
                rows.append(f"| {task} | {split} | {metric} | {_rounded(value)} |")
    table = "\n".join(["| task | split | metric | score |", "|---|---|---|---|", *rows])
    paragraphs = ["## Scores"]
    if about_scores:
        paragraphs.append(about_scores)
    units = "in percent but for losses and mean absolute errors (mae)"
    paragraphs += [table, f"Scored {_scored_examples(model)}by one training run, {units}."]
    if _may_lack_answer(model):
        paragraphs.append(
            "`HasAns` and `NoAns`: of the questions with and without an answer, whose number is `total`. `best_f1`: "
            "F1 with the best threshold, `best_f1_thresh`, above which no answer is given (`qa_na_threshold`)."
        )
    return paragraphs


def _without_repetition(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Leaves out what is the same over hidden positions as over all: all masked ones were hidden."""
    kept = {}
    for name, value in metrics.items():
        if not name.startswith("hidden_") or metrics.get(name.removeprefix("hidden_")) != value:
            kept[name] = value
    return kept


def _about_evaluation(metrics: Mapping[str, Any]) -> str:
    """Says on which text a pre-trained model was evaluated, and what the main metrics are."""
    text = "held-out text"
    if metrics.get(ON_TRAINING_RECORDS):
        text = "**text that it was trained on**, since none was held out"
    sentences = [f"The run's last evaluation, on {text}."]
    if "disc_auc" in metrics:
        sentences.append("`disc_`: the detector of replaced tokens, whose area under the ROC curve is `disc_auc`.")
    if "masked_lm_loss" in metrics:
        sentences.append("`masked_lm_`: the masked language model or generator, with its loss in nats.")
    return " ".join(sentences)


def _scored_examples(model: StoredModel) -> str:
    """Says on how many examples a fine-tuned model was scored, "on 40 questions (faq dev), "; "" if nobody knows."""
    config = config_of(model)
    assert isinstance(config, FinetuningConfig)
    by_task = model.scores.get("evaluation", {}).get("examples", {})
    counts = []
    for task, by_split in by_task.items():
        noun = kind_named(config.kind_of(task)).example
        for split, number in by_split.items():
            counts.append(f"{counted(number, noun)} ({task} {split})")
    if not counts:
        return ""
    return f"on {', '.join(counts)}, "


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
    stopped = ""
    if model.progress:
        stopped = f"**Trained for {model.progress}.** "
    return f"{stopped}{_start(model)}Settings other than the defaults:\n\n```json\n{hparams}\n```"


def _start(model: StoredModel) -> str:
    """A sentence on the models that a pre-training run started from, by their folders' names; "" for other runs."""
    names = []
    for hparam in ("init_checkpoint", "init_generator_checkpoint"):
        name = _name_of_start(model, hparam)
        if name and name not in names:
            names.append(name)
    if model.is_fine_tuned or not names:
        return ""
    listed = " and ".join(f"`{name}`" for name in names)
    return f"Started from the weights of {listed}. "


def _name_of_start(model: StoredModel, hparam: str) -> str:
    """Name of the folder or file of a model to start from, without its place; "" if the run has none."""
    path = model.hparams.get(hparam)
    if not isinstance(path, str):
        return ""
    return Path(path).name


def pipeline_of(class_name: str) -> str:
    """Hugging Face's name for the task that a class does; "" if it has none."""
    for ending, task in _PIPELINES.items():
        if class_name.endswith(ending):
            return task
    return ""


# What a Hugging Face directory lacks, in words.


def lacks_head(model: StoredModel, exported: Exported) -> bool:
    """True if a fine-tuned model leaves without the layers that do its task."""
    if not model.is_fine_tuned or not exported.is_encoder_alone:
        return False
    return any(name.startswith("task_specific/") for name in model.weights)  # vectors of texts may need no layers


def missing_parts(model: StoredModel, exported: Exported) -> list[str]:
    """Says in words what a directory lacks of a model."""
    is_generator = exported.class_name.endswith("ForMaskedLM") and model.has_generator
    sentences: list[str] = []
    for name in exported.left_out:
        sentence = _PARTS.get(name, name)
        if name == DETECTOR and is_generator:
            sentence = "the discriminator, the main network: --part main writes it"
        elif "/answerable" in name:
            if not _may_lack_answer(model):
                continue  # the layer has learned nothing
            sentence = "the layer that decides if a question has an answer at all"
        elif name == "task_specific":
            sentence = f"{_heads(model)}, for which {exported.class_name} has no place: {_OTHER_FORMATS}"
        if sentence not in sentences:
            sentences.append(sentence)
    return sentences


def _may_lack_answer(model: StoredModel) -> bool:
    """True if some questions of the training data have no answer."""
    states = (model.task_states or {}).values()
    return any(state.get("v2") for state in states)


def _heads(model: StoredModel) -> str:
    """Names the heads of a fine-tuned model."""
    tasks = ", ".join(model.task_states or ())
    return f"the head of {tasks}" if tasks else "the head of the task"


def advice(model: StoredModel, exported: Exported) -> str:
    """A line for who has just written a directory: what transformers' usual way gets wrong; "": nothing."""
    if not exported.class_name.endswith("ForTokenClassification"):
        return ""
    if not model.is_fine_tuned:
        return (
            "to fine-tune it with transformers, write it with --part body: transformers would take the last layer of "
            "this detector, which has two labels, for that of a classifier"
        )
    for state in (model.task_states or {}).values():
        if state.get("splits_at_signs"):
            return ""
    return (
        "use the program in README.md, not transformers' pipeline, which divides words otherwise than the training "
        "data and gives other tags"
    )
