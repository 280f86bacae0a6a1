"""The transformer encoder: embeddings of size E, a projection to H, post-norm or pre-norm layers.

`Encoder` is made of `Embeddings` and `TransformerLayer`s. Main network, generator and both towers of a two-tower
generator are encoders, which may share embeddings.

Shapes: B batch, L length, V vocabulary, E embedding, H hidden.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from electra_tf2.model import layers
from electra_tf2.model.architecture import Architecture
from electra_tf2.model.attention import AttentionContext, SelfAttention, TiledSequences, make_context
from electra_tf2.model.gated import GatedDense
from electra_tf2.model.initializers import Initializer, glorot_uniform, truncated_normal, zeros
from electra_tf2.model.kernels.feed_forward import recomputed_feed_forward
from electra_tf2.model.kernels.positions import Direction
from electra_tf2.model.kernels.products import matrix_product
from electra_tf2.model.kernels.switch import are_one_program
from electra_tf2.model.layers import Dense, Layer, LayerNorm, SeedStream, dropout, seed_and_rate, shape_of
from electra_tf2.model.position_layers import POSITION_LAYERS
from electra_tf2.model.recomputation import recomputed
from electra_tf2.model.sharing import make_layers


class Embeddings(Layer):
    """Word + position + segment embeddings, with layer norm and dropout (BERT, section 3).

    Args:
      words: other embeddings whose word table is used; None: a new table.

    >>> block = Embeddings("embeddings", make_architecture("small", {"hidden_size": 64}, 600, 32))
    >>> block(tf.ones([2, 7], tf.int32), tf.zeros([2, 7], tf.int32), None).shape
    TensorShape([2, 7, 32])
    """

    def __init__(
        self,
        scope: str,
        architecture: Architecture,
        seed: int = 0,
        words: "Embeddings | None" = None,
    ) -> None:
        super().__init__(scope, seed)
        a = architecture
        size = a.embedding_size
        initializer = truncated_normal(a.initializer_range)
        self.dropout_rate = a.hidden_dropout_prob
        # Norm and dropout then follow the projection, which is the encoder's.
        self._encoder_normalises = a.embedding_norm == "after"
        self._words = words
        if words is None:
            self._own_words = self.weight("word_embeddings", [a.vocab_size, size], initializer)
        self.token_type_embeddings = None
        if a.type_vocab_size:
            self.token_type_embeddings = self.weight("token_type_embeddings", [a.type_vocab_size, size], initializer)
        self.position_embeddings = None
        if a.positions.embedded:
            shape = [a.max_position_embeddings, size]
            self.position_embeddings = self.weight("position_embeddings", shape, initializer)
        self.layer_norm = None
        if a.embedding_norm == "before":
            self.layer_norm = LayerNorm(f"{scope}/LayerNorm", size, a)

    @property
    def word_embeddings(self) -> tf.Tensor:
        """float32 [V, E]."""
        if self._words is not None:
            return self._words.word_embeddings
        return self._own_words

    def lookup(self, input_ids: tf.Tensor) -> tf.Tensor:
        """int32 [B, L] -> float32 [B, L, E], rows of the word table."""
        return tf.gather(self.word_embeddings, input_ids)

    def combine(self, words: tf.Tensor, segment_ids: tf.Tensor, seeds: SeedStream | None) -> tf.Tensor:
        """Adds segments and positions, then norm and dropout: float32 [B, L, E] and int32 [B, L] -> float32 [B, L, E].

        With embedding_norm "after" it returns the sum: the encoder normalises it after the projection.
        """
        x = self.summed(words, segment_ids)
        if self._encoder_normalises:
            return x
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        return dropout(x, self.dropout_rate, seeds)

    def summed(self, words: tf.Tensor, segment_ids: tf.Tensor) -> tf.Tensor:
        """Adds segment and position embeddings to word embeddings: float32 [B, L, E], int32 [B, L] -> [B, L, E]."""
        x = words
        if self.token_type_embeddings is not None:
            types = self.token_type_embeddings.shape[0]
            if types == 1:
                # RoBERTa: both texts of a pair are of the one type.
                segment_ids = tf.zeros_like(segment_ids)
            # A product, as in the original: faster than a look-up in so small a table.
            one_hot = tf.one_hot(segment_ids, types)  # [B, L, types]
            x += matrix_product(one_hot, self.token_type_embeddings)
        if self.position_embeddings is not None:
            length = shape_of(words)[1]
            x += self.position_embeddings[:length]  # [L, E]
        return x

    def call(self, input_ids: tf.Tensor, segment_ids: tf.Tensor, seeds: SeedStream | None) -> tf.Tensor:
        """int32 [B, L], int32 [B, L] -> float32 [B, L, E]."""
        return self.combine(self.lookup(input_ids), segment_ids, seeds)


class TransformerLayer(Layer):
    """Attention and feed-forward network, each a residual branch.

    norm_style "post" is x = norm(x + branch(x)), as in BERT. "pre" is x = x + branch(norm(x)), and the encoder
    normalises the last layer's output (Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture").

    Args:
      has_norm: whether attention has a norm; False in the first layer where first_norm is false.
      attention_class: the attention that the position scheme needs.
      qkv_initializer: initial bias of queries, keys and values.
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
        self.architecture = a = architecture
        hidden = a.hidden_size
        inner = a.intermediate_size
        self.dropout_rate = a.hidden_dropout_prob
        self._is_pre_norm = a.norm_style == "pre"
        self.attention = attention_class(f"{scope}/attention", a, seed, qkv_initializer)
        self.attention_norm = None
        if has_norm:
            self.attention_norm = LayerNorm(f"{scope}/attention/output/LayerNorm", hidden, a)
        self.intermediate = self._make_intermediate()
        residual_initializer = truncated_normal(a.residual_initializer_range)
        self.output_dense = Dense(
            f"{scope}/output/dense", inner, hidden, residual_initializer, seed, has_bias=a.mlp_bias
        )
        self.output_norm = LayerNorm(f"{scope}/output/LayerNorm", hidden, a)

    def _make_intermediate(self) -> Dense:
        """Makes the first dense layer of the feed-forward network, with its activation."""
        a = self.architecture
        initializer = truncated_normal(a.initializer_range)
        sizes = (a.hidden_size, a.intermediate_size)
        if a.gated_mlp:
            name = f"{self.scope}/intermediate/gated"
            return GatedDense(name, *sizes, initializer, self.seed, a.hidden_act, a.mlp_bias)
        name = f"{self.scope}/intermediate/dense"
        return Dense(name, *sizes, initializer, self.seed, a.hidden_act, a.mlp_bias)

    def call(
        self,
        x: tf.Tensor,
        context: AttentionContext,
        seeds: SeedStream | None,
        recompute_feed_forward: bool = False,
    ) -> tf.Tensor:
        """[B, L, H] -> [B, L, H].

        Args:
          recompute_feed_forward: keep no activation of the feed-forward network; the gradient computes them again. In
            programs of whole steps alone.
        """
        # Both branches return their output without the last bias, which `_added` adds.
        branch = self.attention(self._branch_input(x, self.attention_norm), context, seeds)
        x = self._added(x, branch, self.attention.output_dense, self.attention_norm, seeds)

        branch_input = self._branch_input(x, self.output_norm)
        if recompute_feed_forward:
            branch = recomputed_feed_forward(self.intermediate, self.output_dense, branch_input)
        else:
            inner = self.intermediate(branch_input)  # [B, L, 4H]
            branch = self.output_dense.product(inner)  # [B, L, H]
        return self._added(x, branch, self.output_dense, self.output_norm, seeds)

    def _branch_input(self, x: tf.Tensor, norm: LayerNorm | None) -> tf.Tensor:
        """Input of a branch: x, or norm(x) where layers are pre-norm."""
        if not self._is_pre_norm or norm is None:
            return x
        return norm(x)

    def _added(
        self,
        x: tf.Tensor,
        branch: tf.Tensor,
        last_dense: Dense,
        norm: Any,
        seeds: SeedStream | None,
    ) -> tf.Tensor:
        """x + dropout(branch + bias of its last layer), normalised where layers are post-norm."""
        seed, rate = seed_and_rate(seeds, self.dropout_rate)
        bias = last_dense.bias_or_zeros
        if self._is_pre_norm:
            return layers.residual_sum(x, branch, bias, seed, rate=rate)
        return layers.norm_of_sum(
            x, branch, bias, norm.gamma, norm.beta_or_zeros, seed, rate=rate, epsilon=norm.epsilon
        )


