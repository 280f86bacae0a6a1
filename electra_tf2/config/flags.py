"""Command lines: flags of absl in our spelling, every hparam a flag, recipes, help, and one-line errors.

`run(main)` is how every script starts. A configuration is resolved in layers, later ones winning: defaults, the recipe
(--recipe, or the one named like --model-name), --hparams, single flags. absl keeps the flags and checks their types;
words are read here (`parse`).
"""

import contextlib
import dataclasses
import functools
import os
import re
import shutil
import sys
import textwrap
import typing
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO, TypeVar, cast

from absl import flags, logging

from electra_tf2.config.hparams import all_hparams, entries_of_dicts, layered, value_problem, value_type, with_home
from electra_tf2.config.papers import paper_of
from electra_tf2.config.recipes import read_recipe, recipe_names
from electra_tf2.files.reading import parse_json, read_json
from electra_tf2.util.environment import before_tensorflow
from electra_tf2.util.errors import UserError, closest, one_line, reason, shown
from electra_tf2.util.output import OutputWithoutReader, open_standard_streams, unwritable_output

C = TypeVar("C")  # a dataclass of hparams: PretrainingConfig, FinetuningConfig
HELP = {"--help", "-h", "-help", "--helpfull", "--helpshort"}


# Flags of hparams.


class _Parser(flags.ArgumentParser):
    """absl's interface of a function that gives the value of a text, or raises UserError."""

    def __init__(self, read: Callable[[str], Any]) -> None:
        self.parse = read


def define_hparam_flags(config_class: type) -> None:
    """One flag per hparam, unset by default; also --hparams."""
    flags.DEFINE(_Parser(_hparams_of), "hparams", None, "JSON object of hparams, or the path of a .json file")
    flags.FLAGS["hparams"].config_class = config_class
    for declaring_class, field in all_hparams(config_class):
        _define(declaring_class, field, of_paper=False)


def _define(declaring_class: type, field: dataclasses.Field, of_paper: bool) -> None:
    kind, _ = value_type(declaring_class, field)
    text = field.metadata["help"]
    if field.name == "recipe":
        text += "; NAME of recipes/NAME.json, which are listed at the end, or a path"
    choices = field.metadata["choices"] or ()
    if not all(re.search(rf"(?<!\w){re.escape(choice)}(?![\w+])", text) for choice in choices):
        text = f"<{'|'.join(choices)}>: {text}"
    default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    text += "" if default is dataclasses.MISSING else _shown_default(default)
    if kind in (dict, list):
        holds_words = typing.get_type_hints(declaring_class)[field.name] == list[str]  # which need not be JSON
        text = text if holds_words else f"JSON: {text}"
        flags.DEFINE(_Parser(functools.partial(_json_or_words, field.name, holds_words)), field.name, None, text)
    else:
        define = {bool: flags.DEFINE_bool, int: flags.DEFINE_integer, float: flags.DEFINE_float}
        define.get(kind, flags.DEFINE_string)(field.name, None, text)
    flags.FLAGS[field.name].heading, flags.FLAGS[field.name].of_paper = field.metadata["heading"], of_paper


def _json_or_words(name: str, holds_words: bool, text: str) -> Any:
    if holds_words and not text.lstrip().startswith("["):
        return [word.strip() for word in text.split(",")]
    return parse_json(text, _dashed(name), expect=object)


def _hparams_of(text_or_path: str) -> dict[str, Any]:
    """--hparams: a JSON object, or the path of a file that holds one."""
    if text_or_path.lstrip().startswith("{"):
        return parse_json(text_or_path, "--hparams")
    if text_or_path and not os.path.exists(text_or_path):
        raise UserError(f"--hparams: {shown(text_or_path)} is neither a JSON object nor a readable file")
    return read_json(text_or_path, "--hparams") if text_or_path else {}


