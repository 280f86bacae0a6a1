"""Results of a run as JSON and tables; of the data before training; what the model takes for what, and worst."""

import csv
import io
import itertools
import json
import re
import statistics
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from electra_tf2.finetune.tasks.files import json_lines
from electra_tf2.finetune.tasks.task import Prediction, Split, Task

# task -> split -> metric -> value
Scores = dict[str, dict[str, dict[str, float]]]


def summarise_trials(trials: list[Scores]) -> dict[str, Any]:
    """task -> split -> metric -> {median, mean, std, min, max} over the trials; std is that of a sample.

    Splits on which not every trial was scored, as when a file came later, are left out.
    """
    summary: dict[str, Any] = {}
    for task, splits in trials[0].items():
        for split, metrics in splits.items():
            if all(split in trial[task] for trial in trials):
                of_metric = {metric: [trial[task][split][metric] for trial in trials] for metric in metrics}
                summary.setdefault(task, {})[split] = {
                    metric: {
                        "median": statistics.median(values),
                        "mean": statistics.fmean(values),
                        "std": statistics.stdev(values) if len(values) > 1 else 0.0,
                        "min": min(values),
                        "max": max(values),
                    }
                    for metric, values in of_metric.items()
                }
    return summary


def table(trials: list[Scores], majority: Scores) -> str:
    """One row per task, split and metric: every trial, then median, mean and standard deviation.

    Args:
      majority: scores of always predicting the commonest label; they have rows of their own.
    """
    statistic = ["median", "mean", "std"] if len(trials) > 1 else []
    rows = [["task", "split", "metric", *(f"trial {i + 1}" for i in range(len(trials))), *statistic]]
    for task, splits in summarise_trials(trials).items():
        for split, metrics in splits.items():
            for metric, values in metrics.items():
                numbers = [trial[task][split][metric] for trial in trials] + [values[name] for name in statistic]
                # Four figures of a number, all of a whole one.
                rows.append([task, split, metric, *(f"{x:.0f}" if abs(x) >= 1000 else f"{x:.4g}" for x in numbers)])
            for metric, value in majority.get(task, {}).get(split, {}).items():
                empty = [""] * (len(trials) - 1 + len(statistic))
                rows.append([task, split, f"{metric} of the commonest label", f"{value:.4g}", *empty])
    return aligned(rows, 3)


def aligned(rows: Sequence[Sequence[str]], names: int = 0) -> str:
    """Lines of a table; so many first columns begin at their left, the others end at their right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(f"{cell:{'<' if i < names else '>'}{widths[i]}}" for i, cell in enumerate(row)) for row in rows]
    return "".join(f"{line.rstrip()}\n" for line in lines)


Labelled = Sequence[tuple[dict[str, Any], dict[str, Any]]]  # rows as they were read, and their answers


def labelled_lines(rows: Labelled) -> str:
    """JSON lines of rows and their answers. A column that has a name of the answers' is called "given_<name>"."""
    return json_lines(_beside(rows))


