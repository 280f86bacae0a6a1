"""What a task over one or two texts needs to know: where they stand in its files, and what is to be learned of them.

Free of TensorFlow, so that a run's configuration can name and check its tasks (built_in, own).
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from electra_tf2.finetune.tasks.templates import Prompt


class Columns(NamedTuple):
    """Where a row's texts and label are.

    texts: one or two columns, each a 0-based number or header name, or alternatives of names.
    label: likewise; None for files without labels.
    header: whether the first line of a tsv or csv file is one.
    id: field of JSON lines that names an example in a submission; "" without one.
    """

    texts: tuple[Any, ...]
    label: Any
    header: bool = True
    id: str = ""


_TEXT_AND_LABEL = Columns(("text",), "label")


@dataclasses.dataclass(frozen=True)
class TextTaskSpec:
    """A task of classification or regression.

    columns: of tsv and csv files; those of a split in `columns_of` win.
    json_columns: of JSON lines.
    metrics: of finetune.tasks.metrics, the first is the primary one, by which the best weights are chosen.
    labels: names in the order of their ids; None: those of the training data, sorted; unused in regression.
    numbered_labels: whether JSON lines may hold a label's number for its name: not where others count in another order.
    value_range: least and greatest value of a regression task; None for classification.
    double_unordered: the order of the two texts means nothing, so training may see both (the original's tasks).
    unordered: it means nothing, so both may be scored, whether or not training sees both.
    evaluation_splits, optional_splits: scored, the latter where their files are.
    test_splits, optional_test_splits: predicted if that is asked for, the latter where their files are.
    folders: other names of the task's folder.
    file_names: split -> other names of its file, without the ending.
    files: split -> path of a file elsewhere.
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
    double_unordered: bool = False
    unordered: bool = False
    evaluation_splits: tuple[str, ...] = ("dev",)
    optional_splits: tuple[str, ...] = ()
    test_splits: tuple[str, ...] = ("test",)
    optional_test_splits: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    file_names: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    submission: Mapping[str, str] = dataclasses.field(default_factory=dict)
    submitted_labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    prompt: Prompt | None = None

    @property
    def scored_in_both_orders(self) -> bool:
        """Where that is asked for."""
        return self.unordered or self.double_unordered
