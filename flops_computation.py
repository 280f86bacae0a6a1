"""What a pre-training run costs: parameters and floating-point operations of any recipe or configuration.

  python flops_computation.py                              the original's table, and every recipe
  python flops_computation.py --recipe electra_base        one configuration, part by part
  python flops_computation.py --hparams '{"max_seq_length": 512}' --tflops 100

Two rules of counting. `original_*` is that of google-research/electra's script, by which the paper's FLOPs were
counted: look-ups as products with one-hot vectors, backward as dear as forward, its small slips included. Everything
else counts what a step does: matrix products alone (2 per multiply-add), look-ups free, the masked-LM head at the
masked positions only, backward twice the forward. Imports no TensorFlow; run_pretraining prints the figures at start.
"""

import dataclasses
from typing import NamedTuple

from absl import flags

from configure_pretraining import PretrainingConfig
from model.architecture import Architecture
from util import flags as util_flags
from util.errors import UserError
from util.hparams import all_hparams

_WIDTH = 35  # of a recipe's name


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


def model_parts(config: PretrainingConfig) -> list[Part]:
    """The parts of a step, in the order in which it runs them; shared parameters are counted once, where first used."""
    main, generator = config.architecture, config.generator_architecture
    length, masked = config.max_seq_length, config.max_predictions_per_seq
    embeddings = Part("embeddings", _embedding_parameters(main), 0)
    if not config.trains_main_network:
        return [embeddings, _encoder("main network", main, length), _masked_lm_head(main, masked)]

    own_tables = 0
    if config.untied_generator_embeddings:
        own_tables = _embedding_parameters(generator)
    elif config.generator_sample_mode == "zero_dropout":  # all but the word table
        own_tables = _embedding_parameters(dataclasses.replace(generator, vocab_size=0))
    main_network = _encoder("main network", main, length)
    if config.uniform_generator:
        parts = []
    elif not config.untied_generator:
        parts = [main_network._replace(name="generator"), _masked_lm_head(main, masked)]
        main_network = main_network._replace(parameters=0)
    elif config.two_tower_generator:  # with embeddings of their own, each tower has its tables
        towers = [f"generator, {direction}" for direction in ("left to right", "right to left")]
        parts = [_encoder(tower, generator, length, own_tables) for tower in towers]
        parts.append(_language_model_head("cloze head", 2 * generator.hidden_size, generator, length))
    else:
        trained = not config.freeze_generator
        parts = [_encoder("generator", generator, length, own_tables), _masked_lm_head(generator, masked)]
        parts = [part._replace(backward=trained) for part in parts]
        if config.generator_sample_mode == "eval":
            again = sum(part.forward_flops for part in parts)
            states = sum(part.states for part in parts)
            parts.append(Part("generator, sampled without dropout", 0, again, states, backward=False))
    return [embeddings, *parts, main_network, *_objective_parts(config)]


def _objective_parts(config: PretrainingConfig) -> list[Part]:
    """Heads and further passes of the main network's objectives."""
    main, length, masked = config.architecture, config.max_seq_length, config.max_predictions_per_seq
    parts = []
    if config.electra_objective or config.electric_objective:
        parts.append(_detection_head(main, length))
    if config.adversarial_generator:
        width = config.generator_architecture.hidden_size
        parts.append(Part("generator's baseline", width + 1, 2 * masked * width, masked))
    if config.corrective_lm_objective or config.all_tokens_mlm_objective:
        parts.append(Part("copy head", main.hidden_size + 1, 2 * length * main.hidden_size, length))
    if config.corrective_lm_objective or config.replace_mlm_objective:
        parts.append(_main_language_model_head(config, masked))
    if config.all_tokens_mlm_objective:  # its logits are computed a second time for the gradient
        head = _main_language_model_head(config, length)
        again = head._replace(name="language-model head, recomputed", parameters=0, backward=False)
        parts += [head, again]
    if config.sequence_contrast_objective:
        parts.append(_encoder("main network on crops", main, config.crop_length)._replace(parameters=0))
        if config.scl_head == "mlp_ln":
            square = main.hidden_size * main.hidden_size
            parts.append(Part("contrast head", square + 3 * main.hidden_size, 2 * 2 * square, 2 * main.hidden_size))
    return parts


def _main_language_model_head(config: PretrainingConfig, positions: int) -> Part:
    a = config.architecture
    if config.clm_head == "tied":
        flops = 2 * positions * a.hidden_size * a.vocab_size
        return Part("language-model head", a.vocab_size, flops, positions * a.vocab_size)
    return _language_model_head("language-model head", a.hidden_size, a, positions)


def parameter_count(config: PretrainingConfig) -> int:
    """Trained parameters of generator, main network and heads."""
    return sum(part.parameters for part in model_parts(config))


def main_network_parameters(architecture: Architecture) -> int:
    """Parameters of the network that is kept after pre-training, without heads (the paper's model sizes)."""
    return _embedding_parameters(architecture) + _encoder("", architecture, 1).parameters


