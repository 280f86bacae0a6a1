"""Reads and writes the field of config.json that keeps what transformers' fields have no place for.

Of a fine-tuned model these are the names of texts, the scale of a number, which labels make up a span, how text is
split into words; of a pre-trained one how tokens were masked, on which scores of texts depend. transformers reads past
the field and keeps it, so that a model that left comes back as it was:

    "electra_tf2": {"hparams": {"task_names": ["ner"], "tasks": {...}, ...}, "state": {"labels": [...], ...}}
    "electra_tf2": {"pretraining": {"mask_prob": 0.25, ...}}

Free of TensorFlow.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from electra_tf2.files.reading import typed
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.settings.described import DESCRIBED, check_names, settings_of, without_files
from electra_tf2.settings.kinds import kind_named

_FIELD = "electra_tf2"
NUMBER = ["value"]  # the only label of a regression in transformers' fields
# Hparams of fine-tuning on which answers depend. Those of the network and of its head follow from the class.
_OF_ANSWERS = ("compat", "max_seq_length", "doc_stride", "max_query_length", "max_answer_length", "n_best_size")
_KEPT = (*_OF_ANSWERS, "task_names", "tasks", "qa_na_threshold")
_OF_SCORES = ("mask_prob", "mask_rates", "disc_tokens", "temperature")  # hparams of pre-training


class TrainedTask(NamedTuple):
    """A task that a model was trained on: hparams of fine-tuning, and `Task.state`."""

    hparams: dict[str, Any]
    state: dict[str, Any]

    @property
    def name(self) -> str:
        return self.hparams["task_names"][0]


def field_of_task(model: StoredModel, task: str) -> dict[str, Any]:
    """Makes the field of config.json about a model's task."""
    resolved = model.resolved_hparams
    hparams = {name: resolved[name] for name in _OF_ANSWERS}
    hparams["task_names"] = [task]
    hparams["tasks"] = without_files({name: value for name, value in resolved["tasks"].items() if name == task})
    # The layer that decides whether there is an answer stays behind: then the score of the first token decides.
    hparams["qa_na_threshold"] = 0.0 if resolved["answerable_classifier"] else resolved["qa_na_threshold"]
    return {_FIELD: {"hparams": hparams, "state": model.state_of(task)}}


def field_of_pretraining(model: StoredModel) -> dict[str, Any]:
    """Makes the field of config.json about a pre-trained model; {} if nothing tells how its tokens were masked."""
    masking = model.masking
    if model.is_run:
        masking = {name: model.resolved_hparams[name] for name in _OF_SCORES}
    return {_FIELD: {"pretraining": masking}} if masking else {}


def masking_hparams(config: Mapping[str, Any]) -> dict[str, Any]:
    """Reads the hparams of `field_of_pretraining`; {} if there are none. Raises UserError: the field is malformed."""
    field = typed(config.get(_FIELD, {}), dict, f"config.json: {_FIELD}")
    hparams = typed(field.get("pretraining", {}), dict, f"config.json: {_FIELD}.pretraining")
    return {name: value for name, value in hparams.items() if name in _OF_SCORES}


def trained_task(config: Mapping[str, Any], class_name: str, labels: Sequence[str]) -> TrainedTask | None:
    """Reads the field of a fine-tuned model.

    None: there is none, or transformers has trained the model since, on another task.

    Args:
      config: content of config.json. class_name, labels: what its fields of transformers have.

    Raises:
      UserError: the field is malformed.
    """
    where = f"config.json: {_FIELD}"
    field = typed(config.get(_FIELD, {}), dict, where)
    if not field or "pretraining" in field:
        return None
    hparams = typed(field.get("hparams"), dict, f"{where}.hparams")
    state = typed(field.get("state"), dict, f"{where}.state")
    names = typed(hparams.get("task_names"), list, f"{where}.hparams.task_names")
    tasks = typed(hparams.get("tasks"), dict, f"{where}.hparams.tasks")
    for description in tasks.values():
        # A class in Python is not run because a downloaded file names it.
        if typed(description, dict, f"{where}.hparams.tasks").get("type") not in DESCRIBED:
            return None
    check_names(names, tasks)
    kind = kind_named(settings_of(names[0], tasks).kind)
    expected = labels
    if "labels" in state:
        expected = as_pipelines_group(state, typed(state["labels"], list, f"{where}.state.labels"))
    elif kind.numeric:
        expected = NUMBER
    if not class_name.endswith(f"For{kind.transformers_class}") or list(labels) != list(expected):
        return None
    known = {name: value for name, value in hparams.items() if name in _KEPT}
    return TrainedTask(known, state)


def as_pipelines_group(state: Mapping[str, Any], labels: Sequence[Any]) -> list[str]:
    """Makes the names of labels in transformers' fields.

    Its pipelines group by B- and I- alone: a word with S-PER would be an entity of the type "S-PER". Of spans, two
    labels then have one name, which `id2label` may hold twice.
    """
    names = [str(label) for label in labels]
    if "encoding" not in state:  # no spans
        return names
    letters = {"S": "B", "E": "I"}
    grouped = []
    for name in names:
        letter, dash, kind = name.partition("-")
        grouped.append(f"{letters.get(letter, letter)}{dash}{kind}")
    return grouped
