"""The generator, a masked language model: a masked batch to distributions over the vocabulary at the masked positions.

model.other_generators has others; pretrain.networks decides which one a run uses.
"""

import dataclasses
from typing import Protocol

import tensorflow as tf

from electra_tf2.model.encoder import Encoder, EncoderOutput
from electra_tf2.model.heads import LanguageModelHead
from electra_tf2.model.layers import Layer, SeedStream
from electra_tf2.model.softmax import Softmax


class MaskedInput(Protocol):
    """Fields of a masked batch (pretrain.masking.MaskedBatch) that generators read."""

    @property
    def input_ids(self) -> tf.Tensor: ...
    @property
    def input_mask(self) -> tf.Tensor: ...
    @property
    def segment_ids(self) -> tf.Tensor: ...
    @property
    def masked_input_ids(self) -> tf.Tensor: ...
    @property
    def positions(self) -> tf.Tensor: ...


@dataclasses.dataclass(frozen=True)
class GeneratorOutput:
    """Distributions of a generator over the vocabulary.

    softmax: at the masked positions [B, N].
    cloze: at every position [B, L], q(x_t | the other tokens); two-tower generators only.
    states: [B, N, Hg], what the logits are made from; masked language models only.
    encoded: the encoder's output on the masked input; likewise.
    """

    softmax: Softmax
    cloze: Softmax | None = None
    states: tf.Tensor | None = None
    encoded: EncoderOutput | None = None


def exact(states: tf.Tensor, seeds: SeedStream | None) -> tf.Tensor:
    """Casts the head's input to float32 in evaluation (no `seeds`), whose logits then do not depend on `precision`.

    In training logits leave their product in the compute type; docs/architecture.md says what that costs.
    """
    return states if seeds is not None else tf.cast(states, tf.float32)


class MaskedLanguageModel(Layer):
    """An encoder over the masked input and a language-model head at the masked positions (ELECTRA, equation 1).

    >>> sizes = make_architecture("small", {"num_hidden_layers": 1, "hidden_size": 64}, 600, 32)
    >>> MaskedLanguageModel(Encoder("generator", sizes))(masked).softmax.logits.shape  # 2 rows, 3 masked positions
    TensorShape([2, 3, 600])
    """

    def __init__(self, encoder: Encoder, scope: str = "generator_predictions", seed: int = 0) -> None:
        super().__init__(scope, seed)
        self.encoder = encoder
        self.head = LanguageModelHead(scope, encoder, seed)

    def call(self, masked: MaskedInput, seeds: SeedStream | None = None) -> GeneratorOutput:
        encoded = self.encoder(masked.masked_input_ids, masked.input_mask, masked.segment_ids, seeds)
        return self.predictions(masked, seeds, encoded)

    def predictions(self, masked: MaskedInput, seeds: SeedStream | None, output: EncoderOutput) -> GeneratorOutput:
        """Predicts at the masked positions from the encoder's output."""
        states = tf.gather(output.sequence, masked.positions, batch_dims=1)
        softmax = self.head.softmax(exact(states, seeds))
        return GeneratorOutput(softmax, states=states, encoded=output)
