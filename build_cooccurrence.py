"""Makes the table of MPA: which tokens of the records occur near one another, more than by chance.

  python build_cooccurrence.py --data-dir data

reads <data-dir>/pretrain_tfrecords once and writes <data-dir>/cooccurrence.npz, which the recipe electra_small_mpa
reads (docs/papers.md). Memory is bounded by what a process may hold and by the largest 64th of the pairs.
"""

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from absl import flags

from electra_tf2.corpus.cooccurrence import (
    KIND,
    NOBODY,
    SCORES,
    CooccurrenceTable,
    Selection,
    count_pairs,
    table_of,
    write_cooccurrence,
)
from electra_tf2.corpus.key_counts import PARTS, Counting, count_records_of, parts_of
from electra_tf2.corpus.table_inputs import table_inputs
from electra_tf2.util.flags import define_table_flags, run
from electra_tf2.util.progress import track


def examples(table: CooccurrenceTable, tokens: Sequence[str], number: int = 5) -> str:
    """The tokens with the highest scores, and theirs, as text."""
    lines = []
    for token in np.argsort(-table.scores[:, 0].astype(np.float32), kind="stable")[:number]:
        near = zip(table.neighbours[token, :number], table.scores[token], strict=False)
        shown = [f"{tokens[other]} {score:.2f}" for other, score in near if other != NOBODY]
        lines.append(f"  {tokens[token]}: {', '.join(shown)}")
    return "\n".join(lines)


def _define_flags() -> None:
    define_table_flags(KIND)
    flags.DEFINE_integer("window", 10, "Number of tokens that two tokens may be apart.", lower_bound=1)
    flags.DEFINE_integer("min_count", 5, "Least number of times that a pair occurs.", lower_bound=1)
    flags.DEFINE_enum("score", "npmi", list(SCORES), "Score: normalised PMI, or counts over the row's highest or sum.")
    flags.DEFINE_integer("top_k", 64, "Number of neighbours that a token keeps.", lower_bound=1)
    flags.DEFINE_integer("drop_frequent", 0, "Number of most frequent tokens to leave out.", lower_bound=0)


def main() -> None:
    values = flags.FLAGS
    found = table_inputs(KIND, flags.FLAGS)
    with tempfile.TemporaryDirectory(dir=values.work_dir, prefix="pair_counts.") as counts:
        count_in = partial(
            count_pairs, vocab_file=found.vocab_file, window=values.window, domain_tokens=found.domain_tokens
        )
        length = found.record_format.length
        pairs = length * min(length, values.window)
        counting = Counting(count_in, len(found.tokens), found.record_format, Path(counts), keys_of_record=pairs)
        totals = count_records_of(found.files, counting, values.num_processes)
        parts = track(parts_of(counting, values.min_count), "scoring part", PARTS)
        table = table_of(parts, totals, Selection(values.score, values.top_k, values.drop_frequent))
    write_cooccurrence(found.output, table, found.vocab_file)
    pairs = int((table.neighbours != NOBODY).sum())
    print(f"wrote {found.output}: {pairs:,} pairs of {len(found.tokens):,} tokens\n{examples(table, found.tokens)}")


def command() -> None:
    _define_flags()
    run(main, __doc__)


if __name__ == "__main__":
    command()
