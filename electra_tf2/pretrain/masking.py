"""Dynamic masking and corruption: which positions are masked, and the generator's samples written there.

All randomness of masking and sampling is drawn here, for the rows of the global batch, as a function of (step seed,
global row); replicas and micro-batches only slice it.
B rows on this replica, L length, N = max_predictions_per_seq, V vocabulary.
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
from electra_tf2.pretrain.masking_units import MaskingUnit, draw_without_replacement, number_at_random
from electra_tf2.pretrain.original_masking import averaged_updates

_MANTISSA = 0x7FFFFF  # the lowest 23 bits, those that TensorFlow's own kernels use; XLA's take the highest
_ONE = 0x3F800000  # the bits of 1.0


@dataclasses.dataclass(frozen=True)
class MaskedBatch:
    """A batch with its masked positions; everything has leading dimension B. A paper may extend it by fields.

    input_ids, input_mask, segment_ids: int32 [B, L], as read.
    masked_input_ids: int32 [B, L], what a masked language model sees.
    positions: int32 [B, N], the masked positions; 0 where the weight is 0. May repeat (ELECTRA's code draws with
      replacement).
    masked_lm_ids: int32 [B, N], original ids at the positions; 0 where the weight is 0.
    masked_lm_weights: float32 [B, N], 1 for real draws.
    candidates: float32 [B, L], 1 where a token is real and not special: what may be masked.
    sampling_noise: float32 [B, N, 2], uniform draws with which the generator's samples will be taken.
    crop_noise: float32 [B], a uniform draw for the place of a crop.
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

    # By these two, tf.nest and tf.function treat it as a structure of its fields.

    def __tf_flatten__(self) -> tuple[tuple[()], tuple[Any, ...]]:
        return (), tuple(getattr(self, field.name) for field in dataclasses.fields(self))

    @classmethod
    def __tf_unflatten__(cls, metadata: tuple[()], components: tuple[Any, ...]) -> "MaskedBatch":
        del metadata
        return cls(*components)


Batch: TypeAlias = dict[str, tf.Tensor]  # int32 [B, L] of each field of records
# (index of the draw, shape) -> uniform draws [B, *shape] in [0, 1), others for each index.
Draw: TypeAlias = Callable[[int, list[int]], tf.Tensor]
# Indices of the draws of a masked batch, of which each has its own seed.
WHERE = 1  # which positions
HOW = 2  # [MASK], kept or random; and which random token
SAMPLES = 3  # the generator's samples
COUNT = 4  # how many positions, if mask_count is probabilistic
CROP = 5  # COCO-LM's crop
UNIT = 6  # the masking unit


