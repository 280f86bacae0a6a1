"""Dynamic masking and corruption: positions are masked, and the generator's samples are written there.

All random numbers of masking and sampling are drawn here, for all rows of the global batch, as a function of (seed of
the step, row of the global batch); replicas and micro-batches take slices. So a run does not depend on their number.

Shapes: B rows on this replica, L length, N = max_predictions_per_seq, V vocabulary.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.vocabulary import SpecialIds
from electra_tf2.model.heads import GeneratorOutput
from electra_tf2.model.layers import fold_in
from electra_tf2.model.softmax import Softmax, without_tokens
from electra_tf2.pretrain.masking_units import MaskingUnit, draw_without_replacement, mask_count_at_random
from electra_tf2.pretrain.original_masking import averaged_updates

_MANTISSA = 0x7FFFFF  # the lowest 23 bits, which TensorFlow's own kernels use; XLA's use the highest
_ONE = 0x3F800000  # the bits of 1.0


@dataclasses.dataclass(frozen=True)
class MaskedBatch:
    """A batch with its masked positions. A paper may add fields in a subclass, all with first axis B.

    input_ids, input_mask, segment_ids: int32 [B, L], as read.
    masked_input_ids: int32 [B, L], the input of a masked language model.
    positions: int32 [B, N], the masked positions; 0 where the weight is 0. May repeat (ELECTRA's code draws with
      replacement).
    masked_lm_ids: int32 [B, N], original ids at the positions; 0 where the weight is 0.
    masked_lm_weights: float32 [B, N], 1 for real draws.
    candidates: float32 [B, L], 1 at tokens that may be masked: real and not special.
    sampling_noise: float32 [B, N, 2], uniform draws for the generator's samples.
    crop_noise: float32 [B], a uniform draw for the start of a crop (COCO-LM).
    """

    input_ids: tf.Tensor
    input_mask: tf.Tensor
    segment_ids: tf.Tensor
    masked_input_ids: tf.Tensor
    positions: tf.Tensor
    masked_lm_ids: tf.Tensor
    masked_lm_weights: tf.Tensor
    candidates: tf.Tensor
    sampling_noise: tf.Tensor
    crop_noise: tf.Tensor

    # With these two methods tf.nest and tf.function treat the class as a structure of its fields.

    def __tf_flatten__(self) -> tuple[tuple[()], tuple[Any, ...]]:
        return (), tuple(getattr(self, field.name) for field in dataclasses.fields(self))

    @classmethod
    def __tf_unflatten__(cls, metadata: tuple[()], components: tuple[Any, ...]) -> "MaskedBatch":
        del metadata
        return cls(*components)


Batch: TypeAlias = dict[str, tf.Tensor]  # int32 [B, L] of each field of records
# (purpose, shape) -> float32 [B, *shape], uniform in [0, 1), independent for each purpose.
Draw: TypeAlias = Callable[[int, list[int]], tf.Tensor]
# Purposes of the draws of a masked batch.
WHERE = 1  # which positions
HOW = 2  # [MASK], kept or random; and which random token
SAMPLES = 3  # the generator's samples
COUNT = 4  # how many positions, if mask_count is probabilistic
CROP = 5  # COCO-LM's crop
UNIT = 6  # the masking unit


def uniform(shape: Sequence[int] | tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Draws float32 [*shape] in [0, 1) as a function of int32 [2] `seed`.

    Outside XLA it equals tf.random.stateless_uniform. Within XLA that function turns the same bits into other numbers,
    so they are made of the bits here.
    """
    bits = tf.random.stateless_uniform(shape, seed, None, None, tf.uint32, alg="philox")
    mantissa = tf.bitwise.bitwise_and(bits, _MANTISSA)
    from_one_to_two = tf.bitcast(tf.bitwise.bitwise_or(mantissa, _ONE), tf.float32)
    return from_one_to_two - 1.0


def row_draws(seed: tf.Tensor, rows: int, row_offset: tf.Tensor | int, global_batch_size: int) -> Draw:
    """Makes the function that draws for rows [row_offset, row_offset + rows) of a global batch.

    Args:
      seed: int32 [2], of the step.
    """

    def draw(purpose: int, shape: list[int]) -> tf.Tensor:
        noise = uniform([global_batch_size, *shape], fold_in(seed, purpose))
        if rows == global_batch_size:
            return noise
        # Every replica draws for all rows and takes its own, so that no number depends on how many replicas there are.
        begin = [row_offset] + [0] * len(shape)
        return tf.slice(noise, begin, [rows, *shape])

    return draw


