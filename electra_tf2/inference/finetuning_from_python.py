"""`electra_tf2.finetune`: fine-tunes a model from Python, on texts and labels in memory or on a file.

Examples in memory become a file. From there everything goes as in `electra finetune`.
"""

import contextlib
import io
import json
import os
import re
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from electra_tf2.config.hparams import all_hparams, checked
from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.files.writing import check_writable
from electra_tf2.finetune.starts import configuration
from electra_tf2.finetune.trained_folder import folder_to_use
from electra_tf2.inference.argument_names import ARGUMENTS, NAMES_ELSEWHERE, with_arguments
from electra_tf2.inference.examples_in_memory import (
    TASK,
    Argument,
    ColumnNames,
    ExampleTable,
    column_names,
    table_of,
    with_places,
    write_table,
)
from electra_tf2.inference.finetuning_run import prepare
from electra_tf2.training.run_folder import GO_ON
from electra_tf2.util.environment import before_tensorflow, import_tensorflow
from electra_tf2.util.errors import UserError, closest, shown
from electra_tf2.util.progress import rewording

if TYPE_CHECKING:
    from electra_tf2.inference.model import Model


def finetune(
    train: Any,
    labels: Iterable[Any] | None = None,
    *,
    dev: Any = None,
    dev_labels: Iterable[Any] | None = None,
    test: Any = None,
    test_labels: Iterable[Any] | None = None,
    model: str | os.PathLike[str] = "electra_deep",
    folder: str | os.PathLike[str] | None = None,
    verbose: bool = True,
    **hparams: Any,
) -> "Model":
    """Fine-tunes a model on texts and labels, or on a table, and loads the result.

    Trains in this process, as `electra finetune` does with the same settings, and prints the same: the data, progress,
    scores and the worst mistakes.

    Args:
      train: texts, or pairs of texts, with `labels`; with task_type="tagging" lists of words; a data frame of pandas,
        or a list of dicts, with the columns `text` and `label` (`text_column` and `label_column` choose others), or
        those of the task's kind, such as `question`, `context` and `answer` with task_type="qa"; or the path of a
        file, as --train-file.
      labels: one for each text, a list of tags for each list of words. Examples with the label None, NaN or "" are left
        out and counted.
      dev: data to score the model on, in any of these forms; default: a tenth of `train`, which is not trained on.
      dev_labels: one for each text of `dev`.
      test: further data that the finished model is scored on, in any of these forms.
      test_labels: one for each text of `test`.
      model: a shipped model's name (`models`), or the folder of a model in any format that `load` reads.
      folder: where the model (`<folder>/model_1`) and scores (`<folder>/results`) are written. A second call with the
        same data and settings resumes the training, or loads the finished model; other settings are refused unless
        `overwrite=True`. Default: a temporary folder, which is deleted with the model.
      verbose: False prints warnings alone.
      hparams: of fine-tuning, by name: num_train_epochs=5, seed=1, task_type="regression" (docs/flags.md has all).

    Returns:
      The trained model, as from `load`; with several trials, that of the first, or the last with
      keep_all_models=False. Its `scores` are those of development and test data, and `source.path` is its folder.

    Raises:
      UserError: something is wrong with texts, labels or hparams, or the folder holds another run.
      KeyboardInterrupt: training was interrupted, after it saved the step in `folder`, if one is given.
    """
    if threading.current_thread() is not threading.main_thread():
        raise UserError("finetune: call it from the main thread, where it can save what is trained when it is stopped")
    hparams = {name: _plain_value(value) for name, value in hparams.items()}
    if isinstance(hparams.get("class_weights"), Mapping):
        hparams["class_weights"] = json.dumps(hparams["class_weights"])
    if not isinstance(model, (str, os.PathLike)):
        raise UserError(f"finetune: model is a shipped model's name or the folder of a model, not {shown(model)}")
    if folder is not None and not isinstance(folder, (str, os.PathLike)):
        raise UserError(f"finetune: folder is a path, not {shown(folder)}")
    _check_hparams(hparams)
    data = _tables([(_TRAIN, train, labels), (_DEV, dev, dev_labels), (_TEST, test, test_labels)], hparams)
    output: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if not verbose:
        output = _warnings_alone()
    if folder is not None:
        _check_folder(Path(folder))
        with output, _naming_arguments(Path(folder)):
            return _trained(_configuration(data, model, Path(folder), hparams), is_kept=True)
    temporary = tempfile.mkdtemp(prefix="electra_finetuned_")
    try:
        with output, _naming_arguments(Path(temporary), is_kept=False):
            trained = _trained(_configuration(data, model, Path(temporary), hparams), is_kept=False)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    weakref.finalize(trained, shutil.rmtree, temporary, ignore_errors=True)
    return trained


