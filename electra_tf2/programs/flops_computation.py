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
from electra_tf2.model.costs import main_network_parameters
from electra_tf2.pretrain.flops import (
    model_parts,
    parameter_count,
    training_flops,
    training_flops_per_example,
    update_flops,
)
from electra_tf2.pretrain.implied_hparams import implied_hparams
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
        """Forward FLOPs of one layer on one token."""
        hidden = self.hidden
        length = self.length
        width = self.attention_width or hidden
        heads = self.heads or max(hidden // 64, 1)
        inner = self.inner or 4 * hidden

        attention = 6 * hidden * width + 3 * width  # query, key, value and their biases
        attention += 2 * width * length + 10 * length * heads  # scores; scale, softmax and dropout
        # Slips of the original, without which its figures would not come out: the next two should be of the heads'
        # width, and the layer norm lacks a factor `hidden`.
        attention += 2 * hidden * length + 2 * hidden * hidden
        attention += 6 * hidden + 5  # bias, dropout, residual sum; layer norm
        if self.decoder:
            attention *= 2
        feed_forward = 4 * hidden * inner + 9 * inner + 11 * hidden
        return attention + feed_forward

    def embeddings(self) -> int:
        """Forward FLOPs of the input on one token."""
        embedding = self.embedding or self.hidden
        flops = 2 * embedding * self.vocab  # a product with one-hot vectors
        flops += 2 * embedding * (self.length + 2)  # the same for positions and segments
        flops += 11 * embedding
        if embedding != self.hidden:
            flops += 2 * self.hidden * embedding + self.hidden
        return flops

    def softmax(self) -> float:
        """Forward FLOPs of the language-model head, per token of the input."""
        embedding = self.embedding or self.hidden
        transform = 2 * self.hidden * embedding + 14 * embedding
        logits = 2 * embedding * self.vocab + 7 * self.vocab
        return self.output_share * (transform + logits)

    def detection(self) -> int:
        """Forward FLOPs of the replaced-token head on one token."""
        return 2 * self.hidden * self.hidden + 11 * self.hidden

    def training(self, batch_size: int, steps: float, detects: bool = False) -> float:
        """FLOPs of a run: forward and, counted the same, backward."""
        head = self.detection() if detects else self.softmax()
        forward_per_token = self.layers * self.layer() + self.embeddings() + head
        return 2 * batch_size * steps * self.length * forward_per_token


def _original_electra(main: OriginalRule, generator: OriginalRule, batch_size: int, steps: float) -> float:
    return main.training(batch_size, steps, detects=True) + generator.training(batch_size, steps)


def original_table() -> dict[str, float]:
    """Training FLOPs of the models that the original's script lists, by its rule."""
    rule = OriginalRule
    small = rule(256, 12, 128, embedding=128)
    base = rule(768, 12)
    large = rule(1024, 24)
    small_generator = rule(64, 12, 128, embedding=128)
    base_generator = rule(256, 12, embedding=768)
    large_generator = rule(256, 24, embedding=1024)
    gpt = rule(768, 12, vocab=40000, output_share=1.0)
    albert = rule(4096, 12, vocab=30000, embedding=128)
    t5_encoder = rule(1024, 24, vocab=32000, inner=65536, heads=128, attention_width=128 * 128, output_share=0.0)
    t5_decoder = t5_encoder._replace(output_share=1.0, decoder=True)
    return {
        # ELMo and XLNet: counted by TensorFlow, forward, for a batch of 20 x 128 words and one of 32 sequences.
        "elmo": 2 * 10 * 768648884 * 568093262680 / (20 * 128),
        "xlnet": 2 * 500000 * 8192 * 15064773691518 / 32,
        "gpt": gpt.training(128, 960800),
        "bert_small": small.training(128, 1.45e6),
        "bert_base": base.training(256, 1e6),
        "bert_large": large.training(256, 1e6),
        "electra_small": _original_electra(small, small_generator, 128, 1e6),
        "electra_base": _original_electra(base, base_generator, 256, 766000),
        "electra_400k": _original_electra(large, large_generator, 2048, 400000),
        "electra_1.75M": _original_electra(large, large_generator, 2048, 1750000),
        "roberta": large._replace(vocab=50265).training(8000, 500000),
        "albert": albert.training(4096, 1.5e6),
        "t5_11b": t5_encoder.training(2048, 1e6) + t5_decoder.training(2048, 1e6),
    }


def original_training_flops(config: PretrainingConfig) -> float | None:
    """FLOPs of the run by the original's rule; None where it has no rule (two towers, contrast, a paper, ...)."""
    if config.generator_kind in (GeneratorKind.TWO_TOWERS, GeneratorKind.UNIFORM):
        return None
    if config.sequence_contrast_objective or config.further_parts():
        return None
    main = _by_original_rule(config.architecture, config.max_seq_length)
    if config.electra_objective:
        generator = _by_original_rule(config.generator_architecture, config.max_seq_length)
        return _original_electra(main, generator, config.train_batch_size, config.num_train_steps)
    if config.generator_kind is GeneratorKind.NONE:  # BERT
        return main.training(config.train_batch_size, config.num_train_steps)
    return None


def _by_original_rule(network: Architecture, length: int) -> OriginalRule:
    return OriginalRule(
        network.hidden_size,
        network.num_hidden_layers,
        length,
        network.vocab_size,
        network.embedding_size,
        network.intermediate_size,
        network.num_attention_heads,
    )


def main() -> int:
    tflops = flags.FLAGS.tflops
    if tflops <= 0:
        raise UserError(f"--tflops must be above 0, got {tflops:g}")
    names = ["hparams", "recipe"] + [field.name for _, field in all_hparams(PretrainingConfig)]
    if any(flags.FLAGS[name].present for name in names):
        _show_config(util_flags.config_from_flags(PretrainingConfig, implied_by=implied_hparams), tflops)
    else:
        _show_original_table()
        _show_recipes(tflops)
    return 0


_WIDTH = 35  # of a recipe's name


def _show_original_table() -> None:
    print("Training FLOPs by the original's rule")
    for name, flops in original_table().items():
        print(f"  {name:{_WIDTH}} {flops:10.3e}")


def _show_recipes(tflops: float) -> None:
    print(f"\nRecipes ({tflops:g} TFLOP/s sustained)")
    print(
        f"  {'':{_WIDTH}} {'parameters':>12} {'main network':>13} {'GFLOP/example':>14} {'training FLOPs':>15} "
        f"{'original rule':>14} {'days':>8}"
    )
    for name in recipes.recipe_names():
        config = PretrainingConfig.from_dict({"model_name": name} | recipes.read_recipe(name))
        flops = training_flops(config)
        original = original_training_flops(config)
        by_original_rule = "-" if original is None else f"{original:.3e}"
        print(
            f"  {name:{_WIDTH}} {parameter_count(config):12,} {main_network_parameters(config.architecture):13,} "
            f"{training_flops_per_example(config) / 1e9:14.2f} {flops:15.3e} "
            f"{by_original_rule:>14} {_days(flops, tflops):8.3g}"
        )


def _show_config(config: PretrainingConfig, tflops: float) -> None:
    print(f"{config.model_name}: sequences of {config.max_seq_length} tokens, {config.train_batch_size} a step")
    print(f"  {'':26} {'parameters':>13} {'forward GFLOP':>14}")
    for part in model_parts(config):
        print(f"  {part.name:26} {part.parameters:13,} {part.forward_flops / 1e9:14.4f}")
    forward = sum(part.forward_flops for part in model_parts(config))
    print(f"  {'in all':26} {parameter_count(config):13,} {forward / 1e9:14.4f}")

    flops = training_flops(config)
    days = _days(flops, tflops)
    print(f"training: {training_flops_per_example(config) / 1e9:.4f} GFLOP per example (backward is twice forward)")
    if config.optimizer == "muon":
        print(f"  muon: {update_flops(config) / 1e9:.4f} GFLOP per update")
    print(f"  {config.num_train_steps:,} steps: {flops:.4e} FLOPs, {days:.3g} days at {tflops:g} TFLOP/s")
    original = original_training_flops(config)
    if original is not None:
        print(f"  by the original's rule: {original:.4e} FLOPs")


def _days(flops: float, tflops: float) -> float:
    return flops / (tflops * 1e12) / 86400


# Flags of what most configurations differ in: --help shows these, --help all the others, too.
_FIRST = """
    tflops hparams model_name recipe paper num_train_steps max_seq_length train_batch_size max_predictions_per_seq
    generator_layers generator_hidden_size model_size embedding_size vocab_size hidden_size num_hidden_layers
    num_attention_heads intermediate_size
"""
FIRST = tuple(_FIRST.split())


def command() -> None:
    flags.DEFINE_float("tflops", 50.0, "sustained rate for the column of days, in TFLOP/s")
    util_flags.define_hparam_flags(PretrainingConfig)
    util_flags.run(main, __doc__, first=FIRST)


if __name__ == "__main__":
    command()
