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
from electra_tf2.corpus.scripts import sentences, words
from electra_tf2.corpus.text_files import Corpus
from electra_tf2.files.writing import check_new, write_atomically
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import say

KINDS = ("cropped", "adjacent", "single")
_KEPT = (0.6, 0.95)  # share of a cropped sentence's words that stay, drawn for each
_SAME = ("1", "entailment")
_Row = TypeVar("_Row")


def paragraphs(corpus: Corpus, min_words: int, max_words: int) -> Iterator[list[str]]:
    """Runs of sentences that follow each other in a line of a corpus; one of another length ends a run.

    Where no blanks divide words, letters count.
    """
    for file in corpus.files():
        for block in corpus.read(file.name):
            for line in block.lines:
                run: list[str] = []
                for sentence in sentences(line.decode("utf-8", "ignore")):
                    if min_words <= len(words(sentence)) <= max_words:
                        run.append(sentence)
                    elif run:
                        yield run
                        run = []
                if run:
                    yield run


def cropped(text: str, random: np.random.Generator) -> str:
    """The text with some of its words left out, at random; one word at least."""
    all_words = words(text)
    stays = random.random(len(all_words)) < random.uniform(*_KEPT)
    stays[random.integers(len(all_words))] = True
    kept = itertools.compress(all_words, stays)
    return " ".join("".join(kept).split())  # the blanks before each word become one


def pairs_of(sentences: list[str], kind: str, random: np.random.Generator) -> list[dict[str, str]]:
    """Rows of a training file from sentences that follow each other.

    Args:
      kind: one of `KINDS`: a sentence and itself with words left out; a sentence and the next one; a sentence alone,
        which dropout makes two of (SimCSE, section 3).
    """
    if kind == "adjacent":
        return [{"text": sentence, "positive": following} for sentence, following in itertools.pairwise(sentences)]
    if kind == "single":
        return [{"text": sentence} for sentence in sentences]
    return [{"text": sentence, "positive": cropped(sentence, random)} for sentence in sentences]


def pairs_of_corpus(corpus: Corpus, random: np.random.Generator) -> Iterator[dict[str, str]]:
    """All rows that can be made of a corpus, of each kind that --kinds names."""
    values = flags.FLAGS
    for run_of_sentences in paragraphs(corpus, values.min_words, values.max_words):
        for kind in values.kinds:
            yield from pairs_of(run_of_sentences, kind, random)


def chosen(rows: Iterator[_Row], number: int, random: np.random.Generator) -> list[_Row]:
    """So many rows at random, all of them equally likely (Vitter 1985, algorithm R), in a random order."""
    kept: list[_Row] = []
    for seen, row in enumerate(rows):
        if seen < number:
            kept.append(row)
            continue
        place = int(random.integers(seen + 1))
        if place < number:
            kept[place] = row
    return [kept[place] for place in random.permutation(len(kept))]


def labelled_pairs(tasks: list[str], data_dir: str) -> list[dict[str, str]]:
    """The pairs of tasks' training data whose texts belong together."""
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
    """Gives each row a text with other words in it, under "negative"."""
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
        rows += chosen(pairs_of_corpus(corpus, random), values.num_pairs, random)
    if not rows:
        raise UserError(f"--corpus-dir {values.corpus_dir} holds no sentences of these lengths")
    if values.negatives:
        add_negatives(rows, values.negatives, values.replaced_share, values.seed)
    lines = [json.dumps(rows[place], ensure_ascii=False) for place in random.permutation(len(rows))]
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
