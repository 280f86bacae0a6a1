"""Fine-tunes a model: `electra_tf2.finetune`, and what it shares with the program `electra finetune`.

The program makes a configuration of flags, `finetune` makes one of texts and labels. From there both go the same way:

    prepare           refuses what cannot work, before anything slow
    train_and_score   trains and scores every trial, and prints the report

Imports no TensorFlow before `train_and_score`, so that a mistake is answered at once.
"""

import contextlib
import hashlib
import json
import math
import os
import shlex
import shutil
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from electra_tf2.config.hparams import all_hparams, checked, free_on_resume, shapes_model
from electra_tf2.config.recipes import recipe_names
from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.vocabulary import load_tokens
from electra_tf2.files.reading import read_json
from electra_tf2.files.writing import write_atomically, write_json
from electra_tf2.finetune.tasks.files import TaskFiles
from electra_tf2.finetune.trained_folder import compared
from electra_tf2.formats.folders import RELEASED, models, read_config
from electra_tf2.pretrain import diagnosis
from electra_tf2.settings.defaults import recipe_of, with_named
from electra_tf2.settings.own import settings_of
from electra_tf2.training.precision import fitted_to_machine
from electra_tf2.training.run_folder import RunFolder, holds_work
from electra_tf2.util.environment import before_tensorflow, import_tensorflow
from electra_tf2.util.errors import UserError, closest, shown
from electra_tf2.util.progress import counted, say, warn

if TYPE_CHECKING:
    from electra_tf2.inference.model import Model

_TASK = "texts"  # name of the task whose examples come from memory
_PAIR = ["text", "second_text"]  # columns of their texts
# Hparams that follow from the arguments of `finetune`, and the argument that says it there.
_ARGUMENTS = {
    "train_file": "train",
    "dev_file": "dev",
    "model_name": "model",
    "init_checkpoint": "model",
    "pretrained_model_dir": "model",
    "model_dir": "folder",
    "results_dir": "folder",
    "results_txt": "folder",
    "results_json": "folder",
    "test_predictions": "folder",
}


# From Python.


def finetune(
    train: Any,
    labels: Iterable[Any] | None = None,
    *,
    dev: Any = None,
    dev_labels: Iterable[Any] | None = None,
    model: str | os.PathLike[str] = "electra_deep",
    folder: str | os.PathLike[str] | None = None,
    **hparams: Any,
) -> "Model":
    """Fine-tunes a model on texts and labels, or on a table, and loads what came of it.

    Trains in this process, as `electra finetune` does with the same settings, and prints the same: the data, progress,
    scores and the worst mistakes.

    Args:
      train: texts, or pairs of texts, with `labels`; a data frame of pandas, or a list of rows that are dicts, with the
        columns `text` and `label` (`text_column`, `label_column` name others); or the path of a file, as of
        --train-file.
      labels: one for each text. An example whose label is None, NaN or empty is left out and counted.
      dev: what the model is scored on, in any of these forms; default: a tenth of `train`, which is not trained on.
      dev_labels: one for each text of `dev`.
      model: a shipped model's name (`models`), or the folder of a model in any format that `load` reads.
      folder: where everything is written: the model in `<folder>/model_1`, scores in `<folder>/results`. Called again
        with the same data and settings, it goes on where it was stopped, or loads what is finished; other settings are
        refused there unless `overwrite=True`. Default: a temporary folder, which is deleted with the model.
      hparams: of fine-tuning, by name: num_train_epochs=5, seed=1, task_type="regression" (docs/flags.md has all).

    Returns:
      The model that `load` gives of the trained folder (of several trials, of the first). Its `scores` are those of the
      development data, its `source.path` is the folder.

    Raises:
      UserError: what is wrong with texts, labels or hparams; the folder holds another run.
      KeyboardInterrupt: training was interrupted, after it saved the step.
    """
    if threading.current_thread() is not threading.main_thread():
        raise UserError("finetune: call it from the main thread, where it can save what is trained when it is stopped")
    _check_hparams(hparams)
    if dev is None and dev_labels is not None:
        raise UserError("finetune: dev_labels are given without dev, the texts that they belong to")
    label_column = hparams.get("label_column", "label")
    data = {"train": _table_of("train", train, labels, label_column)}
    if dev is not None:
        data["dev"] = _table_of("dev", dev, dev_labels, label_column)
    if folder is not None:
        return _trained(_configuration(data, model, Path(folder), hparams))
    temporary = tempfile.mkdtemp(prefix="electra_finetuned_")
    try:
        trained = _trained(_configuration(data, model, Path(temporary), hparams))
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    weakref.finalize(trained, shutil.rmtree, temporary, ignore_errors=True)
    return trained


