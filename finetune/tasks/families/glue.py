"""The tasks of GLUE. Free of TensorFlow.

The files are those that GLUE distributes, in folders named by the task or as GLUE names them.
"""

import dataclasses
from typing import Any

from electra_tf2.finetune.tasks.entry import Entry
from electra_tf2.finetune.tasks.spec import Columns, TextTaskSpec
from electra_tf2.finetune.tasks.templates import EQUAL, PAIR, Prompt

_FIRST = ("sentence1", "premise", "question1", "question", "text1", "#1 String")
_SECOND = ("sentence2", "hypothesis", "question2", "sentence", "text2", "#2 String")
_SENTENCE = TextTaskSpec(
    labels=("0", "1"),
    json_columns=Columns((("sentence", "text"),), ("label",)),
    columns_of={"test": Columns((1,), None)},
)
_SENTENCES = TextTaskSpec(labels=("0", "1"), json_columns=Columns((_FIRST, _SECOND), ("label", "gold_label", "score")))
_SAME = {"0": "No", "1": "Yes"}
_ENTAILED = {"entailment": "Yes", "not_entailment": "No"}
_LONGER = {"num_train_epochs": 10.0}


def _glue(folder: str, spec: TextTaskSpec, columns: Columns, **fields: Any) -> Entry:
    """A task of GLUE; its folder has the name of the file that the server wants."""
    hparams = fields.pop("hparams", {})
    fields = {"folders": (folder,), "submission": {"test": f"{folder}.tsv"}} | fields
    spec = dataclasses.replace(spec, columns=columns, **fields)
    return Entry("classification" if spec.value_range is None else "regression", {"spec": spec}, hparams)


# hparams: the original's defaults.
# Prompts: the manual ones of LM-BFF (Gao et al. 2021, Table 1), which COCO-LM's few-shot experiments use (COCO-LM,
# section 4.2 and Table 4).
_TASKS = {
    "cola": _glue(
        "CoLA",
        _SENTENCE,
        Columns((3,), 1, header=False),
        metrics=("mcc", "accuracy"),
        prompt=Prompt("{0} This is [MASK] .", {"0": "incorrect", "1": "correct"}),
    ),
    "sst": _glue(
        "SST-2",
        _SENTENCE,
        Columns((0,), 1),
        prompt=Prompt("{0} It was [MASK] .", {"0": "terrible", "1": "great"}),
    ),
    "mrpc": _glue(
        "MRPC",
        _SENTENCES,
        Columns((3, 4), 0),
        metrics=("accuracy", "f1"),
        double_unordered=True,
        prompt=Prompt(EQUAL, _SAME),
    ),
    "qqp": _glue(
        "QQP",
        _SENTENCES,
        Columns((3, 4), 5),
        metrics=("accuracy", "f1"),
        columns_of={"test": Columns((1, 2), None)},
        unordered=True,  # one of GPT's similarity tasks (table 4); the original trains it in one order
        prompt=Prompt(EQUAL, _SAME),
    ),
    "mnli": _glue(
        "MNLI",
        _SENTENCES,
        Columns((8, 9), -1),
        hparams={"prompt_evaluation_draws": 4},
        labels=("contradiction", "entailment", "neutral"),
        numbered_labels=False,  # Hugging Face's numbers begin with entailment
        columns_of={"diagnostic": Columns((1, 2), None)},
        evaluation_splits=("dev_matched",),
        optional_splits=("dev_mismatched",),
        test_splits=("test_matched", "test_mismatched"),
        optional_test_splits=("diagnostic",),
        folders=("MNLI", "diagnostic", "AX"),
        file_names={"diagnostic": ("AX",)},
        submission={"test_matched": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv", "diagnostic": "AX.tsv"},
        prompt=Prompt(PAIR, {"contradiction": "No", "entailment": "Yes", "neutral": "Maybe"}),
    ),
    "qnli": _glue("QNLI", _SENTENCES, Columns((1, 2), 3), labels=tuple(_ENTAILED), prompt=Prompt(PAIR, _ENTAILED)),
    "rte": _glue(
        "RTE", _SENTENCES, Columns((1, 2), 3), hparams=_LONGER, labels=tuple(_ENTAILED), prompt=Prompt(PAIR, _ENTAILED)
    ),
    "wnli": _glue("WNLI", _SENTENCES, Columns((1, 2), 3)),
    "sts": _glue(
        "STS-B",
        _SENTENCES,
        Columns((7, 8), -1),
        hparams=_LONGER,
        metrics=("spearman", "pearson"),
        value_range=(0.0, 5.0),
        double_unordered=True,
        prompt=Prompt(EQUAL, {"low": "No", "high": "Yes"}),
    ),
}
ENTRIES = tuple(_TASKS.items())
