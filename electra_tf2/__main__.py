"""The command `electra`, also `python -m electra_tf2`: a subcommand for each program of the project.

A subcommand takes the flags of its program. Only its own program is imported, so that help is fast.
"""

import argparse
import importlib
import json
import os
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple, NoReturn

from electra_tf2.util.output import open_standard_streams


class Command(NamedTuple):
    """A subcommand.

    module: the module of programs/ that it runs; "": a function of this module.
    text: its help.
    """

    module: str
    text: str


COMMANDS: dict[str, Command] = {
    "plan": Command("plan_pretraining", "say what to pre-train on your text in some hours"),
    "build-vocab": Command("build_vocab", "make a vocabulary of your text"),
    "build-data": Command("build_pretraining_dataset", "make training records of your text"),
    "build-openwebtext": Command("build_openwebtext_pretraining_dataset", "make them of the OpenWebText archive"),
    "build-table": Command("build_table", "count in records what some objectives need"),
    "build-pairs": Command("build_sentence_pairs", "make pairs of sentences to train vectors of"),
    "pretrain": Command("run_pretraining", "pre-train a model, or evaluate one"),
    "finetune": Command("run_finetuning", "fine-tune a model on a task, and score it"),
    "predict": Command("", "label a file with a fine-tuned model"),
    "score": Command("score_sentences", "score sentences, pairs or n-best lists"),
    "analyze": Command("run_analysis", "draw learning curves and what vectors hold"),
    "convert": Command("convert_model", "read and write other programs' models"),
    "flops": Command("flops_computation", "say what a run costs, before it runs"),
    "models": Command("", "list the models that come with the package, and yours"),
    "recipes": Command("", "list the settings that --recipe knows"),
}
PREDICT_HELP = """Labels a file with a fine-tuned model: its rows come out with label and
probabilities. Of a file that holds the right labels, too, scores are printed.

  {name} FILE --model FOLDER [--output FILE]

FILE            JSON lines (.jsonl, .json), a table (.csv, .tsv), or text with
                an example a line; - is standard input. A tagger splits text as
                its training data were: of files of words at blanks alone, so
                that "Paris," is one word with its comma. Files of tagged words
                and SQuAD's JSON are read, too
--model         a fine-tuned model's folder, as `electra finetune` names it, or
                one of Hugging Face
--text-column   columns of the texts, if they are called otherwise than in the
                training data
--output        what is written: .jsonl or .csv, of a tagger also .conll, a
                word and its tag on each line; - is standard output
                [FILE.predictions.jsonl]
--task-names    the task, of a model that learned several
--qa-na-threshold
                of questions: the score above which the answer is left empty
--predict-batch-size
                examples of a batch [32]

All other flags are those of `electra finetune`."""


def help_text(name: str) -> str:
    """The subcommands on one screen of 80 columns."""
    width = max(map(len, COMMANDS))
    lines = [
        "Pre-trains text encoders by replaced-token detection and its relatives, and",
        "fine-tunes them.",
        "",
        f"  {name} COMMAND [--flag value ...]",
        "",
    ]
    for word, subcommand in COMMANDS.items():
        lines.append(f"  {word:{width}}  {subcommand.text}")
    lines += ["", "COMMAND --help lists the flags of a command, --version names the release."]
    return "\n".join(lines)


def command() -> None:
    """Runs the subcommand that the command line names."""
    open_standard_streams()
    name = Path(sys.argv[0]).name
    if name == "__main__.py":
        name = "python -m electra_tf2"
    word = "--help"
    rest: list[str] = []
    if len(sys.argv) > 1:
        word, *rest = sys.argv[1:]

    if word in ("--help", "-h", "help"):
        _print(help_text(name))
    elif word in ("--version", "version"):
        from electra_tf2 import __version__

        _print(__version__)
    elif word not in COMMANDS:
        from electra_tf2.util.errors import closest, see_help

        hint = closest(word, COMMANDS) or f", but {', '.join(COMMANDS)}"
        _fail(see_help(f"there is no command {word!r}{hint}"))
    elif word == "predict":
        _predict(f"{name} predict", rest)
    elif word == "models":
        _list_models(f"{name} models", rest)
    elif word == "recipes":
        _list_recipes(f"{name} recipes", rest)
    else:
        _run(COMMANDS[word].module, f"{name} {word}", rest)


def _run(module: str, name: str, rest: list[str]) -> None:
    """Runs a program as if it had been called by this name with the words `rest`."""
    sys.argv = [name, *rest]
    try:
        program = importlib.import_module(f"electra_tf2.programs.{module}")
    except ModuleNotFoundError as error:
        _fail(f"{error}: this Python lacks what the program needs; `pip install .` in the program's folder first")
    program.command()


def _predict(name: str, rest: list[str]) -> None:
    """Runs the program of `finetune`, which also predicts."""
    if not rest or "--help" in rest or "-h" in rest:
        _print(PREDICT_HELP.format(name=name))
        return
    _run("run_finetuning", name, predict_words(rest))


def predict_words(rest: list[str]) -> list[str]:
    """Translates the command line of `predict` to flags of `finetune`."""
    finetune_flags = {"--output": "--predict-output", "--model": "--model-dir"}
    words = []
    for word in rest:
        flag, equals, value = word.partition("=")
        words.append(finetune_flags.get(flag, flag) + equals + value)
    if not words[0].startswith("--"):
        words.insert(0, "--predict")  # the first word is FILE
    return words


def _parser(word: str, name: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(name, description=COMMANDS[word].text, allow_abbrev=False)


def _list_recipes(name: str, rest: list[str]) -> None:
    from electra_tf2.config.recipes import RECIPES, recipe_names

    _parser("recipes", name).parse_args(rest)
    lines = []
    for recipe in recipe_names():
        content = json.loads((RECIPES / f"{recipe}.json").read_text(encoding="utf-8"))
        description = content.get("description", "")
        lines.append(recipe)
        lines += textwrap.wrap(description, 80, initial_indent="    ", subsequent_indent="    ")
    _print("\n".join(lines))


def _list_models(name: str, rest: list[str]) -> None:
    """Prints the shipped models, then the runs of a data folder, or of all data folders nearby."""
    from electra_tf2.formats.folders import (
        SHIPPED,
        fine_tuned_folders,
        models,
        nearby_data_dirs,
        pretrained_folders,
    )

    parser = _parser("models", name)
    parser.add_argument("--data-dir", help="folder of your models [all data folders here and two levels below]")
    data_dir = parser.parse_args(rest).data_dir
    data_dirs = [Path(data_dir)] if data_dir else nearby_data_dirs()

    lines = ["with the package:"]
    for model, description in models().items():
        size = (SHIPPED / model / "model.safetensors").stat().st_size / 1e6
        line = f"{model} ({size:.0f} MB): {description}"
        lines += textwrap.wrap(line, 80, initial_indent="  ", subsequent_indent="      ")
    for folder in data_dirs:
        runs = {"pre-trained": pretrained_folders(folder), "fine-tuned": fine_tuned_folders(folder)}
        for title, paths in runs.items():
            if paths:
                lines.append(f"{title}, in {folder / 'models'}:")
                lines += [f"  {path}" for path in paths]
    _print("\n".join(lines))


def _print(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # The reader has closed the pipe, as in "electra --help | head -1". Python would fail again when it closes
        # standard output, so that becomes /dev/null.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    command()
