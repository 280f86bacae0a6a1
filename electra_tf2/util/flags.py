"""Command lines: absl flags with dashes, every hparam a flag, recipes, and one-line errors.

`run(main)` is how every script starts. A configuration is resolved in layers, later ones winning: defaults, the recipe
(--recipe, or the one named like --model-name), --hparams, single flags.
"""

import contextlib
import dataclasses
import os
import re
import shutil
import sys
import textwrap
import typing
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol, TextIO, TypeVar, cast

from absl import flags, logging

from electra_tf2.util.environment import before_tensorflow
from electra_tf2.util.errors import UserError, one_line, reason, shown
from electra_tf2.util.hparams import (
    all_hparams,
    closest,
    entries_of_dicts,
    layered,
    value_problem,
    value_type,
    with_home,
)
from electra_tf2.util.output import OutputWithoutReader, open_standard_streams, unwritable_output
from electra_tf2.util.papers import paper_of
from electra_tf2.util.reading import parse_json, read_json
from electra_tf2.util.recipes import read_recipe, recipe_names

_headings: dict[str, str] = {}  # first flag of a group -> its heading in --help
_of_paper: set[str] = set()  # flags of the paper that the command line names
_configured = weakref.WeakKeyDictionary[flags.FlagValues, type]()  # flags -> the class whose hparams they are


class Config(Protocol):
    """A dataclass of hparams with a checked constructor."""

    @classmethod
    def from_dict(cls, hparams: dict[str, Any]) -> Any: ...

    @classmethod
    def implied(cls, hparams: Mapping[str, Any]) -> dict[str, Any]:
        """Hparams that follow from files named in other hparams: above a recipe, below --hparams and flags."""

    @classmethod
    def extended(cls, hparams: Mapping[str, Any]) -> Any:
        """The class of the paper that these hparams name; itself if they name none."""

    def notes(self) -> list[str]: ...

    @property
    def model_name(self) -> str: ...


C = TypeVar("C", bound=Config)


def define_hparam_flags(config_class: type) -> None:
    """One flag per hparam, unset by default; also --hparams."""
    flags.DEFINE_string("hparams", None, "JSON object of hparams, or the path of a .json file")
    _define(all_hparams(config_class))
    _configured[flags.FLAGS] = config_class


def _define(hparams: Iterable[tuple[type, dataclasses.Field]]) -> None:
    for declaring_class, field in hparams:
        kind, _ = value_type(declaring_class, field)
        text = field.metadata["help"]
        if field.name == "recipe":
            text += "; NAME of recipes/NAME.json, which are listed at the end, or a path"
        choices = field.metadata["choices"] or ()
        if not all(re.search(rf"(?<!\w){re.escape(choice)}(?![\w+])", text) for choice in choices):
            text = f"<{'|'.join(choices)}>: {text}"
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        text += "" if default is dataclasses.MISSING else _shown_default(default)
        if field.metadata["heading"]:
            _headings[field.name] = field.metadata["heading"]
        if kind in (dict, list) and not _holds_words(declaring_class, field):
            text = f"JSON: {text}"
        define = {bool: flags.DEFINE_bool, int: flags.DEFINE_integer, float: flags.DEFINE_float}
        define.get(kind, flags.DEFINE_string)(field.name, None, text)


def _holds_words(config_class: type, field: dataclasses.Field) -> bool:
    """True if an hparam is a list of words, which need not be spelled as JSON."""
    return typing.get_type_hints(config_class)[field.name] == list[str]


def _shown_default(default: Any) -> str:
    """ " [value]", or nothing for none."""
    if isinstance(default, list):
        default = ", ".join(map(str, default))
    return f" [{default}]" if default not in (None, "", {}) else ""


def config_from_flags(config_class: type[C], with_recipe: bool = True) -> C:
    """The configuration that the parsed flags describe. Notes on it go to standard error.

    Args:
      with_recipe: apply the recipe; false: the configuration itself looks for what recipes say to it.
    """
    config_class, layers, given = _layers(config_class, with_recipe)
    implied = config_class.implied(layered(config_class, layers, given))
    config = config_class.from_dict(layered(config_class, layers, implied, given))
    if with_recipe and not layers:
        _note(f"there is no recipe {config.model_name!r}: the defaults apply, or --recipe picks one")
    for note in config.notes():
        _note(note)
    return config


def changed_hparams(config_class: type[C], with_recipe: bool = True) -> dict[str, Any]:
    """Hparams of the parsed flags that are neither their recipe's nor a default."""
    config_class, layers, given = _layers(config_class, with_recipe)
    fields = dataclasses.fields(config_class)  # type: ignore[arg-type]
    base = {field.name: field.default for field in fields} | layers
    return {name: value for name, value in given.items() if value != base.get(name)}


def _layers(config_class: type[C], with_recipe: bool) -> tuple[type[C], dict[str, Any], dict[str, Any]]:
    """The class with all hparams that flags can give, what the recipe says, what --hparams and single flags say."""
    given = given_hparams(config_class)
    layers = _recipe_of_run(given, bare=not flags.FLAGS.hparams) if with_recipe else {}
    wider = config_class.extended(layered(config_class, layers, given))
    return wider, layers, given if wider is config_class else given_hparams(wider)


