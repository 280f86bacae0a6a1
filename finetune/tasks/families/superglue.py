"""The tasks of SuperGLUE (Wang et al. 2019), from the JSON lines that it distributes. Free of TensorFlow.

Files are <folder>/{train,val,test}.jsonl, folders named as in the benchmark's archive, beside the other tasks' folders
or under SuperGLUE/; submissions have the names and the format of its server. Its RTE is `superglue_rte`, since `rte` is
GLUE's, and predicts the diagnostics AX-b and AX-g too where they are.
"""

from typing import Any

from electra_tf2.finetune.tasks.entry import Entry
from electra_tf2.finetune.tasks.spec import Columns, TextTaskSpec

_VALIDATION = {"dev": ("val",)}
_FALSE_OR_TRUE = ("false", "true")
_FEW = {"num_train_epochs": 10.0}  # for the tasks of some hundred examples; ours, as all of these hparams


def _folders(name: str) -> tuple[str, ...]:
    return name, f"SuperGLUE/{name}"


def _spec(folder: str, texts: tuple[Any, ...], labels: tuple[str, ...], **fields: Any) -> TextTaskSpec:
    columns = Columns(texts, ("label",), id="idx")
    fields = {"folders": _folders(folder), "submission": {"test": f"{folder}.jsonl"}} | fields
    return TextTaskSpec(columns, columns, labels=labels, file_names=_VALIDATION, **fields)


def _choice(name: str, folder: str, hparams: dict[str, Any]) -> Entry:
    options = {"folders": _folders(folder), "file_names": _VALIDATION, "submission": f"{folder}.jsonl"}
    return Entry("choice", options, hparams, f"electra_tf2.finetune.choice.superglue:{name}")


_TASKS = {
    "boolq": Entry(
        "classification",
        {"spec": _spec("BoolQ", (("question",), ("passage",)), _FALSE_OR_TRUE)},
        {"max_seq_length": 256},
    ),
    "cb": Entry(
        "classification",
        {
            "spec": _spec(
                "CB",
                (("premise",), ("hypothesis",)),
                ("contradiction", "entailment", "neutral"),
                numbered_labels=False,  # as MNLI's
                metrics=("macro_f1", "accuracy", "average"),
            )
        },
        _FEW,
    ),
    "copa": _choice("Copa", "COPA", _FEW),
    "multirc": _choice("MultiRc", "MultiRC", {"max_seq_length": 512}),
    "record": _choice("Record", "ReCoRD", {"max_seq_length": 512, "num_train_epochs": 2.0}),
    "superglue_rte": Entry(
        "classification",
        {
            "spec": _spec(
                "RTE",
                (("premise", "sentence1"), ("hypothesis", "sentence2")),
                ("entailment", "not_entailment"),
                folders=("SuperGLUE/RTE", *_folders("AX-b"), *_folders("AX-g")),
                optional_test_splits=("AX-b", "AX-g"),
                submission={"test": "RTE.jsonl", "AX-b": "AX-b.jsonl", "AX-g": "AX-g.jsonl"},
            )
        },
        _FEW,
    ),
    "wic": Entry(
        "spans",
        {
            "spec": _spec("WiC", (("sentence1",), ("sentence2",)), _FALSE_OR_TRUE),
            "find_spans": "electra_tf2.finetune.spans.superglue:wic_spans",
        },
        _FEW,
    ),
    "wsc": Entry(
        "spans",
        {
            "spec": _spec("WSC", (("text",),), _FALSE_OR_TRUE, submitted_labels={"false": "False", "true": "True"}),
            "find_spans": "electra_tf2.finetune.spans.superglue:wsc_spans",
        },
        _FEW,
    ),
}
ENTRIES = tuple(_TASKS.items())
