"""Scores a model on the splits of a run's tasks, and writes its predictions and submissions."""

import dataclasses
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.files.writing import replacing
from electra_tf2.finetune.batching import FeatureTable, prediction_table
from electra_tf2.finetune.mistakes import (
    answered_rows,
    better_threshold,
    complaint,
    errors_of,
    hardly_answers,
    is_baseline,
    learned_by_heart,
    note_on_sureness,
    remedy,
)
from electra_tf2.finetune.model import FinetuningTask
from electra_tf2.finetune.results import Scores
from electra_tf2.finetune.tasks.files import predictions_file, write_json_lines
from electra_tf2.finetune.tasks.qa import QATask
from electra_tf2.finetune.tasks.sampling import selection_splits
from electra_tf2.finetune.tasks.task import Prediction, Split, Task
from electra_tf2.settings.kinds import kind_named
from electra_tf2.util.progress import Progress, say, warn

# The servers' archives: the ending of the files in one -> that of its name. Other tasks' files are for no server.
_ARCHIVES = {".tsv": "", ".jsonl": "_superglue"}


class Predicted(NamedTuple):
    """Predictions on a split. losses: float32 [features]; None: the head has none in an evaluation."""

    split: Split
    predictions: list[Prediction]
    answers: list[dict[str, Any]]
    losses: np.ndarray | None


@dataclasses.dataclass
class Evaluated:
    """Results of an evaluation.

    scores: scores of all splits that have labels. majority: scores of a constant answer (`Task.majority`).
    examples: by task and split, the number of examples that were scored.
    errors: results of `mistakes.errors_of`, by "<task> <split>". inputs: number of inputs of the network.
    """

    scores: Scores = dataclasses.field(default_factory=dict)
    majority: Scores = dataclasses.field(default_factory=dict)
    examples: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    errors: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    inputs: int = 0


