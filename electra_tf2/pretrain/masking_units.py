"""Units of masking, each masked as a whole: a token, a word with all its pieces, a span of words.

`make_unit` makes the function that divides the tokens of a batch into units, by the hparam mask_unit. Drawing whole
units within the budget is the same for all. A paper that adds a unit declares `mask_unit` again in its Config, with one
more choice, and masks with its unit in `PretrainingModel.mask`.

Shapes: B rows, L length, N = max_predictions_per_seq.
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

    indices: int32 [B, L] in [0, L), the index of each token's unit. The tokens of a unit are neighbours.
    spans: int32 [B, L], for each unit the length in units of a span that begins there; None: no spans.
    """

    indices: tf.Tensor
    spans: tf.Tensor | None = None


# (int32 [B, L] ids, float32 [B, L] uniform draws) -> Units
MaskingUnit: TypeAlias = Callable[[tf.Tensor, tf.Tensor], Units]


def mask_count_at_random(input_mask: tf.Tensor, mask_prob: float, maximum: int, draws: tf.Tensor) -> tf.Tensor:
    """int32 [B], how many tokens of each row are masked: mask_prob x length, rounded up or down by uniform `draws` [B].

    The mean is exact at every length up to `maximum`. The length includes [CLS] and [SEP].
    """
    length = tf.cast(tf.reduce_sum(input_mask, -1), tf.float32)
    rounded = tf.cast(tf.floor(length * mask_prob + draws), tf.int32)
    return tf.minimum(maximum, rounded)


# Drawing whole units.


def unit_sizes(units: tf.Tensor, candidates: tf.Tensor) -> tf.Tensor:
    """int32 [B, L]: for each unit, how many of its tokens may be masked; units are int32 [B, L] indices."""
    rows = tf.shape(units)[0]
    length = units.shape[1]
    # One segment for each unit of each row: unit u of row r is segment r L + u.
    row_starts = tf.range(rows)[:, tf.newaxis] * length
    segments = tf.reshape(units + row_starts, [-1])
    flat_candidates = tf.reshape(tf.cast(candidates, tf.int32), [-1])
    sizes = tf.math.unsorted_segment_sum(flat_candidates, segments, rows * length)
    return tf.reshape(sizes, [-1, length])


