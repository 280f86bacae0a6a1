"""The transformer encoder: embeddings of size E, a projection to H, post-norm or pre-norm layers.

Main network, generator and both towers of a two-tower generator are of this class; embeddings may be shared. B batch, L
length, V vocabulary, E embedding, H hidden.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from electra_tf2.model import layers
from electra_tf2.model.architecture import Architecture
from electra_tf2.model.attention import AttentionContext, Positions, SelfAttention, TiledSequences, make_context
from electra_tf2.model.gated import GatedDense
from electra_tf2.model.initializers import Initializer, glorot_uniform, truncated_normal, zeros
from electra_tf2.model.kernels import xla
from electra_tf2.model.kernels.compilation import are_one_program, matrix_product
from electra_tf2.model.kernels.positions import Direction
from electra_tf2.model.layers import Dense, Layer, LayerNorm, SeedStream, dropout, seed_and_rate, shape_of
from electra_tf2.model.recomputation import recomputed
from electra_tf2.model.sharing import make_layers


class Embeddings(Layer):
    """Word + position + segment tables, summed, normalised, dropped out (BERT, section 3).

    Args:
      words: a block whose word table is used instead of an own one.

    >>> block = Embeddings("embeddings", make_architecture("small", {"hidden_size": 64}, 600, 32))
    >>> block(tf.ones([2, 7], tf.int32), tf.zeros([2, 7], tf.int32), None).shape
    TensorShape([2, 7, 32])
    """

    def __init__(
        self, scope: str, architecture: Architecture, seed: int = 0, words: "Embeddings | None" = None
    ) -> None:
        super().__init__(scope, seed)
        a, size = architecture, architecture.embedding_size
        initializer = truncated_normal(a.initializer_range)
        self._words = words
        self.dropout_rate = a.hidden_dropout_prob
        self._is_raw = a.embedding_norm == "after"  # then the encoder normalises, and drops
        if words is None:
            self._own_words = self.weight("word_embeddings", [a.vocab_size, size], initializer)
        self.token_type_embeddings = None
        if a.type_vocab_size:
            self.token_type_embeddings = self.weight("token_type_embeddings", [a.type_vocab_size, size], initializer)
        self.position_embeddings = None
        if a.positions.embedded:
            shape = [a.max_position_embeddings, size]
            self.position_embeddings = self.weight("position_embeddings", shape, initializer)
        self.layer_norm = LayerNorm(f"{scope}/LayerNorm", size, a) if a.embedding_norm == "before" else None

    @property
    def word_embeddings(self) -> tf.Tensor:
        """float32 [V, E]."""
        return self._own_words if self._words is None else self._words.word_embeddings

    def lookup(self, input_ids: tf.Tensor) -> tf.Tensor:
        """int32 [B, L] -> float32 [B, L, E], rows of the word table."""
        return tf.gather(self.word_embeddings, input_ids)

    def combine(self, words: tf.Tensor, segment_ids: tf.Tensor, seeds: SeedStream | None) -> tf.Tensor:
        """Adds segments and positions, normalises and drops out: float32 [B, L, E], int32 [B, L] -> [B, L, E]."""
        x = self.summed(words, segment_ids)
        if self._is_raw:
            return x
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        return dropout(x, self.dropout_rate, seeds)

    def summed(self, words: tf.Tensor, segment_ids: tf.Tensor) -> tf.Tensor:
        """Adds segments and positions.

        Where there is one kind of segment (type_vocab_size 1, as in RoBERTa), both texts of a pair are that.
        """
        x = words
        if self.token_type_embeddings is not None:
            types = self.token_type_embeddings.shape[0]
            if types == 1:
                segment_ids = tf.zeros_like(segment_ids)
            # A product, as in the original, which takes less time than a look-up in so small a table.
            segments = tf.one_hot(segment_ids, types)
            x += matrix_product(segments, self.token_type_embeddings)
        if self.position_embeddings is not None:
            x += self.position_embeddings[: shape_of(words)[1]]
        return x

    def call(self, input_ids: tf.Tensor, segment_ids: tf.Tensor, seeds: SeedStream | None) -> tf.Tensor:
        """int32 [B, L], int32 [B, L] -> float32 [B, L, E]."""
        return self.combine(self.lookup(input_ids), segment_ids, seeds)


class TransformerLayer(Layer):
    """Attention and feed-forward, each a residual branch: x = norm(x + branch(x)) where norm_style is "post" (BERT).

    "pre" is x = x + branch(norm(x)), and the encoder normalises its last layer (Xiong et al. 2020, "On Layer
    Normalization in the Transformer Architecture").

    Args:
      has_norm: whether attention has a norm.
    """

    def __init__(
        self,
        scope: str,
        architecture: Architecture,
        seed: int = 0,
        has_norm: bool = True,
        attention_class: type[SelfAttention] = SelfAttention,
        qkv_initializer: Initializer = zeros,
    ) -> None:
        super().__init__(scope, seed)
        a, hidden, inner = architecture, architecture.hidden_size, architecture.intermediate_size
        self.dropout_rate = a.hidden_dropout_prob
        self._is_pre_norm = a.norm_style == "pre"
        self.attention = attention_class(f"{scope}/attention", a, seed, qkv_initializer)
        self.attention_norm = LayerNorm(f"{scope}/attention/output/LayerNorm", hidden, a) if has_norm else None
        first_layer = GatedDense if a.gated_mlp else Dense
        name = f"{scope}/intermediate/{'gated' if a.gated_mlp else 'dense'}"
        initializer = truncated_normal(a.initializer_range)
        self.intermediate = first_layer(name, hidden, inner, initializer, seed, a.hidden_act, a.mlp_bias)
        to_residual = truncated_normal(a.residual_initializer_range)
        self.output_dense = Dense(f"{scope}/output/dense", inner, hidden, to_residual, seed, has_bias=a.mlp_bias)
        self.output_norm = LayerNorm(f"{scope}/output/LayerNorm", hidden, a)

    def call(
        self, x: tf.Tensor, context: AttentionContext, seeds: SeedStream | None, keeps_little: bool = False
    ) -> tf.Tensor:
        """[B, L, H] -> [B, L, H]; `keeps_little`, in one program: activations are computed again for the gradient."""
        y = self.attention(self._normed(x, self.attention_norm), context, seeds)
        x = self._added(x, y, self.attention.output_dense, self.attention_norm, seeds)
        y = self._normed(x, self.output_norm)
        if keeps_little:
            y = xla.feed_forward(self.intermediate, self.output_dense, y)
        else:
            y = self.output_dense.product(self.intermediate(y))
        return self._added(x, y, self.output_dense, self.output_norm, seeds)

    def _normed(self, x: tf.Tensor, norm: LayerNorm | None) -> tf.Tensor:
        if not self._is_pre_norm or norm is None:
            return x
        return norm(x)

    def _added(self, x: tf.Tensor, y: tf.Tensor, last: Dense, norm: Any, seeds: SeedStream | None) -> tf.Tensor:
        """Adds a branch y, whose last layer left out its bias, and normalises the sum where layers are post-norm."""
        seed, rate = seed_and_rate(seeds, self.dropout_rate)
        bias = last.bias_or_zeros
        if self._is_pre_norm:
            return layers.residual_sum(x, y, bias, seed, rate=rate)
        return layers.norm_of_sum(x, y, bias, norm.gamma, norm.beta_or_zeros, seed, rate=rate, epsilon=norm.epsilon)


class EncoderOutput(NamedTuple):
    """Results of an encoder, in its compute type.

    sequence: [B, L, H], the last layer's output, normalised where layers are pre-norm.
    embeddings: [B, L, H], the first layer's input.
    layers: every layer's output [B, L, H].
    """

    sequence: tf.Tensor
    embeddings: tf.Tensor
    layers: tuple[tf.Tensor, ...]


class Encoder(Layer):
    """A BERT-style encoder: int32 [B, L] ids to float [B, L, H] states.

    Args:
      scope: "electra", "generator", "generator_ltr", ...
      architecture: sizes; `embedding_size` must be that of `embeddings` where given.
      embeddings: a block to share (ELECTRA, section 3.2: weight sharing); None: an own one.
      direction: which keys a position may see; "both" but for the towers of a two-tower generator.
      compute_dtype: type of activations and matrix products.
      recompute: "layers": keep nothing of a layer but its input; "selective": nothing of pairs of positions, nor
        outputs of activations.

    >>> encoder = Encoder("electra", make_architecture("small", {"num_hidden_layers": 2, "hidden_size": 64}, 600, 32))
    >>> ids = tf.ones([2, 7], tf.int32)
    >>> encoder(ids, input_mask=tf.ones_like(ids), segment_ids=tf.zeros_like(ids)).sequence.shape
    TensorShape([2, 7, 64])
    """

    def __init__(
        self,
        scope: str,
        architecture: Architecture,
        embeddings: Embeddings | None = None,
        direction: Direction = "both",
        compute_dtype: str = "float32",
        seed: int = 0,
        recompute: str = "none",
    ) -> None:
        super().__init__(scope, seed)
        self.architecture = a = architecture
        self.direction = direction
        self._recompute = recompute
        self.activation_dtype = tf.as_dtype(compute_dtype)
        self.embeddings = embeddings or Embeddings(f"{scope}/embeddings", a, seed)
        self.project = None
        if a.embedding_size != a.hidden_size:
            name, has_bias = f"{scope}/embeddings_project", a.embedding_norm != "after"
            self.project = Dense(name, a.embedding_size, a.hidden_size, glorot_uniform, seed, has_bias=has_bias)
        self.embedding_norm = None
        if a.embedding_norm == "after":
            self.embedding_norm = LayerNorm(f"{scope}/embeddings_LayerNorm", a.hidden_size, a)
        self.relative_positions: Positions = a.positions.layer_class()(f"{scope}/encoder", a, seed)
        self._windows = tuple(a.window(number) for number in range(a.num_hidden_layers))
        self.transformer_layers: list[TransformerLayer] = make_layers(self._make_layer, a)
        self.final_norm = None
        if a.norm_style == "pre":
            self.final_norm = LayerNorm(f"{scope}/encoder/LayerNorm", a.hidden_size, a)

    @property
    def _tiled_sequences(self) -> TiledSequences:
        if any(layer.attention.on_whole_arrays for layer in self.transformer_layers):
            return "none"
        # Tiles keep nothing of pairs of positions, which is what `recompute` selective asks for.
        return "all" if self._recompute == "selective" else "long"

    def _make_layer(self, number: int) -> TransformerLayer:
        return TransformerLayer(
            f"{self.scope}/encoder/layer_{number}",
            self.architecture,
            self.seed,
            has_norm=self.architecture.first_norm or number > 0,
            attention_class=self.relative_positions.attention_class,
            qkv_initializer=self.relative_positions.qkv_initializer(self._windows[number] is not None),
        )

    def call(
        self, input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor, seeds: SeedStream | None = None
    ) -> EncoderOutput:
        """Encodes int32 [B, L] ids.

        Args:
          input_mask: int32 [B, L], 1 at real tokens.
          segment_ids: int32 [B, L].
          seeds: of the dropout; None switches it off.
        """
        return self.encode(self.embeddings(input_ids, segment_ids, seeds), input_mask, seeds)

    def encode(self, embedded: tf.Tensor, input_mask: tf.Tensor, seeds: SeedStream | None = None) -> EncoderOutput:
        """Encodes what `Embeddings.combine` returns, float32 [B, L, E]; other arguments are those of `call`."""
        x = tf.cast(embedded, self.activation_dtype)
        if self.project is not None:
            x = self.project(x)
        if self.embedding_norm is not None:
            x = dropout(self.embedding_norm(x), self.architecture.hidden_dropout_prob, seeds)
        embeddings = x
        outputs = []
        contexts: dict[int | None, AttentionContext] = {}  # layers with the same window share theirs
        for number, window in enumerate(self._windows):
            if window not in contexts:
                contexts[window] = make_context(
                    input_mask, self.relative_positions, self.direction, window, self._tiled_sequences
                )
            x = self.run_layer(number, x, contexts[window], seeds)
            outputs.append(x)
        sequence = x if self.final_norm is None else self.final_norm(x)
        return EncoderOutput(sequence, embeddings, tuple(outputs))

    def run_layer(self, number: int, x: tf.Tensor, context: AttentionContext, seeds: SeedStream | None) -> tf.Tensor:
        """Runs a layer, from 0: [B, L, H] -> [B, L, H]."""
        layer = self.transformer_layers[number]
        if self._recompute == "layers":
            return recomputed(layer, x, context, seeds)
        return layer(x, context, seeds, keeps_little=context.tiling is not None and are_one_program())