def labelled_table(rows: Labelled, delimiter: str) -> str:
    """The same as a table with a header. An object's values have columns of their own, as probability_<label> for
    "probabilities"; a list's are in one cell, with blanks between them or, where they hold blanks or are no texts, as
    JSON."""
    flat = _beside([(_flat(row), _flat(answer)) for row, answer in rows])
    written = io.StringIO(newline="")
    columns = dict.fromkeys(name for row in flat for name in row)
    writer = csv.DictWriter(written, list(columns), delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return written.getvalue()


def _beside(rows: Labelled) -> list[dict[str, Any]]:
    """Rows with their answers. Nothing that was read is lost, however often a file is labelled."""
    answered = {name for _, answer in rows for name in answer} - {"id", "words"}
    taken = answered.union(*(row for row, _ in rows))
    renamed: dict[str, str] = {}
    for name in dict.fromkeys(name for row, _ in rows for name in row if name in answered):
        renamed[name] = f"given_{name}"
        while renamed[name] in taken:
            renamed[name] = f"given_{renamed[name]}"
        taken.add(renamed[name])
    kept = [{renamed.get(name, name): value for name, value in row.items()} for row, _ in rows]
    return [row | answer | row for row, (_, answer) in zip(kept, rows, strict=True)]


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Columns of a table, the cells of which are texts or numbers."""
    cells: dict[str, Any] = {}
    for name, value in row.items():
        single = "probability" if name == "probabilities" else name
        inner = {f"{single}_{key}": one for key, one in value.items()} if isinstance(value, dict) else {name: value}
        for column, one in inner.items():
            if isinstance(one, list) and all(isinstance(x, (int, float)) or _is_word(x) for x in one):
                cells[column] = " ".join(map(str, one))
            else:
                is_json = isinstance(one, (dict, list))
                cells[column] = json.dumps(one, ensure_ascii=False, default=str) if is_json else one
    return cells


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[^ \t\n\r]+", value) is not None


_LABELS = 8  # of a table; those that are rarer are counted together
_MISTAKES = 5
_MOST = 0.5  # share of examples that are trained on, too, that is worth a warning


def data_table(task: Task, splits: Mapping[str, Split]) -> str:
    """Examples, lengths in tokens, what was cut and labels of a task's splits, a column each."""
    lengths = {name: np.array([len(one.input_ids) for one in split.features]) for name, split in splits.items()}
    rows = [[task.name, *splits], ["examples", *(f"{len(split.examples):,}" for split in splits.values())]]
    if any(len(split.examples) != len(split.features) for split in splits.values()):
        rows.append(["inputs", *(f"{len(split.features):,}" for split in splits.values())])
    for name, percentile in (("tokens, median", 50), ("tokens, 95 %", 95), ("tokens, longest", 100)):
        rows.append([name, *(f"{np.percentile(found, percentile):.0f}" for found in lengths.values())])
    cut = [split.cut for split in splits.values()]
    if any(map(any, cut)):
        shares = [100 * sum(count > 0 for count in counts) / len(counts) for counts in cut]
        rows.append([f"cut at {task.longest_text} tokens", *(f"{share:.1f} %" for share in shares)])
        rows.append(["tokens cut off", *(f"{sum(counts):,}" for counts in cut)])
    balances = {name: balance(task, split) for name, split in splits.items()}
    return aligned(rows + _label_rows(balances), 1)


def balance(task: Task, split: Split) -> dict[str, float]:
    """Numbers of a split's labels by name, the commonest first; of numbers, floats that say how they lie."""
    golds = task.golds(split.examples) if split.labelled else []
    if not golds:
        return {}
    if isinstance(golds[0], float):
        values = np.percentile(np.array(golds, float), [0, 50, 100])
        return dict(zip(("lowest", "median", "highest"), map(float, values), strict=True))
    return dict(Counter(map(str, golds)).most_common())


_FEW_STEPS = 100  # of a training that may simply have been too short


def complaint(task: Task, split: Split, answers: Sequence[Mapping[str, Any]], steps: int = 0) -> str | None:
    """Complains of answers that are the same for every example; None: nothing is wrong.

    Args:
      steps: those that the model was trained for; 0: unknown.
    """
    verdicts = [verdict for answer in answers for verdict in _verdicts(answer)]
    one_class = split.labelled and len(balance(task, split)) == 1  # as it should be
    if len(verdicts) < 2 or one_class or any(verdict != verdicts[0] for verdict in verdicts):
        return None
    same = f"the same answer, {verdicts[0]!r}, for all {len(verdicts):,}"
    return f"collapsed: {same}; {remedy(steps)}"


def remedy(steps: int) -> str:
    """Says what helps a model that has not learned its task in so many steps of training."""
    if 0 < steps < _FEW_STEPS:
        return f"{steps} steps are few: raise --num-train-epochs, to some {_FEW_STEPS} steps or more"
    return "try another seed or a lower learning_rate"


def is_baseline(scores: Mapping[str, float], majority: Mapping[str, float]) -> bool:
    """True if no score of a split is better than that of always predicting the commonest label."""
    if not majority:
        return False
    return all(scores[metric] <= value for metric, value in majority.items())


def _verdicts(answer: Mapping[str, Any]) -> list[Any]:
    """Labels, tags and numbers of an answer, of which a few are usual; none of texts and vectors."""
    verdicts = [answer["label"]] if "label" in answer else []
    if "similarity" in answer:
        verdicts.append(round(answer["similarity"], 4))
    verdicts += answer.get("tags", [])
    for inner in answer.get("answers", []):
        verdicts += _verdicts(inner)
    return verdicts


def unknown_of(task: Task, splits: Iterable[Split]) -> str:
    """The tokenizer's `unknown_report` of a task's splits; "" if it has nothing to say."""
    rows = (row for split in splits for row in task.inputs(split))
    texts = (value for row in rows for cell in row.values() for value in (cell if isinstance(cell, list) else [cell]))
    ids = (feature.input_ids for split in splits for feature in split.features)
    return task.tokenizer.unknown_report(ids, (text for text in texts if isinstance(text, str)))


def trained_on(task: Task, splits: Mapping[str, Split]) -> str:
    """Says which splits are scored on what is trained on, if that is most of one; "" if none is."""
    hidden = ("gold", "id")
    of_split = {
        name: [tuple(str(row[key]) for key in row if key not in hidden) for row in task.inputs(split)]
        for name, split in splits.items()
    }
    trained = set(of_split.pop("train", []))
    shares = {name: np.mean([any(row) and row in trained for row in rows]) for name, rows in of_split.items() if rows}
    listed = ", ".join(f"{100 * share:.0f} % of {name}" for name, share in shares.items() if share > _MOST)
    return f"{listed} are examples of the training data, too: their scores say nothing of other texts" if listed else ""


def _label_rows(balances: Mapping[str, Mapping[str, float]]) -> list[list[str]]:
    """A row for each label, the commonest of all splits first, with its number and share in a split or a value that
    says how numbers lie; "" in splits without labels."""
    together: Counter[str] = Counter()
    for balance in balances.values():
        together.update(balance)
    names = [name for name, _ in together.most_common(_LABELS)]
    rows: list[tuple[str, Collection[str]]] = [(f"label {_short(name)}", {name}) for name in names]
    if others := together.keys() - {*names}:
        rows.append((f"{len(others):,} other labels", others))
    counts = all(isinstance(value, int) for value in together.values())

    def cell(balance: Mapping[str, float], labels: Collection[str]) -> str:
        value = sum(balance.get(name, 0) for name in labels)
        if not balance:
            return ""
        return f"{value:,} ({100 * value / sum(balance.values()):.0f} %)" if counts else f"{value:g}"

    return [[title, *(cell(balance, labels) for balance in balances.values())] for title, labels in rows]


def errors_of(task: Task, split: Split, predictions: Sequence[Prediction]) -> dict[str, Any]:
    """Finds what a model got wrong of a labelled split; {} of tasks whose answers are neither a class nor a number.

    Returns:
      "mistakes": the worst, by the probability of the wrong label or the distance of the number: rows as in the file of
      predictions. Of classes also "labels" and "confusion", counts [gold][predicted].
    """
    rows = [row | answer for row, answer in zip(task.inputs(split), task.answers(split, predictions), strict=True)]
    if not rows or "label" not in rows[0] or not isinstance(rows[0].get("gold"), (str, int, float)):
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
        pairs = itertools.product(enumerate(labels), repeat=2)
        taken = [(confusion[i][j], f"{right} taken for {wrong}") for (i, right), (j, wrong) in pairs if i != j]
        often = [f"  {what}: {count}" for count, what in sorted(taken)[::-1][:_LABELS] if count]
        lines += ["", f"{name}: most often", *often]
    if mistakes := errors.get("mistakes", []):
        lines += ["", f"{name}: the worst mistakes"]
    for row in mistakes:
        text = " ".join(" | ".join(str(value) for key, value in row.items() if key.startswith("text")).split())
        if "probabilities" in row:
            predicted = f"{_short(row['label'])} {row['probabilities'][row['label']]:.2f}"
        else:
            predicted = f"{row['label']:.2f}"
        line = f"  {_short(str(row['gold']))}, predicted {predicted}: {text}"
        lines += textwrap.wrap(line, 80, subsequent_indent="      ", max_lines=2, placeholder=" …")
    return "".join(f"{line}\n" for line in lines)


def _short(name: str) -> str:
    return name if len(name) <= 20 else f"{name[:19]}…"