def _check_hparams(hparams: Mapping[str, Any]) -> None:
    """Raises UserError for hparams that are unknown or wrong, or that follow from the other arguments."""
    known = {field.name for _, field in all_hparams(FinetuningConfig)}
    for name in hparams:
        if name not in known:
            hint = closest(name, [*known, "train", "labels", "dev", "dev_labels", "folder"])
            raise UserError(f"finetune: there is no hparam {name!r}{hint or '; docs/flags.md has all'}")
        if name in _ARGUMENTS:
            raise UserError(f"finetune: {name} follows from the argument {_ARGUMENTS[name]}: give that")
    checked(FinetuningConfig, _as_lists(hparams))
    if hparams.get("do_train") is False:
        raise UserError(
            "finetune: do_train is false, but it trains: electra.load gives a model that was trained before"
        )


def _as_lists(hparams: Mapping[str, Any]) -> dict[str, Any]:
    """The hparams, with the one column that text_column may name in a list."""
    text_column = hparams.get("text_column")
    return {**hparams, "text_column": [text_column]} if isinstance(text_column, str) else dict(hparams)


def _configuration(
    data: Mapping[str, "str | ExampleTable"], model: str | os.PathLike[str], folder: Path, hparams: Mapping[str, Any]
) -> FinetuningConfig:
    """The configuration of a training that writes into a folder, ready to be trained. Raises UserError."""
    given = _as_lists(hparams)
    given["model"] = os.fspath(model)
    given["model_dir"] = str(folder / "model")
    given["results_dir"] = str(folder / "results")
    given["test_predictions"] = str(folder / "test_predictions")
    for split, table in data.items():
        if isinstance(table, ExampleTable):
            given.setdefault("text_column", table.text_columns)
            given[f"{split}_file"] = _write(table, folder)
        else:
            given[f"{split}_file"] = table
    given = with_named(checked(FinetuningConfig, given))
    advice = "Give what it was trained with, or another folder, or overwrite=True to train anew."
    return prepare(FinetuningConfig.from_dict(given), given, advice)


def _trained(config: FinetuningConfig) -> "Model":
    """Trains, and loads the first trial's model."""
    before_tensorflow()
    code, _ = train_and_score(config)
    if code == 130:
        raise KeyboardInterrupt
    if code:
        raise SystemExit(code)  # a signal that asks the process to end
    from electra_tf2.inference.model import load

    return load(f"{config.model_dir}_1")


# Examples in memory.


class ExampleTable(NamedTuple):
    """Examples as rows, column -> value, and the columns of their texts."""

    rows: list[dict[str, Any]]
    text_columns: list[str]


def _table_of(name: str, examples: Any, labels: Iterable[Any] | None, label_column: str) -> "str | ExampleTable":
    """The path of a file of examples, or a table of those that are in memory.

    Raises:
      UserError: there are no such examples; labels are missing, too many or not needed.
    """
    name_of_labels = "labels" if name == "train" else "dev_labels"
    if isinstance(examples, (str, os.PathLike)):
        if not Path(examples).exists():
            raise UserError(f"finetune: {name}: there is no file {shown(os.fspath(examples))}; texts come as a list")
        if labels is not None:
            raise UserError(
                f"finetune: {name} is a file, of which label_column names the labels: leave {name_of_labels} out"
            )
        return os.fspath(examples)
    if hasattr(examples, "columns") and hasattr(examples, "to_dict"):  # a data frame of pandas
        examples = examples.to_dict("records")
    if isinstance(examples, Mapping) or not isinstance(examples, Iterable):
        raise UserError(f"finetune: {name} is a list of texts, a data frame or a path, not {shown(examples)}")
    examples = list(examples)
    if not examples:
        raise UserError(f"finetune: {name} holds no examples")
    if isinstance(examples[0], Mapping):
        if labels is not None:
            raise UserError(
                f"finetune: {name} has columns, of which label_column names the labels: leave {name_of_labels} out"
            )
        return ExampleTable(_plain_rows(name, examples), ["text"])
    if labels is None:
        raise UserError(f"finetune: {name_of_labels} are missing: give one for each text of {name}")
    labels = list(labels)
    if len(labels) != len(examples):
        raise UserError(
            f"finetune: {name} has {counted(len(examples), 'text')}, but {name_of_labels} has {len(labels):,}: "
            "each text needs one"
        )
    return _table_of_texts(name, examples, labels, label_column)


def _plain_rows(name: str, examples: Sequence[Any]) -> list[dict[str, Any]]:
    """Rows as JSON has them. Raises UserError: one is no dict."""
    rows = []
    for number, row in enumerate(examples):
        if not isinstance(row, Mapping):
            raise UserError(f"finetune: {name}[{number}] is {shown(row)}, but must be a dict as the first is")
        rows.append(_plain(row))
    return rows


