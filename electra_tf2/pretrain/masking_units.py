"""Units of masking, each masked as a whole: a token, a word with all its pieces, a span of words, an n-gram of words.

`UNITS` is the list of them; `mask_unit` chooses one by its name. From the ids, candidates and uniform draws of a batch
a unit makes a `Proposal`; drawing whole units within the budget is done here once, for all of them. Configuration reads
the list, so TensorFlow is imported when a unit is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from electra_tf2.util.lazy import tf

if TYPE_CHECKING:
    import numpy as np


class UnitFiles(Protocol):
    """The fields of a configuration that units read."""

    @property
    def vocab_file(self) -> str: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def pmi_vocab_file(self) -> str: ...


class Proposal(NamedTuple):
    """A rule for drawing positions.

    weights: float32 [B, L], the distribution over positions, unnormalised and 0 where nothing may be masked; None:
      uniform over the candidates.
    units: int32 [B, L] in [0, L), the same number at the tokens that are masked together, which stand in a row; None:
      every token alone.
    spans: int32 [B, L], by unit, the number of units that are masked with it and after it, itself counted; None: 1.
    """

    weights: tf.Tensor | None = None
    units: tf.Tensor | None = None
    spans: tf.Tensor | None = None


# (ids [B, L], candidates [B, L], uniform draws [B, L]) -> Proposal
MaskingUnit: TypeAlias = "Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Proposal]"


def sizes_of(units: tf.Tensor, candidates: tf.Tensor) -> tf.Tensor:
    """int32 [B, L]: by unit, the number of its candidates."""
    rows, length = tf.shape(units)[0], units.shape[1]
    flat = tf.reshape(units + tf.range(rows)[:, tf.newaxis] * length, [-1])
    counted = tf.reshape(tf.cast(candidates, tf.int32), [-1])
    return tf.reshape(tf.math.unsorted_segment_sum(counted, flat, rows * length), [-1, length])


def draw_units(noise: tf.Tensor, units: tf.Tensor, candidates: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """bool [B, L]: the candidates of units drawn by falling noise [B, L]; a unit that does not fit is passed over.

    So every unit is drawn whole or not at all, and hardly fewer tokens than `wanted` [B].
    """
    order = tf.argsort(noise, direction="DESCENDING")
    sizes = tf.gather(sizes_of(units, candidates), order, batch_dims=1)

    def fitting(taken: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        left = wanted[:, tf.newaxis] - tf.reduce_sum(tf.where(taken, sizes, 0), -1, keepdims=True)
        return (sizes > 0) & ~taken & (sizes <= left), left

    def take(taken: tf.Tensor) -> tuple[tf.Tensor]:
        """Takes of those that still fit all up to the first that does not fit after the others."""
        fits, left = fitting(taken)
        return (taken | fits & (tf.cumsum(tf.where(fits, sizes, 0), axis=-1) <= left),)

    def more(taken: tf.Tensor) -> tf.Tensor:
        return tf.reduce_any(fitting(taken)[0])

    (taken,) = tf.while_loop(more, take, (tf.zeros_like(sizes, tf.bool),))
    drawn = tf.gather(taken, tf.argsort(order), batch_dims=1)
    return tf.gather(drawn, units, batch_dims=1) & (candidates > 0)


def draw_spans(
    noise: tf.Tensor, units: tf.Tensor, spans: tf.Tensor, candidates: tf.Tensor, wanted: tf.Tensor
) -> tf.Tensor:
    """Draws span after span, each from a random unit on, until `wanted` [B] tokens are masked.

    A span that would begin at a masked unit is drawn again; one that reaches masked units counts them in its length and
    masks the others. It ends early before a unit without candidates, and where the next unit does not fit any more.
    Drawing anew until a free unit comes is the same as going through the units in an order that is drawn once, so the
    falling `noise` [B, L] decides, and a row takes as many turns as it gets spans.

    Returns:
      int32 [B, L]: at masked tokens the number of their span, from 1 on; 0 elsewhere.
    """
    sizes = sizes_of(units, candidates)
    places = tf.range(units.shape[1])
    stretches = tf.cumsum(tf.cast(sizes == 0, tf.int32), axis=-1)

    def free(drawn: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Units where a span can begin; sizes of those not masked; tokens still wanted."""
        new = tf.where(drawn > 0, 0, sizes)
        left = wanted[:, tf.newaxis] - tf.reduce_sum(sizes - new, -1, keepdims=True)
        return (new > 0) & (new <= left), new, left

    def turn(number: tf.Tensor, drawn: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        begins, new, left = free(drawn)
        first = tf.argmax(tf.where(begins, noise, -1.0), -1, output_type=tf.int32)[:, tf.newaxis]
        span = tf.gather(spans, first, batch_dims=1)
        within = (places >= first) & (places < first + span)
        within &= stretches == tf.gather(stretches, first, batch_dims=1)
        fits = tf.cumsum(tf.where(within, new, 0), axis=-1) <= left
        chosen = within & fits & (new > 0) & tf.reduce_any(begins, -1, keepdims=True)
        return number + 1, tf.where(chosen, number, drawn)

    def more(number: tf.Tensor, drawn: tf.Tensor) -> tf.Tensor:
        del number
        return tf.reduce_any(free(drawn)[0])

    _, drawn = tf.while_loop(more, turn, (tf.constant(1), tf.zeros_like(sizes)))
    return tf.where(candidates > 0, tf.gather(drawn, units, batch_dims=1), 0)


def one_decision_per_unit(noise: tf.Tensor, units: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
    """float32 [B, N, 2]: draws such that the tokens of a unit, which follow one another, share the first of theirs."""
    drawn = tf.gather(units, positions, batch_dims=1)
    changes = tf.cast(drawn[:, 1:] != drawn[:, :-1], tf.int32)
    number = tf.pad(tf.cumsum(changes, axis=-1), [[0, 0], [1, 0]])
    return tf.stack([tf.gather(noise[..., 0], number, batch_dims=1), noise[..., 1]], -1)


def _continues(files: UnitFiles) -> np.ndarray:
    """bool [V]: tokens that begin with "##"."""
    from electra_tf2.corpus.pmi_vocabulary import pieces_of

    return pieces_of(files.vocab_file).continues


def begins_word(continues: np.ndarray, input_ids: tf.Tensor) -> tf.Tensor:
    """bool [B, L]: tokens that begin a word."""
    return ~tf.gather(tf.constant(continues), input_ids)


def numbered(begins: tf.Tensor) -> tf.Tensor:
    """int32 [B, L] from 0: the number of the unit that each token is in, of units that begin where `begins` is true."""
    return tf.maximum(tf.cumsum(tf.cast(begins, tf.int32), axis=-1), 1) - 1


def whole_word(files: UnitFiles) -> MaskingUnit:
    """A word with all its pieces: a token and the "##" pieces after it (whole-word masking of BERT's authors)."""
    continues = _continues(files)

    def propose(input_ids: tf.Tensor, candidates: tf.Tensor, noise: tf.Tensor) -> Proposal:
        del candidates, noise  # special tokens continue no word, so they keep units apart
        return Proposal(units=numbered(begins_word(continues, input_ids)))

    return propose


ENDS = 0.2  # probability that a span ends after a word, the parameter of SpanBERT's geometric distribution
LONGEST_SPAN = 10  # words; longer ones are drawn again


def span_lengths(noise: tf.Tensor) -> tf.Tensor:
    """int32 of the shape of uniform draws: geometric, given that it is at most LONGEST_SPAN; 3.8 on average."""
    below = 1.0 - noise * (1.0 - (1.0 - ENDS) ** LONGEST_SPAN)
    return tf.clip_by_value(1 + tf.cast(tf.math.log(below) / math.log(1.0 - ENDS), tf.int32), 1, LONGEST_SPAN)


def span(files: UnitFiles) -> MaskingUnit:
    """Spans of 1 to 10 whole words, short ones oftener, each from a random word on (SpanBERT, Joshi et al. 2020, 3.1).

    A span goes on to the next words of its segment; special tokens end it.
    """
    words = whole_word(files)
    return lambda input_ids, candidates, noise: words(input_ids, candidates, noise)._replace(spans=span_lengths(noise))


@lru_cache(maxsize=2)
def _sorted_hashes(pmi_vocab_file: str, vocab_file: str, vocab_size: int) -> np.ndarray:
    """int64 [2^n]: those of the vocabulary, then the largest number."""
    import numpy as np

    from electra_tf2.corpus.pmi_vocabulary import read_vocabulary

    hashes = np.sort(read_vocabulary(pmi_vocab_file, vocab_file).hashes(vocab_size))
    size = 1 << len(hashes).bit_length()
    return np.concatenate([hashes, np.full(size - len(hashes), np.iinfo(np.int64).max)])


def is_among(ordered: np.ndarray, keys: tf.Tensor) -> tf.Tensor:
    """bool: int64 keys that are among ordered ones [2^n], by halving; XLA would compare each key with all."""
    table, place = tf.constant(ordered), tf.zeros_like(keys, tf.int32)
    step = len(ordered) // 2
    while step:
        place = tf.where(tf.gather(table, place + (step - 1)) < keys, place + step, place)
        step //= 2
    return tf.gather(table, place) == keys


def longest_matches(begins: tf.Tensor, input_ids: tf.Tensor, ordered: np.ndarray, vocab_size: int) -> tf.Tensor:
    """int32 [B, L]: number of tokens of the longest n-gram that begins here; 0 if none does."""
    from electra_tf2.corpus.pmi_vocabulary import LONGEST, codes, powers

    rows, length = tf.shape(input_ids)[0], input_ids.shape[1]
    terms = tf.gather(tf.constant(codes(vocab_size)), input_ids) * tf.constant(powers(length + 1)[:-1])
    sums = tf.pad(tf.cumsum(terms, axis=-1), [[0, 0], [1, 0]])
    words = numbered(begins)
    flat = tf.where(begins, words + tf.range(rows)[:, tf.newaxis] * length, rows * length)
    places = tf.tile(tf.range(length)[tf.newaxis], [rows, 1])
    starts = tf.math.unsorted_segment_min(tf.reshape(places, [-1]), tf.reshape(flat, [-1]), rows * length + 1)
    starts = tf.minimum(tf.reshape(starts[:-1], [-1, length]), length)  # of a word that is not there: the end
    starts = tf.pad(starts, [[0, 0], [0, LONGEST]], constant_values=length)
    found = tf.zeros_like(input_ids)
    for count in range(2, LONGEST + 1):
        ends = tf.gather(starts, words + count, batch_dims=1)
        hashes = (tf.gather(sums, ends, batch_dims=1) - sums[:, :-1]) * powers(length + 1, inverse=True)[:-1]
        found = tf.where(begins & is_among(ordered, hashes), ends - places, found)
    return found


def without_overlap(sizes: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    """bool [B, L]: matches that are kept where some overlap, from their sizes in tokens; picked by falling noise."""
    places = tf.range(sizes.shape[1])
    ends = places + sizes
    meet = (places[:, tf.newaxis] < ends[:, tf.newaxis, :]) & (places < ends[:, :, tf.newaxis])
    meet &= ~tf.eye(sizes.shape[1], dtype=tf.bool)
    rank = tf.argsort(tf.argsort(noise))  # no two alike

    def pick(kept: tf.Tensor, left: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        rivals = tf.reduce_max(tf.where(meet & left[:, tf.newaxis, :], rank[:, tf.newaxis, :], -1), -1)
        first = left & (rank > rivals)
        return kept | first, left & ~first & ~tf.reduce_any(meet & first[:, tf.newaxis, :], -1)

    start = (tf.zeros_like(sizes, tf.bool), sizes > 0)
    return tf.while_loop(lambda kept, left: tf.reduce_any(left), pick, start)[0]


def pmi(files: UnitFiles) -> MaskingUnit:
    """Word n-grams that occur together more than by chance (PMI-masking, Levine et al. 2021).

    The units of a sequence are its longest n-grams in the vocabulary of build_table.py; of n-grams that overlap one
    is picked at random, and words in none are units of their own. They are looked up in the graph, so records do not
    change with the vocabulary: an n-gram's hash is a difference of running sums, searched in the vocabulary's hashes.
    """
    continues = _continues(files)
    ordered = _sorted_hashes(files.pmi_vocab_file, files.vocab_file, files.vocab_size)

    def propose(input_ids: tf.Tensor, candidates: tf.Tensor, noise: tf.Tensor) -> Proposal:
        del candidates  # no n-gram of the vocabulary holds a special token
        begins = begins_word(continues, input_ids)
        sizes = longest_matches(begins, input_ids, ordered, files.vocab_size)
        sizes = tf.where(without_overlap(sizes, noise), sizes, 0)
        places = tf.range(input_ids.shape[1])
        within = (places[:, tf.newaxis] > places) & (places[:, tf.newaxis] < (places + sizes)[:, tf.newaxis, :])
        return Proposal(units=numbered(begins & ~tf.reduce_any(within, -1)))

    return propose


def token(files: UnitFiles) -> None:
    """Every token for itself (BERT, ELECTRA), which masking does without a proposal."""
    del files


UNITS: dict[str, Callable[[UnitFiles], MaskingUnit | None]] = {
    "pmi": pmi,
    "span": span,
    "token": token,
    "whole_word": whole_word,
}