def training_flops_per_example(config: PretrainingConfig) -> int:
    """FLOPs of forward and backward pass on one sequence."""
    return sum(part.training_flops for part in model_parts(config))


def least_bytes_per_step(config: PretrainingConfig) -> int:
    """Bytes that a step moves to and from memory when all element-wise work is part of a matrix product.

    Of every parameter: two readings in the type of the products, its gradient written and read, itself and Adam's two
    moments read and written in float32. Of every state: written and read in the forward pass; in the backward pass
    read again, and its gradient written and read.
    """
    number = 4 if config.precision == "float32" else 2
    states = sum(part.states * (5 if part.backward else 2) for part in model_parts(config))
    return parameter_count(config) * (2 * number + 2 * 4 + 6 * 4) + config.train_batch_size * states * number


def training_flops(config: PretrainingConfig) -> int:
    """FLOPs of the whole run."""
    return config.num_train_steps * config.train_batch_size * training_flops_per_example(config)


def _embedding_parameters(a: Architecture) -> int:
    """Word, position and segment tables and their layer norm."""
    positions = a.max_position_embeddings if a.positions.embedded else 0
    return (a.vocab_size + positions + a.type_vocab_size + 2) * a.embedding_size


def _encoder(name: str, a: Architecture, length: int, embedding_parameters: int = 0) -> Part:
    """Projection of the embeddings, and the layers."""
    hidden, inner = a.hidden_size, a.intermediate_size
    layer_kernels = 4 * hidden * hidden + 2 * hidden * inner
    layer_vectors = 4 * hidden + (inner + hidden) + 4 * hidden  # biases of attention and feed-forward, two layer norms
    projects = a.embedding_size != hidden
    projection = a.embedding_size * hidden if projects else 0
    attention = 2 * length * length * hidden  # multiply-adds of scores and of the weighted average
    return Part(
        name,
        embedding_parameters
        + projection
        + (hidden if projects else 0)
        + a.num_hidden_layers * (layer_kernels + layer_vectors)
        + (a.relative_position_buckets * a.num_attention_heads if a.positions.bucket is not None else 0)
        + (2 * hidden if a.norm_style == "pre" else 0),
        2 * (length * projection + a.num_hidden_layers * (length * layer_kernels + attention))
        + a.num_hidden_layers * a.num_attention_heads * a.positions.score_flops(a.head_size, length),
        length * ((hidden if projects else 0) + a.num_hidden_layers * (6 * hidden + inner)),
    )


def _language_model_head(name: str, input_size: int, a: Architecture, positions: int) -> Part:
    """dense, layer norm and a softmax over the vocabulary whose matrix is the word table."""
    size = a.embedding_size
    parameters = input_size * size + size + 2 * size + a.vocab_size
    flops = 2 * positions * (input_size * size + size * a.vocab_size)
    return Part(name, parameters, flops, positions * (size + a.vocab_size))


def _masked_lm_head(a: Architecture, positions: int) -> Part:
    return _language_model_head("masked-LM head", a.hidden_size, a, positions)


def _detection_head(a: Architecture, length: int) -> Part:
    hidden = a.hidden_size
    flops = 2 * length * (hidden * hidden + hidden)
    return Part("detection head", hidden * hidden + hidden + hidden + 1, flops, length * (hidden + 1))


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
    """FLOPs of the run by the original's rule; None for what it has no rule for (two towers, COCO-LM, ...)."""

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
    if unknown or (config.trains_main_network and not config.electra_objective):
        return None
    if not config.electra_objective:
        return by_rule(config.architecture).training(*size)
    return _original_electra(by_rule(config.architecture), by_rule(config.generator_architecture), *size)


def _show_tables(tflops: float) -> None:
    print("Training FLOPs by the original's rule")
    for name, flops in original_table().items():
        print(f"  {name:{_WIDTH}} {flops:10.3e}")
    print(f"\nRecipes ({tflops:g} TFLOP/s sustained)")
    print(
        f"  {'':{_WIDTH}} {'parameters':>12} {'main network':>13} {'GFLOP/example':>14} {'training FLOPs':>15} "
        f"{'original rule':>14} {'days':>8}"
    )
    for name in util_flags.recipe_names():
        config = PretrainingConfig.from_dict({"model_name": name} | util_flags.read_recipe(name))
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
    print(
        f"  {config.num_train_steps:,} steps: {flops:.4e} FLOPs, {_days(flops, tflops):.3g} days at {tflops:g} TFLOP/s"
    )
    step, moved = config.train_batch_size * training_flops_per_example(config), least_bytes_per_step(config)
    print(f"  a step: {step / 1e9:,.0f} GFLOP; at least {moved / 1e9:.2f} GB moved, {step / moved:.0f} FLOPs a byte")
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


if __name__ == "__main__":
    flags.DEFINE_float("tflops", 50.0, "sustained rate for the column of days, in TFLOP/s")
    util_flags.define_hparam_flags(PretrainingConfig)
    util_flags.run(main, __doc__)
