"""Word n-grams that occur together more often than by chance: what PMI-masking masks as a whole (Levine et al. 2021).

`electra build-table pmi_vocab` counts and scores them here; the masking unit finds them in sequences. An n-gram is its
sequence of wordpieces; a word is a piece without "##" and those with it that follow. N-grams are told apart by a hash
that is a polynomial in their ids, of which that of any part follows from running sums, in numpy and in a graph alike.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from electra_tf2.corpus.records import read_batches
from electra_tf2.corpus.vocabulary import load_vocab, special_ids
from electra_tf2.papers.counts import Counted, Option, Table, TableInputs, counted, summed, write_table
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import track

LONGEST = 5  # words of an n-gram (PMI-masking, section 3)
SHARES = {2: 0.5, 3: 0.25, 4: 0.125, 5: 0.125}  # of the vocabulary, by number of words
KIND = "pmi_vocab"
SCORES = ("pmi", "pmi_freq")  # the paper's, and that of the authors' published lists
_BASE = 0x9E3779B97F4A7C15  # odd, so it has an inverse modulo 2^64


class NgramVocabulary(NamedTuple):
    """N-grams in the order of their scores within each length.

    ids: int32 [T], the wordpieces of all, one after the other. ends: int64 [M], where each of them ends.
    words: int32 [M]. scores: float32 [M]. counts: int64 [M].
    """

    ids: np.ndarray
    ends: np.ndarray
    words: np.ndarray
    scores: np.ndarray
    counts: np.ndarray

    def hashes(self, vocab_size: int) -> np.ndarray:
        """int64 [M]."""
        starts = np.concatenate([[0], self.ends[:-1]]).astype(np.int64)
        return hashes_of(self.ids, vocab_size)(starts, self.ends)

    def examples(self, tokens: Sequence[str], number: int = 3) -> str:
        """The best of each length, as text."""
        lines = []
        for words in SHARES:
            of_length = np.flatnonzero(self.words == words)
            best = [self.ids[self.ends[k - 1] if k else 0 : self.ends[k]] for k in of_length[:number]]
            texts = [" ".join(tokens[token] for token in ids).replace(" ##", "") for ids in best]
            lines.append(f"  {len(of_length):,} of {words} words: {', '.join(texts)}")
        return "\n".join(lines)


@functools.cache
def pieces_of(vocab_file: str) -> tuple[np.ndarray, np.ndarray]:
    """bool [V] each: tokens that continue a word ("##"), and special ones."""
    tokens = load_vocab(vocab_file)
    continues = np.array([token.startswith("##") for token in tokens])
    return continues, np.isin(np.arange(len(tokens)), special_ids(tokens))


def codes(vocab_size: int) -> np.ndarray:
    """int64 [V]: a hash of every id, the finaliser of SplitMix64."""
    x = np.arange(1, vocab_size + 1, dtype=np.uint64) * np.uint64(_BASE)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return (x ^ (x >> np.uint64(31))).view(np.int64)


@functools.lru_cache(maxsize=16)
def powers(number: int, inverse: bool = False) -> np.ndarray:
    """int64 [number]: B^0, B^1, ... modulo 2^64, or those of 1/B."""
    base = pow(_BASE, -1, 1 << 64) if inverse else _BASE
    factors = np.full(number, base, np.uint64)
    factors[0] = 1
    return np.cumprod(factors).view(np.int64)


def hashes_of(ids: np.ndarray, vocab_size: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """A function of int64 [K] starts and ends that gives int64 [K], the hashes of ids[start:end] in ids [T].

    The hash is the sum of code(id) B^place, divided by B^start, so it does not depend on what stands before.
    """
    terms = codes(vocab_size)[ids] * powers(len(ids) + 1)[:-1]
    sums, inverse = np.concatenate([[0], np.cumsum(terms)]), powers(len(ids) + 1, inverse=True)
    return lambda starts, ends: (sums[ends] - sums[starts]) * inverse[starts]


def ngrams_in(ids: np.ndarray, words: int, vocab_file: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """int64 [K] hashes, starts and ends of the n-grams of so many words in ids [T]; none is or crosses a special token.

    What is before the first word is left out.
    """
    continues, special = pieces_of(vocab_file)
    bounds = np.append(np.flatnonzero(~continues[ids]), len(ids))
    barriers = np.concatenate([[0], np.cumsum(special[ids[bounds[:-1]]])])
    starts, ends = bounds[:-words], bounds[words:]
    whole = barriers[words:] == barriers[:-words]
    starts, ends = starts[whole], ends[whole]
    return hashes_of(ids, len(special))(starts, ends), starts, ends


def count_ngrams(ids: np.ndarray, vocab_file: str) -> Counted:
    """N-grams of 1 to LONGEST words of records [R, L]; totals: how many there are of each length, int64 [LONGEST].

    Records begin with [CLS], so none is counted across two of them.
    """
    found = [ngrams_in(ids.reshape(-1), words, vocab_file)[0] for words in range(1, LONGEST + 1)]
    keys = np.concatenate(found)
    return Counted(*summed(keys, np.ones_like(keys)), np.array([len(one) for one in found], np.int64))


def pmi(ids: np.ndarray, bounds: np.ndarray, frequencies: Counted, vocab_size: int, squared: bool) -> np.ndarray:
    """min over the ways to cut an n-gram into parts of log p(n-gram) / product of p(part) (PMI-masking, equation 3).

    Args:
      ids: [T], the n-grams' wordpieces. bounds: [M, n + 1], where words of each begin, and where it ends.
      frequencies: of n-grams of all lengths, keys in order.
      squared: p(n-gram)^2 instead, which prefers frequent ones (the authors' published lists).

    Returns:
      float64 [M].
    """
    words, hashes = bounds.shape[1] - 1, hashes_of(ids, vocab_size)

    def log_p(first: int, last: int) -> np.ndarray:
        """Logarithm of the share of these words among all n-grams of their number."""
        places = np.searchsorted(frequencies.keys, hashes(bounds[:, first], bounds[:, last]))
        return np.log(frequencies.counts[places] / frequencies.totals[last - first - 1])

    # The likeliest way to cut the first j words into parts; all of them as one part only where that is not the n-gram.
    best = [np.zeros(len(bounds))]
    for last in range(1, words + 1):
        firsts = range(1 if last == words else 0, last)
        best.append(np.max([best[first] + log_p(first, last) for first in firsts], axis=0))
    return (2.0 if squared else 1.0) * log_p(0, words) - best[words]


def collect(inputs: TableInputs, hashes: np.ndarray) -> list[np.ndarray]:
    """Collects the wordpieces of every n-gram with one of these sorted hashes.

    Returns:
      For 2 to LONGEST words: int32, the n-grams one after the other.
    """
    seen = np.zeros(len(hashes), bool)
    ids: list[list[np.ndarray]] = [[np.zeros(0, np.int32)] for _ in SHARES]
    for file in track(inputs.files, "collecting n-grams of file", len(inputs.files)):
        for batch in read_batches(file, inputs.record_format):
            flat = batch["input_ids"].reshape(-1)
            for words, of_length in zip(SHARES, ids, strict=True):
                found, starts, ends = ngrams_in(flat, words, inputs.vocab_file)
                places = np.minimum(np.searchsorted(hashes, found), len(hashes) - 1)
                new = np.flatnonzero((hashes[places] == found) & ~seen[places])
                places, first = np.unique(places[new], return_index=True)
                seen[places] = True
                starts, sizes = starts[new[first]], (ends - starts)[new[first]]
                within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
                of_length.append(flat[np.repeat(starts, sizes) + within])  # a copy: slices would hold all batches
    return [np.concatenate(of_length) for of_length in ids]


def vocabulary_of(inputs: TableInputs, size: int = 800_000, min_count: int = 11, score: str = "pmi") -> NgramVocabulary:
    """Counts the n-grams of all records, scores them, and keeps the best of each length, which has its share of `size`.

    Raises:
      UserError: no word occurs so often.
    """
    count_in = functools.partial(count_ngrams, vocab_file=inputs.vocab_file)
    with counted(inputs, count_in, 1, inputs.record_format.length * LONGEST) as (totals, parts_of):
        hashes, counts = (np.concatenate(column) for column in zip(*parts_of(min_count), strict=True))
    order = np.argsort(hashes)
    frequencies = Counted(hashes[order], counts[order], totals)
    if not len(order):
        raise UserError(f"--min-count {min_count}: no word of the records occurs so often; lower it")
    continues, _ = pieces_of(inputs.vocab_file)
    ngrams: list[np.ndarray] = []
    lengths, scores = [], []
    for (words, share), ids in zip(SHARES.items(), collect(inputs, frequencies.keys), strict=True):
        starts = np.flatnonzero(~continues[ids]).reshape(-1, words)
        bounds = np.column_stack([starts, np.append(starts[1:, 0], len(ids))[: len(starts)]])
        of_length = pmi(ids, bounds, frequencies, len(continues), squared=score == "pmi_freq")
        best = np.argsort(-of_length, kind="stable")[: round(size * share)]
        ngrams += [ids[bounds[k, 0] : bounds[k, -1]] for k in best]
        lengths += [words] * len(best)
        scores.append(of_length[best])
    vocabulary = NgramVocabulary(
        ids=np.concatenate([np.zeros(0, np.int32), *ngrams]),
        ends=np.cumsum([len(ngram) for ngram in ngrams], dtype=np.int64),
        words=np.array(lengths, np.int32),
        scores=np.concatenate(scores).astype(np.float32),
        counts=np.zeros(0, np.int64),
    )
    places = np.searchsorted(frequencies.keys, vocabulary.hashes(len(continues)))
    return vocabulary._replace(counts=frequencies.counts[places])


def build(inputs: TableInputs, output: str, size: int, min_count: int, score: str) -> str:
    """Counts and writes the table; returns what it holds, for the user."""
    vocabulary = vocabulary_of(inputs, size, min_count, score)
    write_table(output, KIND, inputs.vocab_file, vocabulary._asdict())
    return f"{len(vocabulary.words):,} n-grams\n{vocabulary.examples(inputs.tokens)}"


TABLES = {
    KIND: Table(
        "n-grams of 2 to 5 words that go together more than by chance (PMI-masking; the records are read twice)",
        build,
        {
            "size": Option(800_000, "number of n-grams: half of 2 words, a quarter of 3, an eighth of 4 and 5", 8),
            "min_count": Option(11, "least number of times that an n-gram occurs"),
            "score": Option("pmi", "the paper's, or pmi_freq, which prefers frequent ones", choices=SCORES),
        },
    )
}
