"""Generators beside the masked language model: two causal towers (Electric), and a uniform distribution.

Shapes: B batch, L length, N masked positions, H hidden, V vocabulary.
"""

import tensorflow as tf

from electra_tf2.model.architecture import Architecture
from electra_tf2.model.encoder import Embeddings, Encoder
from electra_tf2.model.heads import GeneratorOutput, LanguageModelHead, MaskedInput, exact
from electra_tf2.model.kernels.positions import Direction
from electra_tf2.model.layers import Layer, SeedStream
from electra_tf2.model.softmax import VocabularySoftmax


class TwoTowerClozeModel(Layer):
    """Two causal encoders over the unmasked input; position t sees all tokens but t (Electric, section 2.4).

    The towers' states are rolled, as in the original, so position 0 gets the last position's left-to-right state, and
    the last position gets the right-to-left state of the first. Neither is ever masked.

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
        self.head = LanguageModelHead("cloze_predictions", self.left_to_right, seed, 2 * architecture.hidden_size)

    def call(self, masked: MaskedInput, seeds: SeedStream | None = None) -> GeneratorOutput:
        ids = masked.input_ids
        mask = masked.input_mask
        segments = masked.segment_ids
        left = self.left_to_right(ids, mask, segments, seeds).sequence  # [B, L, H]
        right = self.right_to_left(ids, mask, segments, seeds).sequence  # [B, L, H]
        # A state has seen the token at its position, which is the answer. So each position gets its neighbours' states.
        left = tf.roll(left, 1, axis=1)
        right = tf.roll(right, -1, axis=1)
        states = exact(tf.concat([left, right], -1), seeds)  # [B, L, 2H]
        softmax = self.head.softmax(tf.gather(states, masked.positions, batch_dims=1))
        return GeneratorOutput(softmax, cloze=self.head.softmax(states))


class UniformGenerator(Layer):
    """No network: every token of the vocabulary is equally likely.

    >>> UniformGenerator(600)(masked).softmax.logits.shape  # 2 sequences, 3 masked positions each
    TensorShape([2, 3, 600])
    """

    def __init__(self, vocab_size: int) -> None:
        super().__init__("uniform_generator")
        self.vocab_size = vocab_size

    def call(self, masked: MaskedInput, seeds: SeedStream | None = None) -> GeneratorOutput:
        del seeds
        rows = tf.shape(masked.positions)[0]
        masked_positions = masked.positions.shape[1]
        logits = tf.zeros([rows, masked_positions, self.vocab_size])
        return GeneratorOutput(VocabularySoftmax(logits))
