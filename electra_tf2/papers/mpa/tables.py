"""MPA's table: tokens that occur near one another, and their scores.

`electra build-table cooccurrence` counts pairs of tokens within a window, turns the counts C into scores in [0, 1], and
keeps the K highest of every token. The objective looks up which tokens of a sequence may have misled a prediction. The
source leaves the scores open ("derived from C"); normalised PMI is ours.
"""

import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from electra_tf2.corpus.vocabulary import load_vocab, special_ids
from electra_tf2.papers.counts import PARTS, Counted, Option, TableInputs, TableKind, counted, summed, write_table
from electra_tf2.util.progress import track

KIND = "cooccurrence"
NOBODY = -1  # stands for no neighbour


class CooccurrenceTable(NamedTuple):
    """Each token's neighbours, from the highest score down.

    neighbours: int32 [V, K] ids; NOBODY at the end of rows with fewer than K.
    scores: float16 [V, K] in [0, 1].
    """

    neighbours: np.ndarray
    scores: np.ndarray

    def examples(self, tokens: Sequence[str], shown: int = 5) -> str:
        """Describes the table to the user by the tokens with the highest scores, and their neighbours."""
        lines = []
        highest_first = np.argsort(-self.scores[:, 0].astype(np.float32), kind="stable")
        for token in highest_first[:shown]:
            neighbours = []
            for other, score in zip(self.neighbours[token, :shown], self.scores[token], strict=False):
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
    """Counts pairs of different tokens at most `window` places apart in records [R, L], special tokens left out.

    A key is token * V + neighbour; each pair counts in both directions. totals: int64 [V], pairs of each token.
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
    # Each pair in the other direction, too.
    turned_keys = keys % vocab_size * vocab_size + keys // vocab_size
    keys, counts = summed(np.concatenate([keys, turned_keys]), np.concatenate([counts, counts]))
    totals = np.bincount(keys // vocab_size, weights=counts, minlength=vocab_size)
    return Counted(keys, counts, totals.astype(np.int64))


def pmi_scores(keys: np.ndarray, counts: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """float64 [K] in [0, 1]: normalised PMI, max(0, log(p_ij / (p_i p_j)) / -log p_ij).

    Frequent words have little of it.
    """
    rows = keys // len(totals)
    columns = keys % len(totals)
    whole = totals.sum()
    log_p = np.log(counts / whole)
    pmi = log_p - np.log(totals[rows] / whole) - np.log(totals[columns] / whole)
    return np.clip(pmi / np.maximum(-log_p, 1e-9), 0.0, 1.0)


def make_table(
    parts: Iterable[tuple[np.ndarray, np.ndarray]],
    totals: np.ndarray,
    top_k: int = 64,
    drop_frequent: int = 0,
) -> CooccurrenceTable:
    """Makes the table of the highest scores of every token.

    Args:
      parts: (sorted keys, counts); all pairs of a token are in the same part.
      totals: int64 [V], pairs of each token.
      top_k: K.
      drop_frequent: so many of the most frequent tokens are left out.
    """
    vocab_size = len(totals)
    table = CooccurrenceTable(
        neighbours=np.full([vocab_size, top_k], NOBODY, np.int32), scores=np.zeros([vocab_size, top_k], np.float16)
    )
    is_dropped = np.zeros(vocab_size, bool)
    most_frequent = np.argsort(-totals, kind="stable")[:drop_frequent]
    is_dropped[most_frequent] = True
    for keys, counts in parts:
        scores = pmi_scores(keys, counts, totals)
        rows = keys // vocab_size
        columns = keys % vocab_size
        kept = np.flatnonzero((scores > 0) & ~is_dropped[rows] & ~is_dropped[columns])
        # By token, then from the highest score down, then by neighbour.
        order = kept[np.lexsort((columns[kept], -scores[kept], rows[kept]))]
        place = np.arange(len(order)) - np.searchsorted(rows[order], rows[order])  # in the row of its token
        order = order[place < top_k]
        place = place[place < top_k]
        table.neighbours[rows[order], place] = columns[order]
        table.scores[rows[order], place] = scores[order]
    return table


def build(inputs: TableInputs, output: str, window: int, min_count: int, top_k: int, drop_frequent: int) -> str:
    """Counts and writes the table; returns a description of its content for the user."""
    count_in = functools.partial(count_pairs, vocab_file=inputs.vocab_file, window=window)
    length = inputs.record_format.length
    vocab_size = len(inputs.tokens)
    keys_of_record = length * min(length, window)
    # Grouped by token, so that all pairs of a token are in one part.
    with counted(inputs, count_in, vocab_size, keys_of_record) as (totals, frequent_parts):
        parts = track(frequent_parts(min_count), "scoring part", PARTS)
        table = make_table(parts, totals, top_k, drop_frequent)
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
