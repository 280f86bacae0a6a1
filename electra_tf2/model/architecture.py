"""Sizes and switches of one transformer encoder. Imports no TensorFlow.

A configuration derives an `Architecture` for the main network and one for the generator; `model.encoder` builds
networks from it, `model.costs` counts their parameters and FLOPs. Each field is an hparam and a flag at once.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from electra_tf2.config.hparams import hparam
from electra_tf2.model.position_schemes import SCHEMES, PositionScheme

HEAD_SIZE = 64  # in all models of the paper (ELECTRA, Table 6)
# model_size -> (layers, hidden size) (ELECTRA, Table 6).
MODEL_SIZES = {"small": (12, 256), "base": (12, 768), "large": (24, 1024)}
_REQUIRED = dataclasses.MISSING
# The hparam architecture -> the switches that it sets. ModernBERT is Warner et al. 2024; its initial values are those
# of the package transformers.
PRESETS: dict[str, dict[str, Any]] = {
    "bert": {},
    "modernbert": {
        "norm_style": "pre",
        "first_norm": False,
        "embedding_norm": "after",
        "norm_bias": False,
        "norm_eps": 1e-5,
        "attention_bias": False,
        "mlp_bias": False,
        "gated_mlp": True,
        "type_vocab_size": 0,
        "relative_positions": "rotary",
        "rope_theta": 160000.0,
        "local_rope_theta": 10000.0,
        "local_attention": 128,
        "global_attn_every_n_layers": 3,
        "head_style": "modernbert",
        "scaled_residual_init": True,
    },
}


@dataclasses.dataclass(frozen=True)
class Architecture:
    """Sizes and switches of a BERT-style encoder (ELECTRA, Table 6)."""

    vocab_size: int = hparam(_REQUIRED, "tokens in the vocabulary", at_least=1)
    embedding_size: int = hparam(_REQUIRED, "width of the embeddings", at_least=1)
    hidden_size: int = hparam(
        _REQUIRED,
        "width of the layers; default: model_size's",
        at_least=1,
        heading="Single entries of model_hparam_overrides",
    )
    num_hidden_layers: int = hparam(_REQUIRED, "number of layers; default: model_size's", at_least=1)
    num_attention_heads: int = hparam(_REQUIRED, f"attention heads; default: hidden_size / {HEAD_SIZE}", at_least=1)
    intermediate_size: int = hparam(
        _REQUIRED,
        "width inside a layer's feed-forward network; default: 4 hidden_size, with gated_mlp 2/3 of it",
        at_least=1,
    )
    architecture: str = hparam(
        "bert",
        "preset of the switches below, each of which may differ: bert: their defaults; modernbert: pre-norm, rotary, "
        "gated, local attention in two layers of three, no biases and no segments",
        choices=tuple(PRESETS),
    )
    hidden_dropout_prob: float = hparam(0.1, "dropout of embeddings and residual branches", at_least=0, below=1)
    attention_probs_dropout_prob: float = hparam(0.1, "dropout of the attention probabilities", at_least=0, below=1)
    max_position_embeddings: int = hparam(512, "positions that a model has embeddings or distances for", at_least=1)
    type_vocab_size: int = hparam(
        2, "number of segments that are told apart; 1: both texts of a pair are alike; 0: none", at_least=0
    )
    initializer_range: float = hparam(0.02, "standard deviation of initial kernels and embeddings", above=0)
    hidden_act: str = hparam(
        "gelu",
        "activation of feed-forward networks and heads",
        choices=("gelu", "relu", "tanh", "linear"),
    )
    relative_positions: str = hparam(
        "none",
        "how attention knows distances: none; t5, coco: a learned bias per bucket of distances; rotary: rotated "
        "queries and keys; xl: keys of distances (Transformer-XL); the last two replace the position embeddings",
        choices=tuple(SCHEMES),
    )
    rope_theta: float = hparam(10000.0, "base of rotary's angles: the longest wave is 2 pi times that", above=1)
    local_rope_theta: float | None = hparam(None, "likewise in local layers; null: rope_theta", above=1)
    local_attention: int = hparam(
        0, "tokens that a token sees in local layers, half of them on each side; 0: no layer is local", at_least=0
    )
    global_attn_every_n_layers: int = hparam(
        3, "with local_attention: layers 0, n, 2n, ... see all tokens, n being this number", at_least=1
    )
    relative_position_buckets: int = hparam(32, "buckets of distances of t5 and coco", at_least=4)
    relative_position_max_distance: int = hparam(128, "distance beyond which t5 and coco tell no two apart", at_least=1)
    relative_position_start: str = hparam(
        "random",
        "what the learned bias of t5 and coco starts from: random: initializer_range; local: heads that look to the "
        "left, to the right, to both sides and everywhere, which leaves the plateau of young models much earlier; with "
        "rotary, biases of queries and keys do so",
        choices=("random", "local"),
    )
    norm_style: str = hparam(
        "post",
        "where layer norms are: post: after each residual sum (BERT); pre: before each branch and after the last layer",
        choices=("post", "pre"),
    )
    first_norm: bool = hparam(True, "layer norm before the first layer's attention, where norm_style is pre")
    embedding_norm: str = hparam(
        "before",
        "layer norm of the embeddings: before their projection to hidden_size (ELECTRA); after it, which has no bias "
        "then (ModernBERT); none",
        choices=("before", "after", "none"),
    )
    norm_bias: bool = hparam(True, "layer norms add a bias")
    norm_eps: float = hparam(1e-12, "what layer norms add to the variance", above=0)
    attention_bias: bool = hparam(True, "dense layers of attention add a bias")
    mlp_bias: bool = hparam(True, "dense layers of feed-forward networks add a bias")
    head_style: str = hparam(
        "electra",
        "heads of pre-training and fine-tuning: electra: the paper's; modernbert: dense layer of hidden_size, "
        "activation and layer norm before every last layer, whose words are as wide as the states",
        choices=("electra", "modernbert"),
    )
    tie_word_embeddings: bool = hparam(True, "language models' last layer is the word table")
    gated_mlp: bool = hparam(
        False,
        "feed-forward networks multiply their activation by a second product of the same input (GLU; with gelu GeGLU)",
    )
    scaled_residual_init: bool = hparam(
        False, "initial kernels that end a residual branch are smaller by the root of the number of branches (GPT-2)"
    )
    share_layers: str = hparam(
        "none",
        "weights that layers have in common (ALBERT): none; all; attention; ffn: feed-forward networks",
        choices=("none", "all", "attention", "ffn"),
    )

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_attention_heads

    def shared_with(self, part: str) -> list[int]:
        """For each layer the index of the layer whose weights it uses for a part, "attention" or "ffn".

        That is the uppermost layer that uses these weights, because layer-wise learning rates go by a layer's height.
        """
        layers = self.num_hidden_layers
        if self.share_layers in ("all", part):
            return [layers - 1] * layers
        return list(range(layers))

    @property
    def starts_locally(self) -> bool:
        return self.relative_position_start == "local"

    def window(self, layer: int) -> int | None:
        """Distance of the farthest token that the layer of this index, from 0, sees; None: it sees all."""
        is_global = layer % self.global_attn_every_n_layers == 0
        if not self.local_attention or is_global:
            return None
        return self.local_attention // 2

    @property
    def positions(self) -> PositionScheme:
        """The scheme of relative_positions."""
        return SCHEMES[self.relative_positions]

    @property
    def residual_initializer_range(self) -> float:
        """Standard deviation of initial kernels that end a residual branch.

        With scaled_residual_init they are smaller, since n layers add up 2n branches (GPT-2, Radford et al. 2019,
        section 2.3).
        """
        if not self.scaled_residual_init:
            return self.initializer_range
        branches = 2 * self.num_hidden_layers
        return self.initializer_range / branches**0.5

    def problems(self) -> list[str]:
        """Lists what is wrong with the combination of sizes."""
        problems = []
        if not self.first_norm and self.norm_style != "pre":
            problems.append(f"first_norm false needs norm_style pre, got {self.norm_style}")
        if self.hidden_size % self.num_attention_heads:
            problems.append(
                f"hidden size {self.hidden_size} is not divisible by its {self.num_attention_heads} heads: "
                "set num_attention_heads in model_hparam_overrides"
            )
        if self.local_attention and not self.positions.has_windows:
            able = ", ".join(name for name, scheme in SCHEMES.items() if scheme.has_windows)
            problems.append(
                f"local_attention does not work with relative_positions {self.relative_positions}: choose one of {able}"
            )
        if self.starts_locally and not self.positions.starts_locally:
            able = ", ".join(name for name, scheme in SCHEMES.items() if scheme.starts_locally)
            problems.append(
                f"relative_position_start local needs one of relative_positions {able}, got {self.relative_positions}"
            )
        problems += self.positions.problems(self)
        return problems

    def length_problems(self, length: int) -> list[str]:
        """Lists why sequences of this length are too long for the network."""
        if not self.positions.limited or length <= self.max_position_embeddings:
            return []
        return [
            f"max_seq_length {length} exceeds {self.max_position_embeddings} position embeddings: "
            "raise max_position_embeddings in model_hparam_overrides"
        ]


def inner_width(hidden_size: int, gated: bool) -> int:
    """Usual width inside a feed-forward network: 4 hidden sizes (BERT); gated, with three kernels instead of two, 2/3
    of that (Shazeer 2020, "GLU Variants Improve Transformer", section 3), rounded up to a multiple of 16.
    """
    if not gated:
        return 4 * hidden_size
    return -(-8 * hidden_size // 48) * 16


def make_architecture(
    model_size: str,
    overrides: Mapping[str, Any],
    vocab_size: int,
    embedding_size: int | None,
) -> Architecture:
    """Makes an architecture of a named size; heads and feed-forward width follow the hidden size unless overridden."""
    layers, hidden = MODEL_SIZES[model_size]
    sizes: dict[str, Any] = {"num_hidden_layers": layers, "hidden_size": hidden}
    sizes |= PRESETS.get(overrides.get("architecture", "bert"), {})
    sizes |= overrides
    hidden = sizes["hidden_size"]
    sizes.setdefault("num_attention_heads", max(1, hidden // HEAD_SIZE))
    sizes.setdefault("intermediate_size", inner_width(hidden, sizes.get("gated_mlp", False)))
    return Architecture(vocab_size=vocab_size, embedding_size=embedding_size or hidden, **sizes)
