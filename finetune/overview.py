"""Tables that people look at: the data before training, and after it what the model takes for what, and worst."""

import textwrap
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from electra_tf2.finetune.results import aligned
from electra_tf2.finetune.task import Prediction, Split, Task

_LABELS = 8  # of a table; those that are rarer are counted together
_NAME = 20  # characters of a label's name
_MISTAKES = 5
_WIDTH = 80


def data_table(task: Task, splits: Mapping[str, Split], max_length: int) -> str:
    """Examples, lengths in tokens and labels of a task's splits, a column each."""
    lengths = {name: np.array([len(one.input_ids) for one in split.features]) for name, split in splits.items()}
    rows = [[task.name, *splits], ["examples", *(f"{len(split.examples):,}" for split in splits.values())]]
    if any(len(split.examples) != len(split.features) for split in splits.values()):
        rows.append(["inputs", *(f"{len(split.features):,}" for split in splits.values())])
    for name, percentile in (("tokens, median", 50), ("tokens, 95 %", 95), ("tokens, longest", 100)):
        rows.append([name, *(f"{np.percentile(found, percentile):.0f}" for found in lengths.values())])
    full = [float(np.mean(found == max_length)) for found in lengths.values()]
    if any(full):
        rows.append([f"of {max_length} (cut)", *(f"{share:.1%}".replace("%", " %") for share in full)])
    balances = {name: task.balance(split) if split.labelled else {} for name, split in splits.items()}
    return aligned(rows + _label_rows(balances), 1)


def _label_rows(balances: Mapping[str, Mapping[str, float]]) -> list[list[str]]:
    """A row for each label, the commonest of all splits first; "" in splits without labels."""
    together: Counter[str] = Counter()
    for found in balances.values():
        together.update(found)
    names = [name for name, _ in together.most_common(_LABELS)] if together else []
    counts = all(isinstance(value, int) for value in together.values())
    rows = [[f"label {_short(name)}", *(_cell(found, [name], counts) for found in balances.values())] for name in names]
    if others := len(together) - len(names):
        cells = [_cell(found, found.keys() - {*names}, counts) for found in balances.values()]
        rows.append([f"{others:,} other labels", *cells])
    return rows


def _cell(found: Mapping[str, float], names: Collection[str], counts: bool) -> str:
    """The number of these labels with their share, or a value that says how numbers lie."""
    if not found:
        return ""
    value = sum(found.get(name, 0) for name in names)
    return f"{value:,} ({100 * value / sum(found.values()):.0f} %)" if counts else f"{value:g}"


def errors_of(task: Task, split: Split, predictions: Sequence[Prediction]) -> dict[str, Any]:
    """Finds what a model got wrong of a labelled split; {} of tasks whose answers are neither a class nor a number.

    Returns:
      "mistakes": the worst, by the probability of the wrong label or the distance of the number: rows as in the file of
      predictions. Of classes also "labels" and "confusion", counts [gold][predicted].
    """
    rows = [row | answer for row, answer in zip(task.inputs(split), task.answers(split, predictions), strict=True)]
    if not rows or not {"gold", "label"} <= rows[0].keys():
        return {}
    if "probabilities" not in rows[0]:
        worst = sorted(rows, key=lambda row: -abs(float(row["gold"]) - row["label"]))[:_MISTAKES]
        return {"mistakes": worst}
    if not isinstance(rows[0]["probabilities"], dict):
        return {}
    labels = list(rows[0]["probabilities"])
    confusion = np.zeros([len(labels)] * 2, int)
    for row in rows:
        confusion[labels.index(str(row["gold"])), labels.index(row["label"])] += 1
    wrong = [row for row in rows if row["label"] != row["gold"]]
    wrong.sort(key=lambda row: -row["probabilities"][row["label"]])
    return {"labels": labels, "confusion": confusion.tolist(), "mistakes": wrong[:_MISTAKES]}


def shown_errors(name: str, errors: Mapping[str, Any]) -> str:
    """`errors_of` as lines of 80 columns."""
    lines: list[str] = []
    labels, confusion = errors.get("labels", []), errors.get("confusion", [])
    if 0 < len(labels) <= _LABELS:
        short = [textwrap.shorten(label, max(4, 60 // len(labels)), placeholder="…") for label in labels]
        rows = [[name, *short], *([label, *map(str, row)] for label, row in zip(short, confusion, strict=True))]
        lines += ["", *aligned(rows, 1).splitlines(), "rows: the right label, columns: the predicted one"]
    elif labels:
        pairs = [
            (count, f"{labels[i]} taken for {labels[j]}")
            for i, row in enumerate(confusion)
            for j, count in enumerate(row)
            if i != j and count
        ]
        lines += ["", f"{name}: most often", *(f"  {what}: {count}" for count, what in sorted(pairs)[::-1][:_LABELS])]
    if mistakes := errors.get("mistakes", []):
        lines += ["", f"{name}: the worst mistakes"]
    for row in mistakes:
        text = " | ".join(str(value) for key, value in row.items() if key.startswith("text"))
        of = f"{row['probabilities'][row['label']]:.2f}" if "probabilities" in row else f"{row['label']:.2f}"
        said = f"{_short(str(row['label']))} {of}" if "probabilities" in row else of
        lines += textwrap.wrap(
            f"  {_short(str(row['gold']))}, predicted {said}: {' '.join(text.split())}",
            _WIDTH,
            subsequent_indent="      ",
            max_lines=2,
            placeholder=" …",
        )
    return "".join(f"{line}\n" for line in lines)


def _short(name: str) -> str:
    return name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
