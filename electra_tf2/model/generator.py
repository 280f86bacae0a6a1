"""The generator, which proposes replacements: a masked language model.

It maps a masked batch to distributions over the vocabulary at the drawn positions [B, N]. model.other_generators has
others; pretrain.pretraining_model decides which one a run uses, and what it shares with the main network.
"""

from collections.abc import Collection
from typing import NamedTuple, Protocol

import tensorflow as tf

from electra_tf2.model.encoder import Encoder, EncoderOutput
from electra_tf2.model.heads import LanguageModelHead
from electra_tf2.model.layers import Layer, SeedStream
from electra_tf2.model.vocabulary import Softmax


class MaskedInput(Protocol):
    """Fields of a masked batch (pretrain.masking.MaskedBatch) that generators read."""

    input_ids: tf.Tensor
    input_mask: tf.Tensor
    segment_ids: tf.Tensor
    masked_input_ids: tf.Tensor
    positions: tf.Tensor


class Mixture(NamedTuple):
    """Distributions of K language models, and how they are mixed.

    softmax: each model's at the drawn positions [B, N, K].
    shares: float32 [B, N, K], each model's; they add up to 1.
    """

    softmax: Softmax
    shares: tf.Tensor


class GeneratorOutput(NamedTuple):
    """Distributions of a generator over the vocabulary.

    softmax: at the drawn positions [B, N].
    cloze: at every position [B, L], q(x_t | the other tokens); two-tower generators only.
    states: [B, N, Hg], what the logits are made from; masked language models only.
    encoded: the encoder's output on the masked input; likewise.
    mixture: what `softmax` is mixed of; only the shares get a gradient from it.
    """

    softmax: Softmax
    cloze: Softmax | None = None
    states: tf.Tensor | None = None
    encoded: EncoderOutput | None = None
    mixture: Mixture | None = None

    @property
    def logits(self) -> tf.Tensor:
        """float32 [B, N, V]; costly, for what wants all of them."""
        return self.softmax.logits

    def log_probs(self, token_ids: tf.Tensor) -> tf.Tensor:
        """float32 [B, N], of tokens at the drawn positions."""
        return self.softmax.log_probs(token_ids)

    def are_likeliest(self, token_ids: tf.Tensor) -> tf.Tensor:
        """bool [B, N]: these tokens are the generator's first choice at the drawn positions."""
        return self.softmax.are_likeliest(token_ids)

    def entropies(self) -> tf.Tensor:
        """float32 [B, N], at the drawn positions, in nats; no gradient."""
        return self.softmax.entropies()


def exact(states: tf.Tensor, seeds: SeedStream | None) -> tf.Tensor:
    """Casts what the head reads to float32 where there is no dropout, so that evaluation does not depend on precision.

    In training logits come in the compute type out of the product; docs/architecture.md says what that costs.
    """
    return states if seeds is not None else tf.cast(states, tf.float32)


class MaskedLanguageModel(Layer):
    """An encoder over the masked input and a language-model head at the drawn positions (ELECTRA, equation 1).

    >>> sizes = make_architecture("small", {"num_hidden_layers": 1, "hidden_size": 64}, 600, 32)
    >>> MaskedLanguageModel(Encoder("generator", sizes))(masked).logits.shape  # 2 sequences, 3 masked positions each
    TensorShape([2, 3, 600])
    """

    def __init__(self, encoder: Encoder, scope: str = "generator_predictions", seed: int = 0) -> None:
        super().__init__(scope, seed)
        self.encoder = encoder
        self.head = LanguageModelHead(scope, encoder, seed)

    def call(
        self,
        masked: MaskedInput,
        seeds: SeedStream | None = None,
        attention: Collection[tuple[int, int]] = (),
        word_offsets: tf.Tensor | None = None,
    ) -> GeneratorOutput:
        """Encodes the masked input and predicts; `attention` and `word_offsets` are the encoder's arguments."""
        inputs = (masked.masked_input_ids, masked.input_mask, masked.segment_ids)
        return self.predictions(masked, seeds, self.encoder(*inputs, seeds, attention, word_offsets))

    def predictions(self, masked: MaskedInput, seeds: SeedStream | None, output: EncoderOutput) -> GeneratorOutput:
        """Predicts at the drawn positions from the encoder's output."""
        states = tf.gather(output.sequence, masked.positions, batch_dims=1)
        softmax = self.head.softmax(exact(states, seeds))
        return GeneratorOutput(softmax, states=states, encoded=output)
