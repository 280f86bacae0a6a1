"""Word n-grams that occur together more often than by chance: what PMI-masking masks as a whole (Levine et al. 2021).

`electra build-table pmi_vocab` counts and scores them here; the masking unit finds them in sequences. An n-gram is its
sequence of wordpieces; a word is a piece without "##" and the pieces with "##" that follow. N-grams are known by a
hash, a polynomial in their ids modulo 2^64: the hash of any part of a sequence is a difference of running sums, in
numpy as in a graph.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from electra_tf2.corpus.records import read_batches
from electra_tf2.corpus.vocabulary import load_vocab, special_ids
from electra_tf2.papers.counts import Counted, Option, TableInputs, TableKind, counted, summed, write_table
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import track

LONGEST = 5  # words of an n-gram (PMI-masking, section 3)
SHARES = {2: 0.5, 3: 0.25, 4: 0.125, 5: 0.125}  # of the vocabulary, by number of words
KIND = "pmi_vocab"
SCORES = ("pmi", "pmi_freq")  # of the paper, and of the authors' published lists
_BASE = 0x9E3779B97F4A7C15  # odd, so it has an inverse modulo 2^64


class NgramVocabulary(NamedTuple):
    """N-grams in the order of their scores within each length.

    ids: int32 [T], the wordpieces of all n-grams, one after another.
    ends: int64 [M], where each n-gram ends in `ids`.
    words: int32 [M], how many words each has.
    scores: float32 [M].
    counts: int64 [M].
    """

    ids: np.ndarray
    ends: np.ndarray
    words: np.ndarray
    scores: np.ndarray
    counts: np.ndarray

    def hashes(self, vocab_size: int) -> np.ndarray:
        """int64 [M], the n-grams' hashes."""
        starts = np.concatenate([[0], self.ends[:-1]]).astype(np.int64)
        return hash_function(self.ids, vocab_size)(starts, self.ends)

    def examples(self, tokens: Sequence[str], shown: int = 3) -> str:
        """Describes the vocabulary to the user by the best n-grams of each length."""
        starts = np.concatenate([[0], self.ends[:-1]]).astype(np.int64)
        lines = []
        for words in SHARES:
            places = np.flatnonzero(self.words == words)
            texts = []
            for place in places[:shown]:
                ids = self.ids[starts[place] : self.ends[place]]
                texts.append(" ".join(tokens[token] for token in ids).replace(" ##", ""))
            lines.append(f"  {len(places):,} of {words} words: {', '.join(texts)}")
        return "\n".join(lines)


@functools.cache
def piece_kinds(vocab_file: str) -> tuple[np.ndarray, np.ndarray]:
    """bool [V] each: tokens that continue a word ("##"), and special ones."""
    tokens = load_vocab(vocab_file)
    continues = np.array([token.startswith("##") for token in tokens])
    return continues, np.isin(np.arange(len(tokens)), special_ids(tokens))


def codes(vocab_size: int) -> np.ndarray:
    """int64 [V]: a code for every id, made by the last steps of the generator SplitMix64."""
    x = np.arange(1, vocab_size + 1, dtype=np.uint64) * np.uint64(_BASE)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x.view(np.int64)


@functools.lru_cache(maxsize=16)
def powers(count: int, inverse: bool = False) -> np.ndarray:
    """int64 [count]: b^0, b^1, ... modulo 2^64 for the base b, or for 1/b."""
    base = pow(_BASE, -1, 1 << 64) if inverse else _BASE
    factors = np.full(count, base, np.uint64)
    factors[0] = 1
    return np.cumprod(factors).view(np.int64)