@contextlib.contextmanager
def _warnings_alone() -> Iterator[None]:
    """Prints nothing to standard output, but for a stopped training what has become of it."""
    unseen = io.StringIO()
    try:
        with contextlib.redirect_stdout(unseen):
            yield
    except KeyboardInterrupt:
        print(*unseen.getvalue().splitlines()[-1:])
        raise


def _check_folder(folder: Path) -> None:
    """Raises UserError if a folder is a file, or nothing can be written there."""
    if folder.is_file():
        raise UserError(f"finetune: folder {folder} is a file")
    try:
        check_writable(folder / "model")
    except UserError as error:
        raise UserError(f"finetune: folder: {error}") from None


_TRAIN = Argument("finetune", "train", "labels")
_DEV = Argument("finetune", "dev", "dev_labels")
_TEST = Argument("finetune", "test", "test_labels")


def _tables(
    given: Sequence[tuple[Argument, Any, Iterable[Any] | None]], hparams: Mapping[str, Any]
) -> dict[str, str | ExampleTable]:
    """By split, the path of a file or a table of the examples that were given. Raises UserError as `table_of`."""
    names = ColumnNames(label=str(hparams.get("label_column", "label")))
    task_type = hparams.get("task_type", "")
    tables: dict[str, str | ExampleTable] = {}
    for argument, examples, labels in given:
        if argument == _TRAIN or examples is not None:
            tables[argument.examples] = table_of(argument, examples, labels, names, task_type)
            if argument == _TRAIN:
                names = _names_of_others(tables["train"], names, hparams)
        elif labels is not None:
            raise UserError(
                f"finetune: {argument.labels} are given without {argument.examples}, the texts that they belong to"
            )
    return tables


def _names_of_others(train: str | ExampleTable, names: ColumnNames, hparams: Mapping[str, Any]) -> ColumnNames:
    """The names for columns of development and test data that are lists: those of training data with columns."""
    if isinstance(train, ExampleTable) and train.text_columns:
        return names  # `_check_alike` compares lists
    texts = names.texts[:1]
    if "text_column" in hparams:
        texts = _columns_named(hparams["text_column"], train)
        names = names._replace(words=texts[0])
    elif hparams.get("task_type") == "qa":
        texts = ["question", "context"]
    if "label_column" in hparams:
        names = names._replace(tags=names.label)
    elif hparams.get("task_type") == "qa":
        names = names._replace(label="answer")
    return names._replace(texts=texts, num_texts=len(texts))


def _columns_named(text_column: Any, train: str | ExampleTable) -> list[str]:
    """The columns that the hparam text_column names, of training data."""
    if isinstance(train, ExampleTable):
        return column_names(text_column, train.rows[0])
    return column_names(text_column)


@contextlib.contextmanager
def _naming_arguments(folder: Path, is_kept: bool = True) -> Iterator[None]:
    """Lets errors, notes and warnings of what the program shares name arguments where they name flags and files.

    Args:
      folder: where examples in memory are written.
      is_kept: whether the folder is the user's own.
    """

    def reworded(message: str) -> str:
        if is_kept:
            message = message.replace(GO_ON, "Call it again, in the same way, to go on")
        else:
            lost = r"stopped at step \1. Nothing is kept: with folder=... the step is saved, and another call goes on"
            message = re.sub(rf"saved [^\n]+ at step ([0-9,]+)\. {GO_ON}", lost, message)
        return with_arguments(with_places(message, folder))

    try:
        with rewording(reworded):
            yield
    except UserError as error:
        raise UserError(reworded(str(error))) from None


