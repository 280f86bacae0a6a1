"""Every paper and every kind of network, at tiny sizes: recipes train, cost what is built, and go every way that a
model can go. Each way begins in a process of its own, because it must not depend on what was imported before.

  python -m tests.papers.test_every_paper    prints the table of papers and ways
"""

import json
import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.config.papers import paper_names
from electra_tf2.config.recipes import read_recipe
from electra_tf2.inference.model import load
from electra_tf2.pretrain.flops import parameter_count
from electra_tf2.pretrain.pretraining_model import make_model
from tests.support import finetuning, programs
from tests.support import training as support
from tests.support.recipes import config_of, is_taught, recipes_of_papers, tiny_hparams, write_files

RECIPES = recipes_of_papers()
FIRST = {read_recipe(name)["paper"]: name for name in reversed(RECIPES)}
NETWORKS = (
    *("electra_small", "bert_small", "electric_base", "coco_lm_small", "electra_small_modernbert"),
    *("electra_small_shared_layers", "electra_small_rotary_positions", "electra_small_t5_positions"),
    *("electra_small_xl_positions", "electra_deep"),
)
# Hugging Face has no network with these.
REFUSED_BY_HUGGING_FACE = {
    "amos_base",
    "coco_lm_small",
    "electra_small_rotary_positions",
    "electra_small_t5_positions",
    "electra_small_xl_positions",
}
ALWAYS = ("bert_small_mpa",)  # the others take a minute each
SIZES: dict[str, Any] = {"max_seq_length": support.LENGTH, "train_batch_size": 8, "max_predictions_per_seq": 3}
SIZES |= {"num_warmup_steps": 0, "precision": "float32"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("papers")
    write_files(folder, support.LENGTH)
    write_texts(folder)
    return folder


def test_every_paper_has_a_recipe():
    assert FIRST.keys() == {*paper_names()}


@pytest.mark.parametrize(
    "recipe", [name if name in FIRST.values() else pytest.param(name, marks=pytest.mark.slow) for name in RECIPES]
)
def test_its_recipes_train_cost_what_is_built_and_are_loaded(folder, tmp_path, recipe):
    config = config_of(recipe, folder, True, SIZES)
    support.train_two_steps(config)
    model = make_model(config)
    assert parameter_count(config) == sum(math.prod(variable.shape) for variable in model.trainable_variables)
    tf.train.Checkpoint(model=model).write(str(tmp_path / "model.ckpt-7"))
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-7"')
    gone = {name: "gone" for name in ("teacher", "data_dir") if getattr(config, name, "")}
    (tmp_path / "config.json").write_text(json.dumps(json.loads(config.to_json()) | gone))
    assert load(tmp_path).embed(["the file"], pooling="cls").shape == (1, 64)  # without what trained it


def write_texts(folder: Path) -> None:
    """Writes records of two segments, examples of a classification, and rows to predict."""
    random = np.random.RandomState(0)
    records = folder / "pretrain_tfrecords"
    records.mkdir()
    with tf.io.TFRecordWriter(str(records / "pretrain_data.tfrecord-0-of-1")) as writer:
        for _ in range(32):
            first, second = random.randint(20, 120, [2, 6]).tolist()
            ids = [2, *first, 3, *second, 3]
            padding = [0] * (support.LENGTH - len(ids))
            lists = {
                "input_ids": ids + padding,
                "input_mask": [1] * len(ids) + padding,
                "segment_ids": [0] * 8 + [1] * 7 + padding,
            }
            writer.write(support.example(lists))
    lines = []
    for number in range(16):
        lines.append(json.dumps({"text": f"the file is {number}", "label": ("open", "shut")[number % 2]}))
    for split in ("train", "dev"):
        finetuning.write_lines(folder / "finetuning_data" / "kind" / f"{split}.jsonl", *lines)
    finetuning.write_lines(folder / "rows.jsonl", '{"text": "the file is open"}', '{"text": "the line"}')
    source = (
        "import sys\nfrom electra_tf2 import load\nprint(load(sys.argv[1]).embed(['the file'], pooling='cls').shape)\n"
    )
    (folder / "embed.py").write_text(source)


class Journey:
    """One recipe's tiny run on its way, each stage of which is a program in a process of its own.

    Attributes:
      outcomes: stage -> "yes", or why a program refused.
    """

    def __init__(self, recipe: str, folder: Path, work: Path) -> None:
        self.recipe = recipe
        self.folder = folder
        self.work = work
        self.run = work / "run"
        self.tuned = work / "tuned" / "finetuning_models" / "kind_model_1"
        self.outcomes: dict[str, str] = {}

    def go(self, stage: str, *words: str, may_refuse: bool = False) -> None:
        """Runs a program. Raises AssertionError if it fails, but for one line of refusal where that is allowed."""
        code, output = programs.run_forked(list(words), self.work / "output", formulas=True)
        errors = [line for line in output.splitlines() if line.startswith("error: ")]
        refused = may_refuse and code == 2 and len(errors) == 1
        assert code == 0 or refused, f"{stage}: exit code {code}\n{output}"
        self.outcomes[stage] = "yes" if code == 0 else errors[0].removeprefix("error: ")

    def pretrain(self) -> None:
        hparams = tiny_hparams(self.recipe, self.folder, is_taught(self.recipe), SIZES)
        hparams |= {"model_dir": str(self.run), "num_train_steps": 4, "iterations_per_loop": 1, "phases": []}
        hparams |= {"save_checkpoints_steps": 2, "do_eval": True, "num_eval_steps": 1, "eval_batch_size": 8}
        if "lr_decay_steps" in hparams:
            hparams["lr_decay_steps"] = 2  # of the 4
        if "stack_layers" in hparams:
            hparams["stack_layers"] = False  # nothing is there to stack
        words = ["run_pretraining.py", "--hparams", json.dumps(hparams)]
        self.go("pre-train, evaluate", *words)
        whole = support.logged(self.run)
        # As a kill between the two checkpoints leaves it.
        for path in self.run.glob("model.ckpt-4.*"):
            path.unlink()
        self.go("resume, evaluate", *words)
        assert support.logged(self.run) == whole

    def finetune(self) -> None:
        task = {"type": "classification", "text_columns": ["text"]}
        hparams: dict[str, Any] = {"data_dir": str(self.folder), "pretrained_model_dir": str(self.work / "tuned")}
        hparams |= {"init_checkpoint": str(self.run), "task_names": ["kind"], "tasks": {"kind": task}, "num_trials": 1}
        hparams |= {"max_seq_length": support.LENGTH, "train_batch_size": 8, "num_train_epochs": 1}
        hparams |= {"min_train_steps": 1}
        self.go("fine-tune", "run_finetuning.py", "--hparams", json.dumps(hparams))

    def predict(self) -> None:
        words = ["run_finetuning.py", "--predict", str(self.folder / "rows.jsonl"), "--model-dir", str(self.tuned)]
        self.go("predict", *words, "--predict-output", str(self.work / "labelled.jsonl"))
        assert len((self.work / "labelled.jsonl").read_text().splitlines()) == 2

    def load(self) -> None:
        self.go("load", str(self.folder / "embed.py"), str(self.run))

    def convert(self) -> None:
        words = ["convert_model.py", "--model", str(self.run), "--format"]
        self.go("Hugging Face", *words, "huggingface", "--to", str(self.work / "huggingface"), may_refuse=True)
        words = ["convert_model.py", "--model", str(self.tuned), "--format"]
        self.go("ONNX", *words, "onnx", "--to", str(self.work / "onnx"))

    def all_ways(self) -> dict[str, str]:
        stages: tuple[Callable[[], None], ...] = (self.pretrain, self.finetune, self.predict, self.load, self.convert)
        for stage in stages:
            stage()
        return self.outcomes


@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param(name, marks=() if name in ALWAYS else pytest.mark.slow)
        for name in sorted({*FIRST.values(), *NETWORKS, *ALWAYS})
    ],
)
def test_what_is_pretrained_goes_every_way_each_in_a_process_of_its_own(folder, tmp_path, recipe):
    pytest.importorskip("tf2onnx")
    outcomes = Journey(recipe, folder, tmp_path).all_ways()
    refused = {stage for stage, outcome in outcomes.items() if outcome != "yes"}
    assert refused == ({"Hugging Face"} if recipe in REFUSED_BY_HUGGING_FACE else set()), outcomes


def main() -> None:
    recipes = sys.argv[1:] or sorted({*FIRST.values(), *NETWORKS})
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_files(folder, support.LENGTH)
        write_texts(folder)
        for recipe in recipes:
            work = folder / "work" / recipe
            work.mkdir(parents=True)
            journey = Journey(recipe, folder, work)
            try:
                journey.all_ways()
            except AssertionError as error:
                journey.outcomes["stopped"] = str(error)[-800:]
            print(
                f"| {recipe} | {' | '.join(f'{stage}: {how}' for stage, how in journey.outcomes.items())} |", flush=True
            )


if __name__ == "__main__":
    main()