def _table_of_texts(name: str, examples: Sequence[Any], labels: Sequence[Any], label_column: str) -> ExampleTable:
    """A table of texts, or of pairs of texts. Raises UserError: one is something else."""
    pairs = isinstance(examples[0], (tuple, list))
    columns = _PAIR if pairs else _PAIR[:1]
    wanted = "a pair of texts" if pairs else "a text"
    rows = []
    for number, (example, label) in enumerate(zip(examples, labels, strict=True)):
        texts = list(example) if pairs and isinstance(example, (tuple, list)) else [example]
        texts = [_plain(text) for text in texts]
        if len(texts) != len(columns) or not all(text is None or isinstance(text, str) for text in texts):
            raise UserError(f"finetune: {name}[{number}] is {shown(example)}, but must be {wanted}")
        row = dict(zip(columns, texts, strict=True))
        row[label_column] = _plain(label)
        rows.append(row)
    return ExampleTable(rows, columns)


def _write(table: ExampleTable, folder: Path) -> str:
    """Writes a table as JSON lines into a folder, and returns its path.

    Other examples get another file, so that what an earlier trial learned from stays.
    """
    lines = [json.dumps(row) + "\n" for row in table.rows]
    content = "".join(lines)
    digest = hashlib.sha256(content.encode()).hexdigest()
    path = folder / "data" / digest[:12] / f"{_TASK}.jsonl"
    if not path.exists():
        write_atomically(path, content)
    return str(path)


def _plain(value: Any) -> Any:
    """A value of Python, numpy or pandas as JSON has it; null for what marks a missing one (None, NaN, NaT, NA)."""
    if hasattr(value, "tolist"):  # of numpy
        value = value.tolist()
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


# Before training: what the program does, too.


def prepare(config: FinetuningConfig, given: Mapping[str, Any], advice: str = "") -> FinetuningConfig:
    """Checks a training before anything slow, and prints what it is.

    Args:
      given: the hparams that the user gave.
      advice: what to do about a folder that holds another run; default: in the program's flags.

    Returns:
      The configuration in the precision that this machine is made for.

    Raises:
      UserError: the model, the vocabulary or the data are not there; a folder holds another run.
    """
    check_start(config)
    check_vocabulary(config)
    check_data(config)
    config = in_fitting_precision(config, given)
    check_folders(config, advice)
    print_summary(config, given)
    return config


def check_start(config: FinetuningConfig) -> None:
    """Raises UserError if there is nothing where the pre-trained model should be."""
    if Path(f"{config.model_dir}_1").exists():
        return  # a trial that was begun needs it no more
    start = config.init_checkpoint
    if not start or "://" in start or Path(start).exists() or Path(f"{start}.index").exists():
        return
    name = Path(start).name
    hint = "" if name in recipe_names() else closest(name, models())
    raise UserError(
        f"no model at {start}{hint or '.'} Name one by --model (electra models lists them) or --init-checkpoint, "
        "or make it with electra pretrain"
    )


def check_vocabulary(config: FinetuningConfig) -> None:
    """Raises UserError unless the vocabulary is there and has the model's size."""
    size = len(load_tokens(config.vocab_file))
    if size != config.vocab_size:
        raise UserError(
            f"vocab_size is {config.vocab_size}, but {config.vocab_file} has {size} tokens: "
            "give the vocabulary that the model was pre-trained with, or its --vocab-size"
        )


def check_data(config: FinetuningConfig) -> None:
    """Raises UserError if files that a task names are not there, or none of the folders that its files may lie in."""
    for name in config.task_names:
        settings = settings_of(name, config.tasks)
        if not settings.is_ours:
            continue  # a class of the user's own finds its files itself
        named = settings.options.get("files", {})
        files = TaskFiles(name, config, files=named, folders=settings.options.get("folders", ()))
        for split in named:
            files.path(split)
        if not named and not any(folder.is_dir() for folder in files.folders):
            files.path("train")


def in_fitting_precision(config: FinetuningConfig, given: Mapping[str, Any]) -> FinetuningConfig:
    """The configuration in the precision that this machine is made for, or that its first trial began in.

    Prints a note where that is another than the settings say.
    """
    first_trial = Path(f"{config.model_dir}_1")
    began: dict[str, Any] = {}
    if not config.overwrite and holds_work(first_trial):
        began = read_config(first_trial) or {}
    config, notes = fitted_to_machine(config, given, began)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    return config


def check_folders(config: FinetuningConfig, advice: str = "") -> None:
    """Raises UserError if a trial's folder holds a run with other hparams, which this one is not to overwrite.

    Only reads: the trials lock their folders and look again before they train.
    """
    advice = advice or (
        f"Give what it was trained with, or --overwrite to train anew, or train beside it: --model-dir "
        f"{shlex.quote(_free_model_dir(config.model_dir))}"
    )
    for trial in range(1, config.num_trials + 1):
        folder = RunFolder(Path(f"{config.model_dir}_{trial}"), overwrite=config.overwrite, advice=advice)
        folder.check(config.to_json(), free_on_resume(FinetuningConfig), compared)


