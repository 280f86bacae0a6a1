"""The tasks that are known by name: GLUE, SuperGLUE, SICK, RACE, question answering and tagging.

An entry says where a task's files hold what, how it is scored, and in which hparams a run of it alone differs.
"""

import dataclasses
from typing import Any

from electra_tf2.finetune.tasks.spec import Column, Columns, Entry, Prompt, TextTaskSpec

_ONCE_MORE = {"num_train_epochs": 10.0}  # for small data


# GLUE. The files are those that it distributes, in folders named by the task or as GLUE names them. hparams: the
# original's defaults. Prompts: the manual ones of LM-BFF (Gao et al. 2021, Table 1), which COCO-LM's few-shot
# experiments use (COCO-LM, section 4.2 and Table 4).

_FIRST = ("sentence1", "premise", "question1", "question", "text1", "#1 String")
_SECOND = ("sentence2", "hypothesis", "question2", "sentence", "text2", "#2 String")
_SENTENCE = TextTaskSpec(
    labels=("0", "1"),
    json_columns=Columns((("sentence", "text"),), ("label",)),
    columns_of={"test": Columns((1,), None)},
)
_SENTENCES = TextTaskSpec(labels=("0", "1"), json_columns=Columns((_FIRST, _SECOND), ("label", "gold_label", "score")))
_PAIR, _EQUAL = "{0:trim} ? [MASK] , {1:lower}", "{0} [MASK] , {1:lower}"
_SAME = {"0": "No", "1": "Yes"}
_ENTAILED = {"entailment": "Yes", "not_entailment": "No"}
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
_ACCURACY_F1, _CORRELATIONS = ("accuracy", "f1"), ("spearman", "pearson")


def _glue(
    name: str, folder: str, spec: TextTaskSpec, columns: Columns, hparams: dict[str, Any] | None = None, **fields: Any
) -> tuple[str, Entry]:
    """A task of GLUE; its folder has the name of the file that the server wants."""
    fields = {"folders": (folder,), "submission": {"test": f"{folder}.tsv"}} | fields
    spec = dataclasses.replace(spec, columns=columns, prompt=_PROMPTS.get(name), **fields)
    return name, Entry("classification" if spec.value_range is None else "regression", spec, hparams=hparams or {})


