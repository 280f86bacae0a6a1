"""Hparams of pre-training beside its objectives: groups, each with the checks of its combinations.

Every objective's hparams inherit `PretrainingHparams` (pretrain.objectives), so what an objective reads has a type;
configure_pretraining.PretrainingConfig is all of them together. Imports no TensorFlow.
"""

import dataclasses
import math
import os
from collections.abc import Iterator
from typing import Any

from electra_tf2.model.architecture import HEAD_SIZE, Architecture, inner_width
from electra_tf2.pretrain.masking_units import UNITS
from electra_tf2.training.hparams import DeviceHparams, NetworkHparams, OptimizerHparams
from electra_tf2.util.hparams import free_hparam, hparam


@dataclasses.dataclass(frozen=True)
class MaskingHparams(NetworkHparams):
    """Tokens of a sequence that are masked."""

    max_seq_length: int = hparam(128, "tokens of a record", at_least=5, heading="Sequences and masking")
    max_predictions_per_seq: int = hparam(0, "masked tokens, at most; 0: (mask_prob + 0.005) * length", at_least=0)
    mask_prob: float = hparam(0.15, "share of a sequence's tokens that is masked", above=0, below=1)
    mask_sampling: str = hparam(
        "with_replacement",
        "how the positions to mask are drawn; the original draws with replacement, so about 7 % of them twice",
        choices=("with_replacement", "without_replacement"),
    )
    mask_count: str = hparam(
        "round",
        "number of masked tokens of a sequence: mask_prob x length, round: rounded, or probabilistic: up or down at "
        "random to that mean",
        choices=("round", "probabilistic"),
    )
    mask_unit: str = hparam(
        "token",
        "what is masked as a whole: a token, a word with all its pieces, a span of words (SpanBERT), an n-gram of "
        "electra build-table (PMI-masking)",
        choices=tuple(UNITS),
    )
    unmasked_tokens: list[str] = hparam(
        [], "tokens that are never masked: those that mark sources (electra build-data --domain-tokens)"
    )
    mask_separators: bool = hparam(False, "whether [SEP] may be masked")
    mask_rates: list[float] = hparam(
        [0.85, 0.15, 0.0],
        "shares of the drawn tokens that become [MASK], stay, become random ones (the paper's BERT: 0.8, 0.1, 0.1)",
    )
    initial_mask_prob: float | None = hparam(None, "mask_prob at first (ramp_start); null: mask_prob", above=0, below=1)

    @property
    def default_predictions(self) -> int:
        """max_predictions_per_seq where it is not given: as many as mask_prob makes."""
        densest = max(self.mask_prob, self.initial_mask_prob or 0)
        if self.mask_count == "round":
            return int((densest + 0.005) * self.max_seq_length)
        return int(densest * self.max_seq_length) + 1

    def masking_problems(self) -> Iterator[str]:
        """Says why no sequence can be masked so."""
        if not all(isinstance(token, str) for token in self.unmasked_tokens):
            yield f"unmasked_tokens must be tokens of the vocabulary, got {self.unmasked_tokens!r}"
        if not 1 <= self.max_predictions_per_seq <= self.max_seq_length:
            yield (
                f"max_predictions_per_seq is {self.max_predictions_per_seq}; mask_prob {self.mask_prob:g} of "
                f"{self.max_seq_length} tokens must come to between 1 and max_seq_length"
            )
        rates = self.mask_rates
        numbers = all(type(rate) in (int, float) and 0 <= rate <= 1 for rate in rates)
        if len(rates) != 3 or not numbers or not math.isclose(sum(rates), 1, abs_tol=1e-6):
            yield f"mask_rates must be three shares that add up to 1 ([MASK], kept, random), got {rates!r}"
        if self.mask_unit != "token" and self.mask_sampling != "without_replacement":
            yield f"mask_unit {self.mask_unit} needs mask_sampling without_replacement: a unit is masked once"


