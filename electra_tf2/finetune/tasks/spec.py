"""Description of a task without TensorFlow: its kind, and where its texts stand in its files."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

Column = str | int | tuple[str, ...]  # a header's name or a 0-based number, or names one of which is there


class Columns(NamedTuple):
    """Places of a row's texts and label.

    texts: one or two columns.
    label: None for files without labels.
    header: whether the first line of a tsv or csv file is one.
    id: field of JSON lines that names an example in a submission; "" without one.
    only: column of a table of several splits, and its value in the rows that count.
    delimiter: between the cells of a tsv or csv file; "": tabs in tsv, in csv what is found there.
    quoted: whether cells may stand in quotes; None: in csv.
    """

    texts: tuple[Column, ...]
    label: Column | None
    header: bool = True
    id: str = ""
    only: tuple[str, str] | None = None
    delimiter: str = ""
    quoted: bool | None = None


_TEXT_AND_LABEL = Columns(("text",), "label")


class Prompt(NamedTuple):
    """A template, and label name -> word; the words of a regression's ends are under "low" and "high"."""

    template: str
    words: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class TextTaskSpec:
    """A task of classification or regression.

    columns: of tsv, csv and txt files; those of a split in `columns_of` win.
    json_columns: of JSON lines.
    metrics: of finetune.tasks.metrics, the first is the primary one, by which the best weights are chosen.
    labels: names in the order of their ids; None: those of the training data, sorted; unused in regression.
    numbered_labels: whether JSON lines may hold a label's number for its name: not where others count in another order.
    value_range: least and greatest value of a regression task; None for classification.
    range_of_data: whether an infinite end of `value_range` stands for the training data's.
    double_unordered: the order of the two texts means nothing, so training may see both (the original's tasks).
    unordered: it means nothing, so both may be scored, whether or not training sees both.
    evaluation_splits, optional_splits: scored, the latter where their files are.
    test_splits, optional_test_splits: predicted if that is asked for, the latter where their files are.
    folders: other names of the task's folder.
    file_names: split -> other names of its file, with or without an ending.
    submission: split -> file name of the benchmark's server, which has the labels of these splits: a table as GLUE's
      wants it, or JSON lines as SuperGLUE's.
    submitted_labels: label -> how the server spells it, where that differs.
    prompt: template and words by default.
    """

    columns: Columns = _TEXT_AND_LABEL
    json_columns: Columns = _TEXT_AND_LABEL
    metrics: tuple[str, ...] = ("accuracy",)
    labels: tuple[str, ...] | None = None
    numbered_labels: bool = True
    columns_of: Mapping[str, Columns] = dataclasses.field(default_factory=dict)
    value_range: tuple[float, float] | None = None
    range_of_data: bool = False
    double_unordered: bool = False
    unordered: bool = False
    evaluation_splits: tuple[str, ...] = ("dev",)
    optional_splits: tuple[str, ...] = ()
    test_splits: tuple[str, ...] = ("test",)
    optional_test_splits: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    file_names: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    submission: Mapping[str, str] = dataclasses.field(default_factory=dict)
    submitted_labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    prompt: Prompt | None = None

    @property
    def scored_in_both_orders(self) -> bool:
        """Tells whether `average_orders` applies."""
        return self.unordered or self.double_unordered


class Entry(NamedTuple):
    """A task by name.

    kind: classification, regression, embedding, tagging, qa, choice or spans.
    spec: of a task over one or two texts.
    options: further arguments of the class that learns it (finetune.task_classes).
    hparams: defaults of a run that learns this task alone.
    format: what that class is chosen by, where it is not the kind: a format of files.
    like: built-in task whose settings in a recipe hold for this one, too; "" without one.
    """

    kind: str
    spec: TextTaskSpec | None = None
    options: Mapping[str, Any] = {}
    hparams: Mapping[str, Any] = {}
    format: str = ""
    like: str = ""
