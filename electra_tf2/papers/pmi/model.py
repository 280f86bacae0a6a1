"""PMI-masking: word n-grams that go together are masked together (Levine et al. 2021, "PMI-Masking").

The n-grams come from a vocabulary that `electra build-table pmi_vocab` makes (papers.pmi.tables).

Shapes: B rows, L length.
"""

from functools import lru_cache

import numpy as np
import tensorflow as tf

from electra_tf2.papers.counts import read_table
from electra_tf2.papers.pmi.config import Config
from electra_tf2.papers.pmi.tables import KIND, LONGEST, NgramVocabulary, codes, powers
from electra_tf2.pretrain import masking
from electra_tf2.pretrain.masking import Batch, Draw, MaskedBatch
from electra_tf2.pretrain.masking_units import MaskingUnit, Units, begins_word, continuations, make_unit, unit_indices
from electra_tf2.pretrain.pretraining_model import PretrainingModel


@lru_cache(maxsize=2)
def _sorted_hashes(pmi_vocab_file: str, vocab_file: str, vocab_size: int) -> np.ndarray:
    """int64 [2^n]: sorted hashes of the vocabulary's n-grams, filled up with the largest int64."""
    vocabulary = NgramVocabulary(**read_table(pmi_vocab_file, "pmi_vocab_file", KIND, vocab_file))
    hashes = np.sort(vocabulary.hashes(vocab_size))
    size = 1 << len(hashes).bit_length()
    return np.concatenate([hashes, np.full(size - len(hashes), np.iinfo(np.int64).max)])


def is_among(ordered: np.ndarray, keys: tf.Tensor) -> tf.Tensor:
    """bool, shaped as the int64 keys: whether each is among the ordered ones, [2^n].

    A binary search written out, because XLA's search compares each key with all.
    """
    table = tf.constant(ordered)
    # How many entries of the table are known to be below each key.
    place = tf.zeros_like(keys, tf.int32)
    step = len(ordered) // 2
    while step:
        place = tf.where(tf.gather(table, place + (step - 1)) < keys, place + step, place)
        step //= 2
    return tf.gather(table, place) == keys


def longest_matches(begins: tf.Tensor, input_ids: tf.Tensor, ordered: np.ndarray, vocab_size: int) -> tf.Tensor:
    """int32 [B, L]: how many tokens the longest n-gram has that begins at each place; 0: none begins there."""
    rows = tf.shape(input_ids)[0]
    length = input_ids.shape[1]
    # With base b: the hash of tokens i..j is (running sum at j + 1 - running sum at i) / b^i (papers.pmi.tables).
    token_codes = tf.gather(tf.constant(codes(vocab_size)), input_ids)  # int64 [B, L]
    terms = token_codes * tf.constant(powers(length + 1)[:-1])
    sums = tf.pad(tf.cumsum(terms, axis=-1), [[0, 0], [1, 0]])  # [B, L + 1]
    inverse_powers = powers(length + 1, inverse=True)[:-1]

    places = tf.tile(tf.range(length)[tf.newaxis], [rows, 1])  # [B, L]
    words = unit_indices(begins)  # [B, L]
    starts = _word_starts(begins, words, places)
    sizes = tf.zeros_like(input_ids)
    for word_count in range(2, LONGEST + 1):  # rising, so that the longest match is written last
        ends = tf.gather(starts, words + word_count, batch_dims=1)  # [B, L]
        hashes = (tf.gather(sums, ends, batch_dims=1) - sums[:, :-1]) * inverse_powers
        is_ngram = begins & is_among(ordered, hashes)
        sizes = tf.where(is_ngram, ends - places, sizes)
    return sizes