def draw_units(noise: tf.Tensor, units: tf.Tensor, candidates: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """Draws whole units until about `wanted` tokens are masked. A unit that would be too many is passed over.

    Args:
      noise: float32 [B, L], by unit; units are drawn from the highest noise down.
      units: int32 [B, L], the index of each token's unit.
      candidates: float32 [B, L].
      wanted: int32 [B].

    Returns:
      bool [B, L], true at drawn tokens.
    """
    order = tf.argsort(noise, direction="DESCENDING")  # [B, L]
    sizes = tf.gather(unit_sizes(units, candidates), order, batch_dims=1)  # [B, L], in the order of drawing

    def fitting(taken: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """bool [B, L], units that are not taken and fit by themselves; int32 [B, 1], tokens still wanted."""
        tokens_taken = tf.reduce_sum(tf.where(taken, sizes, 0), -1, keepdims=True)
        left = wanted[:, tf.newaxis] - tokens_taken
        return (sizes > 0) & ~taken & (sizes <= left), left

    def take(taken: tf.Tensor) -> tuple[tf.Tensor]:
        """Takes, in the order of drawing, those units that fit together."""
        fits, left = fitting(taken)
        tokens_so_far = tf.cumsum(tf.where(fits, sizes, 0), axis=-1)
        return (taken | (fits & (tokens_so_far <= left)),)

    def any_fits(taken: tf.Tensor) -> tf.Tensor:
        fits, _ = fitting(taken)
        return tf.reduce_any(fits)

    none_taken = tf.zeros_like(sizes, tf.bool)
    (taken,) = tf.while_loop(any_fits, take, (none_taken,))
    drawn = tf.gather(taken, tf.argsort(order), batch_dims=1)  # [B, L], by unit again
    return tf.gather(drawn, units, batch_dims=1) & (candidates > 0)


def draw_spans(
    noise: tf.Tensor,
    units: tf.Tensor,
    spans: tf.Tensor,
    candidates: tf.Tensor,
    wanted: tf.Tensor,
) -> tf.Tensor:
    """Draws span after span, each from a random unit on, until `wanted` tokens are masked.

    A span that would begin at a masked unit is drawn again. One that reaches masked units counts them in its length and
    masks the others. It ends early before a unit without candidates, and where the next unit would be too many.
    To draw again until a free unit comes is the same as to go through the units in an order that is drawn once: that of
    falling noise. So a row takes as many turns of the loop as it gets spans.

    Args:
      noise: float32 [B, L], by unit.
      units: int32 [B, L], the index of each token's unit.
      spans: int32 [B, L], for each unit the length in units of a span that begins there.
      candidates: float32 [B, L].
      wanted: int32 [B].

    Returns:
      int32 [B, L]: at masked tokens the label of their span, from 1 on; 0 elsewhere.
    """
    sizes = unit_sizes(units, candidates)  # [B, L], by unit
    places = tf.range(units.shape[1])  # [L]
    # A stretch is units between two that have no candidates. No span leaves its stretch.
    stretches = tf.cumsum(tf.cast(sizes == 0, tf.int32), axis=-1)  # [B, L], by unit

    def free(drawn: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """bool [B, L], units where a span can begin; int32 [B, L], sizes of units not masked; [B, 1], tokens wanted."""
        sizes_left = tf.where(drawn > 0, 0, sizes)
        tokens_drawn = tf.reduce_sum(sizes - sizes_left, -1, keepdims=True)
        left = wanted[:, tf.newaxis] - tokens_drawn
        return (sizes_left > 0) & (sizes_left <= left), sizes_left, left

    def draw_span(label: tf.Tensor, drawn: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        can_begin, sizes_left, left = free(drawn)
        first = tf.argmax(tf.where(can_begin, noise, -1.0), -1, output_type=tf.int32)[:, tf.newaxis]  # [B, 1]
        length = tf.gather(spans, first, batch_dims=1)  # [B, 1]
        within = (places >= first) & (places < first + length)  # [B, L]
        within &= stretches == tf.gather(stretches, first, batch_dims=1)
        tokens_so_far = tf.cumsum(tf.where(within, sizes_left, 0), axis=-1)
        chosen = within & (tokens_so_far <= left) & (sizes_left > 0)
        # Rows that are done run along with the others and choose nothing.
        chosen &= tf.reduce_any(can_begin, -1, keepdims=True)
        return label + 1, tf.where(chosen, label, drawn)

    def any_can_begin(label: tf.Tensor, drawn: tf.Tensor) -> tf.Tensor:
        del label
        can_begin, _, _ = free(drawn)
        return tf.reduce_any(can_begin)

    none_drawn = tf.zeros_like(sizes)
    _, drawn = tf.while_loop(any_can_begin, draw_span, (tf.constant(1), none_drawn))
    drawn_tokens = tf.gather(drawn, units, batch_dims=1)  # [B, L], by token
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
    """Draws positions of single tokens, of whole units, or of spans of units, within the budget.

    Args:
      unit: divides tokens into units; None: each token by itself.
      input_ids: int32 [B, L].
      where: float32 [B, L], uniform draws: which tokens or units.
      unit_draws: float32 [B, L], uniform draws that the unit may use.
      how: float32 [B, N, 2], uniform draws: [MASK], kept or random; and which random token.
      candidates: float32 [B, L].
      wanted: int32 [B], how many tokens are masked at most.

    Returns:
      int32 [B, N] positions, those of units from left to right; int32 [B], how many of them count; and `how`, with one
      decision for all tokens of a unit.
    """
    most = how.shape[1]
    if unit is None:
        positions = tf.math.top_k(tf.where(candidates > 0, where, -1.0), k=most).indices
        available = tf.cast(tf.reduce_sum(candidates, -1), tf.int32)
        return positions, tf.minimum(wanted, available), how

    units = unit(input_ids, unit_draws)
    if units.spans is None:
        labels = units.indices  # [B, L]: tokens with one label share one decision
        drawn = draw_units(where, units.indices, candidates, wanted)
    else:
        labels = draw_spans(where, units.indices, units.spans, candidates, wanted)
        drawn = labels > 0
    # Falling numbers, so that top_k returns the drawn positions from left to right.
    leftmost_first = tf.range(candidates.shape[1], 0, -1, dtype=tf.float32)
    positions = tf.math.top_k(tf.where(drawn, leftmost_first, 0.0), k=most).indices  # [B, N]
    count = tf.reduce_sum(tf.cast(drawn, tf.int32), -1)  # [B]
    labels_of_positions = tf.gather(labels, positions, batch_dims=1)  # [B, N]
    return positions, count, _one_decision_each(how, labels_of_positions)


def _one_decision_each(how: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Gives positions with the same label, int32 [B, N], one decision between [MASK], kept and random.

    The second entry of `how`, float32 [B, N, 2], which random token, remains different for each position.
    """
    begins_unit = tf.cast(labels[:, 1:] != labels[:, :-1], tf.int32)
    unit = tf.pad(tf.cumsum(begins_unit, axis=-1), [[0, 0], [1, 0]])  # [B, N]: 0 for the first unit, then 1, 2, ...
    decisions = tf.gather(how[..., 0], unit, batch_dims=1)
    return tf.stack([decisions, how[..., 1]], -1)


# The units.


@functools.lru_cache(maxsize=2)  # a step that runs eagerly asks each time
def continuations(vocab_file: str) -> np.ndarray:
    """bool [V]: tokens that begin with "##", which continue a word."""
    return np.array([token.startswith("##") for token in load_vocab(vocab_file)])


def begins_word(continues: np.ndarray, input_ids: tf.Tensor) -> tf.Tensor:
    """bool [B, L]: tokens that begin a word."""
    return ~tf.gather(tf.constant(continues), input_ids)


def unit_indices(begins: tf.Tensor) -> tf.Tensor:
    """int32 [B, L] from 0: the index of each token's unit; a unit begins where bool [B, L] `begins` is true."""
    begun = tf.cumsum(tf.cast(begins, tf.int32), axis=-1)
    return tf.maximum(begun, 1) - 1  # tokens before the first beginning belong to unit 0, too


def whole_word(config: PretrainingConfig) -> MaskingUnit:
    """Words with all their pieces: a token and the "##" pieces after it (whole-word masking of BERT's authors).

    Special tokens continue no word, so they keep units apart.
    """
    continues = continuations(config.vocab_file)

    def divide(input_ids: tf.Tensor, draws: tf.Tensor) -> Units:
        del draws
        return Units(unit_indices(begins_word(continues, input_ids)))

    return divide


ENDS = 0.2  # probability that a span ends after a word, the parameter of SpanBERT's geometric distribution
LONGEST_SPAN = 10  # words; longer ones are drawn again


def span_lengths(noise: tf.Tensor) -> tf.Tensor:
    """int32, shaped as the uniform draws: geometric, given that it is at most LONGEST_SPAN; 3.8 on average."""
    # P(length > n) = (1 - ENDS)^n, cut at LONGEST_SPAN and inverted.
    survival = 1.0 - noise * (1.0 - (1.0 - ENDS) ** LONGEST_SPAN)
    further_words = tf.cast(tf.math.log(survival) / math.log(1.0 - ENDS), tf.int32)
    return tf.clip_by_value(1 + further_words, 1, LONGEST_SPAN)


def span(config: PretrainingConfig) -> MaskingUnit:
    """Spans of 1 to 10 whole words, short ones oftener, each from a random word on (SpanBERT, Joshi et al. 2020, 3.1).

    A span goes on to the next words of its segment; special tokens end it.
    """
    divide_into_words = whole_word(config)

    def divide(input_ids: tf.Tensor, draws: tf.Tensor) -> Units:
        words = divide_into_words(input_ids, draws)
        return words._replace(spans=span_lengths(draws))

    return divide


def make_unit(config: PretrainingConfig) -> MaskingUnit | None:
    """Makes the unit that the hparam mask_unit names; None: each token by itself (BERT, ELECTRA)."""
    if config.mask_unit == "token":
        return None
    makers = {"whole_word": whole_word, "span": span}
    return makers[config.mask_unit](config)
