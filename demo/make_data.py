"""English text and a labelled task that every machine has, for the demo: the docstrings of its Python packages.

DATA_DIR/corpus/docstrings.txt: the standard library and the installed packages are parsed, never imported. Each
module's docstrings become one document: paragraphs joined to lines, code, tables, doctests and lists of arguments left
out, documents separated by blank lines. The same installation gives the same corpus.

DATA_DIR/finetuning_data/punctuation/{train,dev}.txt: where do the commas and full stops belong? In the columns of
tagging tasks, a word in lower case, and `B-comma` or `B-period` if such a mark followed it, else `O`; a blank line
after each paragraph. Punctuation is what transcripts of speech lack, and it labels itself; which words occur does not
tell it, how they follow each other does. Development paragraphs come from documents of their own, so that nothing is
won by remembering a document.
"""

import ast
import os
import re
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from absl import flags

from electra_tf2.config import flags as util_flags
from electra_tf2.files.writing import write_atomically
from electra_tf2.finetune.tasks.conll import read_sentences
from electra_tf2.util.errors import UserError

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
_STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)

_TASK_WORDS = range(12, 41)  # of a paragraph of the task
_TASK_WORD = re.compile(r"([A-Za-z][A-Za-z'-]*|\d+(?:\.\d+)?)([,.]?)")
_TAGS = {"": "O", ",": "B-comma", ".": "B-period"}
_REACH = 3  # words to either side that the baseline reads, the best of 1, 2 and 3

Document = list[str]  # its paragraphs, each on one line
Tagged = list[tuple[str, str]]  # words and tags of a paragraph


def source_files(roots: Iterable[Path]) -> Iterator[tuple[tuple[str, ...], Path]]:
    """(name, path) of every source below the roots, sorted; a name is that of the package, module, ..."""
    for root in roots:
        for folder, subfolders, names in os.walk(root):
            skip = set(_SKIPPED_FOLDERS)
            if Path(folder) == root:
                # The standard library's folder may hold that of the installed packages, a root of its own.
                skip |= {"site-packages", "dist-packages"}
            # os.walk goes into the folders that are left in this list, in its order.
            subfolders[:] = sorted(name for name in subfolders if name not in skip)
            for name in sorted(names):
                if name.endswith(".py") and not name.startswith("test_"):
                    path = Path(folder, name)
                    module = path.relative_to(root).with_suffix("").parts
                    if module[-1] == "__init__" and len(module) > 1:
                        module = module[:-1]
                    yield module, path


def docstrings(path: Path) -> Iterator[str]:
    """The docstrings of a module, its classes and functions; nothing if it does not parse."""
    try:
        if path.stat().st_size > _LARGEST_SOURCE:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the sources, as invalid escapes
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    waiting: list[ast.AST] = [tree]
    for node in waiting:
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node)
            if docstring:
                yield docstring
        # Expressions, most of a tree, hold no functions.
        waiting += [child for child in ast.iter_child_nodes(node) if isinstance(child, _STATEMENTS)]


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


def extract(roots: Iterable[Path], max_bytes: int) -> list[Document]:
    """About `max_bytes` of documents from all over the roots, sorted by name; no paragraph twice."""
    sources = list(source_files(roots))
    seen: set[str] = set()
    chosen = []
    size = 0
    # Multiples of the golden ratio, modulo 1, are spread evenly however many are taken: so are the first files of this
    # order, and no more are parsed than are needed.
    for number in sorted(range(len(sources)), key=lambda number: (number * _GOLDEN_RATIO) % 1):
        name, path = sources[number]
        document = []
        for docstring in docstrings(path):
            for paragraph in paragraphs(docstring):
                if paragraph.lower() not in seen:
                    seen.add(paragraph.lower())
                    document.append(paragraph)
        if len(document) >= _FEWEST_PARAGRAPHS:
            chosen.append((name, document))
            size += len("\n".join(document).encode()) + 2
            if size >= max_bytes:
                break
    return [document for _, document in sorted(chosen)]