def _define_extensions(words: Sequence[str]) -> None:
    """Flags of the paper that the command line or its recipe names, before it is read in earnest."""
    config_class = _configured.get(flags.FLAGS)
    if config_class is not None:
        flags.FLAGS.set_gnu_getopt(True)  # so that flags after one that is not known yet are seen
        flags.FLAGS(words, known_only=True)
        given = given_hparams(config_class)
        with contextlib.suppress(UserError):  # a wrong name of a recipe is refused when it is needed
            given = _recipe_of_run(given, bare=False) | given
        flags.FLAGS.unparse_flags()
        own = {field.name for _, field in all_hparams(config_class)}
        wider = config_class.extended(given)  # type: ignore[attr-defined]
        new = [(declaring, field) for declaring, field in all_hparams(wider) if field.name not in own]
        for _, field in new:
            if field.name in flags.FLAGS:
                raise UserError(f"paper: an hparam cannot be called {field.name}: the program has such a flag")
        _define(new)
        _of_paper.update(field.name for _, field in new)
        flags.FLAGS.set_gnu_getopt(False)


def given_hparams(config_class: type) -> dict[str, Any]:
    """Hparams of --hparams and of single flags, unchecked."""
    values = flags.FLAGS
    given: dict[str, Any] = {}
    for declaring_class, field in all_hparams(config_class):
        value = values[field.name].value
        if value is not None:
            kind, _ = value_type(declaring_class, field)
            if kind is list and _holds_words(declaring_class, field) and not value.lstrip().startswith("["):
                value = [word.strip() for word in value.split(",")]
            elif kind in (dict, list):
                value = parse_json(value, _dashed(field.name), expect=object)
            given[field.name] = value
    replaced = {
        entry for field, entries in entries_of_dicts(config_class).items() if field in given for entry in entries
    }
    hparams = {name: value for name, value in _hparams_of(values.hparams).items() if name not in replaced}
    return hparams | given


def _hparams_of(text_or_path: str | None) -> dict[str, Any]:
    """--hparams: a JSON object, or the path of a file that holds one."""
    if not text_or_path:
        return {}
    if text_or_path.lstrip().startswith("{"):
        return parse_json(text_or_path, "--hparams")
    if not os.path.exists(text_or_path):
        raise UserError(f"--hparams: {shown(text_or_path)} is neither a JSON object nor a readable file")
    return read_json(text_or_path, "--hparams")


def _recipe_of_run(given: dict[str, Any], bare: bool) -> dict[str, Any]:
    """The recipe that is given, or else the model's name, which must be one's where that is all (`bare`)."""
    recipe = given.get("recipe")
    if not recipe:
        name = given.get("model_name", "electra_small")
        if not isinstance(name, str):
            return {}  # refused with all other values
        recipe = name if name in recipe_names() else None
        if recipe is None and bare:
            raise UserError(
                f"model_name: there is no recipe {name!r}{closest(name, recipe_names())}. To give a run a name of its "
                "own, say what it is by --recipe (--help lists them) or --hparams"
            )
        if recipe is None:
            return {}
    layer = read_recipe(recipe)
    # A recipe names the run after itself; --recipe with another --model-name keeps the latter.
    return {"model_name": Path(recipe).stem, "recipe": recipe} | layer


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)


