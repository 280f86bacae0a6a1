"""Costs of a network's parts, parameters and floating-point operations, by the sizes alone; free of TensorFlow.

Counted is what a step does: matrix products alone (2 per multiply-add), look-ups free, backward twice the forward.
"""

from typing import NamedTuple

from electra_tf2.model.architecture import Architecture


class Part(NamedTuple):
    """One part of a model.

    forward_flops: of its forward pass on one example.
    states: numbers that its matrix products write in the forward pass of one example, scores of attention excepted.
    backward: whether there is a backward pass.
    """

    name: str
    parameters: int
    forward_flops: int
    states: int = 0
    backward: bool = True

    @property
    def training_flops(self) -> int:
        return (3 if self.backward else 1) * self.forward_flops


def embedding_parameters(a: Architecture) -> int:
    """Word, position and segment tables and their layer norm."""
    positions = a.max_position_embeddings if a.positions.embedded else 0
    return (a.vocab_size + positions + a.type_vocab_size + 2) * a.embedding_size


def encoder(name: str, a: Architecture, length: int, embedding_parameters: int = 0) -> Part:
    """Projection of the embeddings, and the layers, over sequences of `length` tokens."""
    hidden, inner, heads = a.hidden_size, a.intermediate_size, a.num_attention_heads
    layer_kernels = 4 * hidden * hidden + 2 * hidden * inner
    # Biases of attention and feed-forward, a layer norm each; shared parts are counted once.
    attention_parameters = 4 * hidden * hidden + 4 * hidden + 2 * hidden
    ffn_parameters = 2 * hidden * inner + (inner + hidden) + 2 * hidden
    projects = a.embedding_size != hidden
    projection = a.embedding_size * hidden if projects else 0
    attention = 2 * (2 * length * length * hidden)  # scores and weighted average
    attention += heads * a.positions.score_flops(a.head_size, length)
    if a.positions.distances is not None:  # a kernel for keys of distances, whose product is one for the whole batch
        attention_parameters += hidden * hidden
    terms = 2 * hidden if a.positions.distances is not None else 0
    buckets = a.relative_position_buckets * heads if a.positions.bucket is not None else 0
    last_norm = 2 * hidden if a.norm_style == "pre" else 0
    return Part(
        name,
        parameters=embedding_parameters
        + projection
        + (hidden if projects else 0)
        + len(set(a.shared_with("attention"))) * attention_parameters
        + len(set(a.shared_with("ffn"))) * ffn_parameters
        + buckets
        + terms
        + last_norm,
        forward_flops=2 * length * projection + a.num_hidden_layers * (2 * length * layer_kernels + attention),
        states=length * ((hidden if projects else 0) + a.num_hidden_layers * (6 * hidden + inner)),
    )


def newton_schulz(a: Architecture, steps: int) -> int:
    """FLOPs by which Muon (training.muon) makes the momenta of an encoder's kernels orthogonal, once an update."""

    def of_matrix(shorter: int, longer: int) -> int:
        return steps * 2 * (2 * shorter**2 * longer + shorter**3)

    hidden = a.hidden_size
    squares = 5 if a.positions.distances is not None else 4
    feed_forward = of_matrix(*sorted((hidden, a.intermediate_size)))
    layers = len(set(a.shared_with("attention"))), len(set(a.shared_with("ffn")))
    return layers[0] * squares * of_matrix(hidden, hidden) + layers[1] * 2 * feed_forward


def language_model_head(name: str, input_size: int, a: Architecture, positions: int) -> Part:
    """dense, layer norm and a softmax over the vocabulary whose matrix is the word table."""
    size = a.embedding_size
    parameters = input_size * size + size + 2 * size + a.vocab_size
    flops = 2 * positions * (input_size * size + size * a.vocab_size)
    return Part(name, parameters, flops, positions * (size + a.vocab_size))


def token_unit(name: str, a: Architecture, length: int) -> Part:
    """One linear unit over the states of every token."""
    return Part(name, a.hidden_size + 1, 2 * length * a.hidden_size, length)


def pooled_classes(name: str, a: Architecture, classes: int) -> Part:
    """dense and linear layer on the [CLS] state."""
    hidden = a.hidden_size
    kernels = hidden * hidden + hidden * classes
    return Part(name, kernels + hidden + classes, 2 * kernels, hidden + classes)


def state_classes(name: str, a: Architecture, positions: int, classes: int, input_size: int | None = None) -> Part:
    """dense, layer norm and linear layer on each of some states."""
    hidden = a.hidden_size
    kernels = (input_size or hidden) * hidden + hidden * classes
    return Part(name, kernels + 3 * hidden + classes, 2 * positions * kernels, positions * (hidden + classes))


def main_network_parameters(a: Architecture) -> int:
    """Parameters of the main network, without heads (the papers' model sizes)."""
    return encoder("", a, 1, embedding_parameters(a)).parameters
