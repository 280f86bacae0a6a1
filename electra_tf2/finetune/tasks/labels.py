"""Labels of a file's rows: which rows have one, and what labels mean if only the rows say it."""

import math
import re
from collections.abc import Callable, Collection, Sequence

from electra_tf2.files.cells import is_no_label, is_no_number, label_text
from electra_tf2.finetune.tasks.targets import Classes, Scale, Target, checked_classes
from electra_tf2.finetune.tasks.text_files import TextExample
from electra_tf2.settings.built_in import TextSettings
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.progress import counted, warn

_NUMBER = re.compile(r"-?\d*\.?\d+")
_ENOUGH_ROWS = 20  # from which on labels of one row each look like another column


def labelled_rows(
    rows: Sequence[TextExample], task: str, settings: TextSettings, target: Target | None
) -> tuple[list[TextExample], Target]:
    """Checks the labels of training or development data. Rows without a label are left out, with a warning.

    Args:
      target: what labels mean; None: the rows say it.

    Returns:
      The rows that have labels, and what labels mean.

    Raises:
      UserError: no row has a label; a label is wrong; -1 may be a class as well as a missing label.
    """
    kept = _rows_with_labels(rows, task, settings, target)
    if target is None and settings.value_range is not None:
        target = scale_of(kept, task, settings.value_range)
    elif target is None:
        target = classes_of(kept, task, settings.metrics)
    return [row._replace(label=target.checked(row.label, row.where)) for row in kept], target


def warn_of_contradictions(rows: Sequence[TextExample], task: str) -> None:
    """Warns of texts that stand in several rows with different labels, of which a model can answer one alone."""
    labels_of_text: dict[tuple[str, ...], set[str]] = {}
    contradictory: dict[tuple[str, ...], str] = {}  # text -> where its second label stands
    for row in rows:
        labels = labels_of_text.setdefault(row.texts, set())
        labels.add(str(row.label))
        if len(labels) > 1:
            contradictory.setdefault(row.texts, row.where)
    if contradictory:
        first = next(iter(contradictory.values()))
        texts = counted(len(contradictory), "text")
        warn(f"{task}: {texts} with different labels in several rows; the first: {first}")


def test_rows(rows: Sequence[TextExample], split: str, target: Target, keeps_all: bool) -> list[TextExample]:
    """Checks the labels of test data, which are often missing or placeholders. One that is wrong gives a warning.

    Args:
      keeps_all: whether rows without a label stay among others, since all are to be answered. Else they are left out.

    Returns:
      The rows, with their labels if all of them are right, else with none.
    """
    if have_no_labels(rows, target):
        return [row._replace(label=None) for row in rows]
    if not keeps_all:
        rows, left_out = _divided(rows, lambda row: is_no_label(row.label) or _is_placeholder(row, target))
        if left_out:
            _warn_of_left_out(f"the {split} data", left_out, len(rows) + len(left_out))
    checked = []
    errors = []
    for row in rows:
        try:
            checked.append(row._replace(label=target.checked(row.label, row.where)))
        except UserError as error:
            errors.append(str(error))
    if not errors:
        return checked
    more = ""
    if len(errors) > 1:
        more = f" ({len(errors) - 1:,} more like it)"
    warn(f"the {split} data is not scored: {errors[0]}{more}")
    return [row._replace(label=None) for row in rows]


def have_no_labels(rows: Sequence[TextExample], target: Target) -> bool:
    """Tells whether all labels of test data are missing, or -1, as GLUE's are on the Hub."""
    none = ["-1"]
    if isinstance(target, Classes) and "-1" in target.names:
        none = []
    return all(is_no_label(row.label) or label_text(row.label) in none for row in rows)


def _is_placeholder(row: TextExample, target: Target) -> bool:
    """Tells whether a label is -1, which among classes means that there is none, unless it is one. Of numbers it is."""
    return isinstance(target, Classes) and "-1" not in target.names and label_text(row.label) == "-1"


def _divided(
    rows: Sequence[TextExample], is_left_out: Callable[[TextExample], bool]
) -> tuple[list[TextExample], list[TextExample]]:
    """Divides rows into those that are kept and those that are left out."""
    kept = []
    left_out = []
    for row in rows:
        if is_left_out(row):
            left_out.append(row)
        else:
            kept.append(row)
    return kept, left_out


def _warn_of_left_out(name: str, left_out: Sequence[TextExample], total: int) -> None:
    """Warns of rows without a label. name: of the task or data."""
    first = left_out[0]
    warn(
        f"{name}: {len(left_out):,} of {total:,} examples are left out, which have no label; the first: {first.where}, "
        f"{shown(first.label)}"
    )


