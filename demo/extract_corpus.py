"""A real English corpus that every machine has: the docstrings of the standard library and the installed packages.

Sources are parsed, never imported. Each module's docstrings become one document: paragraphs joined to lines, code,
tables and doctests left out, documents separated by blank lines. The same installation gives the same corpus.
"""

import ast
import hashlib
import os
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from absl import flags

from util import flags as util_flags
from util.errors import UserError
from util.files import write_atomically

_SKIPPED_FOLDERS = {"test", "tests", "testing", "__pycache__", "idlelib", "lib2to3", "_vendor", "vendor"}
_CODE = re.compile(r"^\s*(>>>|\.\.\.|[-=~#*+|^`]{3,}|@|:\w+|\.\. )|[{}<>=|\\]{2,}|[_=(){}\[\];]\s*$")
_FEWEST_WORDS = 8  # of a paragraph
_FEWEST_PARAGRAPHS = 2  # of a document
_LARGEST_SOURCE = 1 << 20  # larger files are generated


class Document(NamedTuple):
    """The prose of one module. package: top-level name. module: dotted name. paragraphs: lines without breaks."""

    package: str
    module: str
    paragraphs: list[str]


def source_files(roots: list[Path]) -> Iterator[tuple[str, str, Path]]:
    """(package, module, path) of every source below the roots, sorted."""
    for root in roots:
        for folder, subfolders, names in os.walk(root):
            skip = _SKIPPED_FOLDERS | ({"site-packages"} if Path(folder) == root else set())
            subfolders[:] = sorted(name for name in subfolders if name not in skip)
            for name in sorted(names):
                path = Path(folder, name)
                if path.suffix == ".py" and not name.startswith("test_"):
                    parts = path.relative_to(root).with_suffix("").parts
                    yield parts[0], ".".join(parts), path


def docstrings(path: Path) -> Iterator[str]:
    """The docstrings of a module, its classes and functions; nothing if it does not parse."""
    try:
        if path.stat().st_size > _LARGEST_SOURCE:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield text


def paragraphs(docstring: str) -> Iterator[str]:
    """Paragraphs of prose, each on one line."""
    for block in re.split(r"\n\s*\n", docstring):
        lines = block.splitlines()
        if any(_CODE.search(line) for line in lines) or lines[0].startswith("    "):
            continue
        text = " ".join(" ".join(lines).split())
        words = text.split()
        letters = sum(character.isalpha() or character == " " for character in text)
        if len(words) >= _FEWEST_WORDS and letters > 0.85 * len(text):
            yield text


def documents(roots: list[Path]) -> Iterator[Document]:
    """The prose of every module; a paragraph that occurs twice is kept once."""
    seen: set[bytes] = set()
    for package, module, path in source_files(roots):
        kept = []
        for docstring in docstrings(path):
            for paragraph in paragraphs(docstring):
                key = hashlib.md5(paragraph.lower().encode(), usedforsecurity=False).digest()
                if key not in seen:
                    seen.add(key)
                    kept.append(paragraph)
        if len(kept) >= _FEWEST_PARAGRAPHS:
            yield Document(package, module, kept)


def default_roots() -> list[Path]:
    """The standard library, then the installed packages."""
    paths = sysconfig.get_paths()
    return [Path(paths["stdlib"]), Path(paths["purelib"])]


def extract(output: Path, max_bytes: int) -> tuple[int, int]:
    """Writes the corpus, cut to `max_bytes` by leaving out modules evenly. Returns (documents, bytes)."""
    found = list(documents(default_roots()))
    sizes = [sum(len(p.encode()) + 1 for p in document.paragraphs) + 1 for document in found]
    share = min(1.0, max_bytes / max(sum(sizes), 1))
    # Every k-th module, so that all packages stay in.
    chosen = [document for i, document in enumerate(found) if int((i + 1) * share) > int(i * share)]
    if not chosen:
        raise UserError("no docstrings were found below " + ", ".join(map(str, default_roots())))
    text = "\n".join("".join(f"{paragraph}\n" for paragraph in document.paragraphs) for document in chosen)
    write_atomically(output, text)
    return len(chosen), len(text.encode())


def main() -> int:
    values = flags.FLAGS
    output = Path(values.output_dir) / "docstrings.txt"
    if output.exists() and not values.overwrite:
        print(f"{output} is there already; --overwrite extracts it anew")
        return 0
    count, size = extract(output, values.max_bytes)
    print(f"{count:,} documents, {size / 1e6:.1f} MB of docstrings in {output}")
    return 0


if __name__ == "__main__":
    flags.DEFINE_string("output_dir", "demo_data/corpus", "directory of the corpus")
    flags.DEFINE_integer("max_bytes", 6_000_000, "size of the corpus, about", lower_bound=1000)
    flags.DEFINE_bool("overwrite", False, "replace a corpus that is there")
    sys.exit(util_flags.run(main, __doc__))  # type: ignore[func-returns-value]
