"""Shows the data of a run before it trains: sizes, lengths, labels, unknown characters, splits that overlap."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from electra_tf2.corpus.unknown_tokens import report_on_task
from electra_tf2.finetune.results import aligned
from electra_tf2.finetune.tasks.task import Features, Split, Task
from electra_tf2.settings.kinds import kind_named

MOST_LABELS = 8  # that a table shows; rarer ones are counted together
_LARGEST_OVERLAP = 0.1  # share of a split that may also be training data without a warning


def data_table(task: Task, splits: Mapping[str, Split]) -> str:
    """Shows examples, lengths in tokens, tokens cut off, and labels of a task's splits, a column for each split."""
    num_examples = [len(split.examples) for split in splits.values()]
    num_inputs = [len(split.features) for split in splits.values()]
    kind = kind_named(task.config.kind_of(task.name))
    rows = [[task.name, *splits]]
    rows.append([f"{kind.example}s", *(f"{number:,}" for number in num_examples)])
    if num_inputs != num_examples:
        rows.append([f"{kind.input}s", *(f"{number:,}" for number in num_inputs)])
    lengths = []
    for split in splits.values():
        lengths.append([len(feature.input_ids) for feature in split.features])
    for title, percentile in (("tokens, median", 50), ("tokens, 95 %", 95), ("tokens, longest", 100)):
        rows.append([title, *(f"{np.percentile(values, percentile):.0f}" for values in lengths)])
    rows += _cut_rows(task, splits)
    rows += _label_rows([balance(split) for split in splits.values()], task.word_for_labels)
    return aligned(rows, 1)


def _cut_rows(task: Task, splits: Mapping[str, Split]) -> list[list[str]]:
    """Makes rows of the share of each split's examples that were cut, and of tokens cut off; none if nothing was."""
    longest_text = task.config.max_seq_length
    shares = []
    totals = []
    any_cut = False
    for split in splits.values():
        longest_text = split.longest_text or longest_text
        cut = np.array(split.cut)
        any_cut = any_cut or bool(cut.any())
        shares.append(f"{100 * np.mean(cut > 0):.1f} %")
        totals.append(f"{cut.sum():,}")
    if not any_cut:
        return []
    return [[f"cut at {longest_text} tokens", *shares], ["tokens cut off", *totals]]


def balance(split: Split) -> dict[str, float]:
    """Counts a split's labels by name, the commonest first. Of numbers it takes the lowest, median and highest.

    {} if the split has no labels.
    """
    if not split.golds:
        return {}
    if isinstance(split.golds[0], float):
        lowest, median, highest = np.percentile(np.array(split.golds, float), [0, 50, 100])
        return {"lowest": float(lowest), "median": float(median), "highest": float(highest)}
    return dict(Counter(map(str, split.golds)).most_common())


def _label_rows(balances: list[dict[str, float]], word: str) -> list[list[str]]:
    """Makes a row of each label with its count in every split, the commonest of all splits first.

    Args:
      word: stands before each label; "" for none.
    """
    together: Counter[str] = Counter()
    for values in balances:
        together.update(values)
    shown = [name for name, _ in together.most_common(MOST_LABELS)]
    if any(isinstance(value, float) for value in together.values()):
        shown = list(together)  # of numbers: lowest, median and highest
    rows = []
    for name in shown:
        title = f"{word} {short(name)}".strip()
        rows.append([title, *(_count(values, [name]) for values in balances)])
    rarer = together.keys() - set(shown)
    if rarer:
        rows.append([f"{len(rarer):,} other labels", *(_count(values, rarer) for values in balances)])
    return rows


def _count(values: Mapping[str, float], names: Collection[str]) -> str:
    """Makes the cell of some labels in a split's column: their count and share, or the value of a number."""
    if not values:
        return ""
    count = sum(values.get(name, 0) for name in names)
    if isinstance(count, float):
        return f"{count:g}"
    percent = 100 * count / sum(values.values())
    if 0 < percent < 1:
        return f"{count:,} (<1 %)"
    return f"{count:,} ({percent:.0f} %)"


def short(name: str, width: int = 20) -> str:
    """Cuts the name of a label to the width of a column."""
    if len(name) <= width:
        return name
    return f"{name[: width - 1]}…"


def unknown_of(task: Task, splits: Iterable[Split]) -> str:
    """Makes a warning about unknown tokens in a task's splits; "": there are few."""
    input_ids = []
    texts = []
    for split in splits:
        input_ids += [feature.input_ids for feature in split.features]
        texts += strings_in(task.inputs(split))
    return report_on_task(task.tokenizer, input_ids, texts)


def strings_in(value: Any) -> list[str]:
    """Lists all strings in a value of JSON."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    strings = []
    if isinstance(value, (list, tuple)):
        for entry in value:
            strings += strings_in(entry)
    return strings


def trained_on(task: Task, splits: Mapping[str, Split]) -> str:
    """Names splits that consist mostly of training data, with the shares; "": there is none.

    Examples are equal if their inputs are, whatever their labels.
    """
    if "train" not in splits:
        return ""
    trained = {_seen(features) for features in splits["train"].by_example(splits["train"].features)}
    listed = []
    for name, split in splits.items():
        if name == "train" or not split.examples:
            continue
        repeated = 0
        for features in split.by_example(split.features):
            # Two special tokens alone are an empty text.
            is_empty = all(len(feature.input_ids) <= 2 for feature in features)
            repeated += not is_empty and _seen(features) in trained
        share = repeated / len(split.examples)
        if share > _LARGEST_OVERLAP:
            listed.append(f"{100 * share:.0f} % of {name}")
    if not listed:
        return ""
    return f"{', '.join(listed)} are examples of the training data, too, on which scores say nothing of other texts"


def _seen(features: Iterable[Features]) -> tuple[bytes, ...]:
    return tuple(feature.input_ids.tobytes() for feature in features)
