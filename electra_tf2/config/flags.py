"""Command lines: flags of absl in our spelling, every hparam a flag, recipes, help, and one-line errors.

Every program starts with `run(main)`. A configuration is merged from layers, later ones winning: defaults, the recipe
(--recipe, or the one named like --model-name), hparams that files imply, --hparams, single flags.

absl holds the flags, reads --flagfile and turns texts into values. The command line is read here (`parse`), because
absl knows only one spelling of a flag, with underscores, where the original's commands have several; it stops at the
first word that is no flag; and its messages do not tell what would be right.
"""

import contextlib
import dataclasses
import functools
import os
import re
import sys
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TextIO, TypeVar, cast

from absl import flags, logging

from electra_tf2.config.help import print_help, shown_default
from electra_tf2.config.hparams import (
    all_hparams,
    dashed,
    default_of,
    entries_of_dicts,
    layered,
    value_problem,
    value_type,
    with_home,
    with_implied,
)
from electra_tf2.config.papers import paper_with_hparam
from electra_tf2.config.recipes import read_recipe, recipe_names
from electra_tf2.files.reading import parse_json, read_json
from electra_tf2.util.environment import before_tensorflow
from electra_tf2.util.errors import UserError, closest, one_line, reason, see_help, shown
from electra_tf2.util.output import OutputWithoutReader, open_standard_streams, unwritable_output

C = TypeVar("C")  # a dataclass of hparams: PretrainingConfig, FinetuningConfig
HELP = {"--help", "-h", "-help", "--helpfull", "--helpshort"}


# Flags of hparams.


class _Parser(flags.ArgumentParser):
    """A parser for absl, made of a function: text of a flag -> value, which may raise UserError."""

    def __init__(self, read: Callable[[str], Any]) -> None:
        self.parse = read


def define_hparam_flags(config_class: type) -> None:
    """Defines a flag for each hparam, unset by default, and --hparams."""
    flags.DEFINE(_Parser(_parse_hparams), "hparams", None, "JSON object of hparams, or the path of a .json file")
    flags.FLAGS["hparams"].config_class = config_class
    for declaring_class, field in all_hparams(config_class):
        _define(declaring_class, field, is_from_paper=False)


def _define(declaring_class: type, field: dataclasses.Field, is_from_paper: bool) -> None:
    """Defines the flag of an hparam.

    The flag's default is None, so that it is known which flags the user gave; help shows the hparam's default.
    """
    text = _hparam_help(field)
    kind, _ = value_type(declaring_class, field)
    if kind in (dict, list):
        holds_words = typing.get_type_hints(declaring_class)[field.name] == list[str]
        if not holds_words:  # words need not be JSON
            text = f"JSON: {text}"
        read = functools.partial(_json_or_words, field.name, holds_words)
        flags.DEFINE(_Parser(read), field.name, None, text)
    elif kind is bool:
        flags.DEFINE_bool(field.name, None, text)
    elif kind is int:
        flags.DEFINE_integer(field.name, None, text)
    elif kind is float:
        flags.DEFINE_float(field.name, None, text)
    else:
        flags.DEFINE_string(field.name, None, text)
    flag = flags.FLAGS[field.name]
    flag.heading = field.metadata["heading"]
    flag.is_from_paper = is_from_paper


def _hparam_help(field: dataclasses.Field) -> str:
    """The help text of an hparam, with its choices where the text does not name them all, and its default."""
    text = field.metadata["help"]
    if field.name == "recipe":
        text += "; NAME of recipes/NAME.json, which are listed at the end, or a path"
    choices = field.metadata["choices"] or ()
    # As whole words: "small+" and "smaller" do not name "small".
    names_all = all(re.search(rf"(?<!\w){re.escape(choice)}(?![\w+])", text) for choice in choices)
    if not names_all:
        text = f"<{'|'.join(choices)}>: {text}"
    default = default_of(field)
    if default is dataclasses.MISSING:
        return text
    return text + shown_default(default)


def _json_or_words(name: str, holds_words: bool, text: str) -> Any:
    """Reads the value of a flag: JSON, or for a list of words also words with commas between them."""
    if holds_words and not text.lstrip().startswith("["):
        return [word.strip() for word in text.split(",")]
    return parse_json(text, dashed(name), expect=object)


