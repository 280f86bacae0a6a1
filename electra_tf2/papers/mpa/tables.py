"""The table of MPA: tokens that occur near one another, and their scores.

`electra build-table cooccurrence` counts pairs of tokens within a window and turns the counts C into scores in [0, 1];
kept are the K highest of every token. The objective looks up which tokens of a sequence may have misled a prediction.
What the scores are the source leaves open ("derived from C"); normalised PMI is ours.
"""

import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from electra_tf2.corpus.vocabulary import load_vocab, special_ids
from electra_tf2.papers.counts import PARTS, Counted, Option, TableInputs, TableKind, counted, summed, write_table
from electra_tf2.util.progress import track

KIND = "cooccurrence"
NOBODY = -1  # in the place of a neighbour that a token does not have


class CooccurrenceTable(NamedTuple):
    """The tokens that a token goes together with, from the highest score on.

    neighbours: int32 [V, K] ids, NOBODY at the end of a row that has fewer. scores: float16 [V, K] in [0, 1].
    """

    neighbours: np.ndarray
    scores: np.ndarray

    def examples(self, tokens: Sequence[str], number: int = 5) -> str:
        """Formats the tokens with the highest scores, and their neighbours, for the user."""
        lines = []
        for token in np.argsort(-self.scores[:, 0].astype(np.float32), kind="stable")[:number]:
            neighbours = []
            for other, score in zip(self.neighbours[token, :number], self.scores[token], strict=False):
                if other != NOBODY:
                    neighbours.append(f"{tokens[other]} {score:.2f}")
            lines.append(f"  {tokens[token]}: {', '.join(neighbours)}")
        return "\n".join(lines)


@functools.cache
def _special(vocab_file: str) -> np.ndarray:
    """bool [V], true of special tokens."""
    tokens = load_vocab(vocab_file)
    return np.isin(np.arange(len(tokens)), special_ids(tokens))


def count_pairs(ids: np.ndarray, vocab_file: str, window: int) -> Counted:
    """Counts pairs of different tokens at most `window` places apart in records [R, L]; none with a special token.

    Keys are token * V + its neighbour, each pair in both directions. totals: int64 [V], pairs that a token is in.
    """
    special = _special(vocab_file)
    vocab_size = len(special)
    usable = ~special[ids]
    ids = ids.astype(np.int64)
    pairs = []
    farthest = min(window, ids.shape[1] - 1)
    for distance in range(1, farthest + 1):
        left = ids[:, :-distance]
        right = ids[:, distance:]
        are_pair = usable[:, :-distance] & usable[:, distance:] & (left != right)
        pairs.append(left[are_pair] * vocab_size + right[are_pair])
    one_way = np.concatenate(pairs)
    keys, counts = summed(one_way, np.ones_like(one_way))
    # Each pair the other way round, too.
    turned_keys = keys % vocab_size * vocab_size + keys // vocab_size
    keys, counts = summed(np.concatenate([keys, turned_keys]), np.concatenate([counts, counts]))
    totals = np.bincount(keys // vocab_size, weights=counts, minlength=vocab_size)
    return Counted(keys, counts, totals.astype(np.int64))


def scores_of(keys: np.ndarray, counts: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """float64 [K] in [0, 1]: normalised PMI, max(0, log(p_ij / (p_i p_j)) / -log p_ij).

    Frequent words have little of it.
    """
    rows = keys // len(totals)
    columns = keys % len(totals)
    whole = totals.sum()
    log_p = np.log(counts / whole)
    pmi = log_p - np.log(totals[rows] / whole) - np.log(totals[columns] / whole)
    return np.clip(pmi / np.maximum(-log_p, 1e-9), 0.0, 1.0)


def table_of(
    parts: Iterable[tuple[np.ndarray, np.ndarray]],
    totals: np.ndarray,
    top_k: int = 64,
    drop_frequent: int = 0,
) -> CooccurrenceTable:
    """The highest scores of every token, from (sorted keys, counts) that hold all pairs of each token together."""
    vocab_size = len(totals)
    table = CooccurrenceTable(
        neighbours=np.full([vocab_size, top_k], NOBODY, np.int32), scores=np.zeros([vocab_size, top_k], np.float16)
    )
    is_dropped = np.zeros(vocab_size, bool)
    most_frequent = np.argsort(-totals, kind="stable")[:drop_frequent]
    is_dropped[most_frequent] = True
    for keys, counts in parts:
        scores = scores_of(keys, counts, totals)
        rows = keys // vocab_size
        columns = keys % vocab_size
        kept = np.flatnonzero((scores > 0) & ~is_dropped[rows] & ~is_dropped[columns])
        # By token, then from the highest score on, then by neighbour.
        order = kept[np.lexsort((columns[kept], -scores[kept], rows[kept]))]
        place = np.arange(len(order)) - np.searchsorted(rows[order], rows[order])  # in the row of its token
        order = order[place < top_k]
        place = place[place < top_k]
        table.neighbours[rows[order], place] = columns[order]
        table.scores[rows[order], place] = scores[order]
    return table


def build(inputs: TableInputs, output: str, window: int, min_count: int, top_k: int, drop_frequent: int) -> str:
    """Counts and writes the table; returns what it holds, for the user."""
    count_in = functools.partial(count_pairs, vocab_file=inputs.vocab_file, window=window)
    length = inputs.record_format.length
    vocab_size = len(inputs.tokens)
    with counted(inputs, count_in, vocab_size, length * min(length, window)) as (totals, parts_of):
        parts = track(parts_of(min_count), "scoring part", PARTS)
        table = table_of(parts, totals, top_k, drop_frequent)
    write_table(output, KIND, inputs.vocab_file, table._asdict())
    pairs = int((table.neighbours != NOBODY).sum())
    return f"{pairs:,} pairs of {vocab_size:,} tokens\n{table.examples(inputs.tokens)}"


TABLES = {
    KIND: TableKind(
        "tokens that occur near one another more than by chance (MPA)",
        build,
        {
            "window": Option(10, "number of tokens that two tokens may be apart"),
            "min_count": Option(5, "least number of times that a pair occurs"),
            "top_k": Option(64, "number of neighbours that a token keeps", at_most=1 << 12),
            "drop_frequent": Option(0, "number of most frequent tokens to leave out", at_least=0),
        },
    )
}
