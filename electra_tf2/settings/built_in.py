"""The tasks that are known by name: GLUE, SuperGLUE, RACE, question answering and tagging.

A task is a row of one table: its kind (settings.kinds), files and columns, labels and metrics, and the default hparams
of a run that trains it alone. Free of TensorFlow, so that a wrong hparam is refused at once.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from electra_tf2.files.tables import Column
from electra_tf2.settings import columns
from electra_tf2.settings.kinds import KINDS


class Prompt(NamedTuple):
    """A template, and words by the labels' names; of a regression those of its ends, "low" and "high"."""

    template: str
    words: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class TextSettings:
    """Settings of a task of classification or regression, tasks.text.TextTask.

    texts: one or two columns. label: column; None: files have none. Of several names of a column the first that exists.
    header: whether the first line of a delimited file is a header even if it names none of the texts.
    delimiter, quoted: as in files.tables.open_table.
    id: field of JSON lines that names an example in a submission; "" without one.
    spans: how files mark the two parts of the texts that are asked about, "wic" or "wsc" (tasks.spans); "": none are.
    metrics: metrics of settings.metrics; by the first one the best weights are chosen.
    labels: names in the order of their ids; None: those of the training data, sorted; unused in regression.
    numbers: names for which the numbers 0, 1, ... in files stand, as in those of `datasets`; None: none do.
    value_range: least and greatest value of a regression task; None for classification.
    range_of_data: whether an infinite end of `value_range` becomes the training data's.
    double_unordered: whether the order of the two texts means nothing, so that training may see both.
    evaluation_splits, optional_splits: splits to score, the latter if their files exist.
    test_splits, optional_test_splits: splits to predict if the user wants it, the latter if their files exist.
    submitted_labels: by label, how a benchmark's server spells it, if that differs.
    prompt: default template and words.
    """

    texts: tuple[Column, ...] = (columns.TEXT,)
    label: Column | None = columns.LABEL
    header: bool = True
    delimiter: str = ""
    quoted: bool | None = None
    id: str = ""
    spans: str = ""
    metrics: tuple[str, ...] = ("accuracy",)
    labels: tuple[str, ...] | None = None
    numbers: tuple[str, ...] | None = None
    value_range: tuple[float, float] | None = None
    range_of_data: bool = False
    double_unordered: bool = False
    evaluation_splits: tuple[str, ...] = ("dev",)
    optional_splits: tuple[str, ...] = ()
    test_splits: tuple[str, ...] = ("test",)
    optional_test_splits: tuple[str, ...] = ()
    submitted_labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    prompt: Prompt | None = None


class TaskSettings(NamedTuple):
    """A row of the table of tasks.

    kind: one of settings.kinds.KINDS, or the class of a task in Python, "module:Class".
    text: settings of a task over one or two texts.
    options: further arguments of the class, among them those of tasks.files.TaskFiles.
    hparams: defaults of a run that learns this task alone.
    like: built-in task whose settings in a recipe hold for this one, too; "": there is none.
    """

    kind: str
    text: TextSettings | None = None
    options: Mapping[str, Any] = {}
    hparams: Mapping[str, Any] = {}
    like: str = ""

    @property
    def is_ours(self) -> bool:
        """Tells whether the kind is one of this package's."""
        return self.kind in KINDS


_ONCE_MORE = {"num_train_epochs": 10.0}  # for small data


# GLUE. The files are those that it distributes, in folders named by the task or as GLUE names them, or tables with the
# column names of `datasets`. hparams: the original's defaults. Prompts: the manual ones of LM-BFF (Gao et al. 2021,
# Table 1), which COCO-LM's few-shot experiments use (COCO-LM, section 4.2 and Table 4).

_BINARY = ("0", "1")
_PAIR = "{0:trim} ? [MASK] , {1:lower}"
_EQUAL = "{0} [MASK] , {1:lower}"
_SAME = {"0": "No", "1": "Yes"}
_ENTAILED = {"entailment": "Yes", "not_entailment": "No"}
_NLI = ("contradiction", "entailment", "neutral")
_NLI_NUMBERS = ("entailment", "neutral", "contradiction")  # of `datasets`
_PROMPTS = {
    "cola": Prompt("{0} This is [MASK] .", {"0": "incorrect", "1": "correct"}),
    "sst": Prompt("{0} It was [MASK] .", {"0": "terrible", "1": "great"}),
    "mrpc": Prompt(_EQUAL, _SAME),
    "qqp": Prompt(_EQUAL, _SAME),
    "mnli": Prompt(_PAIR, {"contradiction": "No", "entailment": "Yes", "neutral": "Maybe"}),
    "qnli": Prompt(_PAIR, _ENTAILED),
    "rte": Prompt(_PAIR, _ENTAILED),
    "sts": Prompt(_EQUAL, {"low": "No", "high": "Yes"}),
}
_ACCURACY_F1 = ("accuracy", "f1")
_CORRELATIONS = ("spearman", "pearson")


