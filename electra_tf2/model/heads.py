"""ELECTRA's heads on top of an encoder: a language model, replaced-token detection. The generator: encoder and head.

Other generators stand in model.generators, other heads in model.coco_lm_heads. pretrain.networks decides which
generator a run has, the objectives decide which heads.

Shapes: B batch, L length, N masked positions, H hidden, E embedding, V vocabulary.
"""

import dataclasses
from typing import Any, TypeAlias

import tensorflow as tf

from electra_tf2.model.architecture import Architecture
from electra_tf2.model.encoder import Encoder, EncoderOutput
from electra_tf2.model.initializers import glorot_uniform, truncated_normal, zeros
from electra_tf2.model.kernels.products import matrix_product
from electra_tf2.model.kernels.switch import are_on
from electra_tf2.model.kernels.vocabulary_softmax import FusedSoftmax
from electra_tf2.model.layers import Dense, Layer, LayerNorm, SeedStream
from electra_tf2.model.softmax import Softmax, VocabularySoftmax, tied_logits


class PredictionHead(Layer):
    """dense + activation + layer norm, the transform before a language model's softmax.

    With head_style modernbert every head has this transform before its last layer.

    Args:
      input_size, output_size: default: H.

    >>> PredictionHead("head", make_architecture("small", {"hidden_size": 64}, 600, None))(tf.zeros([2, 64])).shape
    TensorShape([2, 64])
    """

    def __init__(
        self,
        scope: str,
        architecture: Architecture,
        seed: int = 0,
        input_size: int | None = None,
        output_size: int | None = None,
    ) -> None:
        super().__init__(scope, seed)
        input_size = input_size or architecture.hidden_size
        output_size = output_size or architecture.hidden_size
        initializer = truncated_normal(architecture.initializer_range)
        self.dense = Dense(f"{scope}/dense", input_size, output_size, initializer, seed, architecture.hidden_act)
        self.layer_norm = LayerNorm(f"{scope}/LayerNorm", output_size, architecture)

    def call(self, states: tf.Tensor) -> tf.Tensor:
        """[..., input size] -> [..., output size]."""
        return self.layer_norm(self.dense(states))


class LanguageModelHead(PredictionHead):
    """dense(E) + activation + layer norm, then a softmax tied to the word table (BERT; ELECTRA, equation 1).

    With head_style modernbert the dense layer is H wide, and the word table is projected as the encoder projects
    embeddings: logits are h (table W)^T. Without tie_word_embeddings the head has a table of its own.

    Args:
      encoder: its word table [V, E] is the output matrix.
      input_size: width of the states; default: the encoder's.

    >>> sizes = make_architecture("small", {"num_hidden_layers": 1, "hidden_size": 64}, 600, 32)
    >>> LanguageModelHead("predictions", Encoder("electra", sizes))(tf.zeros([2, 3, 64])).shape
    TensorShape([2, 3, 600])
    """

    def __init__(self, scope: str, encoder: Encoder, seed: int = 0, input_size: int | None = None) -> None:
        architecture = encoder.architecture
        vocab_size = architecture.vocab_size
        is_tied = architecture.tie_word_embeddings
        is_modern = architecture.head_style == "modernbert"
        width = encoder.embeddings.word_embeddings.shape[1]
        if is_modern:
            width = architecture.hidden_size
        super().__init__(scope, architecture, seed, input_size, width)
        self.embeddings = encoder.embeddings
        self.projection = None
        if is_modern and is_tied:
            self.projection = encoder.project  # W; None where E = H
        self.decoder = None
        if not is_tied:
            initializer = truncated_normal(architecture.initializer_range)
            self.decoder = self.weight("decoder", [vocab_size, width], initializer)
        self.output_bias = self.weight("output_bias", [vocab_size], zeros, decay=False)

    @property
    def table(self) -> tf.Tensor:
        """float32 [V, E]: a row for each token of the vocabulary, as wide as `hidden`."""
        if self.decoder is not None:
            return self.decoder
        return self.embeddings.word_embeddings

    def hidden(self, states: tf.Tensor) -> tf.Tensor:
        """[..., H] -> [..., E], the factor of the table in the logits."""
        hidden = super().call(states)
        if self.projection is None:
            return hidden
        # h (table W)^T is (h W^T) table^T, which needs no projected table.
        transposed = tf.cast(tf.transpose(self.projection.kernel), hidden.dtype)
        return matrix_product(hidden, transposed)

    def softmax(self, states: tf.Tensor) -> Softmax:
        """Distributions over the vocabulary, from states [..., H]."""
        hidden = self.hidden(states)
        if are_on():
            # A kernel that computes product and softmax together.
            return FusedSoftmax(hidden, self.table, self.output_bias)
        return VocabularySoftmax(tied_logits(hidden, self.table, self.output_bias))

    def call(self, states: tf.Tensor) -> tf.Tensor:
        """[..., H] -> float32 logits [..., V]."""
        return tied_logits(self.hidden(states), self.table, self.output_bias)