@dataclasses.dataclass(frozen=True)
class GeneratorHparams(MaskingHparams):
    """The source of replacements."""

    gen_weight: float = hparam(1.0, "weight of the generator's loss", at_least=0, heading="Generator")
    uniform_generator: bool = hparam(False, "replacements are uniform draws; no generator is trained")
    two_tower_generator: bool = hparam(False, "the generator is two causal towers over the unmasked input")
    untied_generator: bool = hparam(True, "the generator has a network of its own; false: it is the main network")
    untied_generator_embeddings: bool = hparam(False, "the generator has embeddings of its own")
    embedding_sharing: str | None = hparam(
        None,
        "embeddings of main network and generator: es: the same; nes: each its own; gdes: the main "
        "network's are the generator's, without gradient, plus differences of its own (DeBERTaV3); null: es or nes",
        choices=("es", "nes", "gdes"),
    )
    generator_layers: float = hparam(1.0, "generator's layers as a share of the main network's", above=0, at_most=4)
    generator_hidden_size: float = hparam(0.25, "generator's width, as a share of the main one's", above=0, at_most=4)
    generator_embedding_size: int | None = hparam(
        None, "width of embeddings that are the generator's own (embedding_sharing nes); null: its width", at_least=1
    )
    generator_hparam_overrides: dict[str, Any] = hparam(
        {},
        "entries of the generator's network that are not the main network's, as {\"intermediate_size\": 512}: for a "
        "generator of another architecture that init_generator_checkpoint loads",
        entries=Architecture,
        flags_for_entries=False,
    )
    disallow_correct: bool = hparam(False, "the generator never samples the original token")
    temperature: float = hparam(1.0, "temperature of the generator's softmax when it is sampled", above=0)
    initial_temperature: float | None = hparam(None, "temperature at the start of a run; null: temperature", above=0)
    generator_sample_mode: str = hparam(
        "train",
        "dropout of the network that is sampled: train: on; eval: a second pass without; zero_dropout: the generator "
        "has none and shares only the word table",
        choices=("train", "eval", "zero_dropout"),
    )
    freeze_generator: bool = hparam(False, "the generator is not trained")
    init_generator_checkpoint: str | None = hparam(
        None,
        "model whose weights the generator starts from: a masked language model or another generator",
        place="other",
    )
    init_encoder_from_generator: bool = hparam(
        False,
        "the main network starts as a copy of the generator (two-stage training), a language model of its own with the "
        "generator's head",
    )

    @property
    def objective_classes(self) -> tuple[type, ...]:
        """The objectives of this run (pretrain.objectives.catalogue): the generator's, the main network's, others."""
        raise NotImplementedError  # known where all hparams are together

    @property
    def trains_main_network(self) -> bool:
        """True with a main network beside the generator; a run without one is BERT's."""
        raise NotImplementedError

    @property
    def has_own_generator(self) -> bool:
        return self.untied_generator and self.trains_main_network

    @property
    def has_masked_lm_generator(self) -> bool:
        """Tells whether the generator is a masked language model of its own."""
        return self.has_own_generator and not (self.uniform_generator or self.two_tower_generator)

    @property
    def generator_architecture(self) -> Architecture:
        """Sizes of the generator's network (the main network's if they share all weights).

        Where the rounded width is no multiple of its number of heads, it is rounded to the nearest that is; the
        original fails there. One that is as wide as the main network has its heads and feed-forward width too.
        """
        main = self.architecture
        if not self.has_own_generator:
            return main
        if self.generator_sample_mode == "zero_dropout":
            main = dataclasses.replace(main, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        hidden = round(main.hidden_size * self.generator_hidden_size)
        heads = max(1, hidden // HEAD_SIZE)
        if self.compat != "original":
            hidden = max(1, round(hidden / heads)) * heads
        gated = self.generator_hparam_overrides.get("gated_mlp", main.gated_mlp)
        inner = inner_width(hidden, gated)
        if self.compat != "original" and hidden == main.hidden_size:
            heads = main.num_attention_heads
            inner = main.intermediate_size if gated == main.gated_mlp else inner
        own_tables = self.generator_embedding_size or hidden
        sizes = {
            "hidden_size": hidden,
            "num_hidden_layers": round(main.num_hidden_layers * self.generator_layers),
            "intermediate_size": inner,
            "num_attention_heads": heads,
            "embedding_size": own_tables if self.untied_generator_embeddings else main.embedding_size,
        }
        return dataclasses.replace(main, **sizes | self.generator_hparam_overrides)

    def generator_problems(self) -> Iterator[str]:
        """Says why there can be no such generator."""
        main, generator = self.architecture, self.generator_architecture
        if self.mask_separators and self.two_tower_generator:
            yield (
                "mask_separators needs a masked language model as generator: the last token's right-to-left tower has "
                "read the token itself"
            )
        if self.freeze_generator or self.init_generator_checkpoint or self.init_encoder_from_generator:
            if not self.has_masked_lm_generator:
                yield (
                    "freeze_generator, init_generator_checkpoint and init_encoder_from_generator need "
                    "a masked language model of its own as generator"
                )
            if self.freeze_generator and self.embedding_sharing == "es":
                yield "freeze_generator needs untied_generator_embeddings: shared ones are trained by the main network"
            with_dropout = dataclasses.replace(
                generator,
                hidden_dropout_prob=main.hidden_dropout_prob,
                attention_probs_dropout_prob=main.attention_probs_dropout_prob,
            )
            if self.init_encoder_from_generator and with_dropout != main:
                yield (
                    "init_encoder_from_generator needs a generator of the main network's size: generator_hidden_size "
                    f"1, generator_layers 1, embeddings of {main.embedding_size}, no generator_hparam_overrides"
                )
        if self.untied_generator_embeddings and self.embedding_sharing != "nes":
            yield f"untied_generator_embeddings and embedding_sharing {self.embedding_sharing} contradict each other"
        if self.generator_hparam_overrides:
            yield from self._overrides_problems(main, generator)
        if self.generator_embedding_size and not self.untied_generator_embeddings:
            yield "generator_embedding_size is of embeddings of the generator's own: it needs embedding_sharing nes"
        if self.embedding_sharing == "gdes":
            if not self.has_own_generator or self.uniform_generator:
                yield "embedding_sharing gdes needs a generator network of its own"
            if self.init_encoder_from_generator:
                yield "init_encoder_from_generator needs embeddings that can be copied: embedding_sharing es or nes"
        if generator.hidden_size % generator.num_attention_heads:
            yield (
                f"generator_hidden_size {self.generator_hidden_size:g} makes a width of {generator.hidden_size}, which "
                f"is not divisible by its {generator.num_attention_heads} heads"
            )
        elif generator != main:
            yield from (f"generator: {problem}" for problem in generator.problems())
        if generator.num_hidden_layers < 1:
            yield f"generator_layers {self.generator_layers:g} leaves the generator without a layer"

    def _overrides_problems(self, main: Architecture, generator: Architecture) -> Iterator[str]:
        """Says which entries of generator_hparam_overrides are hparams of their own or would have no effect."""
        overrides = self.generator_hparam_overrides
        if not self.has_own_generator or self.uniform_generator:
            yield "generator_hparam_overrides needs a generator network of its own"
        elsewhere = {"hidden_size": "generator_hidden_size", "num_hidden_layers": "generator_layers"}
        elsewhere["architecture"] = "its switches one by one"
        for name, instead in elsewhere.items():
            if name in overrides:
                yield f"generator_hparam_overrides has no {name}: give {instead}"
        of_tables = ["embedding_norm", "type_vocab_size", "max_position_embeddings"]
        shared = [name for name in of_tables if getattr(generator, name) != getattr(main, name)]
        if generator.positions.embedded != main.positions.embedded:
            shared.append("relative_positions")
        if shared and self.embedding_sharing != "nes":
            yield (
                f"generator_hparam_overrides: shared embeddings have the main network's {', '.join(shared)}: "
                "others need embedding_sharing nes"
            )
        for problem in generator.length_problems(self.max_seq_length):
            if not main.length_problems(self.max_seq_length):
                yield f"generator: {problem}"


@dataclasses.dataclass(frozen=True)
class PretrainingHparams(GeneratorHparams, OptimizerHparams, DeviceHparams):
    """Everything that objectives can read of a run: network, masking, generator, optimizer, devices, steps, files."""

    # Steps and batches
    num_train_steps: int = free_hparam(1000000, "training steps", at_least=0, heading="Steps and learning rate")
    train_batch_size: int = hparam(128, "sequences of a step, over all devices and micro-batches", at_least=1)
    eval_batch_size: int = free_hparam(128, "sequences of an evaluation batch, over all devices", at_least=1)
    seed: int = hparam(0, "seed of initial values, masking, sampling, dropout and shuffling", at_least=0)
    learning_rate: float = hparam(5e-4, "peak learning rate", at_least=0)
    lr_decay_power: float = hparam(1.0, "power of the polynomial decay to 0 (1: linear)", above=0)
    lr_schedule: str = hparam(
        "multiply",
        "how warm-up and decay go together: multiply: warm-up factor x decay from step 0 (the original); separate: "
        "decay starts after warm-up; trapezoid: the peak is kept until lr_decay_steps are left, so that a run can be "
        "prolonged from before them",
        choices=("multiply", "separate", "trapezoid"),
    )
    lr_decay_steps: int = free_hparam(0, "steps of lr_schedule trapezoid's decay; 0: a fifth of all", at_least=0)
    num_warmup_steps: int = hparam(10000, "steps in which the learning rate rises to its peak, linearly", at_least=0)
    initial_main_weight: float = hparam(1.0, "factor of the main network's losses at the start of a run", at_least=0)
    ramp_start: int = hparam(0, "step from which the initial_ values move to mask_prob, temperature and 1", at_least=0)
    ramp_steps: int = hparam(0, "number of steps in which the initial_ values move, linearly", at_least=0)
    temperature_decay: float = hparam(
        0.0,
        "share of num_train_steps in which the distance from initial_temperature to temperature falls to 1/e "
        "(Fast-ELECTRA: 0.1); 0: linearly, by ramp_steps",
        at_least=0,
    )
    stack_layers: bool = hparam(
        False,
        "layers of an init_checkpoint with fewer of them are used again, in order, until there are as many as here "
        "(progressive stacking)",
    )

    # Files
    data_dir: str = free_hparam("data", "folder of vocabulary, records and models", place="other", heading="Files")
    pretrain_tfrecords: str = free_hparam(
        "",
        "pattern of the training records; default <data_dir>/pretrain_tfrecords/pretrain_data.tfrecord*",
        place="read",
    )
    eval_tfrecords: str = free_hparam(
        "", "pattern of the held-out records; default <data_dir>/pretrain_tfrecords/dev_data.tfrecord*", place="read"
    )
    vocab_file: str = free_hparam("", "file of the vocabulary; default <data_dir>/vocab.txt", place="read")
    pmi_vocab_file: str = free_hparam("", "n-grams of mask_unit pmi; default <data_dir>/pmi_vocab.npz", place="read")

    def derived(self) -> dict[str, Any]:
        """Values of the fields that were left to follow from others; subclasses add theirs."""
        records = os.path.join(self.data_dir, "pretrain_tfrecords")
        return {
            "max_predictions_per_seq": self.max_predictions_per_seq or self.default_predictions,
            "embedding_sharing": self.embedding_sharing or ("nes" if self.untied_generator_embeddings else "es"),
            "untied_generator_embeddings": self.untied_generator_embeddings or self.embedding_sharing == "nes",
            "pretrain_tfrecords": self.pretrain_tfrecords or os.path.join(records, "pretrain_data.tfrecord*"),
            "eval_tfrecords": self.eval_tfrecords or os.path.join(records, "dev_data.tfrecord*"),
            "vocab_file": self.vocab_file or os.path.join(self.data_dir, "vocab.txt"),
            "pmi_vocab_file": self.pmi_vocab_file or os.path.join(self.data_dir, "pmi_vocab.npz"),
        }

    @property
    def decay_steps(self) -> int:
        """Steps of a trapezoid's final decay; 0 for the other schedules."""
        if self.lr_schedule != "trapezoid":
            return 0
        return self.lr_decay_steps or max(1, self.num_train_steps // 5)

    @property
    def ramped(self) -> list[str]:
        """The hparams whose values move from ramp_start on."""
        finals = {"mask_prob": self.mask_prob, "main_weight": 1.0}
        if not self.temperature_decay:
            finals["temperature"] = self.temperature
        moves = {f"initial_{name}": getattr(self, f"initial_{name}") not in (None, finals[name]) for name in finals}
        return [name for name, does in moves.items() if does]

    def schedule_problems(self) -> Iterator[str]:
        """Says why learning rate, temperature and the ramps cannot move so."""
        if self.num_warmup_steps > self.num_train_steps > 0:
            yield (
                f"num_warmup_steps {self.num_warmup_steps} exceeds num_train_steps {self.num_train_steps}: "
                "set num_warmup_steps too"
            )
        if self.lr_decay_steps > 0 and self.lr_schedule != "trapezoid":
            yield f"lr_decay_steps {self.lr_decay_steps} needs lr_schedule trapezoid"
        together = self.num_warmup_steps + self.decay_steps
        if self.decay_steps > 0 and together > self.num_train_steps >= self.num_warmup_steps:
            yield (
                f"num_warmup_steps {self.num_warmup_steps} and lr_decay_steps {self.decay_steps} exceed "
                f"num_train_steps {self.num_train_steps}"
            )
        moves_temperature = self.initial_temperature not in (None, self.temperature)
        if moves_temperature and (self.uniform_generator or not self.trains_main_network):
            yield "initial_temperature has no effect: there is no generator's network to sample"
        if self.temperature_decay and not moves_temperature:
            yield "temperature_decay without another initial_temperature has no effect"
        if self.ramped and not self.ramp_start + self.ramp_steps:
            yield f"{', '.join(self.ramped)} without ramp_start or ramp_steps has no effect"
