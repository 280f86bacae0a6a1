"""Prints --help: a program's docstring and its flags, hparams under their headings."""

import re
import shutil
import sys
import textwrap
from collections.abc import Collection
from pathlib import Path
from typing import Any

from electra_tf2.config.hparams import dashed
from electra_tf2.config.recipes import recipe_names


def print_help(doc: str, flag_values: Any, first: Collection[str] = ()) -> None:
    """Prints the docstring and flags of a program, as wide as the terminal and at most 120 columns.

    Args:
      flag_values: absl's FLAGS.
      first: names of the flags to list, beside those of a paper; all if empty.
    """
    width = min(shutil.get_terminal_size((120, 24)).columns, 120)
    if not sys.argv[0].endswith(".py"):
        # Run as a command, not as a script: the examples show the command.
        doc = re.sub(r"python \w+\.py", Path(sys.argv[0]).name, doc)
    for paragraph in doc.strip().split("\n\n"):
        is_preformatted = any(line.startswith(" ") for line in paragraph.splitlines())  # commands and tables
        if not is_preformatted:
            paragraph = textwrap.fill(paragraph, width, break_on_hyphens=False)
        print(paragraph, end="\n\n")
    print("Flags")
    shown_flags = _flags_in_order(flag_values)
    heading = ""  # of the next flags; "" once it is printed
    for flag in shown_flags:
        heading = getattr(flag, "heading", "") or heading
        is_listed = not first or flag.name in first or getattr(flag, "is_from_paper", False)
        if not is_listed:
            continue
        if heading:
            print(f"\n{heading}")
            heading = ""
        name = f"[no-]{flag.name}" if flag.boolean else flag.name
        text = re.sub(r"--\w+", lambda match: dashed(match[0][2:]), flag.help)
        _print_flag(dashed(name), text + shown_default(flag.default), width)
    if first:
        print(f"\n--help all lists all {len(shown_flags)} flags.")
    print("\nMessages")
    severity = "least severe message of TensorFlow that is shown: 1 debug, 0 info, -1 warnings [none]"
    _print_flag("--verbosity", severity, width)
    _print_flag("--flagfile", "file of flags, one a line", width)
    if "recipe" in flag_values:
        recipes = textwrap.fill(", ".join(recipe_names()), width - 2, break_on_hyphens=False)
        print("\nRecipes")
        print(textwrap.indent(recipes, "  "))


def _flags_in_order(flag_values: Any) -> list[Any]:
    """Flags in the order of --help: the program's, then the hparams, which config.flags defines."""
    by_module = flag_values.flags_by_module_dict()
    modules = sorted(by_module, key=lambda name: (name.endswith("config.flags"), name))
    in_order = []
    for module in modules:
        if module.startswith(("absl.", "tensorflow.")):
            continue
        for flag in by_module[module]:
            if not getattr(flag, "is_hidden", False):
                in_order.append(flag)
    return in_order


def _print_flag(name: str, text: str, width: int) -> None:
    """Prints the name of a flag before its text, or above it on narrow terminals."""
    margin = 37 if width >= 110 else 8
    indent = " " * margin
    lines = textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    name = f"  {name} "
    if len(name) <= margin:
        print(name.ljust(margin) + lines.lstrip())
    else:
        print(f"{name.rstrip()}\n{lines}")


def shown_default(default: Any) -> str:
    """How help shows a default: " [value]", or nothing if there is none."""
    if isinstance(default, list):
        default = ", ".join(map(str, default))
    if default in (None, "", {}):
        return ""
    return f" [{default}]"
