"""Fine-tunes a pre-trained model on GLUE, SQuAD, MRQA, tagging or one's own tasks, and scores it.

  python run_finetuning.py --data-dir data --model-name electra_small \\
      --task-names cola

reads <data-dir>/finetuning_data/cola/{train,dev}.tsv and starts from <data-dir>/models/electra_small. Scores go to
<data-dir>/models/electra_small/results. The same command resumes a run that was stopped.

  python run_finetuning.py --model-dir FOLDER --predict FILE

labels a file (JSON lines, csv, tsv, or plain text; - is standard input) with the fine-tuned model of a folder.
"""

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import Any

from absl import flags

from electra_tf2.config import flags as util_flags
from electra_tf2.config.hparams import checked, free_on_resume, layered, shapes_model
from electra_tf2.config.recipes import recipe_names
from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.vocabulary import load_tokens
from electra_tf2.files.reading import read_bytes, read_json
from electra_tf2.files.tables import SPLITS
from electra_tf2.files.writing import check_writable, delimiter_of_output, encoded_output, write_atomically, write_json
from electra_tf2.finetune.trained_folder import find_trained, trained_config
from electra_tf2.formats.folders import RELEASED, models, read_config
from electra_tf2.pretrain import diagnosis
from electra_tf2.settings.defaults import recipe_of, with_named
from electra_tf2.training.precision import fitted_to_machine
from electra_tf2.training.run_folder import holds_work
from electra_tf2.util.environment import import_tensorflow
from electra_tf2.util.errors import UserError, closest
from electra_tf2.util.progress import say


def check_vocabulary(config: FinetuningConfig) -> None:
    """Before anything slow: the vocabulary is there and has the model's size."""
    size = len(load_tokens(config.vocab_file))
    if size != config.vocab_size:
        raise UserError(
            f"vocab_size is {config.vocab_size}, but {config.vocab_file} has {size} tokens: "
            "give the vocabulary that the model was pre-trained with, or its --vocab-size"
        )


def check_files(given: dict[str, Any]) -> None:
    """Raises UserError if a file that is named by a flag is not there."""
    for split in SPLITS:
        path = given.get(f"{split}_file")
        if path and not Path(path).exists():
            raise UserError(f"--{split}-file: there is no file {path}")


def check_start(config: FinetuningConfig) -> None:
    """Raises UserError if there is nothing where the pre-trained model should be, before anything is said of it."""
    start = "" if Path(f"{config.model_dir}_1").exists() else config.init_checkpoint  # what was begun has its own
    if start and "://" not in start and not any(Path(path).exists() for path in (start, f"{start}.index")):
        name = Path(start).name
        hint = "" if name in recipe_names() else closest(name, models())
        raise UserError(
            f"no model at {start}{hint or '.'} Name one by --model (electra models lists them) or --init-checkpoint, "
            "or make it with electra pretrain"
        )


def in_fitting_precision(config: FinetuningConfig, given: dict[str, Any]) -> FinetuningConfig:
    """The configuration in the precision that this machine is made for, or its first trial began in; says changes."""
    first_trial = Path(f"{config.model_dir}_1")
    began: dict[str, Any] = {}
    if not config.overwrite and holds_work(first_trial):
        began = read_config(first_trial) or {}
    config, notes = fitted_to_machine(config, given, began)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    return config


def main() -> int:
    given = checked(FinetuningConfig, layered(FinetuningConfig, util_flags.given_hparams(FinetuningConfig)))
    given = with_named(given)
    if flags.FLAGS.predict:
        return label(given, flags.FLAGS.predict)
    if not (given.get("do_train", True) or given.get("do_eval", True)):
        raise UserError("do_train and do_eval are both false: nothing to do")
    check_files(given)
    if given.get("do_train", True):
        config = util_flags.config_from_flags(FinetuningConfig, with_recipe=False)
        check_start(config)
        config = in_fitting_precision(config, given)
        print_summary(config, given)
    else:
        config = trained_config(find_trained(given, 1), given, elsewhere=False)
    check_vocabulary(config)

    import_tensorflow()
    from electra_tf2.finetune.trials import Trials
    from electra_tf2.training.distribution import check_batch, is_chief, make_strategy

    strategy = make_strategy(config)
    check_batch("train_batch_size", config.train_batch_size, strategy, config.gradient_accumulation_steps)
    check_batch("eval_batch_size", config.eval_batch_size, strategy)
    code, finished = Trials(config, strategy).run()
    if finished and is_chief(strategy):
        report(config, finished)
    return code