def _parse_hparams(text_or_path: str) -> dict[str, Any]:
    """Parses --hparams: a JSON object, or the path of a file with one."""
    if not text_or_path:
        return {}
    if text_or_path.lstrip().startswith("{"):
        return _without_unused(parse_json(text_or_path, "--hparams"))
    if not os.path.exists(text_or_path):
        raise UserError(f"--hparams: {shown(text_or_path)} is neither a JSON object nor a readable file")
    return _without_unused(read_json(text_or_path, "--hparams"))


# Hparams of the original that have no effect here.
_UNUSED = (
    "results_pkl",
    "preprocessed_data_dir",
    "use_tfrecords_if_existing",
    "qa_eval_file",
    "qa_preds_file",
    "qa_na_file",
)


def _without_unused(hparams: dict[str, Any]) -> dict[str, Any]:
    """Leaves out hparams that only the original has, and prints a note."""
    unused = [name for name in _UNUSED if name in hparams]
    if unused:
        print(f"note: {', '.join(unused)}: of the original, without effect here (docs/differences.md)", file=sys.stderr)
    return {name: value for name, value in hparams.items() if name not in unused}


def _define_paper_flags(words: Sequence[str]) -> None:
    """Defines the flags of the paper that the command line or its recipe names.

    A first, lenient reading finds the paper. `run` reads the same words again once its flags are defined.
    """
    config_class = None
    if "hparams" in flags.FLAGS:
        config_class = getattr(flags.FLAGS["hparams"], "config_class", None)
    if config_class is None:
        return  # a program without hparams
    parse(words, lenient=True)
    hparams = read_hparams(config_class)
    with contextlib.suppress(UserError):  # a wrong name of a recipe is refused later
        hparams = _recipe_hparams(hparams, must_be_recipe=False) | hparams
    defined = {field.name for _, field in all_hparams(config_class)}
    for declaring_class, field in all_hparams(config_class.extended(hparams)):
        if field.name in defined:
            continue
        if field.name in flags.FLAGS:
            raise UserError(f"paper: an hparam cannot be called {field.name}: the program has such a flag")
        _define(declaring_class, field, is_from_paper=True)


def read_hparams(config_class: type) -> dict[str, Any]:
    """Reads the hparams of --hparams, and of single flags those that a class has. They are not yet checked."""
    from_flags = {}
    for _, field in all_hparams(config_class):
        value = flags.FLAGS[field.name].value
        if value is not None:
            from_flags[field.name] = value
    hparams = dict(flags.FLAGS["hparams"].value or {})
    # The flag of a whole dict wins over its single entries in --hparams.
    for name, entries in entries_of_dicts(config_class).items():
        if name in from_flags:
            for entry in entries:
                hparams.pop(entry, None)
    return hparams | from_flags


def _recipe_hparams(user_hparams: Mapping[str, Any], must_be_recipe: bool) -> dict[str, Any]:
    """Hparams of the recipe of --recipe, or of the one named like the model, or {}.

    Args:
      user_hparams: hparams of --hparams and single flags.
      must_be_recipe: refuses a model's name that is no recipe's, which may be misspelled.

    Raises:
      UserError: there is no such recipe.
    """
    recipe = user_hparams.get("recipe")
    if not recipe:
        model_name = user_hparams.get("model_name", "electra_small")
        if model_name in recipe_names():
            recipe = model_name
        elif must_be_recipe and isinstance(model_name, str):  # other types are refused later, with all wrong values
            hint = closest(model_name, recipe_names()) or "."
            raise UserError(
                f"model_name: there is no recipe {model_name!r}{hint} To give a run a "
                "name of its own, say what it is by --recipe (electra recipes lists them) or in --hparams"
            )
        else:
            return {}
    # A recipe names the run after itself; --recipe with another --model-name keeps the latter.
    hparams = read_recipe(recipe)
    return {"model_name": Path(recipe).stem, "recipe": recipe} | hparams


