"""The table of MPA, for `electra build-table`."""

import functools

from electra_tf2.corpus.tables import PARTS, Option, Table, TableInputs, counted
from electra_tf2.papers.mpa.cooccurrence import (
    KIND,
    NOBODY,
    SCORES,
    Selection,
    count_pairs,
    table_of,
    write_cooccurrence,
)
from electra_tf2.util.progress import track


def build(
    inputs: TableInputs, output: str, window: int, min_count: int, score: str, top_k: int, drop_frequent: int
) -> str:
    """Counts and writes the table; returns what it holds, for the user."""
    count_in = functools.partial(count_pairs, vocab_file=inputs.vocab_file, window=window)
    length, vocab_size = inputs.record_format.length, len(inputs.tokens)
    with counted(inputs, count_in, vocab_size, length * min(length, window)) as (totals, parts_of):
        parts = track(parts_of(min_count), "scoring part", PARTS)
        table = table_of(parts, totals, Selection(score, top_k, drop_frequent))
    write_cooccurrence(output, table, inputs.vocab_file)
    pairs = int((table.neighbours != NOBODY).sum())
    return f"{pairs:,} pairs of {vocab_size:,} tokens\n{table.examples(inputs.tokens)}"


TABLES = {
    KIND: Table(
        "tokens that occur near one another more than by chance (MPA)",
        build,
        {
            "window": Option(10, "number of tokens that two tokens may be apart"),
            "min_count": Option(5, "least number of times that a pair occurs"),
            "score": Option("npmi", "normalised PMI, or counts over the row's highest or sum", choices=SCORES),
            "top_k": Option(64, "number of neighbours that a token keeps", at_most=1 << 12),
            "drop_frequent": Option(0, "number of most frequent tokens to leave out", at_least=0),
        },
    )
}