def label(given: dict[str, Any], source: str) -> int:
    """--predict; where the answers go to standard output, everything else goes to standard error."""
    output = flags.FLAGS.predict_output or ("-" if source == "-" else f"{source}.predictions.jsonl")
    if source != "-" and not Path(source).is_fifo():  # a pipe is read once
        read_bytes(source, "--predict")
    delimiter = ""
    if output != "-":
        if os.path.exists(output) and os.path.exists(source) and os.path.samefile(output, source):
            raise UserError(f"--output {output} is the file that is to be labelled: give another")
        delimiter = delimiter_of_output(output)
        check_writable(output)
    folder = find_trained(given, flags.FLAGS.trial)
    wanted = given.pop("task_names", None)
    config = trained_config(folder, given, elsewhere=True)
    names = [name for name in config.task_names if wanted is None or name in wanted]
    if len(names) != 1:
        raise UserError(f"--predict wants one task: {folder} has {', '.join(config.task_names)}; give --task-names")
    check_vocabulary(config)
    with contextlib.redirect_stdout(sys.stderr) if output == "-" else contextlib.nullcontext():
        import_tensorflow()
        from electra_tf2.inference.predictor import predict

        answers = predict(config, folder, names[0], source, delimiter)
    if output == "-":
        if isinstance(sys.__stdout__, io.TextIOWrapper):
            sys.__stdout__.reconfigure(encoding="utf-8")  # whatever a terminal shows: it is a file for others to read
        print(answers, end="")
    else:
        if os.path.isfile(output):
            print(f"note: {output} was there and is replaced", file=sys.stderr)
        write_atomically(output, encoded_output(output, answers))
        say(f"labelled {source}: {output}")
    return 0


_RATES = ("learning_rate", "layerwise_lr_decay", "weight_decay_rate")
_SUMMED_UP = {"optimizer", *_RATES, "num_train_epochs", "train_batch_size", "max_seq_length"}


def print_summary(config: FinetuningConfig, given: dict[str, Any]) -> None:
    """Prints the model, the settings and whose they are, and what is wrong with the model."""
    sizes, recipe = config.architecture, recipe_of(given)
    shown = given.keys() - free_on_resume(FinetuningConfig) - shapes_model(FinetuningConfig) - _SUMMED_UP
    start = Path(config.init_checkpoint or "random weights")
    settings = [f"those of recipe {recipe} for fine-tuning" if recipe else "defaults"]
    settings += [f"{name} {given[name]}" for name in sorted(shown)]
    rates = ", ".join(f"{name} {getattr(config, name):g}" for name in _RATES)
    lines = [
        f"model          {start.name if start.parent == RELEASED else start}: {sizes.num_hidden_layers} layers of "
        f"{sizes.hidden_size}, {config.vocab_size:,} tokens",
        f"settings       {', '.join(settings)}",
        f"               {'' if config.optimizer == 'adamw' else f'optimizer {config.optimizer}, '}{rates}, "
        f"{config.num_train_epochs:g} {'epoch' if config.num_train_epochs == 1 else 'epochs'} in batches of "
        f"{config.train_batch_size}, "
        f"max_seq_length {config.max_seq_length}",
    ]
    say("\n".join(lines), indent=15, broken=True)
    for problem in problems_of_start(config.init_checkpoint):
        say(f"WARNING: the model is {problem}", indent=2)


def problems_of_start(folder: str | None) -> list[str]:
    """Warnings of the newest evaluation of pre-training of the model in a folder, if there was one."""
    newest: tuple[float, list[str]] = (-1, [])
    for path in [*Path(folder or "").glob("eval/step-*.json"), *Path(folder or "").glob("results/unsup_results.json")]:
        with contextlib.suppress(UserError, KeyError, TypeError, ValueError):
            metrics = read_json(path, "evaluation")
            step = float(metrics.get("step", path.stem.rpartition("-")[2]))
            newest = max(newest, (step, diagnosis.warnings(metrics)))
    return newest[1]


def report(config: FinetuningConfig, finished: list[dict[str, Any]]) -> None:
    """Writes and prints the table and the scores of all trials."""
    from electra_tf2.finetune.mistakes import shown_errors
    from electra_tf2.finetune.results import summarise_trials, table

    scores, majority = [trial["scores"] for trial in finished], finished[-1].get("majority", {})
    text = table(scores, majority)
    write_atomically(config.results_txt, text)
    summary = {"summary": summarise_trials(scores), "majority": majority}
    write_json(config.results_json, {"tasks": config.task_names, "trials": finished} | summary)
    print(text, end="")
    for name, errors in finished[-1].get("errors", {}).items():
        print(shown_errors(name, errors), end="")
    say(f"wrote {config.results_json}")
    first_model = Path(f"{config.model_dir}_1")
    if first_model.exists() and len(config.task_names) == 1:
        say(f"to label other rows: electra predict FILE --output ANSWERS.csv --model {first_model}")


_FILES = ".jsonl or .json (lines), .csv, .tsv, text; - is standard input"
flags.DEFINE_string("predict", None, f"file to label with a fine-tuned model: {_FILES}")
flags.DEFINE_string(
    "predict_output",
    None,
    "file that --predict writes, a table if it is .csv or .tsv; -: standard output [<the file>.predictions.jsonl]",
)
flags.DEFINE_integer("trial", 1, "the trial whose model --predict uses")
# What a first run needs: the flags that --help shows.
FIRST = (
    *("predict", "predict_output", "hparams", "model_name", "data_dir", "task_names", "tasks", "model", "train_file"),
    *("dev_file", "test_file", "text_column", "label_column", "task_type", "num_trials", "do_train", "do_eval"),
    *("keep_best", "overwrite", "learning_rate", "num_train_epochs", "seed", "eval_every_steps", "init_checkpoint"),
    *("max_seq_length", "train_batch_size", "few_shot", "write_test_outputs", "model_dir", "precision", "num_gpus"),
)
util_flags.define_hparam_flags(FinetuningConfig)


def command() -> None:
    util_flags.run(main, __doc__, goes_on=True, first=FIRST)


if __name__ == "__main__":
    command()