class EncoderOutput(NamedTuple):
    """Results of an encoder, in the compute type.

    sequence: [B, L, H], the last layer's output, normalised where layers are pre-norm.
    embeddings: [B, L, H], the first layer's input.
    layers: every layer's output [B, L, H].
    """

    sequence: tf.Tensor
    embeddings: tf.Tensor
    layers: tuple[tf.Tensor, ...]


class Encoder(Layer):
    """A BERT-style encoder: int32 [B, L] ids to [B, L, H] states.

    Args:
      scope: prefix of variable names: "electra", "generator", "generator_ltr", ...
      architecture: sizes; its embedding_size must be that of shared `embeddings`.
      embeddings: shared with another encoder (ELECTRA, section 3.2, weight sharing); None: new ones.
      direction: which keys a position may see: "both" except in the towers of a two-tower generator.
      compute_dtype: type of activations and matrix products.
      recompute: what the gradient computes again, to save memory. "layers": whole layers, of which only the inputs are
        kept; "selective": scores and probabilities of attention, and outputs of activations.

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
            name = f"{scope}/embeddings_project"
            has_bias = a.embedding_norm != "after"
            self.project = Dense(name, a.embedding_size, a.hidden_size, glorot_uniform, seed, has_bias=has_bias)
        self.embedding_norm = None
        if a.embedding_norm == "after":
            self.embedding_norm = LayerNorm(f"{scope}/embeddings_LayerNorm", a.hidden_size, a)
        make_positions = POSITION_LAYERS[a.relative_positions]
        self.relative_positions = make_positions(f"{scope}/encoder", a, seed)
        self._windows = tuple(a.window(layer) for layer in range(a.num_hidden_layers))
        self.transformer_layers: list[TransformerLayer] = make_layers(self._make_layer, a)
        self.final_norm = None
        if a.norm_style == "pre":
            self.final_norm = LayerNorm(f"{scope}/encoder/LayerNorm", a.hidden_size, a)

    @property
    def _tiled_sequences(self) -> TiledSequences:
        if any(layer.attention.on_whole_arrays for layer in self.transformer_layers):
            return "none"
        if self._recompute == "selective":
            return "all"  # tiles keep neither scores nor probabilities
        return "long"

    def _make_layer(self, index: int) -> TransformerLayer:
        is_local = self._windows[index] is not None
        return TransformerLayer(
            f"{self.scope}/encoder/layer_{index}",
            self.architecture,
            self.seed,
            has_norm=self.architecture.first_norm or index > 0,
            attention_class=self.relative_positions.attention_class,
            qkv_initializer=self.relative_positions.qkv_initializer(is_local),
        )

    def call(
        self,
        input_ids: tf.Tensor,
        input_mask: tf.Tensor,
        segment_ids: tf.Tensor,
        seeds: SeedStream | None = None,
    ) -> EncoderOutput:
        """Encodes token ids.

        Args:
          input_ids: int32 [B, L].
          input_mask: int32 [B, L], 1 at real tokens.
          segment_ids: int32 [B, L].
          seeds: of the dropout; None switches it off.
        """
        embedded = self.embeddings(input_ids, segment_ids, seeds)  # [B, L, E]
        return self.encode(embedded, input_mask, seeds)

    def encode(self, embedded: tf.Tensor, input_mask: tf.Tensor, seeds: SeedStream | None = None) -> EncoderOutput:
        """Encodes embeddings, float32 [B, L, E] from `Embeddings.combine`; other arguments as of `call`."""
        x = tf.cast(embedded, self.activation_dtype)
        if self.project is not None:
            x = self.project(x)  # [B, L, H]
        if self.embedding_norm is not None:
            x = dropout(self.embedding_norm(x), self.architecture.hidden_dropout_prob, seeds)
        embeddings = x
        outputs = []
        contexts: dict[int | None, AttentionContext] = {}  # one for all layers with the same window
        for index, window in enumerate(self._windows):
            if window not in contexts:
                contexts[window] = make_context(
                    input_mask, self.relative_positions, self.direction, window, self._tiled_sequences
                )
            x = self.run_layer(index, x, contexts[window], seeds)  # [B, L, H]
            outputs.append(x)
        if self.final_norm is not None:
            x = self.final_norm(x)
        return EncoderOutput(x, embeddings, tuple(outputs))

    def run_layer(self, index: int, x: tf.Tensor, context: AttentionContext, seeds: SeedStream | None) -> tf.Tensor:
        """Runs the layer of this index, from 0: [B, L, H] -> [B, L, H]."""
        layer = self.transformer_layers[index]
        if self._recompute == "layers":
            return recomputed(layer, x, context, seeds)
        # Where sequences are long enough for attention in tiles, memory matters more than time.
        recompute_feed_forward = context.tiling is not None and are_one_program()
        return layer(x, context, seeds, recompute_feed_forward=recompute_feed_forward)
