"""Trials: training runs that differ in their seed only. Each has a folder of its own and can be stopped and resumed.

<model_dir>_1/config.json, model.ckpt-*, train_metrics.jsonl   as in pre-training
<model_dir>_1/tasks.json      what the heads' outputs mean (label names)
<model_dir>_1/scores.json     written last: the trial is done
<model_dir>_1/predictions/    one line per development example
"""

import contextlib
import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from configure_finetuning import FinetuningConfig
from exchange.checkpoints import warm_start
from finetune.batching import FeatureTable, TaskFeatures
from finetune.results import Scores, write_json_lines
from finetune.task import Prediction, Split, Task
from finetune.training_task import FinetuningTask
from training.checkpoints import Checkpoints
from training.distribution import is_chief, peak_memory
from training.loop import Schedule, Trainer
from training.run_folder import RunFolder
from util.errors import UserError
from util.files import write_json
from util.hparams import free_on_resume, shapes_model


class Trials:
    """Runs the trials of a configuration.

    Args:
      config: of the run.
      tasks: made for it, nothing loaded yet.
    """

    def __init__(
        self, config: FinetuningConfig, tasks: Sequence[Task], strategy: tf.distribute.Strategy, jit_compile: bool
    ) -> None:
        self.config, self.tasks = config, list(tasks)
        self.strategy, self.jit_compile = strategy, jit_compile
        self._splits: dict[tuple[str, str], Split] = {}
        self._tables: dict[tuple[str, str], FeatureTable] = {}

    def folder(self, trial: int) -> Path:
        return Path(f"{self.config.model_dir}_{trial}")

    def check(self, folder: RunFolder) -> None:
        """Raises UserError if a trial's folder holds a run with other hparams."""
        names = {field.name for field in dataclasses.fields(self.config)}
        free = free_on_resume(FinetuningConfig) if self.config.do_train else names - shapes_model(FinetuningConfig)
        folder.check(self.config.to_json(), free)

    def run_folder(self, trial: int) -> RunFolder:
        advice = "Repeat the flags that it was trained with, or give another --model-dir, or --overwrite to delete it."
        overwrite = self.config.overwrite and self.config.do_train
        return RunFolder(self.folder(trial), is_chief(self.strategy), overwrite, advice)

    def run(self) -> tuple[int, list[dict[str, Any]]]:
        """All trials that are not done yet.

        Returns:
          Exit code (143 after a SIGTERM), and what scores.json says of every finished trial.
        """
        finished = []
        for trial in range(1, self.config.num_trials + 1):
            held = self.run_folder(trial)
            with held if self.config.do_train else contextlib.nullcontext():
                self.check(held)
                done = held.path / "scores.json"
                if self.config.do_train and done.exists() and not held.overwrite:
                    print(f"trial {trial}/{self.config.num_trials}: done before, see {done}")
                    finished.append(json.loads(done.read_text(encoding="utf-8")))
                    continue
                print(f"trial {trial}/{self.config.num_trials}: {held.path}", flush=True)
                code, result = self._run_trial(trial, held)
            if code:
                return code, finished
            if result is not None:
                finished.append(result)
            if not self.config.keep_all_models and trial > 1:
                _delete_weights(self.folder(trial - 1))
            tf_keras.backend.clear_session()
        return 0, finished

    def _run_trial(self, trial: int, held: RunFolder) -> tuple[int, dict[str, Any] | None]:
        config, folder = self.config, held.path
        train = self._training_table() if config.do_train else None
        task = self.build(train, trial, None if held.overwrite else folder)
        schedule = Schedule(
            num_train_steps=task.num_train_steps,
            iterations_per_loop=config.iterations_per_loop,
            save_checkpoints_steps=config.save_checkpoints_steps,
            keep_checkpoint_max=1,
            eval_every_steps=config.eval_every_steps,
            num_eval_steps=0,
            examples_per_step=config.train_batch_size,
        )
        trainer = Trainer(
            task,
            self.strategy,
            schedule,
            str(folder),
            evaluate=lambda: self._mean_of_primary_metrics(task),
            best_metric="score" if config.keep_best else None,
        )
        step = 0
        if not held.overwrite:
            step = trainer.restore() if config.do_train else restore_weights(task, folder)
        training: dict[str, Any] = {}
        if config.do_train:
            if step:
                print(f"resuming at step {step:,} of {task.num_train_steps:,}")
            elif config.init_checkpoint:
                print(_short(warm_start(task.model, config.init_checkpoint)))
            else:
                print("random_init: starting from random weights")
            held.begin(config.to_json(), config.vocab_file)
            if is_chief(self.strategy):
                write_json(folder / "tasks.json", {one.name: one.state() for one in self.tasks})
            start = time.monotonic()
            code = trainer.train()
            if code:
                return code, None
            training = {"steps": task.num_train_steps, "seconds": time.monotonic() - start}
            training["examples_per_second"] = _rate(folder / "train_metrics.jsonl")
            if config.keep_best:
                training["best_step"] = trainer.restore_best()
        if not config.do_eval:
            return 0, None
        start = time.monotonic()
        scores, rows = self.evaluate(task, folder if is_chief(self.strategy) else None)
        seconds = time.monotonic() - start
        result = {
            "trial": trial,
            "seed": task.seed,
            "scores": scores,
            "training": training,
            "evaluation": {"features": rows, "seconds": seconds, "examples_per_second": rows / seconds},
            "peak_memory": peak_memory(),
        }
        if is_chief(self.strategy):
            self._write_outputs(task, trial, folder)
            write_json(folder / "scores.json", result)
        return 0, result

    def build(self, train: FeatureTable | None, trial: int, folder: Path | None) -> FinetuningTask:
        """Model and optimizer of a trial; without training data the labels are those that were trained.

        `folder`: of the trial; None if what it holds will be overwritten.
        """
        if folder is not None and (folder / "tasks.json").exists():
            states = json.loads((folder / "tasks.json").read_text(encoding="utf-8"))
            for task in self.tasks:
                task.check_state(states[task.name])
        elif train is None:
            raise UserError(f"{folder} holds no fine-tuned model (no tasks.json): train first")
        with self.strategy.scope():
            return FinetuningTask(
                self.config, self.tasks, self.strategy, self.jit_compile, train, self.config.seed + trial - 1
            )

    def load(self, task: Task, split: str) -> Split:
        """A split of a task, read once."""
        key = (task.name, split)
        if key not in self._splits:
            start = time.monotonic()
            loaded = task.load(split)
            if self.config.debug_examples:
                loaded = loaded.first(self.config.debug_examples)
            self._splits[key] = loaded
            print(
                f"{task.name} {split}: {len(loaded.examples):,} examples, {len(loaded.features):,} inputs of "
                f"{np.mean([len(f.input_ids) for f in loaded.features]):.1f} tokens, "
                f"{time.monotonic() - start:.1f} s",
                flush=True,
            )
        return self._splits[key]

    def _training_table(self) -> FeatureTable:
        parts = [TaskFeatures(task.name, self.load(task, "train").features, task.labels) for task in self.tasks]
        if self.config.log_examples:
            for task in self.tasks:
                for feature in self.load(task, "train").features[:3]:
                    print(f"{task.name}: {task.tokenizer.readable(feature.input_ids)}  {feature.labels}")
        return FeatureTable(parts, self.config.max_seq_length, self.config.fixed_padding)

    def predictions(
        self, training_task: FinetuningTask, number: int, split: str
    ) -> tuple[Split, list[Prediction], np.ndarray]:
        """A task's split, and the predictions and losses of all its features."""
        task = self.tasks[number]
        loaded = self.load(task, split)
        key = (task.name, split)
        if key not in self._tables:
            self._tables[key] = self.table_of(task, loaded)
        return loaded, *training_task.predict(number, self._tables[key], self.config.eval_batch_size)

    def table_of(self, task: Task, split: Split) -> FeatureTable:
        features = TaskFeatures(task.name, split.features, task.labels)
        return FeatureTable([features], self.config.max_seq_length, self.config.fixed_padding)

    def evaluate(
        self, training_task: FinetuningTask, folder: Path | None, selecting: bool = False
    ) -> tuple[Scores, int]:
        """Scores of all tasks on their evaluation splits, and the number of inputs.

        Args:
          folder: of the trial, for its predictions; None writes nothing.
          selecting: only on the splits that choose the best checkpoint.
        """
        scores: Scores = {}
        rows = 0
        for number, task in enumerate(self.tasks):
            splits = task.selection_splits if selecting else ()
            for name in splits or task.evaluation_splits:
                split, predictions, losses = self.predictions(training_task, number, name)
                rows += len(predictions)
                metrics = task.scores(split, predictions) | {"loss": float(losses.mean())}
                scores.setdefault(task.name, {})[name] = metrics
                complaint = task.complaint(split, predictions)
                if complaint is not None:
                    print(f"WARNING: {task.name} {name}: {complaint}", flush=True)
                if folder is not None:
                    answers = task.answers(split, predictions)
                    write_json_lines(folder / "predictions" / f"{task.name}_{name}.jsonl", answers)
                    outputs = Path(self.config.results_dir) / f"{','.join(self.config.task_names)}_{task.outputs}"
                    task.write_submission(name, split, predictions, outputs)
        return scores, rows

    def _mean_of_primary_metrics(self, training_task: FinetuningTask) -> dict[str, float]:
        """Flat metrics while training; "score" is what checkpoints are compared by."""
        scores, _ = self.evaluate(training_task, None, selecting=True)
        flat = {f"{task}_{split}_{name}": value
                for task, splits in scores.items()
                for split, metrics in splits.items()
                for name, value in metrics.items()}  # fmt: skip
        primary = [metrics[task.primary_metric] for task in self.tasks for metrics in scores[task.name].values()]
        return flat | {"score": float(np.mean(primary))}

    def _write_outputs(self, training_task: FinetuningTask, trial: int, folder: Path) -> None:
        """Test predictions and submissions, outputs on the training data: where asked for."""
        config = self.config
        for number, task in enumerate(self.tasks):
            if config.write_distill_outputs:
                split, predictions, _ = self.predictions(training_task, number, "train")
                write_json_lines(folder / "predictions" / f"{task.name}_train.jsonl", task.answers(split, predictions))
            if config.write_test_outputs and trial <= config.n_writes_test:
                for name in task.test_splits:
                    split, predictions, _ = self.predictions(training_task, number, name)
                    target = Path(config.test_predictions)
                    path = target / f"{task.name}_{name}_{trial}_predictions.jsonl"
                    write_json_lines(path, task.answers(split, predictions))
                    task.write_submission(name, split, predictions, target / f"submission_{trial}")
                    print(f"wrote {path}")


