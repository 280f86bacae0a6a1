"""A real English corpus that every machine has: the docstrings of the standard library and the installed packages.

Sources are parsed, never imported. Each module's docstrings become one document: paragraphs joined to lines, code,
tables, doctests and lists of arguments left out, documents separated by blank lines. The same installation gives the
same corpus. `documents` also says which package each document is from, a label for a classifier.
"""

import ast
import os
import re
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from absl import flags

from electra_tf2.util import flags as util_flags
from electra_tf2.util.errors import UserError
from electra_tf2.util.files import write_atomically

_SKIPPED_FOLDERS = {"test", "tests", "testing", "__pycache__", "idlelib", "lib2to3", "_vendor", "vendor"}
_CODE = re.compile(r"^\s*(>>>|\.\.\.|[-=~#*+|^`]{3,}|@|:\w+|\.\. )|[{}<>=|\\]{2,}|\) ->|[_=(){}\[\];]\s*$")
# "Args: ...", and NumPy's "name, other : type".
_TABLE = re.compile(r"\s*(Arg|Argument|Attribute|Keyword|Kwarg|Param|Parameter|Raise)s?\b[^.]*:|[*\w, .]+ : ", re.I)
_ROLE = re.compile(r":[\w:]+:`~?([^`<]+?)(\s*<[^`]*)?`|``([^`]+)``")  # of Sphinx: :class:`~name` and ``code``
_NEITHER_LETTER_NOR_SPACE = re.compile(r"[^A-Za-z ]")
_FEWEST_WORDS = 8  # of a paragraph
_FEWEST_PARAGRAPHS = 2  # of a document
_LARGEST_SOURCE = 1 << 20  # larger files are generated
_GOLDEN_RATIO = (5**0.5 - 1) / 2


class Document(NamedTuple):
    """The prose of one module. package: top-level name. module: dotted name. paragraphs: lines without breaks."""

    package: str
    module: str
    paragraphs: list[str]


class Source(NamedTuple):
    """A file of a package. module: dotted name, without __init__."""

    package: str
    module: str
    path: Path


def source_files(roots: Iterable[Path]) -> Iterator[Source]:
    """Every source below the roots, sorted."""
    for root in roots:
        for folder, subfolders, names in os.walk(root):
            # The standard library's folder may hold that of the installed packages, a root of its own.
            skip = _SKIPPED_FOLDERS | ({"site-packages", "dist-packages"} if Path(folder) == root else set())
            subfolders[:] = sorted(name for name in subfolders if name not in skip)
            for name in sorted(names):
                path = Path(folder, name)
                if path.suffix == ".py" and not name.startswith("test_"):
                    parts = path.relative_to(root).with_suffix("").parts
                    module = parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts
                    yield Source(parts[0], ".".join(module), path)


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
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    yield from filter(None, (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, documented)))


def paragraphs(docstring: str) -> Iterator[str]:
    """Paragraphs of English prose, each on one line."""
    for block in re.split(r"\n\s*\n", docstring):
        lines = block.splitlines()
        if not lines or lines[0].startswith("    ") or _TABLE.match(lines[0]) or any(map(_CODE.search, lines)):
            continue
        text = _ROLE.sub(lambda match: match[1] or match[3], " ".join(block.split()))
        others = len(_NEITHER_LETTER_NOR_SPACE.findall(text))
        if len(text.split()) >= _FEWEST_WORDS and others < 0.15 * len(text):
            yield text


def documents(sources: Iterable[Source]) -> Iterator[Document]:
    """The prose of the sources; a paragraph that occurs twice is kept once."""
    seen: set[str] = set()
    for package, module, path in sources:
        kept = []
        for paragraph in (paragraph for docstring in docstrings(path) for paragraph in paragraphs(docstring)):
            if paragraph.lower() not in seen:
                seen.add(paragraph.lower())
                kept.append(paragraph)
        if len(kept) >= _FEWEST_PARAGRAPHS:
            yield Document(package, module, kept)


def extract(roots: Iterable[Path], max_bytes: int) -> list[Document]:
    """About `max_bytes` of documents from all over the roots, sorted by package and module."""
    files = list(source_files(roots))
    # Multiples of the golden ratio, modulo 1, are spread evenly however many are taken: so are the first files of this
    # order, and no more are parsed than are needed.
    order = sorted(range(len(files)), key=lambda i: (i * _GOLDEN_RATIO) % 1)
    chosen, size = [], 0
    for document in documents(files[i] for i in order):
        chosen.append(document)
        size += len(as_text([document]).encode())
        if size >= max_bytes:
            break
    return sorted(chosen)


def as_text(chosen: Iterable[Document]) -> str:
    """A paragraph a line, a blank line after each document."""
    return "".join("\n".join(document.paragraphs) + "\n\n" for document in chosen)


def main() -> int:
    values = flags.FLAGS
    output, paths = Path(values.output_dir) / "docstrings.txt", sysconfig.get_paths()
    if output.exists() and not values.overwrite:
        print(f"{output} is there already; --overwrite extracts it anew")
        return 0
    roots = [Path(name) for name in dict.fromkeys([paths["stdlib"], paths["purelib"], paths["platlib"]])]
    chosen = extract(roots, values.max_bytes)
    if not chosen:
        raise UserError("no docstrings were found below " + ", ".join(map(str, roots)))
    text = as_text(chosen)
    write_atomically(output, text)
    packages = len({document.package for document in chosen})
    megabytes = len(text.encode()) / 1e6
    print(f"{len(chosen):,} documents of {packages:,} packages, {megabytes:.1f} MB of docstrings in {output}")
    return 0


if __name__ == "__main__":
    flags.DEFINE_string("output_dir", "demo_data/corpus", "directory of the corpus")
    flags.DEFINE_integer("max_bytes", 6_000_000, "size of the corpus, about", lower_bound=1000)
    flags.DEFINE_bool("overwrite", False, "replace a corpus that is there")
    util_flags.run(main, __doc__)
