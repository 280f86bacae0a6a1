"""Trials: training runs that differ in their seed only. Each has a folder of its own and can be stopped and resumed.

<model_dir>_1/config.json, model.ckpt-*, train_metrics.jsonl, vocab.txt   as in pre-training
<model_dir>_1/tasks.json      what the heads' outputs mean (label names)
<model_dir>_1/made_of.json    what it is made of (finetune.trained_folder)
<model_dir>_1/scores.json     written last: the trial is done
<model_dir>_1/predictions/    a file for each scored split, a line an example: text, gold label, prediction
"""

import contextlib
import functools
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tf_keras

from electra_tf2.config.hparams import free_on_resume
from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.tokenization import tokenizer_for
from electra_tf2.files.reading import read_json, read_json_lines
from electra_tf2.files.writing import check_writable, name_aside, write_atomically, write_json, writing
from electra_tf2.finetune import weights
from electra_tf2.finetune.batching import FeatureTable
from electra_tf2.finetune.evaluation import Evaluation
from electra_tf2.finetune.mistakes import shown_errors
from electra_tf2.finetune.model import FinetuningTask, number_of_steps
from electra_tf2.finetune.results import notes_on_few, summarise_trials, table
from electra_tf2.finetune.run_data import RunData, read_data
from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.finetune.trained_folder import (
    MADE_OF,
    TASKS,
    check_made_of,
    compared,
    find_trained,
    fingerprint,
    folder_to_use,
    read_made_of,
    scored_otherwise,
)
from electra_tf2.formats import checkpoint_files
from electra_tf2.formats.folders import SCORES
from electra_tf2.formats.tensor_file import FILE_NAME
from electra_tf2.settings.kinds import Kind, kind_named
from electra_tf2.training.distribution import check_batch, is_chief, make_strategy, peak_memory, wants_xla
from electra_tf2.training.loop import LoopSchedule, Trainer
from electra_tf2.training.run_folder import RunFolder, begins_anew, holds_work, set_aside
from electra_tf2.util.environment import program_called
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import counted, say, warn

ADVICE = "Give what it was trained with, or train in another folder, or anew by --overwrite."


