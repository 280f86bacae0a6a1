"""Corruption: sampling replacements from the generator and writing them into the input.

Stage between generator and main network: `MaskedBatch + logits -> CorruptedBatch` (ELECTRA, section 2).
"""

from typing import NamedTuple

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.generator import GeneratorOutput
from electra_tf2.model.vocabulary import sample_from_logits
from electra_tf2.pretrain.masking import MaskedBatch, update_positions

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
    config: PretrainingConfig,
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
    logits = _sampled_logits(config, masked, generated, temperature)
    return sample_from_logits(tf.stop_gradient(logits), masked.sampling_noise)


def _sampled_logits(
    config: PretrainingConfig, masked: MaskedBatch, generated: GeneratorOutput, temperature: float | tf.Tensor | None
) -> tf.Tensor:
    """float32 [B, N, V], of whose softmax the samples are."""
    logits = generated.logits / (config.temperature if temperature is None else temperature)
    if not config.disallow_correct:
        return logits
    correct = tf.range(config.vocab_size) == masked.masked_lm_ids[..., tf.newaxis]
    return tf.where(correct, logits - DISALLOWED, logits)


def sample_mixture(
    config: PretrainingConfig,
    masked: MaskedBatch,
    generated: GeneratorOutput,
    words: tf.Tensor,
    temperature: float | tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Samples of a mixture of generators, and a way back to its shares for the main network's gradient (AMOS).

    The samples are the maxima of logits + Gumbel noise. Where their embeddings are the main network's input, the
    gradient is that of a softmax of the same sums at a low temperature (straight-through Gumbel-softmax, Jang et al.
    2017), times `mixture_gradient`.

    Args:
      words: [V, E], the main network's word table, in the compute type.

    Returns:
      int32 [B, N], and float32 [B, L, E]: zeros with that gradient, to be added to the word embeddings.
    """
    logits = _sampled_logits(config, masked, generated, temperature)
    noise = masked.row_noise(logits.shape[1:].as_list())
    noisy = logits - tf.math.log(-tf.math.log(noise))
    chosen = tf.cast(tf.nn.softmax(noisy / config.mixture_temperature), words.dtype)
    chosen = tf.cast(tf.tensordot(chosen, tf.stop_gradient(words), 1), tf.float32)  # [B, N, E]
    places = tf.one_hot(masked.positions, masked.input_ids.shape[1]) * masked.masked_lm_weights[..., tf.newaxis]
    pull = config.mixture_gradient * tf.matmul(places, chosen, transpose_a=True)
    return tf.argmax(noisy, -1, tf.int32), pull - tf.stop_gradient(pull)


def corrupt(config: PretrainingConfig, masked: MaskedBatch, sampled_ids: tf.Tensor) -> CorruptedBatch:
    """Writes the samples int32 [B, N] into the unmasked input."""
    input_ids, was_sampled = update_positions(
        masked.input_ids, sampled_ids, masked.positions, average_duplicates=config.compat == "original"
    )
    differs = tf.cast(tf.not_equal(input_ids, masked.input_ids), tf.int32)
    return CorruptedBatch(
        input_ids=input_ids, was_sampled=was_sampled, is_replaced=was_sampled * differs, sampled_ids=sampled_ids
    )
