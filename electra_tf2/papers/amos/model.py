"""AMOS: an ELECTRA whose replacements come from a mixture of generators (Meng et al. 2022).

The generator has several exits, each after some of its layers, which are all trained as masked language models
(papers.amos.mixture). Replacements are drawn from a mixture of their logits. The shares of the mixture learn to make
the main network's task harder, by gradients through the samples (straight-through Gumbel-softmax).

Shapes: B rows, L length, N masked positions, K exits, E embedding, V vocabulary.
"""

import functools
import math

import tensorflow as tf

from electra_tf2.model.kernels.products import matmul, matrix_product
from electra_tf2.model.layers import SeedStream
from electra_tf2.papers.amos.config import Config
from electra_tf2.papers.amos.mixture import BlockwiseEncoder, MixtureOfGenerators, MixtureOutput
from electra_tf2.pretrain import masking
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.networks import Networks, make_encoder, make_generator_encoder
from electra_tf2.pretrain.noise import row_noise
from electra_tf2.pretrain.objectives.bert import masked_lm_metrics
from electra_tf2.pretrain.objectives.objective import Forward, LossTerm, Objective, weighted_mean
from electra_tf2.pretrain.pretraining_model import PretrainingModel


class MixtureLM(Objective):
    """Cross-entropy of the original tokens at the masked positions, added up over the exits.

    It trains all of the generator but the shares, which learn from the main network's losses. Metrics of the masked
    language model are those of the mixture, which is sampled.
    """

    config: Config
    loss_name = "exits_loss"
    weight = "gen_weight"

    def __init__(self, config: Config, networks: Networks) -> None:
        super().__init__(config, networks)
        self.initial_loss = len(config.generator_exits) * math.log(config.vocab_size)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        masked = forward.masked
        weights = masked.masked_lm_weights
        generator = forward.generator
        assert isinstance(generator, MixtureOutput)
        exits = self.config.generator_exits
        token_ids = tf.repeat(masked.masked_lm_ids[..., tf.newaxis], len(exits), -1)
        losses = -generator.exits.log_probs(token_ids)  # [B, N, K]
        mixture_losses = -generator.softmax.log_probs(masked.masked_lm_ids)  # [B, N]
        metrics = masked_lm_metrics(forward, mixture_losses, training)
        for index, layer in enumerate(exits):
            metrics[f"exit_{layer}_loss"] = weighted_mean(losses[..., index], weights)
            metrics[f"exit_{layer}_share"] = weighted_mean(generator.shares[..., index], weights)
        return self.output(forward, tf.reduce_sum(losses, -1), metrics)


class Model(PretrainingModel):
    """ELECTRA with a mixture of generators."""

    config: Config

    def make_networks(self) -> Networks:
        main = make_encoder(self.config)
        blockwise = functools.partial(BlockwiseEncoder, self.config.generator_exits)
        blocks = make_generator_encoder(self.config, main, blockwise)
        return Networks(main, MixtureOfGenerators(blocks, seed=self.config.seed))

    def make_objectives(self, networks: Networks) -> list[Objective]:
        # The first objective is the generator's, here a masked language model, which has no variables.
        _, *others = super().make_objectives(networks)
        return [MixtureLM(self.config, networks), *others]

    def forward(
        self,
        masked: MaskedBatch,
        seed: tf.Tensor | None = None,
        sampled_ids: tf.Tensor | None = None,
    ) -> Forward:
        assert sampled_ids is None
        seeds = None if seed is None else SeedStream(seed)
        generated = self.generator(masked, seeds)
        softmax = masking.sampled_softmax(self.config, masked, self.sampled_pass(masked, generated, seeds))
        logits = softmax.logits / self.config.temperature  # [B, N, V]
        # As in the core, with offsets added to the embeddings of the samples.
        embeddings = self.encoder.embeddings
        words = tf.cast(embeddings.word_embeddings, self.encoder.activation_dtype)
        sampled_ids, offsets = sample(self.config, masked, logits, words)
        corrupted = masking.corrupt(self.config, masked, sampled_ids)
        embedded = embeddings.combine(embeddings.lookup(corrupted.input_ids) + offsets, masked.segment_ids, seeds)
        encoded = self.encoder.encode(embedded, masked.input_mask, seeds)
        return Forward(masked, generated, corrupted, encoded, self.read_views(masked, seeds))


def sample(config: Config, masked: MaskedBatch, logits: tf.Tensor, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Samples from the mixture, with offsets of value 0 that lead the main network's gradient to the shares.

    The samples are the maxima of logits + Gumbel noise. The gradient is that of a softmax of the same sums at a low
    temperature, times `mixture_gradient`, as if the main network read the embeddings of this softmax (straight-through
    Gumbel-softmax, Jang et al. 2017).

    Args:
      logits: float32 [B, N, V], of the mixture.
      words: [V, E], the main network's word table, in the compute type.

    Returns:
      int32 [B, N] samples, and float32 [B, L, E] offsets, to be added to the main network's word embeddings.
    """
    noise = row_noise(masked.sampling_noise[:, 0], logits.shape[1:].as_list())
    noisy = logits - tf.math.log(-tf.math.log(noise))  # [B, N, V]
    soft_samples = tf.cast(tf.nn.softmax(noisy / config.mixture_temperature), words.dtype)
    soft_words = tf.cast(matrix_product(soft_samples, tf.stop_gradient(words)), tf.float32)  # [B, N, E]
    # From the masked positions to their places in the sequence.
    one_hot = tf.one_hot(masked.positions, masked.input_ids.shape[1]) * masked.masked_lm_weights[..., tf.newaxis]
    placed = matmul(one_hot, soft_words, transpose_a=True)  # [B, L, E]
    scaled = config.mixture_gradient * placed
    offsets = scaled - tf.stop_gradient(scaled)  # 0, with the gradient of `scaled`
    return tf.argmax(noisy, -1, tf.int32), offsets