def _define_paper_flags(words: Sequence[str]) -> None:
    """Defines the flags of the paper that the command line or its recipe names, before it is read in earnest."""
    config_class = getattr(flags.FLAGS["hparams"], "config_class", None) if "hparams" in flags.FLAGS else None
    if config_class is None:
        return
    parse(words, lenient=True)
    given = given_hparams(config_class)
    with contextlib.suppress(UserError):  # a wrong name of a recipe is refused when it is needed
        given = _recipe_of_run(given, bare=False) | given
    known = {field.name for _, field in all_hparams(config_class)}
    for declaring_class, field in all_hparams(config_class.extended(given)):
        if field.name not in known:
            if field.name in flags.FLAGS:
                raise UserError(f"paper: an hparam cannot be called {field.name}: the program has such a flag")
            _define(declaring_class, field, of_paper=True)


def given_hparams(config_class: type) -> dict[str, Any]:
    """Hparams of --hparams and of single flags, unchecked."""
    values = {field.name: flags.FLAGS[field.name].value for _, field in all_hparams(config_class)}
    given = {name: value for name, value in values.items() if value is not None}
    replaced = {entry for name, entries in entries_of_dicts(config_class).items() if name in given for entry in entries}
    hparams = flags.FLAGS["hparams"].value or {}
    return {name: value for name, value in hparams.items() if name not in replaced} | given


def _recipe_of_run(given: dict[str, Any], bare: bool) -> dict[str, Any]:
    """Hparams of the recipe of --recipe, else of the one named like the model, else {}.

    Args:
      bare: nothing but the name says what to train, so it must be a recipe's, else UserError.
    """
    recipe = given.get("recipe") or given.get("model_name", "electra_small")
    if not given.get("recipe") and recipe not in recipe_names():
        if bare and isinstance(recipe, str):  # others are refused with all other values
            raise UserError(
                f"model_name: there is no recipe {recipe!r}{closest(recipe, recipe_names()) or '.'} To give a run a "
                "name of its own, say what it is by --recipe (electra recipes lists them) or --hparams"
            )
        return {}
    # A recipe names the run after itself; --recipe with another --model-name keeps the latter.
    layer = read_recipe(recipe)
    return {"model_name": Path(recipe).stem, "recipe": recipe} | layer


