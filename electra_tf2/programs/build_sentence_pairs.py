"""Makes training data of the task sentence_embedding: pairs of plain text's sentences and of labelled tasks.

  electra build-pairs --corpus-dir corpus --num-pairs 100000
  electra build-pairs --tasks qqp,mrpc,rte --negatives electra_mini

A sentence of the corpus is paired with itself less some words (cropped), with the one that follows it (adjacent), or
stands alone (single). Pairs of --tasks are those whose label says that one text means or answers the other: the label
"1" or "entailment". With --negatives, each text gets a third one beside it, in which a model's generator replaced some
words.
"""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
from absl import flags

from electra_tf2.config.flags import run
from electra_tf2.corpus.corpus_reader import Corpus
from electra_tf2.corpus.scripts import sentences, words
from electra_tf2.files.writing import check_new, write_atomically
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import say

KINDS = ("cropped", "adjacent", "single")
_KEPT = (0.6, 0.95)  # range of the share of a sentence's words that cropping keeps
_SAME = ("1", "entailment")  # labels of pairs that belong together
_Row = TypeVar("_Row")


def paragraphs(corpus: Corpus, min_words: int, max_words: int) -> Iterator[list[str]]:
    """Yields lists of consecutive sentences of a corpus, each with at least min_words and at most max_words.

    In scripts without blanks between words, letters are counted. A list is part of one line.
    """
    for file in corpus.files():
        for block in corpus.read(file.name):
            for line in block.lines:
                consecutive: list[str] = []
                for sentence in sentences(line.decode("utf-8", "ignore")):
                    if min_words <= len(words(sentence)) <= max_words:
                        consecutive.append(sentence)
                    elif consecutive:
                        yield consecutive
                        consecutive = []
                if consecutive:
                    yield consecutive


def cropped(text: str, random: np.random.Generator) -> str:
    """Leaves out words of a text at random, but not all of them."""
    all_words = words(text)
    is_kept = random.random(len(all_words)) < random.uniform(*_KEPT)
    is_kept[random.integers(len(all_words))] = True
    kept = "".join(itertools.compress(all_words, is_kept))
    return " ".join(kept.split())  # with one blank between words


def pairs_of(sentences: list[str], kind: str, random: np.random.Generator) -> list[dict[str, str]]:
    """Makes rows of a training file from consecutive sentences.

    Args:
      kind: "cropped", a sentence and the same with words left out; "adjacent", a sentence and the next one; "single", a
        sentence that is paired with itself under another dropout (SimCSE, section 3).
    """
    if kind == "adjacent":
        return [{"text": sentence, "positive": following} for sentence, following in itertools.pairwise(sentences)]
    if kind == "single":
        return [{"text": sentence} for sentence in sentences]
    return [{"text": sentence, "positive": cropped(sentence, random)} for sentence in sentences]


def pairs_of_corpus(corpus: Corpus, random: np.random.Generator) -> Iterator[dict[str, str]]:
    """Yields all rows that can be made from a corpus, of each kind in --kinds."""
    values = flags.FLAGS
    for consecutive in paragraphs(corpus, values.min_words, values.max_words):
        for kind in values.kinds:
            yield from pairs_of(consecutive, kind, random)


def sample_rows(rows: Iterator[_Row], count: int, random: np.random.Generator) -> list[_Row]:
    """Draws `count` rows, all equally likely, in random order (reservoir sampling: Vitter 1985, algorithm R)."""
    reservoir: list[_Row] = []
    for rows_before, row in enumerate(rows):
        if rows_before < count:
            reservoir.append(row)
            continue
        index = int(random.integers(rows_before + 1))
        if index < count:
            reservoir[index] = row
    return [reservoir[index] for index in random.permutation(len(reservoir))]