class ReplacedTokenHead(Layer):
    """dense(H) + activation, then one logit per token; positive means replaced (ELECTRA, equation 2).

    With head_style modernbert there is a layer norm before the logit.

    >>> head = ReplacedTokenHead("replaced", make_architecture("small", {"hidden_size": 64}, 600, None))
    >>> head(tf.zeros([2, 7, 64])).shape
    TensorShape([2, 7])
    """

    def __init__(self, scope: str, architecture: Architecture, seed: int = 0) -> None:
        super().__init__(scope, seed)
        hidden_size = architecture.hidden_size
        initializer = truncated_normal(architecture.initializer_range)
        self.dense = Dense(f"{scope}/dense", hidden_size, hidden_size, initializer, seed, architecture.hidden_act)
        self.layer_norm = None
        if architecture.head_style == "modernbert":
            self.layer_norm = LayerNorm(f"{scope}/LayerNorm", hidden_size, architecture)
        self.logit = Dense(f"{scope}/dense_1", hidden_size, 1, glorot_uniform, seed)

    def call(self, states: tf.Tensor) -> tf.Tensor:
        """[B, L, H] -> float32 logits [B, L]."""
        hidden = self.dense(states)  # [B, L, H]
        if self.layer_norm is not None:
            hidden = self.layer_norm(hidden)
        return one_unit(self.logit, hidden)


def one_unit(dense: Dense, states: tf.Tensor) -> tf.Tensor:
    """Applies a layer of one unit, in float32 throughout: [B, L, H] -> float32 [B, L].

    In bfloat16 neighbouring numbers near 16, which Electric's energies reach, are 0.06 apart.
    """
    return tf.squeeze(dense(tf.cast(states, tf.float32)), -1)


# Generators: a masked batch to distributions over the vocabulary at the masked positions.

# A pretrain.masking.MaskedBatch, of which generators read ids, masked ids, mask, segments and positions.
MaskedInput: TypeAlias = Any


@dataclasses.dataclass(frozen=True)
class GeneratorOutput:
    """Distributions of a generator over the vocabulary.

    softmax: at the masked positions [B, N].
    cloze: at every position [B, L], q(x_t | all other tokens); two-tower generators only.
    states: [B, N, Hg], the encoder's states at the masked positions; masked language models only.
    encoded: the encoder's output on the masked input; masked language models only.
    """

    softmax: Softmax
    cloze: Softmax | None = None
    states: tf.Tensor | None = None
    encoded: EncoderOutput | None = None


def exact(states: tf.Tensor, seeds: SeedStream | None) -> tf.Tensor:
    """Casts the input of a vocabulary head to float32 in evaluation, where `seeds` is None.

    So an evaluation's logits do not depend on the precision of the run. In training they are computed in the compute
    type; docs/architecture.md says what the exact ones cost.
    """
    if seeds is None:
        return tf.cast(states, tf.float32)
    return states


class MaskedLanguageModel(Layer):
    """An encoder over the masked input, and a language model's head at the masked positions (ELECTRA, equation 1).

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
        states = tf.gather(encoded.sequence, masked.positions, batch_dims=1)  # [B, N, Hg]
        softmax = self.head.softmax(exact(states, seeds))
        return GeneratorOutput(softmax, states=states, encoded=encoded)
