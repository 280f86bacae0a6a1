"""What a model is scored by."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from electra_tf2.finetune.evaluation import Evaluation
from electra_tf2.finetune.tasks import make_tasks
from tests.support import finetuning as support
from tests.support.finetuning import write_lines


class AlwaysZero:
    """A model that finds the first label most likely."""

    def predict(self, number: int, table: Any, batch_size: int, progress: Any) -> tuple[list[dict[str, Any]], Any]:
        return [{"logits": np.array([1.0, 0.0]), "predictions": np.array(0)}] * len(table), np.zeros(len(table))


def test_the_best_checkpoint_is_chosen_by_the_mean_of_all_tasks(tmp_path: Path) -> None:
    rows = [json.dumps({"sentence": f"file {number}", "label": str(number % 2)}) for number in range(8)]
    for task in ("cola", "sst"):
        write_lines(tmp_path / task / "dev.jsonl", *rows)
    config = support.config("cola", "sst", raw_data_dir=str(tmp_path))
    model: Any = AlwaysZero()
    flat = Evaluation(config, make_tasks(config, support.tokenizer())).selecting(model)
    assert flat["cola_dev_mcc"] == 0 and flat["sst_dev_accuracy"] == pytest.approx(50)
    assert flat["score"] == pytest.approx(25)