def _word_starts(begins: tf.Tensor, words: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """int32 [B, L + LONGEST]: the place where each word begins; words after the last begin where the sequence ends.

    Args:
      begins: bool [B, L], tokens that begin a word.
      words: int32 [B, L], the index of each token's word.
      places: int32 [B, L], 0, 1, ..., L - 1 in each row.
    """
    rows = tf.shape(places)[0]
    length = places.shape[1]
    # One segment for each word of each row, and a last one for tokens that begin no word.
    nowhere = rows * length
    row_starts = tf.range(rows)[:, tf.newaxis] * length
    segments = tf.where(begins, words + row_starts, nowhere)
    flat_places = tf.reshape(places, [-1])
    flat_segments = tf.reshape(segments, [-1])
    starts = tf.math.unsorted_segment_min(flat_places, flat_segments, nowhere + 1)
    starts = tf.reshape(starts[:-1], [-1, length])
    starts = tf.minimum(starts, length)  # int32.max where there is no such word
    return tf.pad(starts, [[0, 0], [0, LONGEST]], constant_values=length)


def without_overlap(sizes: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    """bool [B, L]: picks matches that do not overlap, those with higher noise first.

    Args:
      sizes: int32 [B, L], how many tokens the match has that begins at each place; 0: none.
      noise: float32 [B, L].
    """
    places = tf.range(sizes.shape[1])
    ends = places + sizes
    # Whether the matches that begin at two places overlap.
    first_begins_in_time = places[:, tf.newaxis] < ends[:, tf.newaxis, :]
    second_begins_in_time = places < ends[:, :, tf.newaxis]
    overlap = first_begins_in_time & second_begins_in_time  # [B, L, L]
    overlap &= ~tf.eye(sizes.shape[1], dtype=tf.bool)  # a match with itself
    # Ranks decide, because two draws of the noise may be equal.
    rank = tf.argsort(tf.argsort(noise))

    def pick(kept: tf.Tensor, left: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Keeps all matches left that overlap none of a higher rank, and drops those that they overlap."""
        rivals = overlap & left[:, tf.newaxis, :]  # [B, L, L]
        rival_ranks = tf.where(rivals, rank[:, tf.newaxis, :], -1)
        picked = left & (rank > tf.reduce_max(rival_ranks, -1))  # [B, L]
        is_overlapped = tf.reduce_any(overlap & picked[:, tf.newaxis, :], -1)  # [B, L]
        return kept | picked, left & ~picked & ~is_overlapped

    def any_left(kept: tf.Tensor, left: tf.Tensor) -> tf.Tensor:
        del kept
        return tf.reduce_any(left)

    none_kept = tf.zeros_like(sizes, tf.bool)
    kept, _ = tf.while_loop(any_left, pick, (none_kept, sizes > 0))
    return kept


def pmi(config: Config) -> MaskingUnit:
    """Word n-grams that occur together more than by chance (PMI-masking, Levine et al. 2021).

    The units of a sequence are its longest n-grams in the vocabulary of `electra build-table`. Of n-grams that overlap
    one is picked at random. Words in no n-gram are units by themselves. N-grams are looked up in the graph, by hashes,
    so records do not depend on the vocabulary of n-grams.
    """
    continues = continuations(config.vocab_file)
    ordered = _sorted_hashes(config.pmi_vocab_file, config.vocab_file, config.vocab_size)

    def divide(input_ids: tf.Tensor, draws: tf.Tensor) -> Units:
        begins = begins_word(continues, input_ids)  # no n-gram of the vocabulary holds a special token
        sizes = longest_matches(begins, input_ids, ordered, config.vocab_size)
        sizes = tf.where(without_overlap(sizes, draws), sizes, 0)
        places = tf.range(input_ids.shape[1])
        ends = (places + sizes)[:, tf.newaxis, :]
        # Whether each token continues the n-gram that begins at another.
        continues_ngram = (places[:, tf.newaxis] > places) & (places[:, tf.newaxis] < ends)  # [B, L, L]
        return Units(unit_indices(begins & ~tf.reduce_any(continues_ngram, -1)))

    return divide


class Model(PretrainingModel):
    """ELECTRA or BERT whose masked units may be n-grams."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        if config.mask_unit == "pmi":
            self.unit: MaskingUnit | None = pmi(config)
        else:
            self.unit = make_unit(config)

    def mask(self, batch: Batch, draw: Draw) -> MaskedBatch:
        return masking.mask(self.config, batch, draw, self.special, self.unit)