def _check_hparams(hparams: Mapping[str, Any]) -> None:
    """Raises UserError for hparams that are unknown or invalid, or that another argument determines."""
    known = {field.name for _, field in all_hparams(FinetuningConfig)}
    for name in hparams:
        if name in NAMES_ELSEWHERE:
            raise UserError(f"finetune: there is no hparam {name!r}: here it is {NAMES_ELSEWHERE[name]}")
        if name not in known:
            hint = closest(name, [*known, "train", "labels", "dev", "dev_labels", "test", "test_labels", "folder"])
            raise UserError(f"finetune: there is no hparam {name!r}{hint or '; docs/flags.md has all'}")
        if name in ARGUMENTS:
            raise UserError(f"finetune: {name} follows from the argument {ARGUMENTS[name]}: give that")
    checked(FinetuningConfig, _as_lists(hparams))
    if hparams.get("do_train") is False:
        raise UserError(
            "finetune: do_train is false, but it trains: electra.load gives a model that was trained before"
        )


def _as_lists(hparams: Mapping[str, Any]) -> dict[str, Any]:
    """The hparams with text_column and task_names as lists, where each is a single name."""
    result = dict(hparams)
    for name in ("text_column", "task_names"):
        if isinstance(result.get(name), (str, int)):
            result[name] = [result[name]]
    if isinstance(result.get("text_column"), (list, tuple)):
        result["text_column"] = [str(column) for column in result["text_column"]]
    if isinstance(result.get("label_column"), int):
        result["label_column"] = str(result["label_column"])
    return result


def _plain_value(value: Any) -> Any:
    """Converts a number of numpy's to Python's."""
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return value.item()
    return value


def _configuration(
    data: Mapping[str, str | ExampleTable], model: str | os.PathLike[str], folder: Path, hparams: Mapping[str, Any]
) -> FinetuningConfig:
    """Makes and checks the configuration of a training that writes into a folder. Raises UserError."""
    users_hparams = _as_lists(hparams)
    users_hparams["model"] = os.fspath(model)
    users_hparams["model_dir"] = str(folder / "model")
    users_hparams["results_dir"] = str(folder / "results")
    users_hparams["test_predictions"] = str(folder / "test_predictions")
    _check_alike(data)
    _check_name(data["train"], hparams)
    if isinstance(hparams.get("text_column"), str):
        users_hparams["text_column"] = _columns_named(hparams["text_column"], data["train"])
    for split, table in data.items():
        if isinstance(table, ExampleTable):
            if table.text_columns and split == "train":
                if "text_column" in hparams:
                    raise UserError(f"finetune: {split} is a list of texts, without columns: leave text_column out")
                users_hparams["text_column"] = table.text_columns
                if users_hparams.get("task_type") == "qa":  # pairs of a question and its context, with answers
                    users_hparams.setdefault("label_column", "label")
            users_hparams[f"{split}_file"] = write_table(table, split, folder)
        else:
            users_hparams[f"{split}_file"] = table
    advice = "Give what it was trained with, or another folder, or overwrite=True to train anew."
    return prepare(configuration(users_hparams), users_hparams, advice)


def _check_name(train: str | ExampleTable, hparams: Mapping[str, Any]) -> None:
    """Raises UserError if examples in memory have another name than the task that hparams describe."""
    described = hparams.get("tasks", {})
    if not isinstance(train, ExampleTable):
        return
    if isinstance(described, Mapping) and described and TASK not in described and "task_names" not in hparams:
        raise UserError(
            f"finetune: tasks describes {shown(next(iter(described)))}, but the task of examples in memory is called "
            f"{TASK!r}"
        )


def _check_alike(data: Mapping[str, str | ExampleTable]) -> None:
    """Raises UserError if one split is a list of texts, another one of pairs."""
    forms = set()
    for table in data.values():
        if isinstance(table, ExampleTable) and table.text_columns:
            forms.add(tuple(table.text_columns))
    if len(forms) > 1:
        raise UserError(f"finetune: {' and '.join(data)} must be alike: lists of texts, or lists of pairs")


def _trained(config: FinetuningConfig, is_kept: bool) -> "Model":
    """Trains, and loads the first trial's model. Arguments as `Trials.run`."""
    before_tensorflow()
    import_tensorflow()
    from electra_tf2.finetune.trials import Trials

    code = Trials(config).run(is_kept)
    if code == 130:
        raise KeyboardInterrupt
    if code:
        raise SystemExit(code)  # a signal that asks the process to end
    from electra_tf2.inference.model import load

    return load(folder_to_use(config))
