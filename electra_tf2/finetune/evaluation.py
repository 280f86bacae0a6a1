"""The data of a run, read once before anything slow, and what a model makes of it: scores, predictions, submissions."""

import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.files.writing import replacing
from electra_tf2.finetune.batching import FeatureTable, TaskFeatures, prediction_table
from electra_tf2.finetune.data_report import data_table, trained_on, unknown_of
from electra_tf2.finetune.mistakes import complaint, errors_of, is_baseline, remedy
from electra_tf2.finetune.model import FinetuningTask
from electra_tf2.finetune.results import Scores
from electra_tf2.finetune.tasks.files import predictions_file, write_json_lines
from electra_tf2.finetune.tasks.sampling import selection_splits
from electra_tf2.finetune.tasks.task import Prediction, Split, Task
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import Progress, say, warn

# The servers' archives: the ending of the files in one -> that of its name. Other tasks' files are for no server.
_ARCHIVES = {".tsv": "", ".jsonl": "_superglue"}


class Predicted(NamedTuple):
    """A split, the predictions on all its features, the answers they are, and float32 [features] losses, if any."""

    split: Split
    predictions: list[Prediction]
    answers: list[dict[str, Any]]
    losses: np.ndarray | None


class Evaluation:
    """Reads the splits of a run's tasks, and scores models on them.

    Args:
      tasks: made for this configuration, nothing loaded yet.
    """

    def __init__(self, config: FinetuningConfig, tasks: Sequence[Task]) -> None:
        self.config = config
        self.tasks = list(tasks)
        self.errors: dict[str, dict[str, Any]] = {}  # "<task> <split>" -> mistakes.errors_of the last evaluation
        self._splits: dict[str, dict[str, Split]] = {task.name: {} for task in tasks}  # those that were read
        self._tables: dict[str, FeatureTable] = {}  # "<task> <split>" -> its features, of those that were predicted
        self._scored: dict[str, list[str]] = {}  # by task: splits that are scored or predicted at the end

    def prepare(self) -> FeatureTable | None:
        """Reads and shows everything that the run will need.

        Returns:
          The training features of all tasks; None if nothing is trained.

        Raises:
          UserError: what is missing or wrong in the files; tasks that cannot be learned together.
        """
        config = self.config
        parts = []
        for task in self.tasks:
            splits = self._splits[task.name]
            if config.do_train:
                splits["train"] = task.load("train")
                parts.append(TaskFeatures(task.name, splits["train"].features, task.labels))
            if config.do_eval or config.eval_every_steps or config.keep_best:
                for name in task.evaluation_splits:
                    splits[name] = task.load(name)
            if config.do_eval:
                self._scored[task.name] = [*task.evaluation_splits, *self._test_splits(task)]
        for task in self.tasks:
            self._show(task)
        if not config.do_train:
            return None
        choices = {task.name: self._splits[task.name]["train"].choices for task in self.tasks}
        if len({*choices.values()}) > 1:
            listed = ", ".join(f"{name} has {number}" for name, number in choices.items())
            raise UserError(
                f"task_names: tasks that are learned together need as many candidates for an example: {listed}"
            )
        return FeatureTable(parts, config.max_seq_length, config.fixed_padding, choices[self.tasks[0].name])

    def _show(self, task: Task) -> None:
        """Shows what was read of a task."""
        splits = self._splits[task.name]
        print(data_table(task, splits), end="", flush=True)
        for problem in (unknown_of(task, splits.values()), trained_on(task, splits)):
            if problem:
                warn(f"{task.name}: {problem}")
        if self.config.log_examples and "train" in splits:
            for feature in splits["train"].features[:3]:
                print(f"{task.name}: {task.tokenizer.readable(feature.input_ids)}  {feature.labels}")

    def _test_splits(self, task: Task) -> Iterator[str]:
        """The test splits that are scored because they have labels, or predicted because that was asked for."""
        for split in task.test_splits:
            if self.config.write_test_outputs:
                self.load(task, split)
                yield split
            elif task.files.may_have_labels(split):
                try:
                    if self.load(task, split).labelled:
                        yield split
                except UserError as error:
                    warn(f"the {split} data is not scored: {error}")

    def load(self, task: Task, name: str) -> Split:
        """A split of a task, read once."""
        splits = self._splits[task.name]
        if name not in splits:
            splits[name] = task.load(name)
        return splits[name]

    def predicted(self, model: FinetuningTask, number: int, name: str) -> Predicted:
        """A model's predictions on a split of the task of this number."""
        task = self.tasks[number]
        split = self.load(task, name)
        key = f"{task.name} {name}"
        if key not in self._tables:
            self._tables[key] = prediction_table(task, split)
        table = self._tables[key]
        with Progress(f"evaluating {key}: input", len(table), unit="inputs") as progress:
            predictions, losses = model.predict(number, table, self.config.eval_batch_size, progress.update)
        return Predicted(split, predictions, task.answers(split, predictions), losses)

    def selecting(self, model: FinetuningTask) -> dict[str, float]:
        """Flat metrics of the splits that choose the best checkpoint; "score" is what it is chosen by."""
        flat: dict[str, float] = {}
        primary = []
        for number, task in enumerate(self.tasks):
            for name in selection_splits(self.config, task.evaluation_splits):
                metrics = _scores(task, name, self.predicted(model, number, name), model.num_train_steps)
                flat |= {f"{task.name}_{name}_{metric}": value for metric, value in metrics.items()}
                primary.append(metrics[task.primary_metric])
        return flat | {"score": float(np.mean(primary))}

    def evaluate(self, model: FinetuningTask, trial: int, folder: Path | None) -> tuple[Scores, int]:
        """Scores of all tasks on all splits that have labels, and the number of inputs.

        Args:
          folder: of the trial, for its predictions; None writes nothing.
        """
        scores: Scores = {}
        self.errors = {}
        num_inputs = 0
        for number, task in enumerate(self.tasks):
            for name in self._scored[task.name]:
                predicted = self.predicted(model, number, name)
                num_inputs += len(predicted.predictions)
                if predicted.split.labelled:
                    scores.setdefault(task.name, {})[name] = self._score(task, name, predicted, model.num_train_steps)
                if folder is not None:
                    self._write(task, name, predicted, folder)
                    if name in task.test_splits and "write_test_outputs" in self.files(trial, folder):
                        self._submit(task, name, predicted, trial)
            if folder is not None and self.config.write_distill_outputs:
                self._write(task, "train", self.predicted(model, number, "train"), folder)
        return scores, num_inputs

    def _score(self, task: Task, name: str, predicted: Predicted, steps: int) -> dict[str, float]:
        """Scores of a labelled split; keeps what is wrong in it for the report, and warns of a model that is no good.

        Args:
          steps: that the model was trained for.
        """
        scores = _scores(task, name, predicted, steps)
        labels_differ = len({*predicted.split.golds}) > 1
        if labels_differ and is_baseline(scores, task.majority(predicted.split)):
            warn(f"{task.name} {name}: no better than always the commonest label; {remedy(steps)}")
        errors = errors_of(task, predicted.split, predicted.answers)
        if errors:
            self.errors[f"{task.name} {name}"] = errors
        return scores

    def _write(self, task: Task, name: str, predicted: Predicted, folder: Path) -> None:
        """Writes a split's predictions into a trial's folder, and of development data what official scripts read."""
        if predicted.split.labelled:
            write_json_lines(predictions_file(folder, task.name, name), _answers(task, predicted))
        if name in task.evaluation_splits:
            kind = "qa" if self.config.kind_of(task.name) == "qa" else "outputs"  # names of the original
            outputs = Path(self.config.results_dir) / f"{self.config.run_name}_{kind}"
            task.write_submission(name, predicted.split, predicted.answers, outputs)

    def _submit(self, task: Task, name: str, predicted: Predicted, trial: int) -> None:
        """Writes the predictions of a test split, and those that a benchmark's server wants, in an archive."""
        path = self._test_file(task, name, trial)
        write_json_lines(path, _answers(task, predicted))
        folder = path.parent / f"submission_{trial}"
        written = task.write_submission(name, predicted.split, predicted.answers, folder)
        if written and written[0].suffix in _ARCHIVES:
            archive, names = zip_submissions(folder, written[0].suffix)
            say(f"wrote {archive}: {', '.join(names)}")
        say(f"wrote {path}")

    def _test_file(self, task: Task, name: str, trial: int) -> Path:
        return Path(self.config.test_predictions) / f"{task.name}_{name}_{trial}_predictions.jsonl"

    def files(self, trial: int, folder: Path) -> dict[str, list[Path]]:
        """The files that a trial is to write beside its scores, by the hparam that asks for them."""
        config = self.config
        files: dict[str, list[Path]] = {}
        if config.write_test_outputs and trial <= config.n_writes_test:
            files["write_test_outputs"] = []
            for task in self.tasks:
                files["write_test_outputs"] += [self._test_file(task, name, trial) for name in task.test_splits]
        if config.write_distill_outputs:
            files["write_distill_outputs"] = [predictions_file(folder, task.name, "train") for task in self.tasks]
        return files

    def majority(self) -> Scores:
        """Scores of always predicting the commonest label of a split."""
        majority: Scores = {}
        for task in self.tasks:
            for name, split in self._splits[task.name].items():
                if name == "train" or not split.labelled:
                    continue
                scores = task.majority(split)
                if scores:
                    majority.setdefault(task.name, {})[name] = scores
        return majority


