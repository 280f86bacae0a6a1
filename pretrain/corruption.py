"""Corruption: sampling replacements from the generator and writing them into the input.

Stage between generator and main network: `MaskedBatch + logits -> CorruptedBatch` (ELECTRA, section 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from electra_tf2.pretrain.hparams import GeneratorHparams
from electra_tf2.pretrain.masking import MaskedBatch, update_positions
from electra_tf2.util.lazy import tf

if TYPE_CHECKING:
    from electra_tf2.model.generator import GeneratorOutput

DISALLOWED = 1000.0  # subtracted from a forbidden token's logit, as in the original


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


def sample(
    config: GeneratorHparams,
    masked: MaskedBatch,
    generated: GeneratorOutput,
    temperature: float | tf.Tensor | None = None,
) -> tf.Tensor:
    """int32 [B, N]: one sample for each draw from the generator's softmax at the drawn positions; no gradient.

    `temperature` is the configured one if not given.
    """
    if generated.softmax is not None and not config.disallow_correct:
        temperature = config.temperature if temperature is None else temperature
        return generated.softmax.sample(masked.sampling_noise, temperature)
    from electra_tf2.model.vocabulary import sample_from_logits

    logits = sampled_logits(config, masked, generated, temperature)
    return sample_from_logits(tf.stop_gradient(logits), masked.sampling_noise)


def sampled_logits(
    config: GeneratorHparams, masked: MaskedBatch, generated: GeneratorOutput, temperature: float | tf.Tensor | None
) -> tf.Tensor:
    """float32 [B, N, V], of whose softmax the samples are."""
    logits = generated.logits / (config.temperature if temperature is None else temperature)
    if not config.disallow_correct:
        return logits
    correct = tf.range(config.vocab_size) == masked.masked_lm_ids[..., tf.newaxis]
    return tf.where(correct, logits - DISALLOWED, logits)


def corrupt(config: GeneratorHparams, masked: MaskedBatch, sampled_ids: tf.Tensor) -> CorruptedBatch:
    """Writes the samples int32 [B, N] into the unmasked input."""
    input_ids, was_sampled = update_positions(
        masked.input_ids, sampled_ids, masked.positions, average_duplicates=config.compat == "original"
    )
    differs = tf.cast(tf.not_equal(input_ids, masked.input_ids), tf.int32)
    return CorruptedBatch(
        input_ids=input_ids, was_sampled=was_sampled, is_replaced=was_sampled * differs, sampled_ids=sampled_ids
    )
