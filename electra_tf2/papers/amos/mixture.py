"""A generator of several depths in one network, and the mixture that AMOS samples from (Meng et al. 2022, section 3.2).

Shapes: B batch, N masked positions, K exits, Hg the generator's hidden size, V vocabulary.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from electra_tf2.model.attention import AttentionContext
from electra_tf2.model.encoder import Encoder
from electra_tf2.model.heads import GeneratorOutput, MaskedInput, MaskedLanguageModel, exact
from electra_tf2.model.initializers import truncated_normal
from electra_tf2.model.kernels.products import matrix_product
from electra_tf2.model.layers import SeedStream
from electra_tf2.model.softmax import Softmax, VocabularySoftmax


class BlockwiseEncoder(Encoder):
    """An encoder in blocks of layers, between which no gradient passes: each block learns from its own exit only.

    Args:
      exit_layers: the last layer of each block, from 1, rising.
      arguments, named: as of `Encoder`. Layers must be post-norm, so that outputs of all layers are normalised.
    """

    def __init__(self, exit_layers: Sequence[int], *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.exit_layers = tuple(exit_layers)

    def run_layer(self, index: int, x: tf.Tensor, context: AttentionContext, seeds: SeedStream | None) -> tf.Tensor:
        # Exits count layers from 1, so this is the layer after an exit: the first of a block.
        if index in self.exit_layers:
            x = tf.stop_gradient(x)
        return super().run_layer(index, x, context, seeds)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MixtureOutput(GeneratorOutput):
    """Output of a `MixtureOfGenerators`. Its `softmax` is that of the mixture; through it only the shares get a
    gradient.

    exits: distributions of each exit at the masked positions, [B, N, K].
    shares: float32 [B, N, K], of each exit in the mixture; they add up to 1.
    """

    exits: Softmax
    shares: tf.Tensor


class MixtureOfGenerators(MaskedLanguageModel):
    """Masked language models of several depths in one network, and a mixture of their logits (AMOS, section 3.2).

    Every block ends in an exit; all exits share one head. At each position the exits' shares are a softmax of w h, with
    h the state at the exit. In the mixture logits and states are constants, so that its gradient reaches only w.

    >>> sizes = make_architecture("small", {"num_hidden_layers": 2, "hidden_size": 64}, 600, 32)
    >>> MixtureOfGenerators(BlockwiseEncoder([1, 2], "generator", sizes))(masked).shares.shape
    TensorShape([2, 3, 2])
    """

    encoder: BlockwiseEncoder

    def __init__(self, encoder: BlockwiseEncoder, scope: str = "generator_predictions", seed: int = 0) -> None:
        super().__init__(encoder, scope, seed)
        sizes = encoder.architecture
        initializer = truncated_normal(sizes.initializer_range)
        self.mixture_kernel = self.weight("mixture/kernel", [sizes.hidden_size, 1], initializer)

    def call(self, masked: MaskedInput, seeds: SeedStream | None = None) -> MixtureOutput:
        output = self.encoder(masked.masked_input_ids, masked.input_mask, masked.segment_ids, seeds)
        exit_states = []
        for layer in self.encoder.exit_layers:  # from 1
            layer_output = output.layers[layer - 1]
            exit_states.append(tf.gather(layer_output, masked.positions, batch_dims=1))
        states = tf.stack(exit_states, 2)  # [B, N, K, Hg]
        exits = self.head.softmax(exact(states, seeds))
        # To the mixture, states and logits are constants.
        scores = matrix_product(tf.cast(tf.stop_gradient(states), tf.float32), self.mixture_kernel)  # [B, N, K, 1]
        shares = tf.nn.softmax(tf.squeeze(scores, -1))
        mixed = tf.einsum("bnk,bnkv->bnv", shares, tf.stop_gradient(exits.logits))  # [B, N, V]
        return MixtureOutput(
            softmax=VocabularySoftmax(mixed), states=states[:, :, -1], encoded=output, exits=exits, shares=shares
        )