def tagged(paragraph: str) -> Tagged | None:
    """Words and tags of a paragraph; None unless it is two sentences or more of plain words, commas and full stops."""
    words = []
    for word in paragraph.split():
        match = _TASK_WORD.fullmatch(word.strip("\"'()[]`*"))
        if match is None:
            return None
        words.append((match[1].lower(), _TAGS[match[2]]))
    if len(words) not in _TASK_WORDS:
        return None
    tags = [tag for _, tag in words]
    ends_with_period = tags[-1] == _TAGS["."]
    if not ends_with_period or tags.count(_TAGS["."]) < 2:
        return None
    return words


def make_task(documents: list[Document], train_size: int = 200, dev_size: int = 400) -> dict[str, list[Tagged]]:
    """Paragraphs for train and dev, at most so many of each. Raises UserError: fewer than two documents have any."""
    modules = []
    for document in documents:
        tagged_paragraphs = [words for words in map(tagged, document) if words is not None]
        if tagged_paragraphs:
            modules.append(tagged_paragraphs)
    if len(modules) < 2:
        raise UserError(f"{len(documents)} documents are too few: two with punctuated paragraphs are needed")
    train: list[Tagged] = []
    dev: list[Tagged] = []
    for number in np.random.default_rng(0).permutation(len(modules)):
        part = dev if len(dev) < dev_size else train
        part.extend(modules[number])
    return {"train": train[:train_size], "dev": dev[:dev_size]}


def bag_of_words(folder: Path) -> float:
    """F1 in percent of commas and full stops on dev.txt, which a model has to beat: of logistic regression on a word
    and its neighbours, each with its distance, fitted to train.txt."""
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    bags, tags = _bags_and_tags(folder / "train.txt")
    model = make_pipeline(DictVectorizer(), LogisticRegression(C=10, max_iter=300)).fit(bags, tags)
    bags, tags = _bags_and_tags(folder / "dev.txt")
    predicted = model.predict(bags)

    right = 0
    marks = 0  # of both, the original and the prediction
    for tag, guess in zip(tags, predicted, strict=True):
        right += tag == guess != "O"
        marks += (tag != "O") + (guess != "O")
    return 100 * 2 * right / marks


def _bags_and_tags(path: Path) -> tuple[list[dict[str, int]], list[str]]:
    """For every word, its neighbours by their distance, and its tag."""
    bags = []
    tags: list[str] = []
    for sentence in read_sentences(path):
        words = [""] * _REACH + sentence.words + [""] * _REACH
        for place in range(_REACH, len(words) - _REACH):
            distances = range(-_REACH, _REACH + 1)
            bags.append({f"{distance} {words[place + distance]}": 1 for distance in distances})
        tags += sentence.tags
    return bags, tags


def main() -> int:
    data_dir = Path(flags.FLAGS.data_dir)
    corpus = data_dir / "corpus" / "docstrings.txt"
    task = data_dir / "finetuning_data" / "punctuation"
    if corpus.exists() and (task / "dev.txt").exists():
        print(f"{corpus} and {task} are there already")
        return 0

    paths = sysconfig.get_paths()
    roots = dict.fromkeys([paths["stdlib"], paths["purelib"], paths["platlib"]])  # the last two may be one
    documents = extract(map(Path, roots), flags.FLAGS.max_bytes)
    text = "".join("\n".join(document) + "\n\n" for document in documents)
    write_atomically(corpus, text)
    splits = make_task(documents)
    for split, rows in splits.items():
        lines = []
        for row in rows:
            lines += [f"{word} {tag}\n" for word, tag in row]
            lines.append("\n")
        write_atomically(task / f"{split}.txt", "".join(lines))
    print(f"{len(documents):,} documents, {len(text.encode()) / 1e6:.1f} MB of docstrings in {corpus}")
    print(f"{len(splits['train']):,} training and {len(splits['dev']):,} development paragraphs in {task}")
    return 0


if __name__ == "__main__":
    flags.DEFINE_string("data_dir", "demo_data", "folder of the corpus and the task")
    flags.DEFINE_integer("max_bytes", 3_000_000, "size of the corpus, about", lower_bound=1000)
    util_flags.run(main, __doc__)
