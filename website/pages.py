"""Writes the pages that are generated from the code: docs/flags.md from --help, docs/reference.md from docstrings.

  python -m website.pages

They are in the repository, so that they can be read without the site, and `tests/test_pages.py` compares them with the
code. The table of flags that name a model, at the top of docs/flags.md, is website/model_flags.md.
"""

import ast
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from electra_tf2.__main__ import COMMANDS  # noqa: E402

COLUMNS = 84  # of the text between both side columns of the site
NOTE = "<!-- Written by `python -m website.pages`: change the code, then run that. -->"
# Contents of docs/reference.md: heading -> (module, name) of its entries. The name "" is the module itself.
REFERENCE = {
    "Models": (
        ("electra_tf2", ""),
        ("electra_tf2.formats.folders", "models"),
        ("electra_tf2.inference.model", "load"),
        ("electra_tf2.inference.finetuning_from_python", "finetune"),
        ("electra_tf2.inference.model", "Model"),
        ("electra_tf2.inference.return_types", "States"),
        ("electra_tf2.inference.return_types", "Replaced"),
        ("electra_tf2.inference.return_types", "Suggestion"),
        ("electra_tf2.inference.return_types", "Answer"),
        ("electra_tf2.util.errors", "UserError"),
    ),
    "A task of your own": (
        ("electra_tf2.finetune.tasks.task", "Task"),
        ("electra_tf2.finetune.tasks.text", "TextTask"),
        ("electra_tf2.settings.built_in", "TextSettings"),
    ),
    "An objective of your own": (("electra_tf2.pretrain.objectives.objective", "Objective"),),
}


def flags_page() -> str:
    """Makes docs/flags.md, the help of every command."""
    model_flags = (ROOT / "website" / "model_flags.md").read_text(encoding="utf-8").strip()
    parts = ["# Every flag", NOTE, "What `electra COMMAND --help all` prints.", model_flags]
    parts += [command_help(command) for command in COMMANDS]
    return "\n\n".join(parts) + "\n"


def command_help(name: str) -> str:
    """Makes a section with the help of a command, without this machine's paths."""
    words = [sys.executable, "-m", "electra_tf2", name, "--help", "all"]
    environment = os.environ | {"COLUMNS": str(COLUMNS)}
    printed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True, env=environment).stdout
    printed = re.sub(re.escape(str(ROOT)) + "/?", "", printed.replace("python -m electra_tf2", "electra"))
    return f"## electra {name}\n\n```text\n{printed.rstrip()}\n```"


def reference_page() -> str:
    """Makes docs/reference.md, signatures and docstrings of what a user's program calls or derives from."""
    parts = ["# Python reference", NOTE, "From the docstrings; [from Python](python.md) shows how it is used."]
    for heading, entries in REFERENCE.items():
        parts.append(f"## {heading}")
        for module, name in entries:
            parts.append(section_on(module, name))
    return "\n\n".join(parts) + "\n"


def section_on(module: str, name: str) -> str:
    """Makes a section on a module, a class with its public methods, or a function."""
    path = ROOT / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = ast.parse(file.read_text(encoding="utf-8"))
    if not name:
        return f"### {module}\n\n{text_of(tree)}"
    node = next(node for node in tree.body if getattr(node, "name", None) == name)
    assert isinstance(node, (ast.ClassDef, ast.FunctionDef))
    parts = [f"### {name}", f"`{module}.{name}`", signature_of(node), text_of(node)]
    if isinstance(node, ast.ClassDef):
        for member in node.body:
            if isinstance(member, ast.FunctionDef) and not member.name.startswith("_") and ast.get_docstring(member):
                parts += [f"#### {name}.{member.name}", signature_of(member), text_of(member)]
    return "\n\n".join(part for part in parts if part)


def signature_of(node: ast.ClassDef | ast.FunctionDef) -> str:
    """The signature of a function, as code; for a class that of its constructor, and its fields."""
    if isinstance(node, ast.ClassDef):
        lines = []
        for member in node.body:
            if isinstance(member, ast.FunctionDef) and member.name == "__init__":
                lines.append(f"{node.name}({wrapped_arguments(member)})")
        for member in node.body:
            if isinstance(member, ast.AnnAssign) and not ast.unparse(member.target).startswith("_"):
                lines.append(ast.unparse(member))
        return code("\n".join(lines)) if lines else ""
    if is_property(node):
        kind = f": {ast.unparse(node.returns)}" if node.returns else ""
        return code(f"{node.name}{kind}  # a property")
    returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return code(f"{node.name}({wrapped_arguments(node)}){returned}")


def is_property(node: ast.FunctionDef) -> bool:
    """True for property and cached_property."""
    names = [decorator.id for decorator in node.decorator_list if isinstance(decorator, ast.Name)]
    return any("property" in name for name in names)


def wrapped_arguments(node: ast.FunctionDef) -> str:
    """The arguments of a function, one on each line if they are long."""
    arguments = ast.unparse(node.args).removeprefix("self, ").removeprefix("self")
    if len(arguments) <= 80:
        return arguments
    return "\n    " + ",\n    ".join(split_arguments(arguments)) + ",\n"


def split_arguments(arguments: str) -> list[str]:
    """Splits at the commas outside of brackets."""
    pieces = [""]
    depth = 0
    for character in arguments:
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        if character == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += character
    return [piece.strip() for piece in pieces]


def code(text: str) -> str:
    return f"```python\n{text}\n```"


def text_of(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> str:
    """Converts a docstring to Markdown: sections (Args, Returns, Raises, Warns) to lists, examples to code."""
    parts = []
    for paragraph in (ast.get_docstring(node) or "").split("\n\n"):
        first, _, rest = paragraph.partition("\n")
        if re.fullmatch(r"(Args|Returns|Raises|Warns|Yields):", first):
            parts.append(f"{first[:-1]}:\n\n{as_list(textwrap.dedent(rest))}")
        elif all(line.startswith(" ") for line in paragraph.splitlines()):
            parts.append(f"```text\n{textwrap.dedent(paragraph)}\n```")
        else:
            parts.append(paragraph)
    return "\n\n".join(part for part in parts if part)


def as_list(text: str) -> str:
    """Converts entries to a list: `name: text`, whose further lines are indented, or text alone."""
    entries: list[str] = []
    has_name = True  # the last entry
    for line in text.splitlines():
        named = re.match(r"(\**\w+(?:, \**\w+)*): (.*)", line)
        if named is not None:
            entries.append(f"`{named[1]}`: {named[2]}")
            has_name = True
        elif line.startswith(" ") or not has_name:
            entries[-1] += f" {line.strip()}"
        else:
            entries.append(line)
            has_name = False
    return "\n".join(f"- {entry}" for entry in entries)


PAGES = {"docs/flags.md": flags_page, "docs/reference.md": reference_page}


def main() -> None:
    for name, page in PAGES.items():
        (ROOT / name).write_text(page(), encoding="utf-8")
        print(f"wrote {name}")


if __name__ == "__main__":
    main()