def _rows_with_labels(
    rows: Sequence[TextExample], task: str, settings: TextSettings, target: Target | None
) -> list[TextExample]:
    """Leaves out the rows without a label, with a warning that counts them."""
    labels = {label_text(row.label) for row in rows} - {None}
    class_names = settings.labels or ()
    if isinstance(target, Classes):
        class_names = target.names
    elif not class_names and "+" in labels:
        class_names = ("-",)  # the classes are + and -
    marks_missing = is_no_label
    if settings.value_range is not None:
        marks_missing = is_no_number
    minus_one_is_none = _minus_one_is_none(labels, class_names, task, settings)

    def is_left_out(row: TextExample) -> bool:
        text = label_text(row.label)
        is_missing = marks_missing(row.label) or (minus_one_is_none and text == "-1")
        return is_missing and text not in class_names

    kept, left_out = _divided(rows, is_left_out)
    if rows and not kept:
        more = ""
        if len(rows) > 1:
            more = f", and none of the {len(rows):,} examples has one"
        raise UserError(f"{rows[0].where}: a label is needed, got {shown(rows[0].label)}{more}")
    if left_out:
        _warn_of_left_out(task, left_out, len(rows))
    return kept


def _minus_one_is_none(
    labels: Collection[str | None], class_names: Sequence[str], task: str, settings: TextSettings
) -> bool:
    """Tells whether -1 marks a missing label, as it does beside classes with names or classes counted from 0.

    Raises:
      UserError: beside 0 and 1 alone it may also be a class, as in negative, neutral and positive.
    """
    is_regression = settings.value_range is not None
    if "-1" not in labels or "-1" in class_names or is_regression:
        return False
    if class_names:
        return True
    other_labels = {label for label in labels if label and label != "-1" and not is_no_label(label)}
    count = len(other_labels)
    if count > 1 and not any(map(_NUMBER.fullmatch, other_labels)):
        return True
    are_counted = count > 1 and other_labels == {str(number) for number in range(count)}
    if are_counted and count == 2:
        raise UserError(
            f"{task}: the label -1 beside 0 and 1 is a class or means none: name the labels in the "
            'description, "labels": ["-1", "0", "1"], or leave these rows out'
        )
    return are_counted


def classes_of(rows: Sequence[TextExample], task: str, metrics: Sequence[str]) -> Classes:
    """The classes of a task's training data, in alphabetical order, or in that of numbers.

    Raises:
      UserError: a row without a label, one class only, or a metric that is for two classes.
    """
    names = set()
    for row in rows:
        name = label_text(row.label)
        if not name and isinstance(row.label, (list, tuple)):
            raise UserError(
                f"{row.where}: one label is needed, got {shown(row.label)}: several labels of a text are learned by a "
                "task in Python (docs/own_tasks.md)"
            )
        if not name:
            raise UserError(f"{row.where}: a label is needed, got {shown(row.label)}")
        names.add(name)
    if len(names) < 2:
        raise UserError(f"{task}: the training data has one label only: {', '.join(names)}")
    names_by_lower: dict[str, list[str]] = {}
    for name in sorted(names):
        names_by_lower.setdefault(name.lower(), []).append(name)
    alike = [spellings for spellings in names_by_lower.values() if len(spellings) > 1]
    if alike:
        listed = "; ".join(", ".join(spellings) for spellings in alike)
        warn(f"{task}: labels that differ in case alone are different classes: {shown(listed)}. Write them alike")
    are_numbers = all(_NUMBER.fullmatch(name) for name in names)
    if are_numbers and any("." in name for name in names):
        warn(
            f"{task}: each of {len(names)} numbers is a class of its own: "
            "where their size counts, give task_type regression"
        )
    elif len(rows) >= _ENOUGH_ROWS and len(names) > len(rows) / 2:
        warn(
            f"{task}: {len(names):,} different labels in {len(rows):,} rows: most stand in one row alone, so nothing "
            "can be learned of them. Is that the column of the labels? label_column names another"
        )
    in_order = sorted(names)
    if are_numbers:
        in_order.sort(key=float)
    return checked_classes(Classes(in_order), task, metrics)


def scale_of(rows: Sequence[TextExample], task: str, value_range: tuple[float, float]) -> Scale:
    """The scale of a regression. An infinite end of value_range becomes the least or greatest label of the rows.

    Raises:
      UserError: a label that is no number or outside of value_range; all labels are equal.
    """
    any_number = Scale(*value_range)
    values = [any_number.checked(row.label, row.where) for row in rows]
    low, high = value_range
    if math.isinf(low):
        low = min(values)
    if math.isinf(high):
        high = max(values)
    if low >= high:
        raise UserError(f"{task}: the training data has one label only: {low:g}")
    return Scale(low, high, strict=False)
