"""Costs of a network's parts, parameters and floating-point operations, by the sizes alone; free of TensorFlow.

Counted is what a step does: matrix products alone (2 per multiply-add), look-ups free, backward twice the forward.
"""

from typing import NamedTuple

from electra_tf2.model.architecture import Architecture


class Part(NamedTuple):
    """One part of a model.

    forward_flops: of its forward pass on one example.
    backward: whether there is a backward pass.
    """

    name: str
    parameters: int
    forward_flops: int
    backward: bool = True

    @property
    def training_flops(self) -> int:
        return (3 if self.backward else 1) * self.forward_flops


def embedding_parameters(a: Architecture) -> int:
    """Word, position and segment tables and their layer norm."""
    positions = a.max_position_embeddings if a.positions.embedded else 0
    norm = norm_parameters(a, a.embedding_size) if a.embedding_norm == "before" else 0
    return (a.vocab_size + positions + a.type_vocab_size) * a.embedding_size + norm


def norm_parameters(a: Architecture, size: int) -> int:
    """A layer norm over so many numbers."""
    return (1 + a.norm_bias) * size


def encoder(name: str, a: Architecture, length: int, embedding_parameters: int = 0) -> Part:
    """Projection of the embeddings, and the layers, over sequences of `length` tokens."""
    hidden, inner = a.hidden_size, a.intermediate_size
    inputs = 2 if a.gated_mlp else 1  # products of a feed-forward network's input
    ffn_kernels, norm = (inputs + 1) * hidden * inner, norm_parameters(a, hidden)
    layer_kernels = 4 * hidden * hidden + ffn_kernels
    # Biases of attention and feed-forward, a layer norm each; shared parts are counted once.
    attention_parameters = 4 * hidden * hidden + 4 * hidden * a.attention_bias + norm
    ffn_parameters = ffn_kernels + (inputs * inner + hidden) * a.mlp_bias + norm
    shared = set(a.shared_with("attention"))
    no_norm = norm if not a.first_norm and 0 in shared else 0
    projects = a.embedding_size != hidden
    projection = a.embedding_size * hidden if projects else 0
    after_projection = norm if a.embedding_norm == "after" else hidden if projects else 0
    attention = a.num_hidden_layers * a.positions.score_flops(a, length)
    # Scores and weighted average, in local layers, too, which mask what is too far.
    attention += a.num_hidden_layers * 2 * (2 * length * length * hidden)
    attention_parameters += sum(rows * columns for rows, columns in a.positions.layer_kernels(a))
    last_norm = norm if a.norm_style == "pre" else 0
    return Part(
        name,
        parameters=embedding_parameters
        + projection
        + after_projection
        + len(shared) * attention_parameters
        - no_norm
        + len(set(a.shared_with("ffn"))) * ffn_parameters
        + a.positions.parameters(a)
        + last_norm,
        forward_flops=2 * length * projection + a.num_hidden_layers * 2 * length * layer_kernels + attention,
    )


def newton_schulz(a: Architecture, steps: int) -> int:
    """FLOPs by which Muon (training.muon) makes the momenta of an encoder's kernels orthogonal, once an update."""

    def of_matrix(*shape: int) -> int:
        shorter, longer = sorted(shape)
        return steps * 2 * (2 * shorter**2 * longer + shorter**3)

    hidden, inner = a.hidden_size, a.intermediate_size
    attention = 4 * of_matrix(hidden, hidden) + sum(of_matrix(*shape) for shape in a.positions.layer_kernels(a))
    feed_forward = (3 if a.gated_mlp else 2) * of_matrix(hidden, inner)
    return len(set(a.shared_with("attention"))) * attention + len(set(a.shared_with("ffn"))) * feed_forward


def language_model_head(name: str, input_size: int, a: Architecture, positions: int) -> Part:
    """dense, layer norm and a softmax over the vocabulary whose matrix is the word table, or the head's own."""
    wide = a.head_style == "modernbert"
    size, width = a.hidden_size if wide else a.embedding_size, table_width(a)
    projection = size * width if size != width else 0  # of the embeddings, whose parameters are theirs
    parameters = input_size * size + size + norm_parameters(a, size) + a.vocab_size
    parameters += 0 if a.tie_word_embeddings else a.vocab_size * width
    flops = 2 * positions * (input_size * size + projection + width * a.vocab_size)
    return Part(name, parameters, flops)


def table_width(a: Architecture) -> int:
    """Width of the matrix that ends a language model."""
    return a.hidden_size if a.head_style == "modernbert" and not a.tie_word_embeddings else a.embedding_size


def token_unit(name: str, a: Architecture, length: int) -> Part:
    """One linear unit over the states of every token."""
    return Part(name, a.hidden_size + 1, 2 * length * a.hidden_size)


def contrast_head(name: str, a: Architecture) -> Part:
    """heads.ContrastHead on [CLS] of both views of an example."""
    square = a.hidden_size**2
    return Part(name, square + 3 * a.hidden_size, 2 * 2 * square)


def main_network_parameters(a: Architecture) -> int:
    """Parameters of the main network, without heads (the papers' model sizes)."""
    return encoder("", a, 1, embedding_parameters(a)).parameters
