"""A fine-tuning from its configuration to its report, as the program and `electra_tf2.finetune` run it.

    prepare           refuses what cannot work, before anything slow
    train_and_score   trains and scores every trial, and prints the report

Imports no TensorFlow before `train_and_score`, so that a mistake is answered at once.
"""

import contextlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from electra_tf2.config.hparams import free_on_resume, shapes_model
from electra_tf2.config.recipes import recipe_names
from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.vocabulary import load_tokens
from electra_tf2.files.reading import read_json
from electra_tf2.files.writing import write_atomically, write_json
from electra_tf2.finetune.starts import configuration, recipe_of, with_named
from electra_tf2.finetune.tasks.files import TaskFiles
from electra_tf2.finetune.trained_folder import compared
from electra_tf2.formats.folders import RELEASED, holds_weights, models, read_config, what_lies_at
from electra_tf2.pretrain import diagnosis
from electra_tf2.settings.own import settings_of
from electra_tf2.training.precision import fitted_to_machine
from electra_tf2.training.run_folder import RunFolder, holds_work
from electra_tf2.util.environment import import_tensorflow, program_called
from electra_tf2.util.errors import UserError, closest
from electra_tf2.util.progress import say, warn


def prepare(config: FinetuningConfig, given: Mapping[str, Any], advice: str) -> FinetuningConfig:
    """Checks a training before anything slow, and prints what it is.

    Args:
      given: the hparams that the user gave, before others follow from them.
      advice: what to do about a folder that holds another run.

    Returns:
      The configuration in the precision that this machine is made for.

    Raises:
      UserError: the model, the vocabulary or the data are not there; a folder holds another run.
    """
    check_start(config)
    check_vocabulary(config)
    check_data(config)
    config = in_fitting_precision(config, given)
    check_folders(config, given, advice)
    print_summary(config, with_named(given))
    return config


def check_start(config: FinetuningConfig) -> None:
    """Raises UserError if there is nothing where the pre-trained model should be."""
    if Path(f"{config.model_dir}_1").exists():
        return  # a trial that was begun needs it no more
    start = config.init_checkpoint
    if not start or "://" in start or Path(f"{start}.index").exists():
        return
    if Path(start).exists():
        if Path(start).is_dir() and not holds_weights(start):
            hint = what_lies_at(start) or "nothing was trained there yet"
            raise UserError(f"no checkpoint at {start}: {hint}")
        return
    name = Path(start).name
    hint = "" if name in recipe_names() else closest(name, models())
    raise UserError(
        f"no model at {start}{hint or '.'} Name one by `model` (electra models lists them), or make it with "
        "electra pretrain"
    )


def check_vocabulary(config: FinetuningConfig) -> None:
    """Raises UserError unless the vocabulary is there and has the model's size."""
    size = len(load_tokens(config.vocab_file))
    if size != config.vocab_size:
        raise UserError(
            f"vocab_size is {config.vocab_size}, but {config.vocab_file} has {size} tokens: "
            "give the vocabulary that the model was pre-trained with, or its vocab_size"
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


def check_folders(config: FinetuningConfig, given: Mapping[str, Any], advice: str) -> None:
    """Raises UserError if a trial's folder holds a run with other hparams, which this one is not to overwrite.

    Only reads: the trials lock their folders and look again before they train.
    """

    def resolved_with(hparams: Mapping[str, Any], left_out: str) -> dict[str, Any]:
        kept = {name: value for name, value in given.items() if name != left_out}
        return json.loads(configuration({**kept, **hparams}).to_json())

    for trial in range(1, config.num_trials + 1):
        folder = RunFolder(Path(f"{config.model_dir}_{trial}"), overwrite=config.overwrite, advice=advice)
        folder.check(config.to_json(), free_on_resume(FinetuningConfig), compared, resolved_with)


_RATES = ("learning_rate", "layerwise_lr_decay", "weight_decay_rate")
_PRINTED_APART = {"optimizer", *_RATES, "num_train_epochs", "train_batch_size", "max_seq_length"}


def print_summary(config: FinetuningConfig, given: Mapping[str, Any]) -> None:
    """Prints the model, the settings and where they come from, and what is wrong with the model."""
    sizes = config.architecture
    start = Path(config.init_checkpoint or "random weights")
    name = str(start)
    if start.parent == RELEASED:
        name = start.name
    settings = ["defaults"]
    recipe = recipe_of(given)
    if recipe:
        settings = [f"those of recipe {recipe} for fine-tuning"]
    passed_over = free_on_resume(FinetuningConfig) | shapes_model(FinetuningConfig) | _PRINTED_APART
    settings += [f"{hparam} {given[hparam]}" for hparam in sorted(given.keys() - passed_over)]
    numbers = [f"{rate} {getattr(config, rate):g}" for rate in _RATES]
    if config.optimizer != "adamw":
        numbers.insert(0, f"optimizer {config.optimizer}")
    unit = "epoch" if config.num_train_epochs == 1 else "epochs"
    numbers.append(f"{config.num_train_epochs:g} {unit} in batches of {config.train_batch_size}")
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


def train_and_score(config: FinetuningConfig, is_kept: bool = True) -> tuple[int, list[dict[str, Any]]]:
    """Trains and scores all trials that are not finished, and writes and prints the scores of all.

    Args:
      is_kept: whether the files outlive this process, so that it is of use to say where they are.

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
        if is_kept:
            say_what_was_written(config)
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


def say_what_was_written(config: FinetuningConfig) -> None:
    say(f"wrote {config.results_json}")
    first_model = Path(f"{config.model_dir}_1")
    if first_model.exists() and len(config.task_names) == 1:
        say(f"to label other rows: {program_called()} predict FILE --output ANSWERS.csv --model {first_model}")
