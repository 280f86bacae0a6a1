"""A small labelled task from the demo's corpus: which package is this sentence of a docstring from?

Writes {train,dev}.jsonl with `text` and `label`. The packages are those with the most text, all equally often; the
development sentences come from modules of their own, so that nothing is won by remembering a module.
"""

import json
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
from absl import flags

from demo.extract_corpus import Document, default_roots, extract
from util import flags as util_flags
from util.errors import UserError
from util.files import write_atomically

_WORDS = range(8, 60)  # of a sentence


def make_task(
    documents: list[Document], num_labels: int, train_size: int, dev_size: int
) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Rows of training and development for the packages with the most sentences.

    Args:
      train_size, dev_size: rows of each label, at most; all labels get the same number.

    Raises:
      UserError: fewer packages than labels have text for it.
    """
    by_package: dict[str, list[list[str]]] = defaultdict(list)
    for document in documents:
        sentences = [text for text in document.paragraphs if len(text.split()) in _WORDS]
        # A package's own name would give it away.
        hidden = re.compile(rf"\b{re.escape(document.package)}\w*\b", re.IGNORECASE)
        by_package[document.package].append([hidden.sub("it", text) for text in sentences])
    random = np.random.default_rng(0)
    splits: dict[str, tuple[list[str], list[str]]] = {}
    for package, modules in sorted(by_package.items()):
        train: list[str] = []
        dev: list[str] = []
        for number in random.permutation(len(modules)):
            (dev if len(dev) < dev_size else train).extend(modules[number])
        splits[package] = train[:train_size], dev[:dev_size]
    order = sorted(splits, key=lambda package: (-len(splits[package][0]), -len(splits[package][1]), package))
    labels = [package for package in order if splits[package][0] and splits[package][1]][:num_labels]
    if len(labels) < num_labels:
        raise UserError(f"only {len(labels)} packages have enough docstrings, {num_labels} are needed")
    smallest = [min(len(splits[label][part]) for label in labels) for part in (0, 1)]
    rows = [
        [{"text": text, "label": label} for label in labels for text in splits[label][part][: smallest[part]]]
        for part in (0, 1)
    ]
    return rows[0], rows[1]


def main() -> int:
    values = flags.FLAGS
    folder = Path(values.output_dir)
    if (folder / "dev.jsonl").exists():
        print(f"{folder} is there already")
        return 0
    documents = extract(default_roots(), values.max_bytes)
    train, dev = make_task(documents, values.num_labels, values.train_size, values.dev_size)
    for name, rows in (("train", train), ("dev", dev)):
        write_atomically(folder / f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    labels = sorted({row["label"] for row in train})
    print(f"{len(train):,} training and {len(dev):,} development sentences of {', '.join(labels)} in {folder}")
    return 0


if __name__ == "__main__":
    flags.DEFINE_string("output_dir", "demo_data/finetuning_data/package", "directory of the task")
    flags.DEFINE_integer("max_bytes", 6_000_000, "size of the corpus, about", lower_bound=1000)
    flags.DEFINE_integer("num_labels", 6, "packages", lower_bound=2)
    flags.DEFINE_integer("train_size", 400, "training sentences of each, at most", lower_bound=1)
    flags.DEFINE_integer("dev_size", 80, "development sentences of each, at most", lower_bound=1)
    util_flags.run(main, __doc__)
