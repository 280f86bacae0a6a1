"""The networks that propose replacements: a masked language model, two causal towers, or no network at all.

Every generator maps a masked batch to logits at the drawn positions [B, N, V]; a two-tower generator also has logits
at every position [B, L, V]. Which one a run uses, and what it shares with the main network, is decided in
pretrain.pretraining_model.
"""

from collections.abc import Collection
from typing import NamedTuple, Protocol

import tensorflow as tf

from model.architecture import Architecture
from model.encoder import Direction, Embeddings, Encoder, EncoderOutput
from model.heads import LanguageModelHead
from model.layers import Layer, SeedStream


class MaskedInput(Protocol):
    """What a generator reads of a masked batch (pretrain.masking.MaskedBatch)."""

    input_ids: tf.Tensor
    input_mask: tf.Tensor
    segment_ids: tf.Tensor
    masked_input_ids: tf.Tensor
    positions: tf.Tensor


class GeneratorOutput(NamedTuple):
    """What a generator says.

    logits: float32 [B, N, V] at the drawn positions.
    cloze_logits: float32 [B, L, V] at every position; two-tower generators only.
    cloze_log_probs: float32 [B, L], log q(x_t | the other tokens) of the input's own tokens; likewise.
    states: [B, N, Hg], what the logits are made from; masked language models only.
    encoded: the encoder's output on the masked input; likewise.
    """

    logits: tf.Tensor
    cloze_logits: tf.Tensor | None = None
    cloze_log_probs: tf.Tensor | None = None
    states: tf.Tensor | None = None
    encoded: EncoderOutput | None = None


class MaskedLanguageModel(Layer):
    """An encoder over the masked input and a language-model head at the drawn positions (ELECTRA, equation 1).

    >>> sizes = make_architecture("small", {"num_hidden_layers": 1, "hidden_size": 64}, 600, 32)
    >>> MaskedLanguageModel(Encoder("generator", sizes))(masked).logits.shape  # 2 sequences, 3 masked positions each
    TensorShape([2, 3, 600])
    """

    def __init__(self, encoder: Encoder, scope: str = "generator_predictions", seed: int = 0) -> None:
        super().__init__(scope, seed)
        self.encoder = encoder
        self.head = LanguageModelHead(
            scope, encoder.architecture.hidden_size, encoder.architecture, encoder.embeddings, seed
        )

    def call(
        self, masked: MaskedInput, seeds: SeedStream | None = None, attention: Collection[tuple[int, int]] = ()
    ) -> GeneratorOutput:
        """`attention`: (layer, head) whose maps the encoder keeps."""
        output = self.encoder(masked.masked_input_ids, masked.input_mask, masked.segment_ids, seeds, attention)
        states = tf.gather(output.sequence, masked.positions, batch_dims=1)
        return GeneratorOutput(self.head(states), states=states, encoded=output)


class TwoTowerClozeModel(Layer):
    """Two causal encoders over the unmasked input; position t sees all tokens but t (Electric, section 2.4).

    As in the original the towers' states are rolled, so position 0 sees the last position's left-to-right state and
    the last position the first's right-to-left one; neither is ever a candidate for masking.

    >>> sizes = make_architecture("small", {"num_hidden_layers": 1, "hidden_size": 64}, 600, 32)
    >>> TwoTowerClozeModel(sizes, None)(masked).cloze_logits.shape  # 2 sequences of 7 tokens
    TensorShape([2, 7, 600])
    """

    def __init__(
        self,
        architecture: Architecture,
        embeddings: Embeddings | None,
        compute_dtype: str = "float32",
        seed: int = 0,
    ) -> None:
        super().__init__("cloze_predictions", seed)

        def tower(scope: str, direction: Direction) -> Encoder:
            return Encoder(scope, architecture, embeddings, direction, compute_dtype, seed)

        self.left_to_right = tower("generator_ltr", "left_to_right")
        self.right_to_left = tower("generator_rtl", "right_to_left")
        self.head = LanguageModelHead(
            "cloze_predictions", 2 * architecture.hidden_size, architecture, self.left_to_right.embeddings, seed
        )

    def call(self, masked: MaskedInput, seeds: SeedStream | None = None) -> GeneratorOutput:
        inputs = (masked.input_ids, masked.input_mask, masked.segment_ids, seeds)
        left = tf.roll(self.left_to_right(*inputs).sequence, 1, axis=1)
        right = tf.roll(self.right_to_left(*inputs).sequence, -1, axis=1)
        cloze_logits = self.head(tf.concat([left, right], -1))
        log_probs = -tf.nn.sparse_softmax_cross_entropy_with_logits(masked.input_ids, cloze_logits)
        return GeneratorOutput(tf.gather(cloze_logits, masked.positions, batch_dims=1), cloze_logits, log_probs)


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
        return GeneratorOutput(tf.zeros([rows, masked.positions.shape[1], self.vocab_size]))