def _dashed(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _in_dashes(text: str) -> str:
    return re.sub(r"--\w+", lambda match: _dashed(match[0][2:]), text)


def _command_line() -> list[str]:
    """The words of the command line, with the lines of `--flagfile PATH` in its place, as absl spells flags."""
    try:
        return with_underscores([sys.argv[0], *flags.FLAGS.read_flags_from_files(sys.argv[1:])])
    except UnicodeDecodeError as error:
        raise UserError(f"--flagfile is not UTF-8 text: {error}") from None


def with_underscores(argv: Sequence[str]) -> list[str]:
    """`--train-batch-size=4` as `--train_batch_size=4`, `--no-do-eval` as `--nodo_eval`."""
    result = [argv[0]]
    for position, word in enumerate(argv[1:], start=1):
        if word == "--":
            return result + list(argv[position:])
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name = name.replace("-", "_")
            if name.startswith("no_") and name not in flags.FLAGS and name[3:] in flags.FLAGS:
                name = "no" + name[3:]
            elif name.startswith("no_") and name not in flags.FLAGS and f"do_{name[3:]}" in flags.FLAGS:
                name = "nodo_" + name[3:]  # the original's --do-lower-case and --no-lower-case
            if equals and name.startswith("no") and name not in flags.FLAGS and name[2:] in flags.FLAGS:
                raise UserError(f"{word.partition('=')[0]} takes no value, got {shown(value)}")
            word = f"--{name}{equals}{value}"
        result.append(word)
    return result


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
    ours = [
        flag
        for module, defined in sorted(flags.FLAGS.flags_by_module_dict().items())
        if not module.startswith(("absl.", "tensorflow."))
        for flag in defined
    ]
    heading = ""
    for flag in ours:
        heading = _headings.get(flag.name, heading)
        if not first or flag.name in first or flag.name in _of_paper:
            if heading:
                print(f"\n{heading}")
                heading = ""
            name = flag.name.replace("_", "-")
            text = _in_dashes(flag.help) + _shown_default(flag.default)
            _print_flag(f"--[no-]{name}" if flag.flag_type() == "bool" else f"--{name}", text, width)
    if first:
        print(f"\n--help all lists all {len(ours)} flags.")
    print("\nMessages")
    shown = "least severe message of TensorFlow that is shown: 1 debug, 0 info, -1 warnings [none]"
    _print_flag("--verbosity", shown, width)
    _print_flag("--flagfile", "file of flags, one a line", width)
    if "recipe" in flags.FLAGS:
        print("\nRecipes")
        print(textwrap.indent(textwrap.fill(", ".join(recipe_names()), width - 2, break_on_hyphens=False), "  "))


def _print_flag(name: str, text: str, width: int) -> None:
    """Prints a flag on one line with its text if the terminal is wide enough, else above it."""
    column = 37 if width >= 110 else 8
    lines = textwrap.fill(
        text, width, initial_indent=" " * column, subsequent_indent=" " * column, break_on_hyphens=False
    )
    name = f"  {name} "
    print(name.ljust(column) + lines.lstrip() if len(name) <= column else f"{name.rstrip()}\n{lines}")


def run(
    main: Callable[[], int | None], doc: str | None, goes_on: bool = False, first: Collection[str] = ()
) -> NoReturn:
    """Parses the command line and runs `main`; a UserError becomes one line and exit code 2.

    Args:
      first: the flags that --help shows; --help all shows all. All if empty.
      goes_on: the work is worth finishing after nobody reads standard output any more ("... | head").
    """
    open_standard_streams()
    if any(map(_asks_for_help, sys.argv[1:])):
        try:
            words = [word for word in _command_line() if not _asks_for_help(word)]
            everything = "all" in words[1:] or "--helpfull" in sys.argv
            _define_extensions([word for word in words if word != "all"])
            print_help(doc or "", () if everything else first)
            sys.stdout.flush()
        except (flags.Error, UserError) as error:
            _fail(str(error))
        except BrokenPipeError:  # "... --help | head"
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    if goes_on:
        sys.stdout = cast(TextIO, OutputWithoutReader(sys.stdout))
    try:
        _define_extensions(_command_line())
        rest = flags.FLAGS(_command_line())
        if len(rest) > 1:
            raise UserError(
                f"unexpected argument {shown(rest[1])}: flags are --name value, switches --name or --no-name"
            )
        for name in flags.FLAGS:  # beyond their types, which absl checks
            if problem := value_problem(_dashed(name), flags.FLAGS[name].value):
                raise UserError(problem)
            flags.FLAGS[name].value = with_home(flags.FLAGS[name].value)
        asked = "verbosity" in flags.FLAGS and flags.FLAGS["verbosity"].present
        before_tensorflow(logging.get_verbosity() if asked else logging.FATAL)
        code = main()
        sys.stdout.flush()
    except flags.UnrecognizedFlagError as error:
        name, hint = _dashed(error.flagname), closest(_dashed(error.flagname), map(_dashed, flags.FLAGS))
        if "paper" in flags.FLAGS and (paper := paper_of(error.flagname.replace("-", "_").removeprefix("no_"))):
            hint = f"; add --paper {paper}, which has it"
        _fail(f"unknown flag {name}{hint}; see --help")
    except flags.IllegalFlagValueError as error:
        _fail(f"{_illegal_value(str(error))}; see --help")
    except flags.Error as error:
        _fail(_in_dashes(str(error).removeprefix("ERROR:: ")))
    except UserError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        _fail("interrupted", code=130)
    except BrokenPipeError:  # "... | head"
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:  # none of the doors (util.reading, util.files) was passed, but it is no bug of ours
        _fail(f"{error.filename or unwritable_output() or 'a file'}: {reason(error)}")
    sys.exit(code or 0)


def _asks_for_help(word: str) -> bool:
    return word in ("--help", "-h", "-help", "--helpfull", "--helpshort")


def _illegal_value(message: str) -> str:
    """absl's message about a value of the wrong type or beyond its bounds, in our words."""
    match = re.match(r"flag --(\w+)=(.*?): (.*)", message, re.DOTALL)
    wanted = {"int": "an integer", "float": "a number", "bool": "true or false"}
    if match is None or match[1] not in flags.FLAGS or flags.FLAGS[match[1]].flag_type() not in wanted:
        return message
    bound = re.search(r"is not (an? .+|integer .+)", match[3])  # "4 is not integer >= 16", of a flag with bounds
    kind = bound[1].replace("integer >=", "an integer >=") if bound else wanted[flags.FLAGS[match[1]].flag_type()]
    return f"{_dashed(match[1])} must be {kind}, got {shown(match[2])}"


def _fail(message: str, code: int = 2) -> NoReturn:
    print(f"error: {one_line(message)}", file=sys.stderr)
    sys.exit(code)
