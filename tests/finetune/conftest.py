"""Files of two small tasks, and a model that was fine-tuned on one of them, in two trials."""

import json
import shutil
from typing import Any

import numpy as np
import pytest

from tests.support import golden
from tests.support.finetuning import write_lines
from tests.support.finetuning_runs import WORDS, run


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    """Two tasks that are easy to learn: does "error" occur; how many times does it. And a model to start from."""
    folder = tmp_path_factory.mktemp("data")
    shutil.copytree(golden.CHECKPOINT, folder / "start")
    random = np.random.RandomState(0)
    for split, size in (("train", 320), ("dev", 40), ("test", 10)):
        rows = []
        for _ in range(size):
            words = list(random.choice(WORDS, random.randint(3, 9)))
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
    """The folder of two trials on one task, what their run said, and the hparams that it was given."""
    out = tmp_path_factory.mktemp("out")
    settings: dict[str, Any] = {"num_train_epochs": 2.0, "learning_rate": 2e-3, "num_trials": 2}
    settings |= {"write_test_outputs": True, "write_distill_outputs": True}
    settings["init_checkpoint"] = str(data_dir / "start")
    return out, run(data_dir, out, **settings), settings


@pytest.fixture
def copied(trained, data_dir, tmp_path):
    """A copy of all that: the folders of the data and of the trials, and the hparams."""
    shutil.copytree(data_dir, tmp_path / "data")
    shutil.copytree(trained[0], tmp_path / "out")
    return tmp_path / "data", tmp_path / "out", trained[2] | {"init_checkpoint": str(tmp_path / "data" / "start")}
