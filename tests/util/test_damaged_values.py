"""Damaged values that random damage to files has found, and random configurations (tests.support.fuzzing)."""

import json
import random
from pathlib import Path

import pytest

from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.finetune.weights import check_states
from electra_tf2.formats.electra_folder import best_or_newest
from electra_tf2.formats.huggingface_config import labels_of
from electra_tf2.formats.tf1_checkpoint import WORDS, hparams_from_shapes
from electra_tf2.inference.labelling import named_rows, open_rows
from electra_tf2.programs.analyses.learning_curves import curves
from electra_tf2.programs.analyses.request import Request
from electra_tf2.util.errors import UserError
from tests.support import finetuning as tuning
from tests.support.fuzzing import configurations, problem_of

_KERNEL = "electra/encoder/layer_0/intermediate/dense/kernel"
_POSITIONS = "electra/embeddings/position_embeddings"


@pytest.mark.parametrize("best", [{}, {"path": 3}, {"path": "../model.ckpt-4"}, {"path": None}], ids=str)
def test_a_best_checkpoint_that_is_not_named(best: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "best" / "best.json"
    path.parent.mkdir()
    path.write_text(json.dumps(best))
    with pytest.raises(UserError, match=r"best\.json names no checkpoint in its folder: path is "):
        best_or_newest(str(tmp_path))


def test_labels_with_numbers_beyond_any_use() -> None:
    with pytest.raises(UserError, match="id2label must be an object of numbers and labels"):
        labels_of({"id2label": {"0": "a", "9" * 5000: "b"}})


@pytest.mark.parametrize(
    ("name", "shape"),
    [(WORDS, (600,)), (WORDS, (0, 0)), (_POSITIONS, ()), (_KERNEL, (0, 8)), (_KERNEL, (8, 8, 8))],
)
def test_shapes_of_a_damaged_checkpoint(name: str, shape: tuple[int, ...]) -> None:
    shapes = {WORDS: (600, 8), _POSITIONS: (32, 8), _KERNEL: (8, 32)}
    assert hparams_from_shapes(shapes, "model")["vocab_size"] == 600
    with pytest.raises(UserError, match=f"model: {name} must have rows and columns"):
        hparams_from_shapes(shapes | {name: shape}, "model")


@pytest.mark.parametrize("config", [{"phases": 3}, {"phases": [3]}, {"train_batch_size": "many"}], ids=str)
def test_curves_over_examples_of_a_damaged_configuration(config: dict[str, object], tmp_path: Path) -> None:
    folder = tmp_path / "models" / "m"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "train_metrics.jsonl").write_text('{"step": 1, "train_loss": 1.0}\n')
    request = Request(tmp_path, ("m",), over="examples")
    with pytest.raises(UserError, match=r"config\.json is no configuration of a run"):
        curves(request, tmp_path / "figure")


@pytest.mark.parametrize("labels", [3, "ab", [1, 2], [["a"]]], ids=str)
def test_states_of_tasks_with_labels_that_are_no_names(labels: object, tmp_path: Path) -> None:
    tuning.write_lines(tmp_path / "tasks.json", json.dumps({"cola": {"labels": labels}}))
    tasks = make_tasks(tuning.config("cola"), tuning.tokenizer())
    with pytest.raises(UserError, match=r"tasks\.json is damaged: cola: labels must be names"):
        check_states(tmp_path, tasks)


def test_columns_before_the_first_one(tmp_path: Path) -> None:
    described = {"type": "classification", "text_columns": [-3], "label_column": 0, "header": False}
    task = make_tasks(tuning.config("mine", tasks={"mine": described}), tuning.tokenizer())[0]
    table = open_rows(str(tuning.write_lines(tmp_path / "a.tsv", "a\tb\tc")), task)
    [(_, named)] = named_rows(task, table)
    assert named == {"0": "a", "1": "b", "2": "c", "-3": "a"}
    short = open_rows(str(tuning.write_lines(tmp_path / "b.tsv", "a\tb")), task)
    with pytest.raises(UserError, match="2 columns, but column -3 is needed"):
        list(named_rows(task, short))


def test_configurations_are_taken_or_refused_in_one_line(tmp_path: Path) -> None:
    case = configurations(tmp_path)
    problems = [problem_of(case, random.Random(f"configuration {number}")) for number in range(1000)]
    assert [(number, problem) for number, problem in enumerate(problems) if problem] == []
    assert 100 < problems.count("") < 900
