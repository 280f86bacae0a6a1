"""The transformer encoder: embeddings of size E, a projection to H, post-norm or pre-norm layers.

Main network, generator and both towers of a two-tower generator are of this class. B batch, L length, E embedding, H
hidden.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from electra_tf2.model.architecture import Architecture
from electra_tf2.model.attention import AttentionContext, Positions, SelfAttention, make_context
from electra_tf2.model.embeddings import Embeddings
from electra_tf2.model.gated import GatedDense
from electra_tf2.model.initializers import Initializer, glorot_uniform, truncated_normal, zeros
from electra_tf2.model.kernels import xla
from electra_tf2.model.kernels.compilation import keeping_little, keeps_little
from electra_tf2.model.kernels.positions import Direction
from electra_tf2.model.layers import Dense, LayerNorm, SeedStream, SizedLayer, dropout, residual_sum, seed_and_rate
from electra_tf2.model.recomputation import recomputed


class TransformerLayer(SizedLayer):
    """Attention and feed-forward, each a residual branch: x = norm(x + branch(x)) where norm_style is "post" (BERT).

    "pre" is x = x + branch(norm(x)), and the encoder normalises its last layer (Xiong et al. 2020, "On Layer
    Normalization in the Transformer Architecture").

    >>> sizes = make_architecture("small", {"hidden_size": 64}, 600, None)
    >>> context = make_context(tf.ones([2, 7], tf.int32), Positions("encoder", sizes))
    >>> TransformerLayer("layer", sizes)(tf.zeros([2, 7, 64]), context, None).shape
    TensorShape([2, 7, 64])

    Args:
      attention_of, ffn_of: layers whose attention or feed-forward network, with its norm, is used instead of an own
        one (ALBERT, Lan et al. 2020, section 3.1).
      has_norm: whether attention has a norm.
    """

    def __init__(
        self,
        scope: str,
        architecture: Architecture,
        seed: int = 0,
        attention_of: "TransformerLayer | None" = None,
        ffn_of: "TransformerLayer | None" = None,
        has_norm: bool = True,
        attention_class: type[SelfAttention] = SelfAttention,
        qkv_initializer: Initializer = zeros,
    ) -> None:
        super().__init__(scope, architecture, seed)
        a, hidden, inner = architecture, architecture.hidden_size, architecture.intermediate_size
        self.dropout_rate = a.hidden_dropout_prob
        self._is_pre_norm = a.norm_style == "pre"
        self.attention_norm: LayerNorm | None = None
        if attention_of is not None:
            self.attention: SelfAttention = attention_of.attention
            self.attention_norm = attention_of.attention_norm if has_norm else None
        else:
            self.attention = attention_class(f"{scope}/attention", a, seed, qkv_initializer)
            if has_norm:
                self.attention_norm = LayerNorm(f"{scope}/attention/output/LayerNorm", hidden, a)
        if ffn_of is not None:
            self.intermediate: Dense = ffn_of.intermediate
            self.output_dense: Dense = ffn_of.output_dense
            self.output_norm: LayerNorm = ffn_of.output_norm
        else:
            first, name = (GatedDense, "gated") if a.gated_mlp else (Dense, "dense")
            initializer = truncated_normal(a.initializer_range)
            to_residual = truncated_normal(a.residual_initializer_range)
            self.intermediate = first(
                f"{scope}/intermediate/{name}", hidden, inner, initializer, seed, a.hidden_act, a.mlp_bias
            )
            self.output_dense = Dense(f"{scope}/output/dense", inner, hidden, to_residual, seed, has_bias=a.mlp_bias)
            self.output_norm = LayerNorm(f"{scope}/output/LayerNorm", hidden, a)

    def call(self, x: tf.Tensor, context: AttentionContext, seeds: SeedStream | None) -> tf.Tensor:
        """[B, L, H] -> [B, L, H]."""

        def attend(x: tf.Tensor) -> tf.Tensor:
            return self.attention(x, context, seeds)

        def feed_forward(x: tf.Tensor) -> tf.Tensor:
            if keeps_little():
                return xla.feed_forward(self.intermediate, self.output_dense, x)
            return self.output_dense.product(self.intermediate(x))

        x = self._residual(x, attend, self.attention.output_dense, self.attention_norm, seeds)
        return self._residual(x, feed_forward, self.output_dense, self.output_norm, seeds)

    def _residual(
        self,
        x: tf.Tensor,
        branch: Callable[[tf.Tensor], tf.Tensor],
        last: Dense,
        norm: LayerNorm | None,
        seeds: SeedStream | None,
    ) -> tf.Tensor:
        """Adds a residual branch. The bias of its last layer, which `branch` leaves out, is added here."""
        y = branch(norm(x) if self._is_pre_norm and norm is not None else x)
        seed, rate = seed_and_rate(seeds, self.dropout_rate)
        if self._is_pre_norm:
            return residual_sum(x, y, last.bias_or_zeros, seed, rate=rate)
        assert norm is not None
        return norm.of_sum(x, y, last.bias_or_zeros, seed, rate)


class EncoderOutput(NamedTuple):
    """Results of an encoder, in its compute type.

    sequence: [B, L, H], the last layer's output, normalised where layers are pre-norm.
    embeddings: [B, L, H], the first layer's input.
    layers: every layer's output [B, L, H].
    """

    sequence: tf.Tensor
    embeddings: tf.Tensor
    layers: tuple[tf.Tensor, ...]


class Encoder(SizedLayer):
    """A BERT-style encoder: int32 [B, L] ids to float [B, L, H] states.

    >>> encoder = Encoder("electra", make_architecture("small", {"num_hidden_layers": 2, "hidden_size": 64}, 600, 32))
    >>> ids = tf.ones([2, 7], tf.int32)
    >>> encoder(ids, input_mask=tf.ones_like(ids), segment_ids=tf.zeros_like(ids)).sequence.shape
    TensorShape([2, 7, 64])

    Args:
      scope: "electra", "generator", "generator_ltr", ...
      architecture: sizes; `embedding_size` must be that of `embeddings` where given.
      embeddings: a block to share (ELECTRA, section 3.2: weight sharing); None: an own one.
      direction: which keys a position may see; "both" but for the towers of a two-tower generator.
      compute_dtype: type of activations and matrix products.
      recompute: "layers": keep nothing of a layer but its input; "selective": nothing of pairs of positions, nor
        outputs of activations.
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
        super().__init__(scope, architecture, seed)
        a = architecture
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
        self.transformer_layers = self._make_layers()
        self._windows = tuple(architecture.window(number) for number in range(architecture.num_hidden_layers))
        self.final_norm = None
        if a.norm_style == "pre":
            self.final_norm = LayerNorm(f"{scope}/encoder/LayerNorm", a.hidden_size, a)

    @property
    def attention_class(self) -> type[SelfAttention]:
        """Class of the layers' attention, the position scheme's."""
        return self.relative_positions.attention_class

    def _make_layers(self) -> list[TransformerLayer]:
        """Makes layers from the uppermost down: weights that layers share are named by the uppermost of them."""
        a = self.architecture
        layers: dict[int, TransformerLayer] = {}
        shared = zip(a.shared_with("attention"), a.shared_with("ffn"), strict=True)
        for number, (attention_of, ffn_of) in reversed(list(enumerate(shared))):
            layers[number] = TransformerLayer(
                f"{self.scope}/encoder/layer_{number}",
                a,
                self.seed,
                layers.get(attention_of),
                layers.get(ffn_of),
                has_norm=a.first_norm or number > 0,
                attention_class=self.attention_class,
                qkv_initializer=self.relative_positions.qkv_initializer(a.window(number) is not None),
            )
        return [layers[number] for number in range(a.num_hidden_layers)]

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
        embeddings, outputs = x, []
        contexts = {window: self._context(input_mask, window) for window in dict.fromkeys(self._windows)}
        for number, window in enumerate(self._windows):
            x = self.run_layer(number, x, contexts[window], seeds)
            outputs.append(x)
        sequence = x if self.final_norm is None else self.final_norm(x)
        return EncoderOutput(sequence, embeddings, tuple(outputs))

    def _context(self, input_mask: tf.Tensor, window: int | None) -> AttentionContext:
        whole, selective = self.attention_class.on_whole_arrays, self._recompute == "selective"
        return make_context(input_mask, self.relative_positions, self.direction, window, whole, always_tiled=selective)

    def run_layer(self, number: int, x: tf.Tensor, context: AttentionContext, seeds: SeedStream | None) -> tf.Tensor:
        """Runs a layer, from 0: [B, L, H] -> [B, L, H]."""
        layer = self.transformer_layers[number]
        if self.recomputes(number):
            return recomputed(layer, x, context, seeds)
        with keeping_little(context.tiling is not None):
            return layer(x, context, seeds)

    def recomputes(self, number: int) -> bool:
        """Tells whether a layer, from 0, is computed again for its gradient (`recomputed`)."""
        del number
        return self._recompute == "layers"
