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
from pathlib import Path

import numpy as np
from absl import flags

from electra_tf2.corpus import sentence_pairs
from electra_tf2.corpus.text_files import Corpus
from electra_tf2.util.errors import UserError
from electra_tf2.util.files import check_writable, write_atomically
from electra_tf2.util.flags import run
from electra_tf2.util.progress import say

_SAME = ("1", "entailment")


def main() -> int:
    values = flags.FLAGS
    if not values.corpus_dir and not values.tasks:
        raise UserError("--corpus-dir or --tasks is needed")
    unknown = [kind for kind in values.kinds if kind not in sentence_pairs.KINDS]
    if unknown:
        raise UserError(f"--kinds: {unknown[0]!r} is none of {', '.join(sentence_pairs.KINDS)}")
    output = Path(values.output or Path(values.data_dir, "finetuning_data", "sentence_embedding", "train.jsonl"))
    if output.exists() and not values.overwrite:
        raise UserError(f"--output: {str(output)!r} exists; pass --overwrite to replace it, or name another file")
    output.parent.mkdir(parents=True, exist_ok=True)
    check_writable(output)
    random = np.random.default_rng(values.seed)
    rows = labelled_pairs(values.tasks, values.data_dir)
    if values.corpus_dir:
        corpus = Corpus(values.corpus_dir, values.text_field, values.recursive)
        found = sentence_pairs.paragraphs(corpus, values.min_words, values.max_words)
        pairs = (sentence_pairs.pairs_of(sentences, kind, random) for sentences in found for kind in values.kinds)
        rows += sentence_pairs.chosen(itertools.chain.from_iterable(pairs), values.num_pairs, random)
    if not rows:
        raise UserError(f"--corpus-dir {values.corpus_dir} holds no sentences of these lengths")
    if values.negatives:
        add_negatives(rows, values.negatives, values.replaced_share, values.seed)
    lines = [json.dumps(rows[place], ensure_ascii=False) for place in random.permutation(len(rows))]
    write_atomically(output, "".join(f"{line}\n" for line in lines))
    say(f"wrote {output}: {len(lines):,} lines")
    return 0


def labelled_pairs(tasks: list[str], data_dir: str) -> list[dict[str, str]]:
    """The pairs of tasks' training data whose texts belong together."""
    if not tasks:
        return []
    from electra_tf2.configure_finetuning import FinetuningConfig
    from electra_tf2.finetune.tasks import make_task
    from electra_tf2.finetune.tasks.text import TextTask

    config = FinetuningConfig.from_dict({"data_dir": data_dir, "task_names": tasks})
    found = []
    for name in tasks:
        task = make_task(name, config, None)  # type: ignore[arg-type]  # nothing is tokenised
        if not isinstance(task, TextTask) or task.is_regression or len(task.settings.texts) != 2:
            raise UserError(f"--tasks: {name} has no pairs of texts with labels")
        examples = [example for example in task.examples("train") if example.label in _SAME]
        say(f"{name}: {len(examples):,} pairs of label {' or '.join(sorted({str(one.label) for one in examples}))}")
        found += [{"text": example.texts[0], "positive": example.texts[1]} for example in examples]
    return found


def add_negatives(rows: list[dict[str, str]], model: str, share: float, seed: int) -> None:
    """Gives each row a text with other words in it, under "negative"."""
    from electra_tf2.inference.model import load
    from electra_tf2.inference.negatives import replaced_texts

    loaded = load(model)
    texts = replaced_texts(loaded.network, loaded.tokenizer, [row["text"] for row in rows], share, seed)
    for row, text in zip(rows, texts, strict=True):
        row["negative"] = text


flags.DEFINE_string("corpus_dir", None, "folder of text, as the other builders read it")
flags.DEFINE_string("text_field", "text", "field of JSON lines that holds a document's text")
flags.DEFINE_bool("overwrite", False, "replace the file if it exists")
flags.DEFINE_bool("recursive", False, "read the folders below, too")
flags.DEFINE_list("kinds", ["cropped"], f"what a sentence is paired with: {', '.join(sentence_pairs.KINDS)}")
flags.DEFINE_integer("num_pairs", 100_000, "pairs of the corpus, drawn at random", lower_bound=1)
flags.DEFINE_integer(
    "min_words", 6, "words of a sentence, at least; letters where no blanks divide words", lower_bound=1
)
flags.DEFINE_integer("max_words", 25, "words of a sentence, at most", lower_bound=1)
flags.DEFINE_list("tasks", [], "labelled tasks whose pairs are taken: qqp, mrpc, mnli, rte, qnli, or one's own name")
flags.DEFINE_string("negatives", None, "model whose generator makes negatives of the texts, such as electra_mini")
flags.DEFINE_float("replaced_share", 0.2, "share of a text's wordpieces that a negative replaces, at most", 0, 1)
flags.DEFINE_string("data_dir", "data", "folder of finetuning_data")
flags.DEFINE_string("output", None, "file to write [<data_dir>/finetuning_data/sentence_embedding/train.jsonl]")
flags.DEFINE_integer("seed", 0, "seed of what is drawn")


def command() -> None:
    run(main, __doc__)


if __name__ == "__main__":
    command()