_GLUE = dict(
    [
        _glue("cola", "CoLA", _SENTENCE, Columns((3,), 1, header=False), metrics=("mcc", "accuracy")),
        _glue("sst", "SST-2", _SENTENCE, Columns((0,), 1)),
        _glue("mrpc", "MRPC", _SENTENCES, Columns((3, 4), 0), metrics=_ACCURACY_F1, double_unordered=True),
        _glue(
            *("qqp", "QQP", _SENTENCES, Columns((3, 4), 5)),
            metrics=_ACCURACY_F1,
            columns_of={"test": Columns((1, 2), None)},
            unordered=True,  # one of GPT's similarity tasks (table 4); the original trains it in one order
        ),
        _glue(
            *("mnli", "MNLI", _SENTENCES, Columns((8, 9), -1), {"prompt_evaluation_draws": 4}),
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
        ),
        _glue("qnli", "QNLI", _SENTENCES, Columns((1, 2), 3), labels=tuple(_ENTAILED)),
        _glue("rte", "RTE", _SENTENCES, Columns((1, 2), 3), _ONCE_MORE, labels=tuple(_ENTAILED)),
        _glue("wnli", "WNLI", _SENTENCES, Columns((1, 2), 3)),
        _glue(
            *("sts", "STS-B", _SENTENCES, Columns((7, 8), -1), _ONCE_MORE),
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

_VALIDATION = {"dev": ("val",)}
_FALSE_OR_TRUE = ("false", "true")


def _folders(name: str) -> tuple[str, ...]:
    return name, f"SuperGLUE/{name}"


def _superglue(
    folder: str,
    texts: tuple[Column, ...],
    labels: tuple[str, ...],
    hparams: dict[str, Any],
    format: str = "",
    **fields: Any,
) -> Entry:
    """A task over texts or, with a format, over spans of them."""
    columns = Columns(texts, ("label",), id="idx")
    fields = {"folders": _folders(folder), "submission": {"test": f"{folder}.jsonl"}} | fields
    spec = TextTaskSpec(columns, columns, labels=labels, file_names=_VALIDATION, **fields)
    return Entry("spans" if format else "classification", spec, {"format": format} if format else {}, hparams)


def _choice(folder: str, hparams: dict[str, Any]) -> Entry:
    options = {"folders": _folders(folder), "file_names": _VALIDATION, "submission": f"{folder}.jsonl"}
    return Entry("choice", None, options, hparams, folder.lower())


_SUPERGLUE = {
    "boolq": _superglue("BoolQ", (("question",), ("passage",)), _FALSE_OR_TRUE, {"max_seq_length": 256}),
    "cb": _superglue(
        *("CB", (("premise",), ("hypothesis",)), ("contradiction", "entailment", "neutral"), _ONCE_MORE),
        numbered_labels=False,  # as MNLI's
        metrics=("macro_f1", "accuracy", "average"),
    ),
    "copa": _choice("COPA", _ONCE_MORE),
    "multirc": _choice("MultiRC", {"max_seq_length": 512}),
    "record": _choice("ReCoRD", {"max_seq_length": 512, "num_train_epochs": 2.0}),
    "superglue_rte": _superglue(
        *("RTE", (("premise", "sentence1"), ("hypothesis", "sentence2")), tuple(_ENTAILED), _ONCE_MORE),
        folders=("SuperGLUE/RTE", *_folders("AX-b"), *_folders("AX-g")),
        optional_test_splits=("AX-b", "AX-g"),
        submission={name: f"{name}.jsonl" for name in ("AX-b", "AX-g")} | {"test": "RTE.jsonl"},
    ),
    "wic": _superglue("WiC", (("sentence1",), ("sentence2",)), _FALSE_OR_TRUE, _ONCE_MORE, "wic"),
    "wsc": _superglue(
        *("WSC", (("text",),), _FALSE_OR_TRUE, _ONCE_MORE, "wsc"), submitted_labels={"false": "False", "true": "True"}
    ),
}


# SICK (Marelli et al. 2014): one table, whose column SemEval_set says which split a pair is of, or one for each split.


def _sick(kind: str, label_columns: tuple[str, ...], hparams: dict[str, Any], **fields: Any) -> Entry:
    columns = Columns((("sentence_A", "sentence1"), ("sentence_B", "sentence2")), label_columns)
    sets = {"train": "TRAIN", "dev": "TRIAL", "test": "TEST"}
    names = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
    spec = TextTaskSpec(
        columns,
        columns,
        folders=("sick", "SICK"),
        file_names={split: (name, "SICK.txt") for split, name in names.items()},
        columns_of={split: columns._replace(only=("SemEval_set", name)) for split, name in sets.items()},
        **fields,
    )
    return Entry(kind, spec, hparams=hparams, like="sts")


_SICK = {
    "sick_entailment": _sick(
        "classification",
        ("entailment_label", "entailment_judgment", "label"),
        {},
        labels=("CONTRADICTION", "ENTAILMENT", "NEUTRAL"),
        numbered_labels=False,
    ),
    "sick_relatedness": _sick(
        "regression",
        ("relatedness_score", "score"),
        _ONCE_MORE,
        metrics=("pearson", "spearman"),
        value_range=(1.0, 5.0),
        double_unordered=True,
    ),
}


# Question answering: SQuAD 1.1 and 2.0, and the datasets of MRQA. hparams: the original's defaults, but for
# "naturalqs", which it takes for a task of sentences (docs/differences.md).


def _answers(**options: bool) -> Entry:
    return Entry("qa", None, options, {"num_train_epochs": 2.0, "max_seq_length": 512})


# Vectors of sentences, by contrast with the others of a batch. hparams: ours, for small models; SimCSE's are 1 epoch of
# 64 sentences, or 3 of 512 pairs with negatives, of 32 tokens, at 1e-5 to 5e-5 (Gao et al. 2021, appendix A).

_CONTRAST = {"classifier_pooling": "mean", "max_seq_length": 64, "train_batch_size": 128, "num_train_epochs": 1.0}

BUILT_IN: dict[str, Entry] = {
    **_GLUE,
    "squad": _answers(v2=True),
    "squadv1": _answers(),
    **{name: _answers(mrqa=True) for name in ("newsqa", "naturalqs", "triviaqa", "searchqa")},
    "race": Entry("choice", None, {"folders": ("RACE",)}, {"max_seq_length": 512}, "race"),
    **_SICK,
    **_SUPERGLUE,
    "sentence_embedding": Entry("embedding", None, {}, _CONTRAST),
    "chunk": Entry("tagging", None, {"spans": True}, {"max_seq_length": 256}),
    "ner": Entry("tagging", None, {"spans": True}),
    "pos": Entry("tagging", None, {"spans": False}),
}
