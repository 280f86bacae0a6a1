"""Modules, files and their members that docstrings, comments and documents name are there."""

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "electra_tf2"
# Texts name files of the package from its folder on, all others from the root on.
PLACES = (ROOT, PACKAGE)
PACKAGES = sorted({path.parent.name for place in PLACES for path in place.glob("*/__init__.py")} - {"electra_tf2"})
SOURCES = [*PACKAGE.rglob("*.py"), *(path for name in ("tests", "demo") for path in (ROOT / name).rglob("*.py"))]
DOCUMENTS = [
    *ROOT.glob("*.md"),
    *(path for folder in ("docs", "electra_tf2/pretrained", "tests") for path in (ROOT / folder).rglob("*.md")),
]
FILE = re.compile(rf"(?<![\w/<])((?:{'|'.join(PACKAGES)}|benchmarks|docs)/[\w/.-]+\.(?:py|md|json|txt|png))\b")
# `model` is left out: so are objects called, in examples.
MODULE = re.compile(rf"(?<![\w/.])((?:{'|'.join(set(PACKAGES) - {'model'})})(?:\.[A-Za-z_]\w*)+)")
ENDINGS = {"py", "md", "json", "txt", "png"}


def texts(path: Path) -> Iterator[str]:
    """A document, or the docstrings and comments of a source."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield text
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""
    yield from (line.partition("#")[2] for line in text.splitlines())


def members(path: Path) -> set[str]:
    """Names that a module or its classes define."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Name):
            found.add(node.id)
    return found


def is_there(name: str) -> bool:
    """True if a dotted name is a module, or a member of one."""
    parts = name.split(".")
    for length, place in itertools.product(range(len(parts), 0, -1), PLACES):
        module = place.joinpath(*parts[:length])
        path = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
        if path.exists():
            return length == len(parts) or parts[length] in members(path)
    return False


def test_files_that_are_named_exist() -> None:
    assert FILE.findall("see docs/data.md and corpus/records.py") == ["docs/data.md", "corpus/records.py"]
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in [*SOURCES, *DOCUMENTS]
        for text in texts(path)
        for name in FILE.findall(text)
        if "NAME" not in name and not any((place / name).exists() for place in PLACES)
    }
    assert not missing


def test_modules_that_are_named_exist() -> None:
    assert is_there("corpus.records.RecordFormat") and not is_there("corpus.record") and not is_there("util.files.no")
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in [*SOURCES, *DOCUMENTS]
        for text in texts(path)
        for name in MODULE.findall(text)
        if name.rpartition(".")[2] not in ENDINGS and not is_there(name)
    }
    assert not missing