def config_from_flags(
    config_class: type[C],
    with_recipe: bool = True,
    implied_by: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> C:
    """The configuration that the parsed flags describe. Notes on it go to standard error.

    Args:
      with_recipe: apply the recipe; false: the configuration itself looks for what recipes say to it.
      implied_by: from the hparams of recipe and user to those that files imply (pretrain.starts). They win over the
        recipe and yield to what the user gives.
    """
    wider, recipe, given = _layers(config_class, with_recipe)
    implied: dict[str, Any] = {}
    if implied_by is not None:
        implied = implied_by(layered(wider, recipe, given))
    config = wider.from_dict(layered(wider, recipe, implied, given))
    notes = list(config.notes())
    if with_recipe and not recipe:
        notes.insert(0, f"there is no recipe {config.model_name!r}: the defaults apply, or --recipe picks one")
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    return config


def changed_hparams(config_class: type) -> dict[str, Any]:
    """Hparams of the parsed flags that are neither their recipe's nor a default."""
    wider, recipe, given = _layers(config_class, with_recipe=True)
    base = {field.name: field.default for field in dataclasses.fields(wider)} | recipe
    return {name: value for name, value in given.items() if value != base.get(name)}


def _layers(config_class: Any, with_recipe: bool) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """The class with all hparams that flags can give, what the recipe says, what --hparams and single flags say."""
    given = given_hparams(config_class)
    recipe = _recipe_of_run(given, bare=not flags.FLAGS["hparams"].value) if with_recipe else {}
    wider = config_class.extended(layered(config_class, recipe, given))
    return wider, recipe, given if wider is config_class else given_hparams(wider)


def hide(*names: str) -> None:
    """Leaves flags out of help: other names of flags that help shows."""
    for name in names:
        flags.FLAGS[name].is_hidden = True


# Words.


def parse(words: Sequence[str], lenient: bool = False) -> list[str]:
    """Sets the flags that the words of a command line, without the program's name, give.

    Names may be spelled with dashes or underscores, switches as `--no-do-eval`, `--nodo_eval` and, as in the original,
    `--no-lower-case` for `--no-do-lower-case`. `--flagfile PATH` stands for the lines of a file.

    Args:
      lenient: pass over flags that are not defined.

    Returns:
      The words that belong to no flag.

    Raises:
      UserError: an unknown flag, a value that is missing or of a wrong type.
    """
    try:
        left = iter(flags.FLAGS.read_flags_from_files(list(words)))
    except UnicodeDecodeError as error:
        raise UserError(f"--flagfile is not UTF-8 text: {error}") from None
    except flags.Error as error:
        raise UserError(str(error).removeprefix("ERROR:: ")) from None
    rest: list[str] = []
    for word in left:
        if word == "--":
            return [*rest, *left]
        if not word.startswith("-"):
            rest.append(word)
            continue
        typed, equals, value = word.partition("=")
        name = typed.lstrip("-").replace("-", "_")
        flag, negated = _flag(name)
        if flag is None and lenient:
            continue
        if flag is None:
            paper = paper_of(name.removeprefix("no_")) if "paper" in flags.FLAGS else ""
            hint = (
                f"; add --paper {paper}, which has it" if paper else closest(_dashed(name), map(_dashed, flags.FLAGS))
            )
            raise UserError(f"unknown flag {_dashed(name)}{hint}; see --help")
        if negated and equals:
            raise UserError(f"{typed} takes no value, got {shown(value)}")
        if flag.boolean:
            value = value if equals else str(not negated)
        elif not equals:
            value = next(left, None)
            if value is None:
                raise UserError(f"missing value for flag {_dashed(flag.name)}")
        _set(flag, value)
    flags.FLAGS.mark_as_parsed()
    return rest


def _flag(name: str) -> tuple[Any, bool]:
    """absl's flag that a name, with underscores, means, None if there is none; and whether it switches it off."""
    if name in flags.FLAGS:
        return flags.FLAGS[name], False
    for prefix, start in (("no_", ""), ("no", ""), ("no_", "do_")):
        positive = start + name.removeprefix(prefix)
        if name.startswith(prefix) and positive in flags.FLAGS and flags.FLAGS[positive].boolean:
            return flags.FLAGS[positive], True
    return None, False


def _set(flag: Any, value: str) -> None:
    """Gives a flag a value. Raises UserError if it has the wrong type, or is unfit for paths, files or arithmetic."""
    name = _dashed(flag.name)
    try:
        flag.parse(value)
    except flags.Error as error:
        if isinstance(error.__context__, UserError):  # of `_Parser`
            raise error.__context__ from None
        if choices := getattr(flag.parser, "enum_values", ()):
            raise UserError(
                f"{name} is {shown(value)}{closest(value, choices)} (one of {', '.join(choices)})"
            ) from None
        needed = "true or false" if flag.boolean else flag.parser.syntactic_help.replace("integer >=", "an integer >=")
        raise UserError(f"{name} must be {needed}, got {shown(value)}; see --help") from None
    if isinstance(flag.parser, _Parser):  # checked with all hparams, under their names
        return
    if problem := value_problem(name, flag.value):
        raise UserError(problem)
    flag.value = with_home(flag.value)


def _dashed(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# Help.


def print_help(doc: str, first: Collection[str] = ()) -> None:
    """The script's docstring and its flags, hparams under their headings, as wide as the terminal and at most 120.

    Args:
      first: the flags that are shown, beside those of a paper; all if empty.
    """
    width = min(shutil.get_terminal_size((120, 24)).columns, 120)
    if not sys.argv[0].endswith(".py"):  # as a command, whose name stands in the examples
        doc = re.sub(r"python \w+\.py", Path(sys.argv[0]).name, doc)
    for paragraph in doc.strip().split("\n\n"):
        as_it_is = any(line.startswith(" ") for line in paragraph.splitlines())  # commands and tables
        print(paragraph if as_it_is else textwrap.fill(paragraph, width, break_on_hyphens=False), end="\n\n")
    print("Flags")
    by_module = flags.FLAGS.flags_by_module_dict()
    ours = []
    # What the program itself defines comes before the hparams, which this module defines.
    for module in sorted(by_module, key=lambda name: (name == __name__, name)):
        if not module.startswith(("absl.", "tensorflow.")):
            ours += [flag for flag in by_module[module] if not getattr(flag, "is_hidden", False)]
    heading = ""
    for flag in ours:
        heading = getattr(flag, "heading", "") or heading
        if not first or flag.name in first or getattr(flag, "of_paper", False):
            print(f"\n{heading}\n" if heading else "", end="")
            heading = ""
            text = re.sub(r"--\w+", lambda match: _dashed(match[0][2:]), flag.help) + _shown_default(flag.default)
            _print_flag(_dashed(f"[no-]{flag.name}" if flag.boolean else flag.name), text, width)
    if first:
        print(f"\n--help all lists all {len(ours)} flags.")
    print("\nMessages")
    severity = "least severe message of TensorFlow that is shown: 1 debug, 0 info, -1 warnings [none]"
    _print_flag("--verbosity", severity, width)
    _print_flag("--flagfile", "file of flags, one a line", width)
    if "recipe" in flags.FLAGS:
        print("\nRecipes")
        print(textwrap.indent(textwrap.fill(", ".join(recipe_names()), width - 2, break_on_hyphens=False), "  "))


def _print_flag(name: str, text: str, width: int) -> None:
    """Prints a flag on one line with its text if the terminal is wide enough, else above it."""
    indent = " " * (37 if width >= 110 else 8)
    lines = textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    name = f"  {name} "
    fits = len(name) <= len(indent)
    print(name.ljust(len(indent)) + lines.lstrip() if fits else f"{name.rstrip()}\n{lines}")


def _shown_default(default: Any) -> str:
    """ " [value]", or nothing for none."""
    if isinstance(default, list):
        default = ", ".join(map(str, default))
    return f" [{default}]" if default not in (None, "", {}) else ""


# Programs.


def run(
    main: Callable[[], int | None], doc: str | None, goes_on: bool = False, first: Collection[str] = ()
) -> NoReturn:
    """Parses the command line and runs `main`; a UserError becomes one line and exit code 2.

    Args:
      first: the flags that --help shows; --help all shows all. All if empty.
      goes_on: the work is worth finishing after nobody reads standard output any more ("... | head").
    """
    open_standard_streams()
    words = [word for word in sys.argv[1:] if word not in HELP]
    asks_for_help = len(words) < len(sys.argv) - 1
    if goes_on and not asks_for_help:
        sys.stdout = cast(TextIO, OutputWithoutReader(sys.stdout))
    code: int | None = 0
    try:
        _define_paper_flags(words)
        if asks_for_help:
            print_help(doc or "", () if "all" in words or "--helpfull" in sys.argv else first)
        else:
            if rest := parse(words):
                raise UserError(
                    f"unexpected argument {shown(rest[0])}: flags are --name value, switches --name or --no-name"
                )
            asked = "verbosity" in flags.FLAGS and flags.FLAGS["verbosity"].present
            before_tensorflow(logging.get_verbosity() if asked else logging.FATAL)
            code = main()
        sys.stdout.flush()
    except UserError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        _fail("interrupted", code=130)
    except BrokenPipeError:  # "... | head"
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = int(not asks_for_help)
    except OSError as error:  # which neither files.reading nor files.writing met, but no bug of ours
        _fail(f"{error.filename or unwritable_output() or 'a file'}: {reason(error)}")
    sys.exit(code or 0)


def _fail(message: str, code: int = 2) -> NoReturn:
    print(f"error: {one_line(message)}", file=sys.stderr)
    sys.exit(code)
