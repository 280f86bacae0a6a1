"""Costs of a network's parts, from its sizes alone: parameters and floating-point operations. Imports no TensorFlow.

FLOPs are those of matrix products, 2 for a multiplication with addition; a backward pass costs two forward passes.
"""

from typing import NamedTuple

from electra_tf2.model.architecture import Architecture


class Part(NamedTuple):
    """One part of a model.

    name: for tables.
    parameters: how many trained numbers it has.
    forward_flops: of the forward pass on one example.
    backward: whether there is a backward pass.
    """

    name: str
    parameters: int
    forward_flops: int
    backward: bool = True

    @property
    def training_flops(self) -> int:
        if not self.backward:
            return self.forward_flops
        return 3 * self.forward_flops


def embedding_parameters(a: Architecture) -> int:
    """Counts the parameters of word, position and segment tables and their layer norm."""
    rows = a.vocab_size + a.type_vocab_size
    if a.positions.embedded:
        rows += a.max_position_embeddings
    parameters = rows * a.embedding_size
    if a.embedding_norm == "before":
        parameters += norm_parameters(a, a.embedding_size)
    return parameters


def norm_parameters(a: Architecture, size: int) -> int:
    """Counts the parameters of a layer norm over vectors of this size."""
    return (1 + a.norm_bias) * size


def encoder(name: str, a: Architecture, length: int, embedding_parameters: int = 0) -> Part:
    """Costs of the projection of the embeddings and of all layers, on sequences of `length` tokens."""
    hidden = a.hidden_size
    norm = norm_parameters(a, hidden)
    attention_kernels = 4 * hidden * hidden
    ffn_inputs = 2 if a.gated_mlp else 1  # how many products take a feed-forward network's input
    ffn_kernels = (ffn_inputs + 1) * hidden * a.intermediate_size

    projection = 0
    if a.embedding_size != hidden:
        projection = a.embedding_size * hidden

    # A layer: attention and feed-forward network, each with kernels, biases and a layer norm.
    attention_parameters = attention_kernels + 4 * hidden * a.attention_bias + norm
    for rows, columns in a.positions.layer_kernels(a):
        attention_parameters += rows * columns
    ffn_parameters = ffn_kernels + (ffn_inputs * a.intermediate_size + hidden) * a.mlp_bias + norm

    # Parts that layers share are counted once.
    attentions = set(a.shared_with("attention"))
    ffns = set(a.shared_with("ffn"))
    parameters = embedding_parameters + projection + a.positions.parameters(a)
    parameters += len(attentions) * attention_parameters + len(ffns) * ffn_parameters
    if not a.first_norm and 0 in attentions:
        parameters -= norm
    if a.embedding_norm == "after":
        parameters += norm
    elif projection:
        parameters += hidden  # its bias
    if a.norm_style == "pre":
        parameters += norm  # after the last layer

    # Scores and weighted average of all pairs of positions; local layers only mask those that are too far.
    pairs_flops = 2 * (2 * length * length * hidden) + a.positions.score_flops(a, length)
    layer_flops = 2 * length * (attention_kernels + ffn_kernels) + pairs_flops
    return Part(name, parameters, forward_flops=2 * length * projection + a.num_hidden_layers * layer_flops)


def newton_schulz(a: Architecture, steps: int) -> int:
    """FLOPs of one update by Muon (training.muon), which makes the momenta of an encoder's kernels orthogonal."""

    def matrix_flops(rows: int, columns: int) -> int:
        shorter = min(rows, columns)
        longer = max(rows, columns)
        return steps * 2 * (2 * shorter**2 * longer + shorter**3)

    attention = 4 * matrix_flops(a.hidden_size, a.hidden_size)
    for rows, columns in a.positions.layer_kernels(a):
        attention += matrix_flops(rows, columns)
    ffn_kernels = 3 if a.gated_mlp else 2
    feed_forward = ffn_kernels * matrix_flops(a.hidden_size, a.intermediate_size)
    attentions = set(a.shared_with("attention"))
    ffns = set(a.shared_with("ffn"))
    return len(attentions) * attention + len(ffns) * feed_forward


def language_model_head(name: str, input_size: int, a: Architecture, positions: int) -> Part:
    """Costs of dense layer, layer norm and a softmax over the vocabulary, with the word table or a table of its own."""
    size = a.embedding_size  # of the dense layer
    if a.head_style == "modernbert":
        size = a.hidden_size
    width = table_width(a)
    dense = input_size * size
    projection = 0
    if size != width:
        projection = size * width  # its parameters are counted with the embeddings
    parameters = dense + size + norm_parameters(a, size) + a.vocab_size
    if not a.tie_word_embeddings:
        parameters += a.vocab_size * width
    flops = 2 * positions * (dense + projection + width * a.vocab_size)
    return Part(name, parameters, flops)


def table_width(a: Architecture) -> int:
    """Width of the table that a language model's softmax multiplies by."""
    if a.head_style == "modernbert" and not a.tie_word_embeddings:
        return a.hidden_size
    return a.embedding_size


def token_unit(name: str, a: Architecture, length: int) -> Part:
    """Costs of one linear unit over the states of every token."""
    return Part(name, a.hidden_size + 1, 2 * length * a.hidden_size)


def contrast_head(name: str, a: Architecture) -> Part:
    """Costs of coco_lm_heads.ContrastHead on [CLS] of both views of an example."""
    square = a.hidden_size**2
    return Part(name, square + 3 * a.hidden_size, 2 * 2 * square)


def main_network_parameters(a: Architecture) -> int:
    """Counts the parameters of the main network without heads, as the papers give model sizes."""
    return encoder("", a, 1, embedding_parameters(a)).parameters