def candidates_mask(
    input_ids: tf.Tensor,
    input_mask: tf.Tensor,
    special: SpecialIds,
    separators: bool = False,
) -> tf.Tensor:
    """float32 [B, L]: 1 at tokens that may be masked: real ones but [CLS], [MASK], [PAD] and, by default, [SEP]."""
    excluded = [special.cls, special.mask, special.pad]
    if not separators:
        excluded.append(special.sep)
    allowed = tf.cast(input_mask, tf.bool)
    for token_id in excluded:
        allowed &= tf.not_equal(input_ids, token_id)
    return tf.cast(allowed, tf.float32)


def mask_count(input_mask: tf.Tensor, mask_prob: float, maximum: int) -> tf.Tensor:
    """int32 [B], how many tokens of each row are masked: mask_prob x length, rounded, from 1 to `maximum`.

    The length includes [CLS] and [SEP]. Halves are rounded to the even number.
    """
    length = tf.cast(tf.reduce_sum(input_mask, -1), tf.float32)  # [B]
    rounded = tf.cast(tf.round(length * mask_prob), tf.int32)
    return tf.maximum(1, tf.minimum(maximum, rounded))


def draw_with_replacement(noise: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Draws N positions of each row independently, in proportion to weights (the original's tf.random.categorical).

    Args:
      noise: float32 [B, N], uniform in [0, 1).
      weights: float32 [B, L].

    Returns:
      int32 [B, N].
    """
    cumulative = tf.cumsum(weights, axis=-1)  # [B, L]
    total = cumulative[:, -1:]  # [B, 1]
    targets = noise * total  # [B, N]
    # The inverse of the cumulative distribution: the first position whose cumulative weight exceeds the target.
    is_before = tf.less_equal(cumulative[:, tf.newaxis, :], targets[:, :, tf.newaxis])  # [B, N, L]
    drawn = tf.reduce_sum(tf.cast(is_before, tf.int32), -1)
    # A target may be rounded up to the total, which no cumulative weight exceeds: the last position with a weight then.
    last = tf.reduce_sum(tf.cast(cumulative < total, tf.int32), -1, keepdims=True)
    return tf.minimum(drawn, last)


def mask(
    config: PretrainingConfig,
    batch: Batch,
    draw: Draw,
    special: SpecialIds,
    unit: MaskingUnit | None = None,
) -> MaskedBatch:
    """Draws positions and masks them (ELECTRA, section 2).

    Args:
      batch: int32 [B, L] input_ids, input_mask, segment_ids.
      draw: made by `row_draws`.
      unit: tokens that are masked together; None: each by itself.
    """
    candidates = candidates_mask(batch["input_ids"], batch["input_mask"], special, config.mask_separators)
    positions, weights, how = draw_positions(config, batch, draw, candidates, unit)
    return masked_at(config, batch, positions, weights, how, draw, special)


def draw_positions(
    config: PretrainingConfig,
    batch: Batch,
    draw: Draw,
    candidates: tf.Tensor,
    unit: MaskingUnit | None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Draws the positions to mask among candidates float32 [B, L].

    A row without any candidate gets weight 0 everywhere (the original divides by zero).

    Returns:
      int32 [B, N] positions; float32 [B, N] weights, 1 for real draws; float32 [B, N, 2] draws that decide how each
      position is masked (`masked_at`).
    """
    input_ids = batch["input_ids"]
    input_mask = batch["input_mask"]
    most = config.max_predictions_per_seq  # N
    how = draw(HOW, [most, 2])
    if config.mask_count == "probabilistic":
        count = mask_count_at_random(input_mask, config.mask_prob, most, draw(COUNT, []))  # [B]
    else:
        count = mask_count(input_mask, config.mask_prob, most)  # [B]
    if config.mask_sampling == "with_replacement":
        positions = draw_with_replacement(draw(WHERE, [most]), candidates)
        available = tf.cast(tf.reduce_sum(candidates, -1), tf.int32)
        count = tf.where(available > 0, count, 0)
    else:
        where = draw(WHERE, [config.max_seq_length])
        unit_draws = draw(UNIT, [config.max_seq_length])
        positions, count, how = draw_without_replacement(unit, input_ids, where, unit_draws, how, candidates, count)
    is_real = tf.sequence_mask(count, most)  # [B, N]
    return tf.where(is_real, positions, 0), tf.cast(is_real, tf.float32), how


def masked_at(
    config: PretrainingConfig,
    batch: Batch,
    positions: tf.Tensor,
    weights: tf.Tensor,
    how: tf.Tensor,
    draw: Draw,
    special: SpecialIds,
) -> MaskedBatch:
    """Masks a batch at the positions that `draw_positions` drew.

    A function of its own, so that the golden tests can mask where the original did.

    Args:
      positions: int32 [B, N].
      weights: float32 [B, N].
      how: float32 [B, N, 2], uniform: the first draw decides between [MASK], kept and random, the second is the random
        token.
    """
    input_ids = batch["input_ids"]
    mask_rate, keep_rate, random_rate = config.mask_rates
    choice, token = tf.unstack(how, axis=-1)  # [B, N] each
    becomes_mask = choice < mask_rate
    if random_rate > 0:
        random_ids = tf.cast(token * config.vocab_size, tf.int32)
        random_ids = tf.minimum(random_ids, config.vocab_size - 1)  # the product may have been rounded up
        updates = tf.where(becomes_mask, special.mask, random_ids)
        is_changed = becomes_mask | (choice >= mask_rate + keep_rate)
    else:
        updates = tf.fill(tf.shape(positions), special.mask)
        is_changed = becomes_mask
    # Tokens that are kept: updates at position 0 are dropped.
    masked_input_ids, _ = update_positions(input_ids, updates, tf.where(is_changed, positions, 0))
    return MaskedBatch(
        input_ids=input_ids,
        input_mask=batch["input_mask"],
        segment_ids=batch["segment_ids"],
        masked_input_ids=masked_input_ids,
        positions=positions,
        masked_lm_ids=tf.gather(input_ids, positions, batch_dims=1) * tf.cast(weights, tf.int32),
        masked_lm_weights=weights,
        candidates=candidates_mask(input_ids, batch["input_mask"], special, config.mask_separators),
        sampling_noise=draw(SAMPLES, [config.max_predictions_per_seq, 2]),
        crop_noise=draw(CROP, []),
    )


def update_positions(sequence: tf.Tensor, updates: tf.Tensor, positions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Writes int32 updates [B, N] at positions [B, N] of a sequence [B, L].

    Updates at position 0 are dropped: it always holds [CLS], and draws that do not count have this position. Where a
    position was drawn more than once, the first draw wins.

    Returns:
      The updated sequence, and int32 [B, L], 1 at the updated positions.
    """
    rows = tf.shape(sequence)[0]
    length = sequence.shape[1]
    draws = positions.shape[1]  # N
    # Rows are laid end to end: position p of row r is place r L + p.
    row_starts = tf.range(rows)[:, tf.newaxis] * length  # [B, 1]
    places = tf.reshape(positions + row_starts, [-1])  # [B N]
    draw_indices = tf.reshape(tf.tile(tf.range(draws)[tf.newaxis], [rows, 1]), [-1])  # [B N]: 0, ..., N - 1 in each row
    # The first draw of every place; int32.max at places that were not drawn.
    first = tf.math.unsorted_segment_min(draw_indices, places, rows * length)
    first = tf.reshape(first, [-1, length])  # [B, L]
    is_updated = (first < draws) & (tf.range(length) > 0)
    values = tf.gather(updates, tf.minimum(first, draws - 1), batch_dims=1)  # [B, L]
    result = tf.where(is_updated, values, sequence)
    updated = tf.cast(is_updated, tf.int32)
    return tf.ensure_shape(result, sequence.shape), tf.ensure_shape(updated, sequence.shape)


# Corruption (ELECTRA, section 2): samples of the generator, written into the unmasked input.


class CorruptedBatch(NamedTuple):
    """The main network's input.

    input_ids: int32 [B, L] with the samples written at the masked positions.
    was_sampled: int32 [B, L], 1 at every position that was written.
    is_replaced: int32 [B, L], 1 where the sample differs from the original token.
    sampled_ids: int32 [B, N], the generator's sample of each draw.
    """

    input_ids: tf.Tensor
    was_sampled: tf.Tensor
    is_replaced: tf.Tensor
    sampled_ids: tf.Tensor


def sampled_softmax(config: PretrainingConfig, masked: MaskedBatch, generated: GeneratorOutput) -> Softmax:
    """The distributions to sample from: the generator's, with disallow_correct without the original tokens."""
    if config.disallow_correct:
        return without_tokens(generated.softmax, masked.masked_lm_ids)
    return generated.softmax


def corrupt(config: PretrainingConfig, masked: MaskedBatch, sampled_ids: tf.Tensor) -> CorruptedBatch:
    """Writes the samples, int32 [B, N], into the unmasked input."""
    if config.compat == "original":
        input_ids, was_sampled = averaged_updates(masked.input_ids, sampled_ids, masked.positions)
    else:
        input_ids, was_sampled = update_positions(masked.input_ids, sampled_ids, masked.positions)
    differs = tf.cast(tf.not_equal(input_ids, masked.input_ids), tf.int32)
    return CorruptedBatch(
        input_ids=input_ids, was_sampled=was_sampled, is_replaced=was_sampled * differs, sampled_ids=sampled_ids
    )
