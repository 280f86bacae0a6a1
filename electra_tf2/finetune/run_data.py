"""Reads and shows the data of a run before anything slow."""

from collections.abc import Sequence
from typing import NamedTuple

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.finetune.batching import FeatureTable, TaskFeatures
from electra_tf2.finetune.data_report import data_table, trained_on, unknown_of
from electra_tf2.finetune.tasks.task import Split, Task
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import warn


class RunData(NamedTuple):
    """Data of a run. The tasks keep the splits that were loaded.

    training: the training features of all tasks; None if nothing is trained.
    scored: by task, the splits that are scored or predicted at the end.
    """

    training: FeatureTable | None
    scored: dict[str, list[str]]


def read_data(config: FinetuningConfig, tasks: Sequence[Task]) -> RunData:
    """Loads and shows the splits that the run will need.

    Raises:
      UserError: what is missing or wrong in the files; tasks that cannot be learned together.
    """
    splits_of_task: dict[str, dict[str, Split]] = {}
    scored: dict[str, list[str]] = {}
    for task in tasks:
        splits: dict[str, Split] = {}
        if config.do_train:
            splits["train"] = task.load("train")
        if config.do_eval or config.eval_every_steps or config.keep_best:
            for name in task.evaluation_splits:
                splits[name] = task.load(name)
        if config.do_eval:
            scored[task.name] = list(task.evaluation_splits)
            for name, split in _test_splits(config, task).items():
                splits[name] = split
                if split.labelled or config.write_test_outputs:
                    scored[task.name].append(name)
        splits_of_task[task.name] = splits
    for task in tasks:
        _show(config, task, splits_of_task[task.name])
    if not config.do_train:
        return RunData(None, scored)
    training = {task.name: splits_of_task[task.name]["train"] for task in tasks}
    choices = {split.choices for split in training.values()}
    if len(choices) > 1:
        listed = ", ".join(f"{name} has {split.choices}" for name, split in training.items())
        raise UserError(f"task_names: tasks that are learned together need as many candidates for an example: {listed}")
    parts = [TaskFeatures(task.name, training[task.name].features, task.labels) for task in tasks]
    table = FeatureTable(parts, config.max_seq_length, config.fixed_padding, choices.pop())
    return RunData(table, scored)


def _test_splits(config: FinetuningConfig, task: Task) -> dict[str, Split]:
    """Loads the test splits: all if predictions of them are wanted, else those that may have labels to score."""
    splits = {}
    if config.write_test_outputs and not task.test_splits:
        warn(f"{task.name}: write_test_outputs writes nothing, since there is no test file")
    for name in task.test_splits:
        if config.write_test_outputs:
            splits[name] = task.load(name)
        elif task.files.may_have_labels(name):
            try:
                splits[name] = task.load(name)
            except UserError as error:
                if config.test_file:
                    raise
                warn(f"the {name} data is not scored: {error}")
    return splits


def _show(config: FinetuningConfig, task: Task, splits: dict[str, Split]) -> None:
    """Shows what was read of a task."""
    print(data_table(task, splits), end="", flush=True)
    for problem in (unknown_of(task, splits.values()), trained_on(task, splits)):
        if problem:
            warn(f"{task.name}: {problem}")
    if config.log_examples and "train" in splits:
        for feature in splits["train"].features[:3]:
            print(f"{task.name}: {task.tokenizer.readable(feature.input_ids)}  {feature.labels}")
