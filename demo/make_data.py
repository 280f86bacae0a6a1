"""Makes text and a labelled task for the demo from what every machine has: the docstrings of its Python packages.

DATA_DIR/corpus/docstrings.txt has the docstrings of the standard library and of installed packages, which are parsed,
never imported. A module's docstrings are one document, each paragraph on one line, without code, tables, doctests and
lists of arguments. A blank line separates documents. The same installation gives the same corpus.

DATA_DIR/finetuning_data/punctuation/{train,dev}.txt is a tagging task: where do commas and full stops belong? A line
has a word in lower case and its tag: `B-comma` or `B-period` if such a mark followed the word, else `O`. A blank line
ends a paragraph. Transcripts of speech lack punctuation, and any written text is labelled by its own. The order of
words decides, which a bag of words does not see. Training and development paragraphs come from different documents.
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
from electra_tf2.finetune.tasks.tagged_files import read_sentences
from electra_tf2.util.errors import UserError

_SKIPPED_FOLDERS = {"test", "tests", "testing", "__pycache__", "idlelib", "lib2to3", "_vendor", "vendor"}
_CODE = re.compile(r"^\s*(>>>|\.\.\.|[-=~#*+|^`]{3,}|@|:\w+|\.\. )|[{}<>=|\\]{2,}|\) ->|[_=(){}\[\];]\s*$")
# "Args: ...", and NumPy's "name, other : type".
_TABLE = re.compile(r"\s*(Arg|Argument|Attribute|Keyword|Kwarg|Param|Parameter|Raise)s?\b[^.]*:|[*\w, .]+ : ", re.I)
_ROLE = re.compile(r":[\w:]+:`~?([^`<]+?)(\s*<[^`]*)?`|``([^`]+)``")  # Sphinx's :class:`~name` and ``code``
_NEITHER_LETTER_NOR_SPACE = re.compile(r"[^A-Za-z ]")
_FEWEST_WORDS = 8  # in a paragraph of the corpus
_FEWEST_PARAGRAPHS = 2  # in a document
_LARGEST_SOURCE = 1 << 20  # larger files are generated
_GOLDEN_RATIO = (5**0.5 - 1) / 2
_STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)

_TASK_WORDS = range(12, 41)  # in a paragraph of the task
_TASK_WORD = re.compile(r"([A-Za-z][A-Za-z'-]*|\d+(?:\.\d+)?)([,.]?)")
_TAGS = {"": "O", ",": "B-comma", ".": "B-period"}
_CONTEXT = 3  # words to either side that the baseline reads; 1 and 2 score less

Document = list[str]  # paragraphs, each on one line
Tagged = list[tuple[str, str]]  # a paragraph's words with their tags


def source_files(roots: Iterable[Path]) -> Iterator[tuple[tuple[str, ...], Path]]:
    """Yields name and path of every module below the roots, sorted. A name is (package, ..., module)."""
    for root in roots:
        for folder, subfolders, names in os.walk(root):
            skip = set(_SKIPPED_FOLDERS)
            if Path(folder) == root:
                # The standard library's folder may hold that of the installed packages, which is another root.
                skip |= {"site-packages", "dist-packages"}
            # os.walk visits the folders that stay in this list, in its order.
            subfolders[:] = sorted(name for name in subfolders if name not in skip)
            for name in sorted(names):
                if name.endswith(".py") and not name.startswith("test_"):
                    path = Path(folder, name)
                    module = path.relative_to(root).with_suffix("").parts
                    if module[-1] == "__init__" and len(module) > 1:
                        module = module[:-1]
                    yield module, path


def docstrings(path: Path) -> Iterator[str]:
    """Yields the docstrings of a module, its classes and functions; none if the module does not parse."""
    try:
        if path.stat().st_size > _LARGEST_SOURCE:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as invalid escapes in the sources
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    nodes: list[ast.AST] = [tree]
    for node in nodes:  # the list grows meanwhile
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node)
            if docstring:
                yield docstring
        # Most of a tree is expressions, which hold no functions.
        nodes += [child for child in ast.iter_child_nodes(node) if isinstance(child, _STATEMENTS)]


def paragraphs(docstring: str) -> Iterator[str]:
    """Yields the paragraphs of a docstring that are English prose, each on one line."""
    for block in re.split(r"\n\s*\n", docstring):
        lines = block.splitlines()
        if not lines or lines[0].startswith("    ") or _TABLE.match(lines[0]) or any(map(_CODE.search, lines)):
            continue
        text = _ROLE.sub(lambda match: match[1] or match[3], " ".join(block.split()))
        others = len(_NEITHER_LETTER_NOR_SPACE.findall(text))
        if len(text.split()) >= _FEWEST_WORDS and others < 0.15 * len(text):
            yield text


def extract(roots: Iterable[Path], max_bytes: int) -> list[Document]:
    """Makes documents from modules all over the roots, sorted by name. No paragraph occurs twice.

    Args:
      max_bytes: size of all documents, roughly.
    """
    sources = list(source_files(roots))
    seen: set[str] = set()
    chosen = []
    size = 0
    # The fractional parts of multiples of the golden ratio are evenly spread. Sorted by them, the first files come from
    # all over the roots, however many are needed.
    order = sorted(range(len(sources)), key=lambda index: (index * _GOLDEN_RATIO) % 1)
    for index in order:
        name, path = sources[index]
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
    """Words and tags of a paragraph; None unless it has two or more sentences of plain words, commas and full stops."""
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
    """Makes the splits "train" and "dev" of the task, at most so many paragraphs each.

    Raises:
      UserError: fewer than two documents have suitable paragraphs.
    """
    tagged_documents = []
    for document in documents:
        tagged_paragraphs = [words for words in map(tagged, document) if words is not None]
        if tagged_paragraphs:
            tagged_documents.append(tagged_paragraphs)
    if len(tagged_documents) < 2:
        raise UserError(f"{len(documents)} documents are too few: two with punctuated paragraphs are needed")
    train: list[Tagged] = []
    dev: list[Tagged] = []
    for index in np.random.default_rng(0).permutation(len(tagged_documents)):
        split = dev if len(dev) < dev_size else train
        split.extend(tagged_documents[index])
    return {"train": train[:train_size], "dev": dev[:dev_size]}


def bag_of_words(folder: Path) -> float:
    """F1, in percent, of a baseline on dev.txt, which a model has to beat.

    The baseline is logistic regression on a word and its neighbours, each with its distance, fitted to train.txt.
    """
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    bags, tags = _bags_and_tags(folder / "train.txt")
    model = make_pipeline(DictVectorizer(), LogisticRegression(C=10, max_iter=300)).fit(bags, tags)
    bags, tags = _bags_and_tags(folder / "dev.txt")
    predicted = model.predict(bags)

    correct = 0
    marks = 0  # in the original and in the prediction
    for tag, prediction in zip(tags, predicted, strict=True):
        correct += tag == prediction != "O"
        marks += (tag != "O") + (prediction != "O")
    return 100 * 2 * correct / marks


def _bags_and_tags(path: Path) -> tuple[list[dict[str, int]], list[str]]:
    """For every word its bag, the neighbours with their distances, and its tag."""
    bags = []
    tags: list[str] = []
    for sentence in read_sentences(path):
        words = [""] * _CONTEXT + sentence.words + [""] * _CONTEXT
        for position in range(_CONTEXT, len(words) - _CONTEXT):
            distances = range(-_CONTEXT, _CONTEXT + 1)
            bags.append({f"{distance} {words[position + distance]}": 1 for distance in distances})
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
    roots = dict.fromkeys([paths["stdlib"], paths["purelib"], paths["platlib"]])  # the last two may be the same
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