def labelled_pairs(tasks: list[str], data_dir: str) -> list[dict[str, str]]:
    """The pairs in tasks' training data whose texts belong together."""
    if not tasks:
        return []
    from electra_tf2.finetune.starts import configuration
    from electra_tf2.finetune.tasks import make_task
    from electra_tf2.finetune.tasks.text import TextTask

    config = configuration({"data_dir": data_dir, "task_names": tasks})
    pairs = []
    for name in tasks:
        task = make_task(name, config, None)  # type: ignore[arg-type]  # nothing is tokenised
        if not isinstance(task, TextTask) or task.is_regression or len(task.settings.texts) != 2:
            raise UserError(f"--tasks: {name} has no pairs of texts with labels")
        examples = [example for example in task.read("train").examples if example.label in _SAME]
        labels = sorted({str(example.label) for example in examples})
        say(f"{name}: {len(examples):,} pairs of label {' or '.join(labels)}")
        pairs += [{"text": example.texts[0], "positive": example.texts[1]} for example in examples]
    return pairs


def add_negatives(rows: list[dict[str, str]], model: str, share: float, seed: int) -> None:
    """Adds to each row, under "negative", its text with some words replaced by samples of a generator."""
    from electra_tf2.inference.model import load
    from electra_tf2.inference.word_replacement import replaced_texts

    loaded = load(model)
    texts = replaced_texts(loaded.network, loaded.tokenizer, [row["text"] for row in rows], share, seed)
    for row, text in zip(rows, texts, strict=True):
        row["negative"] = text


def main() -> int:
    values = flags.FLAGS
    if not values.corpus_dir and not values.tasks:
        raise UserError("--corpus-dir or --tasks is needed")
    for kind in values.kinds:
        if kind not in KINDS:
            raise UserError(f"--kinds: {kind!r} is none of {', '.join(KINDS)}")
    output = Path(values.output or Path(values.data_dir, "finetuning_data", "sentence_embedding", "train.jsonl"))
    check_new("--output", output, values.overwrite)
    random = np.random.default_rng(values.seed)
    rows = labelled_pairs(values.tasks, values.data_dir)
    if values.corpus_dir:
        corpus = Corpus(values.corpus_dir, values.text_field, values.recursive)
        rows += sample_rows(pairs_of_corpus(corpus, random), values.num_pairs, random)
    if not rows:
        raise UserError(f"--corpus-dir {values.corpus_dir} holds no sentences of these lengths")
    if values.negatives:
        add_negatives(rows, values.negatives, values.replaced_share, values.seed)
    lines = [json.dumps(rows[index], ensure_ascii=False) for index in random.permutation(len(rows))]
    write_atomically(output, "".join(f"{line}\n" for line in lines))
    say(f"wrote {output}: {len(lines):,} lines")
    return 0


def command() -> None:
    flags.DEFINE_string("corpus_dir", None, "folder of text, as the other builders read it")
    flags.DEFINE_string("text_field", "text", "field of JSON lines that holds a document's text")
    flags.DEFINE_bool("overwrite", False, "replace the file if it exists")
    flags.DEFINE_bool("recursive", False, "read the folders below, too")
    flags.DEFINE_list("kinds", ["cropped"], f"what a sentence is paired with: {', '.join(KINDS)}")
    flags.DEFINE_integer("num_pairs", 100_000, "pairs of the corpus, drawn at random", lower_bound=1)
    flags.DEFINE_integer("min_words", 6, "words of a sentence, at least; letters where no blanks divide words", 1)
    flags.DEFINE_integer("max_words", 25, "words of a sentence, at most", lower_bound=1)
    flags.DEFINE_list(
        "tasks", [], "labelled tasks whose pairs are taken: qqp, mrpc, mnli, rte, qnli, or one's own name"
    )
    flags.DEFINE_string("negatives", None, "model whose generator makes negatives of the texts, such as electra_mini")
    flags.DEFINE_float("replaced_share", 0.2, "share of a text's wordpieces that a negative replaces, at most", 0, 1)
    flags.DEFINE_string("data_dir", "data", "folder of finetuning_data")
    flags.DEFINE_string("output", None, "file to write [<data_dir>/finetuning_data/sentence_embedding/train.jsonl]")
    flags.DEFINE_integer("seed", 0, "seed of what is drawn")
    run(main, __doc__)


if __name__ == "__main__":
    command()