def _glue(
    name: str,
    folder: str,
    texts: tuple[int, ...],
    label: int,
    labels: tuple[str, ...] | None = _BINARY,
    hparams: Mapping[str, Any] = {},
    options: Mapping[str, Any] = {},
    **settings: Any,
) -> tuple[str, TaskSettings]:
    """Makes a task of GLUE. texts, label: numbers of its files' columns. folder: also the name of the server's file."""
    names: Sequence[tuple[str, ...]] = [columns.ONE_TEXT]
    if len(texts) == 2:
        names = [columns.FIRST_TEXT, columns.SECOND_TEXT]
    text_columns: list[Column] = []
    for names_of_text, number in zip(names, texts, strict=True):
        text_columns.append((*names_of_text, number))
    text = TextSettings(
        tuple(text_columns),
        (*columns.LABELS, label),
        labels=labels,
        prompt=_PROMPTS.get(name),
        **{"numbers": labels} | settings,
    )
    options = {"folders": (folder,), "submission": {"test": f"{folder}.tsv"}} | dict(options)
    kind = "regression" if text.value_range is not None else "classification"
    return name, TaskSettings(kind, text, options, hparams)


_GLUE = dict(
    [
        _glue("cola", "CoLA", (3,), 1, header=False, metrics=("mcc", "accuracy")),
        _glue("sst", "SST-2", (0,), 1),
        _glue("mrpc", "MRPC", (3, 4), 0, metrics=_ACCURACY_F1, double_unordered=True),
        _glue("qqp", "QQP", (3, 4), 5, metrics=_ACCURACY_F1),
        _glue(
            "mnli",
            "MNLI",
            texts=(8, 9),
            label=-1,
            labels=_NLI,
            hparams={"prompt_evaluation_draws": 4},
            options={
                "folders": ("MNLI", "diagnostic", "AX"),
                "file_names": {"diagnostic": ("AX",)},
                "submission": {"test_matched": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv", "diagnostic": "AX.tsv"},
            },
            numbers=_NLI_NUMBERS,
            evaluation_splits=("dev_matched",),
            optional_splits=("dev_mismatched",),
            test_splits=("test_matched", "test_mismatched"),
            optional_test_splits=("diagnostic",),
        ),
        _glue("qnli", "QNLI", (1, 2), 3, tuple(_ENTAILED)),
        _glue("rte", "RTE", (1, 2), 3, tuple(_ENTAILED), _ONCE_MORE),
        _glue("wnli", "WNLI", (1, 2), 3),
        _glue(
            "sts",
            "STS-B",
            texts=(7, 8),
            label=-1,
            labels=None,
            hparams=_ONCE_MORE,
            metrics=_CORRELATIONS,
            value_range=(0.0, 5.0),
            double_unordered=True,
        ),
    ]
)


# SuperGLUE (Wang et al. 2019). Files are <folder>/{train,val,test}.jsonl, folders named as in the benchmark's archive,
# beside the other tasks' folders or under SuperGLUE/; submissions have the names and the format of its server. Its RTE
# is `superglue_rte`, since `rte` is GLUE's, and predicts the diagnostics AX-b and AX-g too where they are.
# hparams: ours.

_FALSE_OR_TRUE = ("false", "true")


def _folders(name: str) -> tuple[str, ...]:
    return name, f"SuperGLUE/{name}"


def _files(folder: str) -> dict[str, Any]:
    """Makes the options of a task whose files lie in a folder of the benchmark."""
    submission = {"test": f"{folder}.jsonl"}
    return {"folders": _folders(folder), "file_names": {"dev": ("val",)}, "submission": submission}


def _superglue(
    folder: str,
    texts: tuple[Column, ...],
    labels: tuple[str, ...],
    hparams: Mapping[str, Any],
    options: Mapping[str, Any] = {},
    **settings: Any,
) -> TaskSettings:
    """Makes a task over texts or, with `spans`, over parts of them."""
    text = TextSettings(texts, "label", id="idx", labels=labels, **{"numbers": labels} | settings)
    kind = "spans" if text.spans else "classification"
    return TaskSettings(kind, text, _files(folder) | dict(options), hparams)


def _candidates(form: str, files: Mapping[str, Any], hparams: Mapping[str, Any]) -> TaskSettings:
    """Makes a task of questions with candidates, in one of tasks.choice_files.FORMS."""
    return TaskSettings("choice", None, {"form": form} | dict(files), hparams)


_SUPERGLUE = {
    "boolq": _superglue("BoolQ", ("question", "passage"), _FALSE_OR_TRUE, {"max_seq_length": 256}),
    "cb": _superglue(
        "CB",
        texts=("premise", "hypothesis"),
        labels=_NLI,
        hparams=_ONCE_MORE,
        numbers=("entailment", "contradiction", "neutral"),  # as `datasets` has CB's
        metrics=("macro_f1", "accuracy", "average"),
    ),
    "copa": _candidates("copa", _files("COPA"), _ONCE_MORE),
    "multirc": _candidates("multirc", _files("MultiRC"), {"max_seq_length": 512}),
    "record": _candidates("record", _files("ReCoRD"), {"max_seq_length": 512, "num_train_epochs": 2.0}),
    "superglue_rte": _superglue(
        "RTE",
        texts=(("premise", "sentence1"), ("hypothesis", "sentence2")),
        labels=tuple(_ENTAILED),
        hparams=_ONCE_MORE,
        options={
            "folders": ("SuperGLUE/RTE", *_folders("AX-b"), *_folders("AX-g")),
            "submission": {name: f"{name}.jsonl" for name in ("AX-b", "AX-g")} | {"test": "RTE.jsonl"},
        },
        optional_test_splits=("AX-b", "AX-g"),
    ),
    "wic": _superglue("WiC", ("sentence1", "sentence2"), _FALSE_OR_TRUE, _ONCE_MORE, spans="wic"),
    "wsc": _superglue(
        "WSC",
        texts=("text",),
        labels=_FALSE_OR_TRUE,
        hparams=_ONCE_MORE,
        spans="wsc",
        submitted_labels={"false": "False", "true": "True"},
    ),
}


# Question answering: SQuAD 1.1 and 2.0, CMRC 2018 and KorQuAD 1.0, and the datasets of MRQA. hparams: the original's
# defaults, but for "naturalqs", which it takes for a task of sentences (docs/differences.md).


def _answers(v2: bool = False, **options: bool | str) -> TaskSettings:
    options["v2"] = v2
    return TaskSettings("qa", None, options, {"num_train_epochs": 2.0, "max_seq_length": 512})


def _tags(spans: bool, hparams: Mapping[str, Any] = {}) -> TaskSettings:
    return TaskSettings("tagging", None, {"spans": spans}, hparams)


# Vectors of sentences, by contrast with the others of a batch. hparams: ours, for small models; SimCSE's are 1 epoch of
# 64 sentences, or 3 of 512 pairs with negatives, of 32 tokens, at 1e-5 to 5e-5 (Gao et al. 2021, appendix A).

_CONTRAST = {"classifier_pooling": "mean", "max_seq_length": 64, "train_batch_size": 128, "num_train_epochs": 1.0}

# RACE is distributed as an object a file; a table in place of them is read, too.
_RACE_FILES = {"folders": ("RACE",), "patterns": ("{split}/middle/*.txt", "{split}/high/*.txt")}

BUILT_IN: dict[str, TaskSettings] = {
    **_GLUE,
    "squad": _answers(v2=True),
    "squadv1": _answers(),
    "cmrc": _answers(f1_of="chinese")._replace(like="squadv1"),
    "korquad": _answers(f1_of="characters")._replace(like="squadv1"),
    **{name: _answers(mrqa=True) for name in ("newsqa", "naturalqs", "triviaqa", "searchqa")},
    "race": _candidates("race", _RACE_FILES, {"max_seq_length": 512}),
    **_SUPERGLUE,
    "sentence_embedding": TaskSettings("embedding", hparams=_CONTRAST),
    "chunk": _tags(True, {"max_seq_length": 256}),
    "ner": _tags(True),
    "pos": _tags(False),
}