def restore_weights(task: FinetuningTask, folder: Path) -> int:
    """The trained weights for evaluation or prediction, the best ones where they were kept. Returns their step."""
    checkpoints = Checkpoints(folder, {"model": task.model}, keep=1)
    if checkpoints.has_best:
        return checkpoints.restore_best()
    restored = checkpoints.restore()
    if restored is None:
        raise UserError(f"{folder} holds no checkpoint: train first")
    return restored[0]


def _rate(metrics_file: Path) -> float:
    """Median training speed, examples per second: the first loop, which traces, does not spoil it."""
    lines = metrics_file.read_text(encoding="utf-8").splitlines()
    return float(np.median([json.loads(line)["examples_per_second"] for line in lines])) if lines else 0.0


def _delete_weights(folder: Path) -> None:
    for path in folder.glob("model.ckpt-*"):
        path.unlink()
    (folder / "checkpoint").unlink(missing_ok=True)


def _short(report: Any) -> str:
    """A report of loaded weights without the names of everything that pre-training leaves behind."""
    heads = [name for name in report.missing if name.startswith("task_specific/")]
    missing = [name for name in report.missing if name not in heads]
    unused: dict[str, int] = {}
    for name in report.unused:
        unused[name.split("/")[0]] = unused.get(name.split("/")[0], 0) + 1
    lines = [f"loaded {len(report.loaded)} variables; {len(heads)} of new heads start from random values"]
    if missing:
        lines.append(f"WARNING: missing from the checkpoint, random: {', '.join(missing)}")
    if unused:
        lines.append("unused: " + ", ".join(f"{count} of {scope}" for scope, count in sorted(unused.items())))
    return "\n".join(lines)
