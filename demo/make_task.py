"""A small labelled task from the demo's corpus: where do the commas and full stops belong?

Writes {train,dev}.txt in the columns of tagging tasks: a word in lower case, and `B-comma` or `B-period` if such a mark
followed it, else `O`; a blank line after each paragraph. Punctuation is what transcripts of speech lack, and it labels
itself; which words occur does not tell it, how they follow each other does. Development paragraphs come from documents
of their own, so that nothing is won by remembering a document.
"""

import re
from pathlib import Path

import numpy as np
from absl import flags
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from electra_tf2.finetune.tasks.conll import Sentence, read_sentences
from electra_tf2.util import flags as util_flags
from electra_tf2.util.errors import UserError
from electra_tf2.util.files import write_atomically
from electra_tf2.util.reading import read_text

_WORDS = range(12, 41)  # of a paragraph
_WORD = re.compile(r"([A-Za-z][A-Za-z'-]*|\d+(?:\.\d+)?)([,.]?)")
_REACH = 3  # words to either side that the baseline reads, the best of 1, 2 and 3
_TAGS = {"": "O", ",": "B-comma", ".": "B-period"}

Paragraph = list[tuple[str, str]]  # words and tags


def tagged(paragraph: str) -> Paragraph | None:
    """Words and tags of a paragraph; None unless it is two sentences or more of plain words, commas and full stops."""
    found = [_WORD.fullmatch(word.strip("\"'()[]`*")) for word in paragraph.split()]
    words = [(match[1].lower(), _TAGS[match[2]]) for match in found if match]
    sentences = sum(tag == _TAGS["."] for _, tag in words)
    whole = len(words) == len(found) in _WORDS and words[-1][1] == _TAGS["."] and sentences > 1
    return words if whole else None


def make_task(documents: list[list[str]], train_size: int, dev_size: int) -> tuple[list[Paragraph], list[Paragraph]]:
    """Paragraphs for training and development, at most so many of each, of documents that are lists of paragraphs.
    Raises UserError: fewer than two documents have such paragraphs."""
    modules = [found for document in documents if (found := [p for p in map(tagged, document) if p])]
    if len(modules) < 2:
        raise UserError(f"{len(documents)} documents are too few: two with punctuated paragraphs are needed")
    train: list[Paragraph] = []
    dev: list[Paragraph] = []
    for number in np.random.default_rng(0).permutation(len(modules)):
        (dev if len(dev) < dev_size else train).extend(modules[number])
    return train[:train_size], dev[:dev_size]


def bag_of_words(folder: Path) -> float:
    """F1 in percent of commas and full stops on dev.txt, which a model has to beat: of logistic regression on a word
    and its neighbours, each with its distance, fitted to train.txt."""
    train, dev = (read_sentences(folder / f"{part}.txt") for part in ("train", "dev"))
    model = make_pipeline(DictVectorizer(), LogisticRegression(C=10, max_iter=300))
    model.fit(_bags(train), _tags(train))
    gold, predicted = _tags(dev), model.predict(_bags(dev))
    right = sum(tag == guess != "O" for tag, guess in zip(gold, predicted, strict=True))
    marks = sum(tag != "O" for tag in gold) + sum(guess != "O" for guess in predicted)
    return 200 * right / marks


def _bags(sentences: list[Sentence]) -> list[dict[str, int]]:
    reach = range(-_REACH, _REACH + 1)
    padded = [[""] * _REACH + sentence.words + [""] * _REACH for sentence in sentences]
    return [
        {f"{distance} {words[place + distance]}": 1 for distance in reach}
        for words in padded
        for place in range(_REACH, len(words) - _REACH)
    ]


def _tags(sentences: list[Sentence]) -> list[str]:
    return [tag for sentence in sentences for tag in sentence.tags]


def main() -> int:
    values = flags.FLAGS
    folder = Path(values.output_dir)
    if (folder / "dev.txt").exists():
        print(f"{folder} is there already")
        return 0
    paths = sorted(Path(values.corpus_dir).glob("*.txt"))
    documents = [text.splitlines() for path in paths for text in read_text(path, "corpus").split("\n\n")]
    train, dev = make_task(documents, values.train_size, values.dev_size)
    for name, rows in (("train", train), ("dev", dev)):
        text = "".join("".join(f"{word} {tag}\n" for word, tag in row) + "\n" for row in rows)
        write_atomically(folder / f"{name}.txt", text)
    print(f"{len(train):,} training and {len(dev):,} development paragraphs in {folder}")
    return 0


if __name__ == "__main__":
    flags.DEFINE_string("output_dir", "demo_data/finetuning_data/punctuation", "directory of the task")
    flags.DEFINE_string("corpus_dir", "demo_data/corpus", "directory of text files, a blank line between documents")
    flags.DEFINE_integer("train_size", 600, "training paragraphs, at most", lower_bound=1)
    flags.DEFINE_integer("dev_size", 400, "development paragraphs, at most", lower_bound=1)
    util_flags.run(main, __doc__)