class Evaluation:
    """Scores models on the splits of a run's tasks."""

    def __init__(self, config: FinetuningConfig, tasks: Sequence[Task]) -> None:
        self.config = config
        self.tasks = list(tasks)
        self._tables: dict[str, FeatureTable] = {}  # "<task> <split>" -> its features, of those that were predicted

    def predicted(self, model: FinetuningTask, task_index: int, name: str) -> Predicted:
        """Predicts a split of a task."""
        task = self.tasks[task_index]
        split = task.load(name)
        key = f"{task.name} {name}"
        if key not in self._tables:
            self._tables[key] = prediction_table(task, split)
        table = self._tables[key]
        kind = kind_named(self.config.kind_of(task.name))
        noun = kind.name_of_inputs(len(table), len(split.examples))
        with Progress(f"evaluating {key}: {noun}", len(table), unit=f"{noun}s") as progress:
            predictions, losses = model.predict(task_index, table, self.config.eval_batch_size, progress.update)
        return Predicted(split, predictions, task.answers(split, predictions), losses)

    def selecting(self, model: FinetuningTask) -> dict[str, float]:
        """Scores the splits by which the best checkpoint is chosen. "score" is the mean of their primary metrics."""
        flat: dict[str, float] = {}
        primary = []
        for task_index, task in enumerate(self.tasks):
            for name in selection_splits(self.config, task.evaluation_splits):
                predicted = self.predicted(model, task_index, name)
                metrics = _scores(task, predicted)
                _warn_of_collapse(task, name, predicted, metrics, model.num_train_steps)
                flat |= {f"{task.name}_{name}_{metric}": value for metric, value in metrics.items()}
                primary.append(metrics[task.primary_metric])
        return flat | {"score": float(np.mean(primary))}

    def evaluate(
        self, model: FinetuningTask, scored: Mapping[str, Sequence[str]], trial: int, folder: Path | None
    ) -> Evaluated:
        """Scores the splits that have labels, and writes predictions.

        Args:
          scored: by task, the splits to score or to predict.
          folder: of the trial, for its predictions; None writes nothing.
        """
        result = Evaluated()
        for task_index, task in enumerate(self.tasks):
            for name in scored[task.name]:
                predicted = self.predicted(model, task_index, name)
                result.inputs += len(predicted.predictions)
                if predicted.split.labelled:
                    self._score(task, name, predicted, model.num_train_steps, result)
                if folder is not None:
                    self._write(task, name, predicted, folder)
                    if name in task.test_splits and self._predicts_tests(trial):
                        self._submit(task, name, predicted, trial)
            if folder is not None and self.config.write_distill_outputs:
                self._write(task, "train", self.predicted(model, task_index, "train"), folder)
        return result

    def _score(self, task: Task, name: str, predicted: Predicted, steps: int, result: Evaluated) -> None:
        """Scores a labelled split and adds that to a result. Warns of a model that is no better than a constant.

        Args:
          steps: number of training steps.
        """
        scores = _scores(task, predicted)
        is_collapsed = _warn_of_collapse(task, name, predicted, scores, steps)
        result.scores.setdefault(task.name, {})[name] = scores
        result.examples.setdefault(task.name, {})[name] = task.num_scored(predicted.split)
        majority = task.majority(predicted.split)
        # Else a loss, which is that of a whole example, cannot be compared with the shares of the labels.
        has_label_each = len(predicted.split.golds) == len(predicted.split.examples)
        if majority:
            result.majority.setdefault(task.name, {})[name] = majority
        labels_differ = len({*predicted.split.golds}) > 1
        of_questions = isinstance(task, QATask)
        # The thresholds of the original's answers need not be the best ones.
        may_advise = of_questions and self.config.compat != "original"
        if not is_collapsed and labels_differ and is_baseline(task.primary_metric, scores, majority):
            baseline = kind_named(self.config.kind_of(task.name)).baseline
            by_heart = has_label_each and learned_by_heart(scores, predicted.split.golds)
            warn(f"{task.name} {name}: no better than {baseline}; {remedy(steps, of_questions, by_heart)}")
        elif not is_collapsed and of_questions and hardly_answers(scores):
            warn(f"{task.name} {name}: hardly an answer is right; {remedy(steps, of_questions)}")
        elif not is_collapsed and labels_differ and has_label_each:
            note = note_on_sureness(scores, predicted.split.golds)
            if note:
                say(f"note: {task.name} {name}: {note}")
        if may_advise:
            advice = better_threshold(scores)
            if advice:
                say(f"{task.name} {name}: {advice}")
        errors = errors_of(task, predicted.split, predicted.answers)
        if errors:
            result.errors[f"{task.name} {name}"] = errors

    def _write(self, task: Task, name: str, predicted: Predicted, folder: Path) -> None:
        """Writes a split's predictions into a trial's folder, and those of development data for official scripts."""
        if predicted.split.labelled:
            rows = answered_rows(task, predicted.split, predicted.answers)
            write_json_lines(predictions_file(folder, task.name, name), rows)
        if name in task.evaluation_splits:
            kind = kind_named(self.config.kind_of(task.name))
            outputs = Path(self.config.results_dir) / f"{self.config.run_name}_{kind.outputs_name}"
            task.write_submission(name, predicted.split, predicted.answers, outputs)

    def _submit(self, task: Task, name: str, predicted: Predicted, trial: int) -> None:
        """Writes the predictions of a test split, and adds those for a benchmark's server to an archive."""
        path = self._test_file(task, name, trial)
        write_json_lines(path, answered_rows(task, predicted.split, predicted.answers))
        folder = path.parent / f"submission_{trial}"
        if self.config.debug:
            say(f"wrote {path}; a run of debug writes nothing for a server")
            return
        written = task.write_submission(name, predicted.split, predicted.answers, folder)
        if written and written[0].suffix in _ARCHIVES:
            archive, names = zip_submissions(folder, written[0].suffix)
            say(f"wrote {archive}: {', '.join(names)}")
        say(f"wrote {path}")

    def _predicts_tests(self, trial: int) -> bool:
        """Tells whether a trial's model predicts the test splits."""
        return self.config.write_test_outputs and trial <= self.config.n_writes_test

    def _test_file(self, task: Task, name: str, trial: int) -> Path:
        return Path(self.config.test_predictions) / f"{task.name}_{name}_{trial}_predictions.jsonl"

    def files(self, trial: int, folder: Path) -> dict[str, list[Path]]:
        """Lists the files that a trial writes beside its scores, by the hparam that asks for them."""
        config = self.config
        files: dict[str, list[Path]] = {}
        if self._predicts_tests(trial):
            files["write_test_outputs"] = []
            for task in self.tasks:
                files["write_test_outputs"] += [self._test_file(task, name, trial) for name in task.test_splits]
        if config.write_distill_outputs:
            files["write_distill_outputs"] = [predictions_file(folder, task.name, "train") for task in self.tasks]
        return files


def zip_submissions(folder: Path, suffix: str) -> tuple[Path, list[str]]:
    """Archives all files of a benchmark in a folder, also those of earlier runs.

    GLUE's tables go to FOLDER.zip, SuperGLUE's JSON lines to FOLDER_superglue.zip.

    Args:
      suffix: suffix of the benchmark's files, one of _ARCHIVES.

    Returns:
      The archive and the names in it.
    """
    path = folder.with_name(f"{folder.name}{_ARCHIVES[suffix]}.zip")
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.iterdir()):
            if file.suffix == suffix:
                archive.write(file, file.name)
    return path, archive.namelist()


def _warn_of_collapse(task: Task, name: str, predicted: Predicted, scores: Mapping[str, float], steps: int) -> bool:
    """Warns if all answers are the same and not all are right, and tells whether that is so."""
    if scores[task.primary_metric] == 100:
        return False
    problem = complaint(predicted.split, predicted.answers, steps)
    if problem is not None:
        warn(f"{task.name} {name}: {problem}")
    return problem is not None


def _scores(task: Task, predicted: Predicted) -> dict[str, float]:
    """Computes scores and loss of a labelled split."""
    scores = task.scores(predicted.split, predicted.predictions)
    if predicted.losses is not None:
        scores["loss"] = loss_of_examples(predicted.split, predicted.losses)
    return scores


def loss_of_examples(split: Split, losses: np.ndarray) -> float:
    """The mean loss of a split's examples. losses: float32 [features]."""
    # Rows that lie together have equal parts of one loss.
    return float(losses.mean()) * split.choices
