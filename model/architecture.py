"""The sizes of one transformer encoder, free of TensorFlow.

Configuration code derives an `Architecture` for the main network and one for the generator; `model.encoder` builds
networks from it and `flops_computation` prices it.
"""

from typing import NamedTuple

HEAD_SIZE = 64  # the papers' head size in every model (ELECTRA, Table 6)


class Architecture(NamedTuple):
    """Sizes and regularisation of a BERT-style encoder (ELECTRA, Table 6)."""

    vocab_size: int
    embedding_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    hidden_act: str = "gelu"
    relative_positions: str = "none"
    relative_position_buckets: int = 32
    relative_position_max_distance: int = 128
    norm_style: str = "post"
    scaled_residual_init: bool = False

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @property
    def residual_initializer_range(self) -> float:
        """Standard deviation of the products that end a residual branch, which a network of n layers adds up 2n times
        (GPT-2, Radford et al. 2019, section 2.3)."""
        return self.initializer_range / (2 * self.num_hidden_layers) ** (0.5 if self.scaled_residual_init else 0.0)
