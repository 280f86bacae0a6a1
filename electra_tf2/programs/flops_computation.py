"""Prints what a pre-training run costs: parameters and floating-point operations of any recipe or configuration.

  python flops_computation.py                        a table of all recipes
  python flops_computation.py --recipe electra_base  one of them by part
  python flops_computation.py --hparams '{"max_seq_length": 512}' --tflops 100

Two rules of counting. "Original rule" is that of google-research/electra's script, by which the paper's FLOPs were
counted (`OriginalRule`). Everything else counts what a step does (pretrain.flops): matrix products alone,
2 per multiply-add, look-ups free, the masked-LM head at the masked positions only, backward twice the forward.
"""

from typing import NamedTuple

from absl import flags

from electra_tf2.config import flags as util_flags
from electra_tf2.config import recipes
from electra_tf2.config.hparams import all_hparams
from electra_tf2.configure_pretraining import GeneratorKind, PretrainingConfig
from electra_tf2.model.architecture import Architecture
from electra_tf2.model.flops import main_network_parameters
from electra_tf2.pretrain.flops import (
    model_parts,
    parameter_count,
    training_flops,
    training_flops_per_example,
    update_flops,
)
from electra_tf2.util.errors import UserError


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
        sizes = a.vocab_size, a.embedding_size, a.intermediate_size, a.num_attention_heads
        return OriginalRule(a.hidden_size, a.num_hidden_layers, config.max_seq_length, *sizes)

    size = config.train_batch_size, config.num_train_steps
    kind = config.generator_kind
    unknown = kind in (GeneratorKind.TWO_TOWERS, GeneratorKind.UNIFORM) or config.sequence_contrast_objective
    unknown = unknown or bool(config.further_parts())
    if unknown or (kind is not GeneratorKind.NONE and not config.electra_objective):
        return None
    if kind is GeneratorKind.NONE:
        return by_rule(config.architecture).training(*size)
    return _original_electra(by_rule(config.architecture), by_rule(config.generator_architecture), *size)


_WIDTH = 35  # of a recipe's name


def _show_tables(tflops: float) -> None:
    print("Training FLOPs by the original's rule")
    for name, flops in original_table().items():
        print(f"  {name:{_WIDTH}} {flops:10.3e}")
    print(f"\nRecipes ({tflops:g} TFLOP/s sustained)")
    print(
        f"  {'':{_WIDTH}} {'parameters':>12} {'main network':>13} {'GFLOP/example':>14} {'training FLOPs':>15} "
        f"{'original rule':>14} {'days':>8}"
    )
    for name in recipes.recipe_names():
        config = PretrainingConfig.from_dict({"model_name": name} | recipes.read_recipe(name))
        flops, original = training_flops(config), original_training_flops(config)
        print(
            f"  {name:{_WIDTH}} {parameter_count(config):12,} {main_network_parameters(config.architecture):13,} "
            f"{training_flops_per_example(config) / 1e9:14.2f} {flops:15.3e} "
            f"{'-' if original is None else f'{original:.3e}':>14} {_days(flops, tflops):8.3g}"
        )


def _show_config(config: PretrainingConfig, tflops: float) -> None:
    print(f"{config.model_name}: sequences of {config.max_seq_length} tokens, {config.train_batch_size} a step")
    print(f"  {'':26} {'parameters':>13} {'forward GFLOP':>14}")
    for part in model_parts(config):
        print(f"  {part.name:26} {part.parameters:13,} {part.forward_flops / 1e9:14.4f}")
    forward = sum(part.forward_flops for part in model_parts(config))
    print(f"  {'in all':26} {parameter_count(config):13,} {forward / 1e9:14.4f}")
    flops, original = training_flops(config), original_training_flops(config)
    print(f"training: {training_flops_per_example(config) / 1e9:.4f} GFLOP per example (backward is twice forward)")
    if config.optimizer == "muon":
        print(f"  muon: {update_flops(config) / 1e9:.4f} GFLOP per update")
    print(
        f"  {config.num_train_steps:,} steps: {flops:.4e} FLOPs, {_days(flops, tflops):.3g} days at {tflops:g} TFLOP/s"
    )
    if original is not None:
        print(f"  by the original's rule: {original:.4e} FLOPs")


def _days(flops: float, tflops: float) -> float:
    return flops / (tflops * 1e12) / 86400


def main() -> int:
    tflops = flags.FLAGS.tflops
    if tflops <= 0:
        raise UserError(f"--tflops must be above 0, got {tflops:g}")
    names = ["hparams", "recipe"] + [field.name for _, field in all_hparams(PretrainingConfig)]
    if any(flags.FLAGS[name].present for name in names):
        _show_config(util_flags.config_from_flags(PretrainingConfig), tflops)
    else:
        _show_tables(tflops)
    return 0


# What most configurations differ in: the flags that --help shows.
FIRST = (
    *("tflops", "hparams", "model_name", "recipe", "paper", "num_train_steps", "max_seq_length", "train_batch_size"),
    *("max_predictions_per_seq", "generator_layers", "generator_hidden_size", "model_size", "embedding_size"),
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
)


def command() -> None:
    flags.DEFINE_float("tflops", 50.0, "sustained rate for the column of days, in TFLOP/s")
    util_flags.define_hparam_flags(PretrainingConfig)
    util_flags.run(main, __doc__, first=FIRST)


if __name__ == "__main__":
    command()