class Layers(NamedTuple):
    """Layers of a configuration, the lowest first.

    config_class: the class of the configuration, with the hparams of the paper; it has the defaults. recipe: hparams of
    the recipe; {} if there is none. user: hparams of --hparams and single flags. None is checked yet.
    """

    config_class: Any
    recipe: dict[str, Any]
    user: dict[str, Any]


def read_layers(config_class: type) -> Layers:
    """Reads the layers that the parsed flags describe, and the recipe."""
    layers = _with_recipe(config_class, read_hparams(config_class))
    # The paper is known only now, and has flags of its own.
    return layers._replace(user=read_hparams(layers.config_class))


def _with_recipe(config_class: Any, user_hparams: Mapping[str, Any]) -> Layers:
    """Reads the recipe that a user's hparams name, and finds the paper that they or the recipe name."""
    # With --hparams a run may be described without a recipe.
    recipe = _recipe_hparams(user_hparams, must_be_recipe=not flags.FLAGS["hparams"].value)
    extended_class = config_class.extended(layered(config_class, recipe, user_hparams))
    return Layers(extended_class, recipe, dict(user_hparams))


def config_from_flags(
    config_class: type[C],
    implied_by: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> C:
    """Makes the configuration that the parsed flags describe. Prints notes on it to standard error.

    Args:
      implied_by: (hparams of recipe and user) -> hparams that files imply (pretrain.implied_hparams). They win over
        the recipe and yield to the user's.
    """
    layers = read_layers(config_class)
    config: Any = _merge(layers, implied_by)
    notes = list(config.notes())
    if not layers.recipe:
        notes.insert(0, f"there is no recipe {config.model_name!r}: the defaults apply, or --recipe picks one")
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    return config


def resolve(
    config_class: type[C],
    user_hparams: Mapping[str, Any],
    implied_by: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> C:
    """Makes the configuration of what a user gives (`Layers.user`). Other arguments as of `config_from_flags`."""
    return _merge(_with_recipe(config_class, user_hparams), implied_by)


def _merge(layers: Layers, implied_by: Callable[[dict[str, Any]], dict[str, Any]] | None) -> Any:
    """Makes the configuration of its layers, and of what files imply between recipe and user."""
    implied: dict[str, Any] = {}
    if implied_by is not None:
        implied = implied_by(layered(layers.config_class, layers.recipe, layers.user))
    hparams = with_implied(layers.config_class, layers.recipe, implied, layers.user)
    return layers.config_class.from_dict(hparams)


def changed_hparams(config_class: type) -> dict[str, Any]:
    """Hparams of the parsed flags that differ from the recipe and from defaults."""
    layers = read_layers(config_class)
    defaults = {field.name: default_of(field) for field in dataclasses.fields(layers.config_class)}
    base = layered(layers.config_class, defaults, layers.recipe)
    # Entries of dicts are flags by their own names.
    for name in entries_of_dicts(layers.config_class):
        base |= base[name]
    return {name: value for name, value in layers.user.items() if value != base.get(name)}


def hide(*names: str) -> None:
    """Leaves flags out of help, for second names of flags."""
    for name in names:
        flags.FLAGS[name].is_hidden = True


# Words.


def parse(words: Sequence[str], lenient: bool = False) -> list[str]:
    """Sets flags from the words of a command line, which are without the program's name.

    Names may be spelled with dashes or underscores, switches as `--no-do-eval`, `--nodo_eval` and, as in the original,
    `--no-lower-case` for `--no-do-lower-case`. `--flagfile PATH` stands for the lines of a file.

    Args:
      lenient: ignores flags that are not defined.

    Returns:
      The words that belong to no flag.

    Raises:
      UserError: an unknown flag, a value that is missing or of a wrong type.
    """
    try:
        unread = iter(flags.FLAGS.read_flags_from_files(list(words)))
    except UnicodeDecodeError as error:
        raise UserError(f"--flagfile is not UTF-8 text: {error}") from None
    except flags.Error as error:
        raise UserError(str(error).removeprefix("ERROR:: ")) from None
    rest: list[str] = []
    for word in unread:
        if word == "--":  # no flags follow
            return rest + list(unread)
        if not word.startswith("-"):
            rest.append(word)
            continue
        typed, equals, value = word.partition("=")
        name = typed.lstrip("-").replace("-", "_")
        flag, negated = _flag(name)
        if flag is None and lenient:
            continue
        if flag is None:
            raise UserError(see_help(f"unknown flag {dashed(name)}{_hint_for_unknown(name)}"))
        if negated and equals:
            raise UserError(f"{typed} takes no value, got {shown(value)}")
        if flag.boolean and not equals:
            value = str(not negated)
        elif not equals:
            value = next(unread, None)  # the next word
        if value is None:
            raise UserError(f"missing value for flag {dashed(flag.name)}")
        _set(flag, value)
    flags.FLAGS.mark_as_parsed()
    return rest


def _hint_for_unknown(name: str) -> str:
    """A hint for a flag that is not defined: the paper that has it, or a flag with a similar name."""
    if "paper" in flags.FLAGS:
        paper = paper_with_hparam(name.removeprefix("no_"))
        if paper:
            return f"; add --paper {paper}, which has it"
    return closest(dashed(name), map(dashed, flags.FLAGS))


def _flag(name: str) -> tuple[Any, bool]:
    """absl's flag for a name with underscores, None if there is none; and whether the name switches it off."""
    if name in flags.FLAGS:
        return flags.FLAGS[name], False
    # --no-x, --nox, and --no-x for --no-do-x.
    for prefix, start in (("no_", ""), ("no", ""), ("no_", "do_")):
        positive = start + name.removeprefix(prefix)
        if name.startswith(prefix) and positive in flags.FLAGS and flags.FLAGS[positive].boolean:
            return flags.FLAGS[positive], True
    return None, False


def _set(flag: Any, value: str) -> None:
    """Sets a flag. Raises UserError: the value has the wrong type, or is unfit for paths, files or arithmetic."""
    name = dashed(flag.name)
    try:
        flag.parse(value)
    except flags.Error as error:
        if isinstance(error.__context__, UserError):  # of `_Parser`
            raise error.__context__ from None
        choices = getattr(flag.parser, "enum_values", ())
        if choices:
            hint = closest(value, choices)
            raise UserError(f"{name} is {shown(value)}{hint} (one of {', '.join(choices)})") from None
        needed = "true or false"
        if not flag.boolean:
            needed = flag.parser.syntactic_help.replace("integer >=", "an integer >=")
        raise UserError(f"{name} must be {needed}, got {shown(value)}; see --help") from None
    if isinstance(flag.parser, _Parser):  # checked later, with all hparams
        return
    problem = value_problem(name, flag.value)
    if problem:
        raise UserError(problem)
    flag.value = with_home(flag.value)


# Programs.


def run(
    main: Callable[[], int | None],
    doc: str | None,
    goes_on: bool = False,
    first: Collection[str] = (),
) -> NoReturn:
    """Parses the command line and runs `main`; a UserError becomes one line and exit code 2.

    Args:
      goes_on: finishes the work even if nobody reads standard output any more ("... | head").
      first: names of the flags that --help lists; `--help all` lists all. All if empty.
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
            asks_for_all = "all" in words or "--helpfull" in sys.argv
            print_help(doc or "", flags.FLAGS, () if asks_for_all else first)
        else:
            rest = parse(words)
            if rest:
                raise UserError(
                    f"unexpected argument {shown(rest[0])}: flags are --name value, lists --name a,b, switches --name "
                    "or --no-name"
                )
            verbosity = logging.FATAL
            if "verbosity" in flags.FLAGS and flags.FLAGS["verbosity"].present:
                verbosity = logging.get_verbosity()
            before_tensorflow(verbosity)
            code = main()
        sys.stdout.flush()
    except UserError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        _fail("interrupted", code=130)
    except BrokenPipeError:  # "... | head"
        # Python flushes standard output once more when it ends, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = int(not asks_for_help)
    except OSError as error:  # no bug: files.reading and files.writing catch theirs, others may come from anywhere
        _fail(f"{error.filename or unwritable_output() or 'a file'}: {reason(error)}")
    sys.exit(code or 0)


def _fail(message: str, code: int = 2) -> NoReturn:
    """Ends the program with one line on standard error."""
    print(f"error: {one_line(message)}", file=sys.stderr)
    sys.exit(code)