def _free_model_dir(model_dir: str) -> str:
    """A name like this one whose trials have not begun: model-2, model-3, ..."""
    number = 2
    while Path(f"{model_dir}-{number}_1").exists():
        number += 1
    return f"{model_dir}-{number}"


_RATES = ("learning_rate", "layerwise_lr_decay", "weight_decay_rate")
_PRINTED_APART = {"optimizer", *_RATES, "num_train_epochs", "train_batch_size", "max_seq_length"}


def print_summary(config: FinetuningConfig, given: Mapping[str, Any]) -> None:
    """Prints the model, the settings and where they come from, and what is wrong with the model."""
    sizes = config.architecture
    start = Path(config.init_checkpoint or "random weights")
    name = start.name if start.parent == RELEASED else str(start)
    recipe = recipe_of(given)
    settings = [f"those of recipe {recipe} for fine-tuning" if recipe else "defaults"]
    passed_over = free_on_resume(FinetuningConfig) | shapes_model(FinetuningConfig) | _PRINTED_APART
    settings += [f"{hparam} {given[hparam]}" for hparam in sorted(given.keys() - passed_over)]
    numbers = [f"{rate} {getattr(config, rate):g}" for rate in _RATES]
    if config.optimizer != "adamw":
        numbers.insert(0, f"optimizer {config.optimizer}")
    epochs = f"{config.num_train_epochs:g} {'epoch' if config.num_train_epochs == 1 else 'epochs'}"
    numbers.append(f"{epochs} in batches of {config.train_batch_size}")
    numbers.append(f"max_seq_length {config.max_seq_length}")
    lines = [
        f"model          {name}: {sizes.num_hidden_layers} layers of {sizes.hidden_size}, {config.vocab_size:,} tokens",
        f"settings       {', '.join(settings)}",
        f"               {', '.join(numbers)}",
    ]
    say("\n".join(lines), indent=15, broken=True)
    for problem in problems_of_start(config.init_checkpoint):
        warn(f"the model is {problem}")


def problems_of_start(folder: str | None) -> list[str]:
    """Warnings of the newest evaluation of pre-training of the model in a folder, if there was one."""
    newest_step = -1.0
    problems: list[str] = []
    if not folder:
        return problems
    for path in [*Path(folder).glob("eval/step-*.json"), *Path(folder).glob("results/unsup_results.json")]:
        with contextlib.suppress(UserError, KeyError, TypeError, ValueError):  # a damaged one is passed over
            metrics = read_json(path, "evaluation")
            step = float(metrics.get("step", path.stem.rpartition("-")[2]))
            warnings = diagnosis.warnings(metrics)
            if step > newest_step:
                newest_step = step
                problems = warnings
    return problems


# Training.


def train_and_score(config: FinetuningConfig) -> tuple[int, list[dict[str, Any]]]:
    """Trains and scores all trials that are not finished, and writes and prints the scores of all.

    Returns:
      Exit code, 128 and the signal's number after one, and what scores.json holds of every finished trial.
    """
    import_tensorflow()
    from electra_tf2.finetune.trials import Trials
    from electra_tf2.training.distribution import check_batch, is_chief, make_strategy

    strategy = make_strategy(config)
    check_batch("train_batch_size", config.train_batch_size, strategy, config.gradient_accumulation_steps)
    check_batch("eval_batch_size", config.eval_batch_size, strategy)
    code, finished = Trials(config, strategy).run()
    if finished and is_chief(strategy):
        report(config, finished)
    return code, finished


def report(config: FinetuningConfig, finished: Sequence[dict[str, Any]]) -> None:
    """Writes and prints the table and the scores of all trials."""
    from electra_tf2.finetune.mistakes import shown_errors
    from electra_tf2.finetune.results import summarise_trials, table

    scores = [trial["scores"] for trial in finished]
    last = finished[-1]
    majority = last.get("majority", {})
    text = table(scores, majority)
    write_atomically(config.results_txt, text)
    summary = {"summary": summarise_trials(scores), "majority": majority}
    write_json(config.results_json, {"tasks": config.task_names, "trials": finished} | summary)
    print(text, end="")
    for name, errors in last.get("errors", {}).items():
        print(shown_errors(name, errors), end="")
    say(f"wrote {config.results_json}")
    first_model = Path(f"{config.model_dir}_1")
    if first_model.exists() and len(config.task_names) == 1:
        say(f"to label other rows: electra predict FILE --output ANSWERS.csv --model {first_model}")
