"""Files and modules that documents, docstrings and comments name are there."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PLACES = (ROOT, ROOT / "electra_tf2")  # texts name files of the package from its folder on, all others from the root on
FOLDERS = sorted({path.parent.name for place in PLACES for path in place.glob("*/__init__.py")} - {"electra_tf2"})
SOURCES = [path for name in ("electra_tf2", "tests", "demo") for path in (ROOT / name).rglob("*.py")]
DOCUMENTS = [
    *ROOT.glob("*.md"),
    *(path for name in ("docs", "electra_tf2", "tests") for path in ROOT.glob(f"{name}/**/*.md")),
]
FILE = re.compile(rf"(?<![\w/<])((?:{'|'.join(FOLDERS)}|benchmarks|docs)/[\w/.-]+\.(?:py|md|json|txt|png))\b")
# `model` and `config` are left out: so are objects called, in examples.
MODULE = re.compile(rf"(?<![\w/.])((?:{'|'.join(set(FOLDERS) - {'model', 'config'})})(?:\.[A-Za-z_]\w*)+)")


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


@cache
def is_there(name: str) -> bool:
    """True if a dotted name is a module, or a word of one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        for module in (place.joinpath(*parts[:length]) for place in PLACES):
            path = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
            if path.exists():
                return length == len(parts) or re.search(rf"\b{parts[length]}\b", path.read_text("utf-8")) is not None
    return False


def test_files_and_modules_that_are_named_exist() -> None:
    assert (
        is_there("corpus.records.RecordFormat")
        and not is_there("corpus.record")
        and not is_there("files.writing.unheard_of")
    )
    missing = set()
    for path in [*SOURCES, *DOCUMENTS]:
        for text in texts(path):
            files = [name for name in FILE.findall(text) if "NAME" not in name]
            modules = [name for name in MODULE.findall(text) if not re.search(r"\.(py|md|json|txt|png)$", name)]
            missing |= {(path, name) for name in files if not any((place / name).exists() for place in PLACES)}
            missing |= {(path, name) for name in modules if not is_there(name)}
    assert not missing