class Trials:
    """Runs the trials of a configuration: for each seed train, evaluate, write."""

    def __init__(self, config: FinetuningConfig) -> None:
        self.config = config
        self.strategy = make_strategy(config)
        check_batch("train_batch_size", config.train_batch_size, self.strategy, config.gradient_accumulation_steps)
        check_batch("eval_batch_size", config.eval_batch_size, self.strategy)
        self.chief = is_chief(self.strategy)
        tokenizer = tokenizer_for(config.vocab_file, config.do_lower_case, config.do_strip_accents)
        self.tasks = make_tasks(config, tokenizer)
        self.evaluation = Evaluation(config, self.tasks)
        self.folders = [Path(f"{config.model_dir}_{trial}") for trial in range(1, config.num_trials + 1)]
        self._fingerprint = functools.cache(lambda scores: fingerprint(config, self.tasks, scores))

    def run(self, is_kept: bool = True) -> int:
        """Trains and scores the trials that are not done yet, and reports the scores of all. With do_train false, it
        only scores trials that were trained before.

        Args:
          is_kept: whether the files outlive this process. Only then is it said where they are.

        Returns:
          Exit code, 128 and the signal's number after one.
        """
        config = self.config
        if self.chief and config.do_eval:
            for path in (config.results_txt, config.results_json):
                check_writable(path)
        if config.do_train:
            self._check()
        else:
            self.folders = self._trained_folders()
        code = 0
        finished: list[dict[str, Any]] = []  # what scores.json says of each trial
        unfinished: list[dict[str, Any]] = []  # the same, of trials whose training was stopped
        for trial, folder in enumerate(self.folders, start=1):
            if config.do_train:
                code, result = self._train_or_reuse(trial, folder)
                if code:
                    break
            else:
                weights.check_states(folder, self.tasks)  # before the data are read: they need not say what labels mean
                result = self._evaluate_trained(trial, folder)
            if config.do_eval and "stopped_at" in result:
                unfinished.append(result)
            elif config.do_eval:
                finished.append(result)
                if self.chief:
                    write_results(config, finished, is_kept)
            if not config.keep_all_models and trial > 1:
                delete_weights(self.folders[trial - 2])
            tf_keras.backend.clear_session()
        if (finished or unfinished) and self.chief:
            report(config, finished or unfinished, is_kept)
            if finished and is_kept and not code:
                _print_next_command(config)
        return code

    @functools.cached_property
    def _data(self) -> RunData:
        """The data of all tasks, read for the first trial that needs them."""
        return read_data(self.config, self.tasks)

    def _train_or_reuse(self, trial: int, folder: Path) -> tuple[int, dict[str, Any]]:
        """Trains a trial and scores it, unless it was done before; then only if its scores would be others now.

        Returns:
          Exit code of the training, and what scores.json says of the trial; {} with do_eval false.
        """
        config = self.config
        with self._run_folder(folder) as held:
            is_done = (folder / SCORES).exists() and not held.overwrite
            if not is_done:
                say(f"trial {trial}/{config.num_trials}: {folder}")
                code, task, training = self._train(trial, held, self._data)
                if code or not config.do_eval:
                    return code, {}
                return 0, self._evaluate(task, trial, folder, training)
            differences = []
            if config.do_eval:
                differences = scored_otherwise(folder, self._fingerprint)
            if not differences:
                return 0, self._done_before(trial, folder)
            say(f"{folder} is scored anew, with other {', '.join(differences)}; it is not trained again")
            weights.check_states(folder, self.tasks)
            return 0, self._evaluate_trained(trial, folder)

    def _run_folder(self, folder: Path) -> RunFolder:
        overwrite = begins_anew(folder, self.config.overwrite, self.config.debug)
        return RunFolder(folder, self.chief, overwrite, ADVICE)

    def _check(self) -> None:
        """Raises UserError if a folder holds a trial that is made of other things and is not to be overwritten."""
        for folder in self.folders:
            with self._run_folder(folder) as held:
                if not held.overwrite:
                    held.check(self.config.to_json(), free_on_resume(FinetuningConfig), compared)
                    check_made_of(folder, self._fingerprint, ADVICE)
                    if (folder / SCORES).exists() and not _holds_weights(folder):
                        self._check_scores(folder)

    def _done_before(self, trial: int, folder: Path) -> dict[str, Any]:
        """Reads a finished trial's scores.json; warns if the trial lacks files that are asked for now."""
        say(f"trial {trial}/{self.config.num_trials}: done before, see {folder / SCORES}")
        result = read_json(folder / SCORES, "scores")
        files = self.evaluation.files(trial, folder)
        for name, paths in files.items():
            if name not in result.get("wrote", files) or not all(path.is_file() for path in paths):
                flag = f"--{name.replace('_', '-')}"
                warn(f"trial {trial} was done without {name}: --no-do-train {flag} writes its files")
        return result

    def _check_scores(self, folder: Path) -> None:
        """Raises UserError if a finished trial without weights, which cannot be scored anew, has other scores."""
        differences = scored_otherwise(folder, self._fingerprint)
        if differences:
            raise UserError(
                f"{folder / SCORES} was made with other {', '.join(differences)}, and the weights, which could be "
                f"scored anew, were not kept (keep_all_models). {ADVICE}"
            )

    # Training.

    def _train(self, trial: int, held: RunFolder, data: RunData) -> tuple[int, FinetuningTask, dict[str, Any]]:
        """Trains the model of a trial, or resumes its training.

        Returns:
          Exit code, the model with the weights to score, and facts about the training for scores.json.
        """
        config = self.config
        folder = held.path
        features = data.training
        assert features is not None
        steps = self._steps(features)
        if not held.overwrite and checkpoint_files.steps(folder):
            weights.check_states(folder, self.tasks)
        with self.strategy.scope():
            seed = config.seed + trial - 1
            task = FinetuningTask(config, self.tasks, self.strategy, wants_xla(config), features, seed)
        trainer = self._trainer(task, folder, steps, -(-features.examples // config.train_batch_size))
        step = 0 if held.overwrite else trainer.restore()
        if step:
            say(f"resuming at step {step:,} of {steps:,}")
        else:
            say(weights.start(task.model, config))
            self._say_expected_loss(task)
        if self.chief and config.overwrite and trial == 1:
            # Those of later trials now, too: the command may be stopped, and without --overwrite it would go on there.
            for other in self.folders[1:]:
                if holds_work(other):
                    set_aside(other)
        held.begin(config.to_json(), config.vocab_file)
        if self.chief:
            if not step:
                write_json(folder / MADE_OF, self._fingerprint(False) | {"steps": steps})
            write_json(folder / TASKS, {task.name: task.state() for task in self.tasks})
        start = time.monotonic()
        code = trainer.train()
        if code:
            return code, task, {}
        seconds = time.monotonic() - start
        training = {"steps": trainer.current_step, "seconds": seconds, "examples_per_second": _median_rate(folder)}
        if config.keep_best:
            training["best_step"] = trainer.checkpoints.restore_best()
        elif config.ema_decay:
            weights.take_averages(task.model, folder, steps)
        return 0, task, training

    def _say_expected_loss(self, task: FinetuningTask) -> None:
        """Says which loss to expect at first, if one task is learned and all its examples count alike."""
        heads = task.model.heads
        counts_alike = self.config.class_weights in ("none", "balanced")
        if len(heads) == 1 and counts_alike and heads[0].expected_loss:
            # The pre-trained head, which goes on under a new last layer, makes the very first logits large.
            expected = heads[0].expected_loss
            say(
                f"expected loss  about {expected} in the first steps, the very first perhaps some times that", indent=15
            )

    def _steps(self, features: FeatureTable) -> int:
        """Computes the number of training steps. Raises UserError: less than one."""
        config = self.config
        steps = number_of_steps(config, features.examples)
        batches = f"{self._counted(features.examples)} in batches of {config.train_batch_size}"
        if steps < 1:
            raise UserError(
                f"{config.num_train_epochs:g} epochs of {batches} are less than one step: raise num_train_epochs"
            )
        epochs = config.num_train_epochs
        why = ""
        if steps == config.min_train_steps:
            epochs = steps * config.train_batch_size / features.examples
            why = ", the least that a table of this size is trained for: num_train_epochs sets another number"
        unit = "epoch" if epochs == 1 else "epochs"
        say(f"{steps:,} steps: {epochs:.3g} {unit} of {batches}{why}")
        return steps

    def _counted(self, inputs: int) -> str:
        """Counts what an epoch learns: examples, or inputs, such as windows, where some examples have several."""
        examples = sum(len(task.load("train").examples) for task in self.tasks)
        names = {self.config.kind_of(task.name) for task in self.tasks}
        kind = Kind("")
        if len(names) == 1:
            kind = kind_named(names.pop())
        counted_inputs = counted(inputs, kind.name_of_inputs(inputs, examples))
        if inputs == examples:
            return counted_inputs
        return f"{counted_inputs} (of {counted(examples, kind.example)})"

    def _trainer(self, task: FinetuningTask, folder: Path, steps: int, steps_of_epoch: int) -> Trainer:
        config = self.config
        an_evaluation_an_epoch = min(steps, steps_of_epoch) if config.keep_best else 0
        schedule = LoopSchedule(
            num_train_steps=steps,
            # Twenty reports at least, so that a short run has a curve, too.
            iterations_per_loop=min(config.iterations_per_loop, max(1, steps // 20)),
            save_checkpoints_steps=config.save_checkpoints_steps,
            keep_checkpoint_max=1,
            eval_every_steps=config.eval_every_steps or an_evaluation_an_epoch,
            num_eval_steps=0,
            examples_per_step=config.train_batch_size,
        )
        best_metric = "score" if config.keep_best else None

        def evaluate() -> dict[str, float]:
            return self.evaluation.selecting(task)

        return Trainer(task, self.strategy, schedule, str(folder), evaluate, best_metric, config.early_stopping)

    # Evaluation.

    def _evaluate(
        self,
        task: FinetuningTask,
        trial: int,
        folder: Path,
        training: dict[str, Any],
        stopped_at: int | None = None,
    ) -> dict[str, Any]:
        """Evaluates, and writes predictions and scores.json, after which the trial is done.

        Args:
          stopped_at: step of a trial whose training was stopped. Then nothing is written.
        """
        start = time.monotonic()
        writes = self.chief and stopped_at is None
        evaluated = self.evaluation.evaluate(task, self._data.scored, trial, folder if writes else None)
        seconds = time.monotonic() - start
        result = {
            "trial": trial,
            "seed": task.seed,
            "scores": evaluated.scores,
            "majority": evaluated.majority,
            "errors": evaluated.errors,
            "made_of": read_made_of(folder) | self._fingerprint(True),
            "wrote": [*self.evaluation.files(trial, folder)],
            "training": training,
            "evaluation": {
                "examples": evaluated.examples,
                "features": evaluated.inputs,
                "seconds": seconds,
                "examples_per_second": evaluated.inputs / seconds,
            },
            "peak_memory": peak_memory(),
        }
        if writes:
            write_json(folder / SCORES, result, sort_keys=False)  # read again, it makes the same table
        if stopped_at is not None:
            result["stopped_at"] = stopped_at
        return result

    def _trained_folders(self) -> list[Path]:
        """Finds the folders of all trials. Raises UserError: they are not made of the same."""
        config = self.config
        folders = [find_trained({"model_dir": config.model_dir}, trial + 1) for trial in range(config.num_trials)]
        for folder in folders:
            if (folder / SCORES).exists() and not _holds_weights(folder):
                raise UserError(f"{folder} holds scores alone: its weights were not kept (keep_all_models)")
            here = read_made_of(folder)
            first = read_made_of(folders[0])
            if here and first and here != first:
                raise UserError(f"{folder} was trained on other data or from other weights than {folders[0]}")
        return folders

    def _evaluate_trained(self, trial: int, folder: Path) -> dict[str, Any]:
        """Evaluates the model of a trial that was trained before."""
        config = self.config
        task, step = weights.build_trained(config, self.tasks, self.strategy, folder)
        say(f"trial {trial}/{config.num_trials}: {folder}, step {step:,}")
        training: dict[str, Any] = {}  # how it went, of a trial that was scored before
        if (folder / SCORES).exists():
            training = read_json(folder / SCORES, "scores").get("training", {})
        newest = max([step, *checkpoint_files.steps(folder)])
        steps = read_made_of(folder).get("steps", 0)
        steps = min(steps, training.get("steps", steps))  # of a training that ended early
        if newest < steps:
            warn(
                f"trial {trial} stopped at step {newest:,} of {steps:,}, so its scores are not kept, and nothing is "
                "predicted for a server"
            )
            return self._evaluate(task, trial, folder, training, stopped_at=newest)
        return self._evaluate(task, trial, folder, training)


def _holds_weights(folder: Path) -> bool:
    return any(folder.glob("**/model.ckpt-*")) or any(folder.glob(FILE_NAME))


def _median_rate(folder: Path) -> float:
    """Examples per second of a training: the median, since the first loop also traces the graph."""
    logged = read_json_lines(folder / "train_metrics.jsonl", "metrics", cut=True)
    rates = [line["examples_per_second"] for _, line in logged if "examples_per_second" in line]
    return float(np.median(rates)) if rates else 0.0


def report(config: FinetuningConfig, finished: Sequence[dict[str, Any]], is_kept: bool) -> None:
    """Prints the table and the scores of all trials, and where they are. Arguments as `Trials.run`."""
    print(_table_of_trials(config, finished), end="")
    last = finished[-1]
    classified = [name for name in config.task_names if config.kind_of(name) in ("classification", "spans")]
    examples = last.get("evaluation", {}).get("examples", {})
    for note in notes_on_few(last["scores"], examples, classified, last.get("majority", {})):
        say(note)
    of_trial = ""
    if len(finished) > 1:
        of_trial = f" of trial {last['trial']}"
    for name, errors in last.get("errors", {}).items():
        print(shown_errors(f"{name}{of_trial}", errors), end="")
    if is_kept and "stopped_at" not in last:
        say(f"wrote {config.results_json}")


def write_results(config: FinetuningConfig, finished: Sequence[dict[str, Any]], is_kept: bool) -> None:
    """Writes the results of the trials that are finished. Those of another model are renamed."""
    is_others = _holds_other_scores(Path(config.results_json), finished)
    if is_kept and is_others and not config.overwrite:
        for path in (Path(config.results_json), Path(config.results_txt)):
            if path.is_file():
                aside = name_aside(path)
                with writing(path):
                    path.rename(aside)
                say(f"{path} had the scores of another model of that name, and is {aside} now")
    write_atomically(config.results_txt, _table_of_trials(config, finished))
    write_json(
        config.results_json,
        {
            "tasks": config.task_names,
            "trials": finished,
            "summary": summarise_trials([trial["scores"] for trial in finished]),
            "majority": finished[-1].get("majority", {}),
        },
    )


def _table_of_trials(config: FinetuningConfig, finished: Sequence[dict[str, Any]]) -> str:
    baselines = {name: kind_named(config.kind_of(name)).baseline for name in config.task_names}
    return table([trial["scores"] for trial in finished], finished[-1].get("majority", {}), baselines)


def _print_next_command(config: FinetuningConfig) -> None:
    """Prints the command that applies the trained model, if one was kept and has a single task."""
    model = folder_to_use(config)
    if not model.exists() or len(config.task_names) != 1:
        return
    purpose = "to label other rows"
    if kind_named(config.kind_of(config.task_names[0])).example == "question":
        purpose = "to answer other questions"
    # Not by `say`, which breaks lines on a terminal: it is to be pasted.
    print(f"{purpose}: {program_called()} predict FILE --output ANSWERS.csv --model {shlex.quote(str(model))}")


def _holds_other_scores(path: Path, finished: Sequence[dict[str, Any]]) -> bool:
    """Tells whether a file of results has the scores of another training; False for a damaged one, which is lost."""
    if not path.is_file():
        return False
    with contextlib.suppress(UserError, AttributeError, IndexError, KeyError, TypeError):
        training = read_json(path, "results")["trials"][0]["training"]
        return training != finished[0].get("training")
    return False


def delete_weights(folder: Path) -> None:
    """Deletes a trial's weights. Scores and predictions stay."""
    best = folder / checkpoint_files.BEST_FOLDER / checkpoint_files.BEST
    for path in [*folder.glob("**/model.ckpt-*"), folder / "checkpoint", best]:
        path.unlink(missing_ok=True)
