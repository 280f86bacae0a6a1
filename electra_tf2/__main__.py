"""The command `electra`, and `python -m electra_tf2`: every program of the project by the name of what it does.

A subcommand takes the flags of its script. Nothing but the script that is asked for is imported, so help answers at
once.
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

    module: the script that runs it; "" for those of this module.
    text: what it does, for help.
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
probabilities.

  {name} FILE --model FOLDER [--output FILE]

FILE            JSON lines (.jsonl, .json), a table (.csv, .tsv), or text with
                an example a line; - is standard input
--model         a fine-tuned model's folder, as `electra finetune` names it
--output        what is written: .jsonl or .csv; - is standard output
                [FILE.predictions.jsonl]
--task-names    the task, of a model that learned several
--predict-batch-size
                examples of a batch [32]

All other flags are those of `electra finetune`."""


def help_text(name: str) -> str:
    """The subcommands on one screen of 80 columns."""
    width = max(map(len, COMMANDS))
    lines = [f"  {command:{width}}  {of.text}" for command, of in COMMANDS.items()]
    return "\n".join(
        [
            "Pre-trains text encoders by replaced-token detection and its relatives, and",
            "fine-tunes them.",
            "",
            f"  {name} COMMAND [--flag value ...]",
            "",
            *lines,
            "",
            "COMMAND --help lists the flags of a command, --version names the release.",
        ]
    )


def command() -> None:
    """Runs the subcommand that the command line names."""
    open_standard_streams()
    called = Path(sys.argv[0]).name
    name = "python -m electra_tf2" if called == "__main__.py" else called
    word, rest = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else ("--help", [])
    if word in ("--help", "-h", "help"):
        _print(help_text(name))
    elif word in ("--version", "version"):
        from electra_tf2 import __version__

        _print(__version__)
    elif word not in COMMANDS:
        from electra_tf2.util.errors import closest

        _fail(f"there is no command {word!r}{closest(word, COMMANDS)} (one of {', '.join(COMMANDS)}); see --help")
    elif COMMANDS[word].module:
        _run(COMMANDS[word].module, f"{name} {word}", rest)
    elif word == "predict":
        if not rest or {"--help", "-h"} & {*rest}:
            _print(PREDICT_HELP.format(name=f"{name} {word}"))
        else:
            _run("run_finetuning", f"{name} {word}", predict_words(rest))
    else:
        parser = argparse.ArgumentParser(f"{name} {word}", description=COMMANDS[word].text, allow_abbrev=False)
        if word == "models":
            parser.add_argument("--data-dir", default="data", help="folder of your models [data]")
        data_dir = vars(parser.parse_args(rest)).get("data_dir")
        _print("\n".join(_recipes() if data_dir is None else _models(data_dir)))


def predict_words(rest: list[str]) -> list[str]:
    """The flags of `finetune` for those of `predict`."""
    spelled = {"--output": "--predict-output", "--model": "--model-dir"}
    words = [spelled.get(name, name) + equals + value for name, equals, value in (word.partition("=") for word in rest)]
    return words if words[0].startswith("--") else ["--predict", *words]


def _run(module: str, name: str, rest: list[str]) -> None:
    sys.argv = [name, *rest]
    try:
        program = importlib.import_module(f"electra_tf2.programs.{module}")
    except ModuleNotFoundError as error:
        _fail(f"{error}: this Python lacks what the program needs; `pip install .` in the program's folder first")
    program.command()


def _recipes() -> list[str]:
    from electra_tf2.config.recipes import RECIPES, recipe_names

    lines = []
    for name in recipe_names():
        described = json.loads((RECIPES / f"{name}.json").read_text(encoding="utf-8")).get("description", "")
        lines += [name, *textwrap.wrap(described, 80, initial_indent="    ", subsequent_indent="    ")]
    return lines


def _models(data_dir: str) -> list[str]:
    """The shipped models, then the runs of a data folder."""
    from electra_tf2.formats.folders import RELEASED, models

    lines = ["with the package:"]
    for name, what in models().items():
        size = (RELEASED / name / "model.safetensors").stat().st_size / 1e6
        lines += textwrap.wrap(f"{name} ({size:.0f} MB): {what}", 80, initial_indent="  ", subsequent_indent="      ")
    folder = Path(data_dir, "models")
    runs = sorted(path.parent for path in folder.glob("*/config.json"))
    tuned = sorted(path.parent for path in folder.glob("*/finetuning_models/*/config.json"))
    for title, found in (("pre-trained", runs), ("fine-tuned", tuned)):
        lines += [f"{title}, in {folder}:", *(f"  {path}" for path in found)] if found else []
    return lines


def _print(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:  # "electra --help | head -1"
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    command()