def zip_submissions(folder: Path, suffix: str) -> tuple[Path, list[str]]:
    """One archive of a benchmark's files that were predicted so far, those of other runs too: GLUE's tables in
    FOLDER.zip, SuperGLUE's JSON lines in FOLDER_superglue.zip.

    Args:
      suffix: of the benchmark's files, one of _ARCHIVES.

    Returns:
      The archive and the names in it.
    """
    path = folder.with_name(f"{folder.name}{_ARCHIVES[suffix]}.zip")
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.iterdir()):
            if file.suffix == suffix:
                archive.write(file, file.name)
    return path, archive.namelist()


def _scores(task: Task, name: str, predicted: Predicted, steps: int) -> dict[str, float]:
    """Scores and loss of a labelled split; warns of answers that are all the same."""
    problem = complaint(predicted.split, predicted.answers, steps)
    if problem is not None:
        warn(f"{task.name} {name}: {problem}")
    scores = task.scores(predicted.split, predicted.predictions)
    if predicted.losses is not None:
        # Rows that lie together have equal parts of one loss.
        scores["loss"] = float(predicted.losses.mean()) * predicted.split.choices
    return scores


def _answers(task: Task, predicted: Predicted) -> Iterator[dict[str, Any]]:
    """Each example's input and answer, as one object."""
    for row, answer in zip(task.inputs(predicted.split), predicted.answers, strict=True):
        yield row | answer
