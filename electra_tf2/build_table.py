"""Counts over all records, once, and writes the table that some objectives and masking units need.

  electra build-table cooccurrence --data-dir data
  electra build-table document_frequency --data-dir data
  electra build-table pmi_vocab --data-dir data

The first argument is the kind of table; it is written to <data-dir>/<kind>.npz (docs/papers.md says who reads it):

  cooccurrence        tokens that occur near one another more than by chance
  document_frequency  how many records hold each token (auxiliary task tf_idf)
  pmi_vocab           n-grams of 2 to 5 words that go together more than by
                      chance (--mask-unit pmi; PMI-masking, Levine et al. 2021,
                      section 3); the records are read twice

Memory is bounded by what a process may hold and by the largest 64th of what is counted.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from absl import flags

from electra_tf2.corpus import cooccurrence, pmi_vocabulary, table_file
from electra_tf2.corpus.key_counts import PARTS, TableInputs, counted, record_inputs
from electra_tf2.corpus.vocabulary import load_vocab
from electra_tf2.util.errors import UserError
from electra_tf2.util.files import check_writable
from electra_tf2.util.flags import run
from electra_tf2.util.progress import track

_SCORES = {"cooccurrence": cooccurrence.SCORES, "pmi_vocab": pmi_vocabulary.SCORES}
_FLAGS = {  # those that not all kinds have
    "cooccurrence": {"window", "min_count", "score", "top_k", "drop_frequent"},
    "document_frequency": set[str](),
    "pmi_vocab": {"size", "min_count", "score"},
}


def build_cooccurrence(inputs: TableInputs, output: str) -> str:
    """Writes the table; returns what it holds, for the user."""
    values = flags.FLAGS
    count_in = partial(
        cooccurrence.count_pairs, vocab_file=inputs.vocab_file, window=values.window, domain_tokens=inputs.domain_tokens
    )
    length, selection = (
        inputs.record_format.length,
        cooccurrence.Selection(_score(), values.top_k, values.drop_frequent),
    )
    with counted(inputs, count_in, len(inputs.tokens), length * min(length, values.window)) as (totals, parts_of):
        parts = track(parts_of(values.min_count or 5), "scoring part", PARTS)
        table = cooccurrence.table_of(parts, totals, selection)
    cooccurrence.write_cooccurrence(output, table, inputs.vocab_file)
    pairs = int((table.neighbours != cooccurrence.NOBODY).sum())
    return f"{pairs:,} pairs of {len(inputs.tokens):,} tokens\n{table.examples(inputs.tokens)}"


def build_document_frequency(inputs: TableInputs, output: str) -> str:
    count_in = partial(table_file.count_documents, vocab_size=len(inputs.tokens))
    with counted(inputs, count_in, len(inputs.tokens), inputs.record_format.length) as (totals, _):
        table_file.write_frequencies(output, totals, inputs.vocab_file)
    return f"{int((totals[:-1] > 0).sum()):,} tokens occur in {totals[-1]:,} records"


def build_pmi_vocab(inputs: TableInputs, output: str) -> str:
    values = flags.FLAGS
    vocabulary = pmi_vocabulary.build(inputs, values.size, values.min_count or 11, _score())
    pmi_vocabulary.write_vocabulary(output, vocabulary, inputs.vocab_file)
    return f"{len(vocabulary.words):,} n-grams\n{vocabulary.examples(inputs.tokens)}"


KINDS: dict[str, Callable[[TableInputs, str], str]] = {
    "cooccurrence": build_cooccurrence,
    "document_frequency": build_document_frequency,
    "pmi_vocab": build_pmi_vocab,
}


def _score() -> str:
    """--score, of which each kind has its own."""
    values, known = flags.FLAGS, _SCORES[flags.FLAGS.kind]
    if values.score not in (None, *known):
        raise UserError(f"--score {values.score}: {values.kind} has {', '.join(known)}")
    return values.score or known[0]


def _define_flags() -> None:
    flags.DEFINE_enum("kind", None, list(KINDS), "Kind of table; may stand first, without the flag's name.")
    flags.DEFINE_string("data_dir", "data", "Folder of the vocabulary and the records.")
    flags.DEFINE_string("pretrain_tfrecords", None, "Pattern of the records (default: those in --data-dir).")
    flags.DEFINE_string("vocab_file", None, "Vocabulary of the records (default: <data-dir>/vocab.txt).")
    flags.DEFINE_string("output_file", None, "File of the table to write (default: <data-dir>/<kind>.npz).")
    flags.DEFINE_integer("num_processes", 0, "Number of processes that count (0: one for each core).", lower_bound=0)
    flags.DEFINE_string("work_dir", None, "Folder for counts while they are made (default: the system's).")
    flags.DEFINE_boolean("overwrite", False, "Replace the file if it exists.")
    flags.DEFINE_integer("min_count", None, "Least number of times that a pair [5] or an n-gram [11] occurs.", 1)
    flags.DEFINE_string(
        "score",
        None,
        "Of pairs: npmi (default: normalised PMI), row_max or conditional (counts over the row's highest or sum). Of "
        "n-grams: pmi (default: the paper's) or pmi_freq (prefers frequent ones).",
    )
    flags.DEFINE_integer("window", 10, "cooccurrence: number of tokens that two tokens may be apart.", 1)
    flags.DEFINE_integer("top_k", 64, "cooccurrence: number of neighbours that a token keeps.", 1, 1 << 12)
    flags.DEFINE_integer("drop_frequent", 0, "cooccurrence: number of most frequent tokens to leave out.", 0)
    flags.DEFINE_integer("size", 800_000, "pmi_vocab: n-grams: half of 2 words, a quarter of 3, an eighth of 4, 5.", 8)


def main() -> None:
    values = flags.FLAGS
    if values.kind is None:
        raise UserError(f"the first argument is the kind of table: {', '.join(KINDS)}; see --help")
    for name in set.union(*_FLAGS.values()) - _FLAGS[values.kind]:
        if values[name].present:
            raise UserError(f"--{name.replace('_', '-')} is not for {values.kind}; see --help")
    if values.kind in _SCORES:
        _score()  # refused before anything slow
    output = values.output_file or str(Path(values.data_dir, f"{values.kind}.npz"))
    if Path(output).exists() and not values.overwrite:
        raise UserError(f"--output-file {output!r} exists; pass --overwrite to replace it or name another file")
    check_writable(output)
    vocab_file = values.vocab_file or str(Path(values.data_dir, "vocab.txt"))
    load_vocab(vocab_file)
    pattern = values.pretrain_tfrecords or str(Path(values.data_dir, "pretrain_tfrecords", "pretrain_data.tfrecord*"))
    inputs = record_inputs(pattern, vocab_file)
    inputs = inputs._replace(num_processes=values.num_processes, work_dir=values.work_dir)
    print(f"wrote {output}: {KINDS[values.kind](inputs, output)}")


def command() -> None:
    _define_flags()
    if sys.argv[1:] and sys.argv[1] in KINDS:
        sys.argv[1] = f"--kind={sys.argv[1]}"
    run(main, __doc__, goes_on=True)


if __name__ == "__main__":
    command()
