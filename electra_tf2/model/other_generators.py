"""Generators beside the masked language model: a mixture of several in one network, two causal towers, no network."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from electra_tf2.model.architecture import Architecture
from electra_tf2.model.embeddings import Embeddings
from electra_tf2.model.encoder import Encoder, EncoderOutput
from electra_tf2.model.generator import GeneratorOutput, MaskedInput, MaskedLanguageModel, Mixture, exact
from electra_tf2.model.heads import LanguageModelHead
from electra_tf2.model.kernels.blocks import Direction
from electra_tf2.model.layers import Layer, SeedStream, truncated_normal
from electra_tf2.model.vocabulary import VocabularySoftmax


class BlockwiseEncoder(Encoder):
    """An encoder in blocks of layers that no gradient passes between, so that each learns from its own exit alone.

    Args:
      exits: the last layer of each block, from 1, rising.
      arguments: of `Encoder`. Layers must be post-norm, whose outputs are normalised.
    """

    def __init__(self, exits: Sequence[int], *arguments: Any) -> None:
        super().__init__(*arguments)
        self.exits = tuple(exits)


class MixtureOfGenerators(MaskedLanguageModel):
    """Masked language models of several depths in one network, and a mixture of their logits.

    Every block ends in an exit, all with the same head. At each position the exits' shares are a softmax of w h, h the
    exit's state. Logits and states are constants in the mixture, so that what it is trained by reaches w alone.

    >>> sizes = make_architecture("small", {"num_hidden_layers": 2, "hidden_size": 64}, 600, 32)
    >>> MixtureOfGenerators(BlockwiseEncoder([1, 2], "generator", sizes))(masked).mixture.shares.shape
    TensorShape([2, 3, 2])
    """

    encoder: BlockwiseEncoder

    def __init__(self, encoder: BlockwiseEncoder, scope: str = "generator_predictions", seed: int = 0) -> None:
        super().__init__(encoder, scope, seed)
        sizes = encoder.architecture
        initializer = truncated_normal(sizes.initializer_range)
        self.mixture_kernel = self.weight("mixture/kernel", [sizes.hidden_size, 1], initializer)

    def predictions(self, masked: MaskedInput, seeds: SeedStream | None, output: EncoderOutput) -> GeneratorOutput:
        layers = [output.layers[number - 1] for number in self.encoder.exits]
        states = tf.stack([tf.gather(layer, masked.positions, batch_dims=1) for layer in layers], 2)  # [B, N, K, Hg]
        softmax = self.head.softmax(exact(states, seeds))
        votes = tf.tensordot(tf.cast(tf.stop_gradient(states), tf.float32), self.mixture_kernel, 1)
        shares = tf.nn.softmax(tf.squeeze(votes, -1))
        mixed = tf.einsum("bnk,bnkv->bnv", shares, tf.stop_gradient(softmax.logits))
        mixture = Mixture(softmax, shares)
        return GeneratorOutput(VocabularySoftmax(mixed), states=states[:, :, -1], encoded=output, mixture=mixture)


class TwoTowerClozeModel(Layer):
    """Two causal encoders over the unmasked input; position t sees all tokens but t (a cloze model).

    As in the original the towers' states are rolled, so position 0 sees the last position's left-to-right state and
    the last position the first's right-to-left one; neither is ever a candidate for masking.

    >>> sizes = make_architecture("small", {"num_hidden_layers": 1, "hidden_size": 64}, 600, 32)
    >>> TwoTowerClozeModel(sizes, None)(masked).cloze.logits.shape  # 2 sequences of 7 tokens
    TensorShape([2, 7, 600])
    """

    def __init__(
        self,
        architecture: Architecture,
        embeddings: Embeddings | None,
        compute_dtype: str = "float32",
        seed: int = 0,
        recompute: str = "none",
    ) -> None:
        super().__init__("cloze_predictions", seed)

        def tower(scope: str, direction: Direction) -> Encoder:
            return Encoder(scope, architecture, embeddings, direction, compute_dtype, seed, recompute)

        self.left_to_right = tower("generator_ltr", "left_to_right")
        self.right_to_left = tower("generator_rtl", "right_to_left")
        both = 2 * architecture.hidden_size
        self.head = LanguageModelHead("cloze_predictions", self.left_to_right, seed, both)

    def call(self, masked: MaskedInput, seeds: SeedStream | None = None) -> GeneratorOutput:
        inputs = (masked.input_ids, masked.input_mask, masked.segment_ids, seeds)
        left = tf.roll(self.left_to_right(*inputs).sequence, 1, axis=1)
        right = tf.roll(self.right_to_left(*inputs).sequence, -1, axis=1)
        states = exact(tf.concat([left, right], -1), seeds)
        softmax = self.head.softmax(tf.gather(states, masked.positions, batch_dims=1))
        return GeneratorOutput(softmax, cloze=self.head.softmax(states))


class UniformGenerator(Layer):
    """No network: every token of the vocabulary is equally likely.

    >>> UniformGenerator(600)(masked).logits.shape  # 2 sequences, 3 masked positions each
    TensorShape([2, 3, 600])
    """

    def __init__(self, vocab_size: int) -> None:
        super().__init__("uniform_generator")
        self.vocab_size = vocab_size

    def call(self, masked: MaskedInput, seeds: SeedStream | None = None) -> GeneratorOutput:
        del seeds
        rows = tf.shape(masked.positions)[0]
        return GeneratorOutput(VocabularySoftmax(tf.zeros([rows, masked.positions.shape[1], self.vocab_size])))
