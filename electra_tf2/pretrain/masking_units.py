"""Units of masking, each masked as a whole: a token, a word with all its pieces, a span of words.

`make_unit` makes the one that `mask_unit` names. A unit divides the tokens of a batch, from their ids and uniform
draws; drawing whole units within the budget is the same for all. A paper with a unit of its own declares
`mask_unit` again in its Config, with its name among the choices, and its model masks with it (`PretrainingModel.mask`).
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.vocabulary import load_vocab


class Units(NamedTuple):
    """Tokens that are masked together.

    numbers: int32 [B, L] in [0, L), the number of each token's unit; a unit's tokens stand in a row.
    spans: int32 [B, L], by unit, how many units are masked where a span begins at it, itself counted; None: 1.
    """

    numbers: tf.Tensor
    spans: tf.Tensor | None = None


# (int32 [B, L] ids, float32 [B, L] uniform draws) -> Units
MaskingUnit: TypeAlias = Callable[[tf.Tensor, tf.Tensor], Units]


def number_at_random(input_mask: tf.Tensor, mask_prob: float, maximum: int, draws: tf.Tensor) -> tf.Tensor:
    """int32 [B], at most `maximum`: length * mask_prob, rounded up or down by uniform `draws` [B].

    So the mean is exact at every length, which counts [CLS] and [SEP].
    """
    length = tf.cast(tf.reduce_sum(input_mask, -1), tf.float32)
    rounded = tf.cast(tf.floor(length * mask_prob + draws), tf.int32)
    return tf.minimum(maximum, rounded)


# Drawing whole units.


def sizes_of(units: tf.Tensor, candidates: tf.Tensor) -> tf.Tensor:
    """int32 [B, L]: number of candidates of each unit."""
    rows = tf.shape(units)[0]
    length = units.shape[1]
    # Units of all rows, numbered through.
    row_starts = tf.range(rows)[:, tf.newaxis] * length
    flat_units = tf.reshape(units + row_starts, [-1])
    flat_candidates = tf.reshape(tf.cast(candidates, tf.int32), [-1])
    sizes = tf.math.unsorted_segment_sum(flat_candidates, flat_units, rows * length)
    return tf.reshape(sizes, [-1, length])


def draw_units(noise: tf.Tensor, units: tf.Tensor, candidates: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """bool [B, L]: the candidates of units drawn by falling noise [B, L]; a unit that does not fit is passed over.

    So every unit is drawn whole or not at all, and nearly `wanted` [B] tokens are.
    """
    order = tf.argsort(noise, direction="DESCENDING")
    sizes = tf.gather(sizes_of(units, candidates), order, batch_dims=1)

    def fitting(taken: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Units that are not taken and fit by themselves; tokens still wanted."""
        tokens_taken = tf.reduce_sum(tf.where(taken, sizes, 0), -1, keepdims=True)
        left = wanted[:, tf.newaxis] - tokens_taken
        return (sizes > 0) & ~taken & (sizes <= left), left

    def take(taken: tf.Tensor) -> tuple[tf.Tensor]:
        """Takes, in drawn order, as many of the units that fit by themselves as fit together."""
        fits, left = fitting(taken)
        tokens_so_far = tf.cumsum(tf.where(fits, sizes, 0), axis=-1)
        return (taken | (fits & (tokens_so_far <= left)),)

    def more(taken: tf.Tensor) -> tf.Tensor:
        fits, _ = fitting(taken)
        return tf.reduce_any(fits)

    none_taken = tf.zeros_like(sizes, tf.bool)
    (taken,) = tf.while_loop(more, take, (none_taken,))
    drawn = tf.gather(taken, tf.argsort(order), batch_dims=1)  # by unit again
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
    # Units between two without candidates have the same number: no span reaches from one number into another.
    stretches = tf.cumsum(tf.cast(sizes == 0, tf.int32), axis=-1)

    def free(drawn: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Units where a span can begin; sizes of those not masked; tokens still wanted."""
        sizes_left = tf.where(drawn > 0, 0, sizes)
        tokens_drawn = tf.reduce_sum(sizes - sizes_left, -1, keepdims=True)
        left = wanted[:, tf.newaxis] - tokens_drawn
        return (sizes_left > 0) & (sizes_left <= left), sizes_left, left

    def draw_span(number: tf.Tensor, drawn: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        can_begin, sizes_left, left = free(drawn)
        first = tf.argmax(tf.where(can_begin, noise, -1.0), -1, output_type=tf.int32)[:, tf.newaxis]
        length = tf.gather(spans, first, batch_dims=1)
        within = (places >= first) & (places < first + length)
        within &= stretches == tf.gather(stretches, first, batch_dims=1)
        tokens_so_far = tf.cumsum(tf.where(within, sizes_left, 0), axis=-1)
        chosen = within & (tokens_so_far <= left) & (sizes_left > 0)
        # Rows that are done run along with the others.
        chosen &= tf.reduce_any(can_begin, -1, keepdims=True)
        return number + 1, tf.where(chosen, number, drawn)

    def more(number: tf.Tensor, drawn: tf.Tensor) -> tf.Tensor:
        del number
        can_begin, _, _ = free(drawn)
        return tf.reduce_any(can_begin)

    none_drawn = tf.zeros_like(sizes)
    _, drawn = tf.while_loop(more, draw_span, (tf.constant(1), none_drawn))
    drawn_tokens = tf.gather(drawn, units, batch_dims=1)
    return tf.where(candidates > 0, drawn_tokens, 0)


def draw_without_replacement(
    unit: MaskingUnit | None,
    input_ids: tf.Tensor,
    where: tf.Tensor,
    unit_draws: tf.Tensor,
    how: tf.Tensor,
    candidates: tf.Tensor,
    wanted: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Masks tokens, or whole units, or spans of them, within the budget.

    Args:
      unit: what is masked as a whole; None: every token for itself.
      input_ids, unit_draws: int32 ids and float32 uniform draws [B, L], from which the unit divides the tokens.
      where: uniform draws, float32 [B, L]: which tokens or units.
      how: likewise [B, N, 2]: [MASK], kept or random, and which random token.
      candidates: float32 [B, L]. wanted: int32 [B], tokens to be masked at most.

    Returns:
      int32 [B, N] positions, of units the leftmost first; int32 [B], how many of them count; and `how`, a decision for
      each unit.
    """
    most = how.shape[1]
    if unit is None:
        positions = tf.math.top_k(tf.where(candidates > 0, where, -1.0), k=most).indices
        available = tf.cast(tf.reduce_sum(candidates, -1), tf.int32)
        return positions, tf.minimum(wanted, available), how

    units = unit(input_ids, unit_draws)
    if units.spans is None:
        together = units.numbers
        drawn = draw_units(where, units.numbers, candidates, wanted)
    else:
        together = draw_spans(where, units.numbers, units.spans, candidates, wanted)
        drawn = together > 0
    # Falling numbers, so that top_k returns the drawn positions from left to right.
    leftmost_first = tf.range(candidates.shape[1], 0, -1, dtype=tf.float32)
    positions = tf.math.top_k(tf.where(drawn, leftmost_first, 0.0), k=most).indices
    count = tf.reduce_sum(tf.cast(drawn, tf.int32), -1)
    return positions, count, _one_decision_each(how, tf.gather(together, positions, batch_dims=1))


def _one_decision_each(how: tf.Tensor, units: tf.Tensor) -> tf.Tensor:
    """`how` [B, N, 2] with one draw of [MASK], kept or random for all positions of a unit, int32 [B, N].

    The draws of random tokens remain each position's own.
    """
    begins_unit = tf.cast(units[:, 1:] != units[:, :-1], tf.int32)
    number = tf.pad(tf.cumsum(begins_unit, axis=-1), [[0, 0], [1, 0]])
    decisions = tf.gather(how[..., 0], number, batch_dims=1)
    return tf.stack([decisions, how[..., 1]], -1)


# The units.


@functools.lru_cache(maxsize=2)  # a step that runs eagerly asks each time
def continuations(vocab_file: str) -> np.ndarray:
    """bool [V]: tokens that begin with "##", which go on with a word."""
    return np.array([token.startswith("##") for token in load_vocab(vocab_file)])


def begins_word(continues: np.ndarray, input_ids: tf.Tensor) -> tf.Tensor:
    """bool [B, L]: tokens that begin a word."""
    return ~tf.gather(tf.constant(continues), input_ids)


def numbered(begins: tf.Tensor) -> tf.Tensor:
    """int32 [B, L] from 0: the number of the unit that each token is in, of units that begin where `begins` is true."""
    begun = tf.cumsum(tf.cast(begins, tf.int32), axis=-1)
    return tf.maximum(begun, 1) - 1  # tokens before the first that begins one go with it


def whole_word(config: PretrainingConfig) -> MaskingUnit:
    """A word with all its pieces: a token and the "##" pieces after it (whole-word masking of BERT's authors).

    Special tokens continue no word, so they keep units apart.
    """
    continues = continuations(config.vocab_file)

    def words_of(input_ids: tf.Tensor, draws: tf.Tensor) -> Units:
        del draws
        return Units(numbered(begins_word(continues, input_ids)))

    return words_of


ENDS = 0.2  # probability that a span ends after a word, the parameter of SpanBERT's geometric distribution
LONGEST_SPAN = 10  # words; longer ones are drawn again


def span_lengths(noise: tf.Tensor) -> tf.Tensor:
    """int32 of the shape of uniform draws: geometric, given that it is at most LONGEST_SPAN; 3.8 on average."""
    # The inverse of the distribution function, cut at LONGEST_SPAN.
    below = 1.0 - noise * (1.0 - (1.0 - ENDS) ** LONGEST_SPAN)
    further_words = tf.cast(tf.math.log(below) / math.log(1.0 - ENDS), tf.int32)
    return tf.clip_by_value(1 + further_words, 1, LONGEST_SPAN)


def span(config: PretrainingConfig) -> MaskingUnit:
    """Spans of 1 to 10 whole words, short ones oftener, each from a random word on (SpanBERT, Joshi et al. 2020, 3.1).

    A span goes on to the next words of its segment; special tokens end it.
    """
    words_of = whole_word(config)

    def spans_of(input_ids: tf.Tensor, draws: tf.Tensor) -> Units:
        words = words_of(input_ids, draws)
        return words._replace(spans=span_lengths(draws))

    return spans_of


def make_unit(config: PretrainingConfig) -> MaskingUnit | None:
    """The unit of masking that `mask_unit` names; None: every token for itself (BERT, ELECTRA)."""
    if config.mask_unit == "token":
        return None
    makers = {"whole_word": whole_word, "span": span}
    return makers[config.mask_unit](config)