def hash_function(ids: np.ndarray, vocab_size: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Makes a function: int64 [K] starts and ends -> int64 [K] hashes of ids[start:end], for ids [T].

    The hash is the sum of code(id) b^place, divided by b^start, so that it does not depend on where the ids stand.
    """
    terms = codes(vocab_size)[ids] * powers(len(ids) + 1)[:-1]
    sums = np.concatenate([[0], np.cumsum(terms)])
    inverse_powers = powers(len(ids) + 1, inverse=True)

    def hashes(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        return (sums[ends] - sums[starts]) * inverse_powers[starts]

    return hashes


def ngrams_in(ids: np.ndarray, words: int, vocab_file: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hashes, starts and ends, int64 [K] each, of all n-grams of so many words in ids [T], without special tokens.

    Pieces before the first word belong to none.
    """
    continues, special = piece_kinds(vocab_file)
    bounds = np.append(np.flatnonzero(~continues[ids]), len(ids))  # where words begin, and the end
    # How many special tokens stand before each word. If an n-gram holds none, it is the same at its end as at its
    # start.
    specials_before = np.concatenate([[0], np.cumsum(special[ids[bounds[:-1]]])])
    holds_none = specials_before[words:] == specials_before[:-words]
    starts = bounds[:-words][holds_none]
    ends = bounds[words:][holds_none]
    return hash_function(ids, len(special))(starts, ends), starts, ends


def count_ngrams(ids: np.ndarray, vocab_file: str) -> Counted:
    """Counts n-grams of 1 to LONGEST words in records [R, L]; totals: int64 [LONGEST], how many of each length.

    Records begin with [CLS], so no n-gram reaches from one record into the next.
    """
    flat = ids.reshape(-1)
    hashes_by_length = [ngrams_in(flat, words, vocab_file)[0] for words in range(1, LONGEST + 1)]
    totals = np.array([len(hashes) for hashes in hashes_by_length], np.int64)
    all_hashes = np.concatenate(hashes_by_length)
    keys, counts = summed(all_hashes, np.ones_like(all_hashes))
    return Counted(keys, counts, totals)


def pmi(ids: np.ndarray, bounds: np.ndarray, frequencies: Counted, vocab_size: int, squared: bool) -> np.ndarray:
    """Minimum, over the ways to segment an n-gram, of log p(n-gram) / product of p(segment) (PMI-masking, equation 3).

    Args:
      ids: [T], wordpieces of the n-grams.
      bounds: [M, n + 1], where the words of each n-gram begin, and where it ends.
      frequencies: counts of n-grams of all lengths, keys in order.
      squared: takes p(n-gram)^2, which prefers frequent n-grams (the authors' published lists).

    Returns:
      float64 [M].
    """
    words = bounds.shape[1] - 1
    hashes = hash_function(ids, vocab_size)

    def log_p(first: int, last: int) -> np.ndarray:
        """[M], log p of words first..last - 1: the share of this n-gram among all of the same length."""
        places = np.searchsorted(frequencies.keys, hashes(bounds[:, first], bounds[:, last]))
        return np.log(frequencies.counts[places] / frequencies.totals[last - first - 1])

    # best[j]: log-probability of the likeliest way to segment the first j words.
    best = [np.zeros(len(bounds))]
    for last in range(1, words + 1):
        # The whole n-gram as one segment does not count as a way to segment it.
        earliest = 1 if last == words else 0
        ways = [best[first] + log_p(first, last) for first in range(earliest, last)]
        best.append(np.max(ways, axis=0))
    factor = 2.0 if squared else 1.0
    return factor * log_p(0, words) - best[words]


def collect(inputs: TableInputs, hashes: np.ndarray) -> dict[int, np.ndarray]:
    """Collects the wordpieces of every n-gram with one of these sorted hashes.

    Returns:
      Number of words, from 2 to LONGEST -> int32, the n-grams one after another.
    """
    is_collected = np.zeros(len(hashes), bool)
    collected: dict[int, list[np.ndarray]] = {words: [np.zeros(0, np.int32)] for words in SHARES}
    for file in track(inputs.files, "collecting n-grams of file", len(inputs.files)):
        for batch in read_batches(file, inputs.record_format):
            flat = batch["input_ids"].reshape(-1)
            for words in SHARES:
                batch_hashes, starts, ends = ngrams_in(flat, words, inputs.vocab_file)
                places = np.searchsorted(hashes, batch_hashes)
                places = np.minimum(places, len(hashes) - 1)  # of a hash beyond the last
                new = np.flatnonzero((hashes[places] == batch_hashes) & ~is_collected[places])
                # Once each, where a batch holds an n-gram several times.
                new_places, first = np.unique(places[new], return_index=True)
                is_collected[new_places] = True
                new = new[first]
                collected[words].append(_joined(flat, starts[new], ends[new]))
    return {words: np.concatenate(ngrams) for words, ngrams in collected.items()}


def _joined(ids: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Copies ids[start:end] for all starts and ends [K], one after another. Slices would keep all ids in memory."""
    sizes = ends - starts
    # 0, 1, ..., size - 1 for each.
    within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return ids[np.repeat(starts, sizes) + within]


def make_vocabulary(
    inputs: TableInputs,
    size: int = 800_000,
    min_count: int = 11,
    score: str = "pmi",
) -> NgramVocabulary:
    """Counts the n-grams of all records, scores them, and keeps the best of each length, by its share of `size`.

    Raises:
      UserError: no word occurs `min_count` times.
    """
    frequencies = _frequencies(inputs, min_count)
    continues, _ = piece_kinds(inputs.vocab_file)
    vocab_size = len(continues)
    ids: list[np.ndarray] = []  # wordpieces of each n-gram
    lengths: list[int] = []
    scores = []
    for words, joined in collect(inputs, frequencies.keys).items():
        starts = np.flatnonzero(~continues[joined]).reshape(-1, words)
        # An n-gram ends where the next one starts.
        ends = np.append(starts[1:, 0], len(joined))[: len(starts)]
        bounds = np.column_stack([starts, ends])
        all_scores = pmi(joined, bounds, frequencies, vocab_size, squared=score == "pmi_freq")
        best = np.argsort(-all_scores, kind="stable")[: round(size * SHARES[words])]
        for place in best:
            ids.append(joined[bounds[place, 0] : bounds[place, -1]])
        lengths += [words] * len(best)
        scores.append(all_scores[best])
    vocabulary = NgramVocabulary(
        ids=np.concatenate([np.zeros(0, np.int32), *ids]),
        ends=np.cumsum([len(ngram) for ngram in ids], dtype=np.int64),
        words=np.array(lengths, np.int32),
        scores=np.concatenate(scores).astype(np.float32),
        counts=np.zeros(0, np.int64),
    )
    places = np.searchsorted(frequencies.keys, vocabulary.hashes(vocab_size))
    return vocabulary._replace(counts=frequencies.counts[places])


def _frequencies(inputs: TableInputs, min_count: int) -> Counted:
    """Counts n-grams of all lengths, keys in order. Raises UserError if none occurs `min_count` times."""
    count_records = functools.partial(count_ngrams, vocab_file=inputs.vocab_file)
    keys_of_record = inputs.record_format.length * LONGEST
    with counted(inputs, count_records, 1, keys_of_record) as (totals, frequent_parts):
        parts = list(frequent_parts(min_count))
    hashes = np.concatenate([part_hashes for part_hashes, _ in parts])
    counts = np.concatenate([part_counts for _, part_counts in parts])
    if not len(hashes):
        raise UserError(f"--min-count {min_count}: no word of the records occurs so often; lower it")
    order = np.argsort(hashes)
    return Counted(hashes[order], counts[order], totals)


def build(inputs: TableInputs, output: str, size: int, min_count: int, score: str) -> str:
    """Counts and writes the table; returns a description of its content for the user."""
    vocabulary = make_vocabulary(inputs, size, min_count, score)
    write_table(output, KIND, inputs.vocab_file, vocabulary._asdict())
    return f"{len(vocabulary.words):,} n-grams\n{vocabulary.examples(inputs.tokens)}"


TABLES = {
    KIND: TableKind(
        "n-grams of 2 to 5 words that go together more than by chance (PMI-masking; the records are read twice)",
        build,
        {
            "size": Option(800_000, "number of n-grams: half of 2 words, a quarter of 3, an eighth of 4 and 5", 8),
            "min_count": Option(11, "least number of times that an n-gram occurs"),
            "score": Option("pmi", "the paper's, or pmi_freq, which prefers frequent ones", choices=SCORES),
        },
    )
}