def uniform(shape: Sequence[int] | tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Draws float32 [*shape] in [0, 1) as a function of int32 [2] `seed`.

    Equal to tf.random.stateless_uniform outside XLA. It is computed from the raw bits because XLA's own version turns
    the same bits into other numbers.
    """
    bits = tf.random.stateless_uniform(shape, seed, None, None, tf.uint32, alg="philox")
    mantissa = tf.bitwise.bitwise_and(bits, _MANTISSA)
    from_one_to_two = tf.bitcast(tf.bitwise.bitwise_or(mantissa, _ONE), tf.float32)
    return from_one_to_two - 1.0


def row_draws(seed: tf.Tensor, rows: int, row_offset: tf.Tensor | int, global_batch_size: int) -> Draw:
    """Makes the draws of rows [row_offset, row_offset + rows) of a global batch, as a function of (seed, global row).

    Args:
      seed: int32 [2], of the step.
    """

    def draw(index: int, shape: list[int]) -> tf.Tensor:
        key = fold_in(seed, index)
        noise = uniform([global_batch_size, *shape], key)
        if rows == global_batch_size:
            return noise
        # Every replica draws for all rows, so that numbers do not depend on how many replicas there are.
        begin = [row_offset] + [0] * len(shape)
        return tf.slice(noise, begin, [rows, *shape])

    return draw


def candidates_mask(
    input_ids: tf.Tensor, input_mask: tf.Tensor, special: SpecialIds, separators: bool = False
) -> tf.Tensor:
    """float32 [B, L]: 1 at tokens that may be masked: real, and none of [CLS], [MASK], [PAD], nor [SEP] by default."""
    excluded = [special.cls, special.mask, special.pad]
    if not separators:
        excluded.append(special.sep)
    allowed = tf.cast(input_mask, tf.bool)
    for token_id in excluded:
        allowed &= tf.not_equal(input_ids, token_id)
    return tf.cast(allowed, tf.float32)


def number_of_predictions(input_mask: tf.Tensor, mask_prob: float, maximum: int) -> tf.Tensor:
    """int32 [B], tokens to mask in each row: length * mask_prob, from 1 to `maximum`; [CLS] and [SEP] count as length.

    It is rounded to the nearest number, halves to the even one.
    """
    length = tf.cast(tf.reduce_sum(input_mask, -1), tf.float32)
    rounded = tf.cast(tf.round(length * mask_prob), tf.int32)
    return tf.maximum(1, tf.minimum(maximum, rounded))


def draw_with_replacement(noise: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """int32 [B, N]: each draw in proportion to the weights, independently (the original's tf.random.categorical)."""
    cumulative = tf.cumsum(weights, axis=-1)
    total = cumulative[:, -1:]
    shares = noise * total
    # The position of a draw is the number of positions up to which the weights do not exceed its share of the total.
    is_before = tf.less_equal(cumulative[:, tf.newaxis, :], shares[:, :, tf.newaxis])
    drawn = tf.reduce_sum(tf.cast(is_before, tf.int32), -1)
    # A share that was rounded up to the total is of the last position that has a weight.
    last = tf.reduce_sum(tf.cast(cumulative < total, tf.int32), -1, keepdims=True)
    return tf.minimum(drawn, last)


def mask(
    config: PretrainingConfig, batch: Batch, draw: Draw, special: SpecialIds, unit: MaskingUnit | None = None
) -> MaskedBatch:
    """Chooses positions and hides them (ELECTRA, section 2; the rates are those of the original's code).

    Args:
      batch: int32 [B, L] input_ids, input_mask, segment_ids.
      draw: `row_draws` of the step's seed.
      unit: what is masked as a whole; None: every token for itself.
    """
    candidates = candidates_mask(batch["input_ids"], batch["input_mask"], special, config.mask_separators)
    positions, weights, how = draw_positions(config, batch, draw, candidates, unit)
    return masked_at(config, batch, positions, weights, how, draw, special)


def draw_positions(
    config: PretrainingConfig, batch: Batch, draw: Draw, candidates: tf.Tensor, unit: MaskingUnit | None
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Draws positions int32 [B, N] among candidates float32 [B, L], and their weights and draws `how` for `masked_at`.

    A row without any candidate gets weight 0 everywhere (the original divides by zero).
    """
    input_ids = batch["input_ids"]
    input_mask = batch["input_mask"]
    count = config.max_predictions_per_seq
    how = draw(HOW, [count, 2])
    available = tf.cast(tf.reduce_sum(candidates, -1), tf.int32)
    if config.mask_count == "probabilistic":
        wanted = number_at_random(input_mask, config.mask_prob, count, draw(COUNT, []))
    else:
        wanted = number_of_predictions(input_mask, config.mask_prob, count)
    if config.mask_sampling == "with_replacement":
        positions = draw_with_replacement(draw(WHERE, [count]), candidates)
        wanted = tf.where(available > 0, wanted, 0)
    else:
        where = draw(WHERE, [config.max_seq_length])
        unit_draws = draw(UNIT, [config.max_seq_length])
        positions, wanted, how = draw_without_replacement(unit, input_ids, where, unit_draws, how, candidates, wanted)
    real = tf.sequence_mask(wanted, count)
    return tf.where(real, positions, 0), tf.cast(real, tf.float32), how


def masked_at(
    config: PretrainingConfig,
    batch: Batch,
    positions: tf.Tensor,
    weights: tf.Tensor,
    how: tf.Tensor,
    draw: Draw,
    special: SpecialIds,
) -> MaskedBatch:
    """Masks a batch at positions int32 [B, N] with weights float32 [B, N] and draws `how` float32 [B, N, 2].

    Apart from `draw_positions`, so that the golden tests can mask where the original did.
    """
    input_ids = batch["input_ids"]
    mask_rate, keep_rate, random_rate = config.mask_rates
    choice, token = tf.unstack(how, axis=-1)
    is_hidden = choice < mask_rate
    if random_rate > 0:
        random_ids = tf.cast(token * config.vocab_size, tf.int32)
        random_ids = tf.minimum(random_ids, config.vocab_size - 1)  # the product may have been rounded up
        updates = tf.where(is_hidden, special.mask, random_ids)
        is_changed = is_hidden | (choice >= mask_rate + keep_rate)
    else:
        updates = tf.fill(tf.shape(positions), special.mask)
        is_changed = is_hidden
    # Updates at position 0 are dropped.
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

    Updates at position 0 are dropped: it always holds [CLS] and marks draws that do not count. Where a position is
    drawn more than once, the first draw wins.

    Returns:
      The updated sequence and an int32 [B, L] mask of the updated positions.
    """
    rows = tf.shape(sequence)[0]
    length = sequence.shape[1]
    count = positions.shape[1]
    # The place of every draw in all rows, laid end to end; and its number within its row.
    row_starts = tf.range(rows)[:, tf.newaxis] * length
    places = tf.reshape(positions + row_starts, [-1])
    numbers = tf.reshape(tf.tile(tf.range(count)[tf.newaxis], [rows, 1]), [-1])
    # The first draw of every place. Of places without one it is int32.max.
    first = tf.math.unsorted_segment_min(numbers, places, rows * length)
    first = tf.reshape(first, [-1, length])
    is_updated = (first < count) & (tf.range(length) > 0)
    values = tf.gather(updates, tf.minimum(first, count - 1), batch_dims=1)
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
    """Returns the distributions that are sampled: the generator's, without the original tokens if disallow_correct."""
    if config.disallow_correct:
        return without_tokens(generated.softmax, masked.masked_lm_ids)
    return generated.softmax


def corrupt(config: PretrainingConfig, masked: MaskedBatch, sampled_ids: tf.Tensor) -> CorruptedBatch:
    """Writes the samples int32 [B, N] into the unmasked input."""
    if config.compat == "original":
        input_ids, was_sampled = averaged_updates(masked.input_ids, sampled_ids, masked.positions)
    else:
        input_ids, was_sampled = update_positions(masked.input_ids, sampled_ids, masked.positions)
    differs = tf.cast(tf.not_equal(input_ids, masked.input_ids), tf.int32)
    return CorruptedBatch(
        input_ids=input_ids, was_sampled=was_sampled, is_replaced=was_sampled * differs, sampled_ids=sampled_ids
    )
