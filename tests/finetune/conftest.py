"""Files of two small tasks, and a model that was fine-tuned on one of them."""

import json

import numpy as np
import pytest

from tests.finetune.test_run_finetuning import run
from tests.support.finetuning import write_lines

WORDS = ["the", "file", "is", "open", "read", "first", "line", "list", "of", "names", "value", "type", "object", "all"]


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    """Two tasks that are easy to learn: does "error" occur; how many times does it."""
    folder = tmp_path_factory.mktemp("data")
    random = np.random.RandomState(0)
    for split, size in (("train", 320), ("dev", 40), ("test", 10)):
        rows = []
        for _ in range(size):
            words = list(random.choice(WORDS, random.randint(4, 12)))
            words += ["error"] * random.randint(3)
            rows.append((" ".join(random.permutation(words)), words.count("error")))
        kinds = ["none", "some"]
        write_lines(
            folder / "finetuning_data" / "kind" / f"{split}.jsonl",
            *[json.dumps({"text": text, "label": kinds[count > 0]}) for text, count in rows],
        )
        write_lines(
            folder / "finetuning_data" / "count" / f"{split}.tsv",
            "text\tlabel",
            *[f"{text}\t{count}" for text, count in rows],
        )
    return folder


@pytest.fixture(scope="session")
def trained(data_dir, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    settings = {"num_train_epochs": 4.0, "write_test_outputs": True, "write_distill_outputs": True}
    return out, run(data_dir, out, **settings), settings
