"""FLOPs by the rule of google-research/electra's script, by which the paper's figures were counted.

Look-ups are products with one-hot vectors, the backward pass is as dear as the forward one, and its small slips are
included: without them its figures would not come out.
"""

from typing import NamedTuple

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.architecture import Architecture


class OriginalRule(NamedTuple):
    """A transformer as the original's script counts it, with that script's defaults.

    output_share: share of positions that get a softmax over the vocabulary; 0.15625 (80 of 512) for every model.
    attention_width: summed width of the heads, where it is not the hidden size (T5).
    decoder: attends to an encoder too.
    """

    hidden: int
    layers: int
    length: int = 512
    vocab: int = 30522
    embedding: int | None = None
    inner: int | None = None
    heads: int | None = None
    attention_width: int | None = None
    output_share: float = 0.15625
    decoder: bool = False

    def layer(self) -> int:
        """Forward FLOPs of one layer on one token.

        The last term of attention, its layer norm, lacks a factor `hidden`, and `2 * h * s` and `2 * h * h` would be
        of the heads' width: slips of the original, without which its figures would not come out.
        """
        h, s = self.hidden, self.length
        width, inner = self.attention_width or h, self.inner or 4 * h
        heads = self.heads or max(h // 64, 1)
        attention = 6 * h * width + 3 * width + 2 * width * s + 10 * s * heads + 2 * h * s + 2 * h * h + 6 * h + 5
        feed_forward = 4 * h * inner + 9 * inner + 11 * h
        return attention * (2 if self.decoder else 1) + feed_forward

    def embeddings(self) -> int:
        """Forward FLOPs of the input on one token."""
        e = self.embedding or self.hidden
        projection = 2 * self.hidden * e + self.hidden if e != self.hidden else 0
        return 2 * e * self.vocab + 2 * e * (self.length + 2) + 11 * e + projection

    def softmax(self) -> float:
        """Forward FLOPs of the language-model head, per token of the input."""
        e = self.embedding or self.hidden
        return self.output_share * (2 * e * self.vocab + 2 * self.hidden * e + 14 * e + 7 * self.vocab)

    def detection(self) -> int:
        """Forward FLOPs of the replaced-token head on one token."""
        return 2 * self.hidden * self.hidden + 11 * self.hidden

    def training(self, batch_size: int, steps: float, detects: bool = False) -> float:
        """FLOPs of a run: forward and, as dear, backward."""
        head = self.detection() if detects else self.softmax()
        return 2 * batch_size * steps * self.length * (self.layers * self.layer() + self.embeddings() + head)


def _original_electra(main: OriginalRule, generator: OriginalRule, batch_size: int, steps: float) -> float:
    return main.training(batch_size, steps, detects=True) + generator.training(batch_size, steps)


def original_table() -> dict[str, float]:
    """Training FLOPs of the models that the original's script lists, by its rule."""
    rule = OriginalRule
    small, base, large = rule(256, 12, 128, embedding=128), rule(768, 12), rule(1024, 24)
    t5_encoder = rule(1024, 24, vocab=32000, inner=65536, heads=128, attention_width=128 * 128, output_share=0.0)
    large_generator = rule(256, 24, embedding=1024)
    return {
        # ELMo and XLNet: counted by TensorFlow, forward, for a batch of 20 x 128 words and one of 32 sequences.
        "elmo": 2 * 10 * 768648884 * 568093262680 / (20 * 128),
        "xlnet": 2 * 500000 * 8192 * 15064773691518 / 32,
        "gpt": rule(768, 12, vocab=40000, output_share=1.0).training(128, 960800),
        "bert_small": small.training(128, 1.45e6),
        "bert_base": base.training(256, 1e6),
        "bert_large": large.training(256, 1e6),
        "electra_small": _original_electra(small, rule(64, 12, 128, embedding=128), 128, 1e6),
        "electra_base": _original_electra(base, rule(256, 12, embedding=768), 256, 766000),
        "electra_400k": _original_electra(large, large_generator, 2048, 400000),
        "electra_1.75M": _original_electra(large, large_generator, 2048, 1750000),
        "roberta": large._replace(vocab=50265).training(8000, 500000),
        "albert": rule(4096, 12, vocab=30000, embedding=128).training(4096, 1.5e6),
        "t5_11b": t5_encoder.training(2048, 1e6)
        + t5_encoder._replace(output_share=1.0, decoder=True).training(2048, 1e6),
    }


def original_training_flops(config: PretrainingConfig) -> float | None:
    """FLOPs of the run by the original's rule; None for what it has no rule for (two towers, contrast, ...)."""

    def by_rule(a: Architecture) -> OriginalRule:
        return OriginalRule(
            a.hidden_size,
            a.num_hidden_layers,
            config.max_seq_length,
            a.vocab_size,
            a.embedding_size,
            a.intermediate_size,
            a.num_attention_heads,
        )

    size = config.train_batch_size, config.num_train_steps
    unknown = config.two_tower_generator or config.uniform_generator or config.sequence_contrast_objective
    unknown = unknown or bool(config.generator_exits)
    if unknown or (config.trains_main_network and not config.electra_objective):
        return None
    if not config.electra_objective:
        return by_rule(config.architecture).training(*size)
    return _original_electra(by_rule(config.architecture), by_rule(config.generator_architecture), *size)
