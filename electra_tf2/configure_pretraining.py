"""Every hyperparameter of pre-training: the original's names and defaults, and ours beside them.

`PretrainingConfig` is one flat class. This page has three parts: the hparams under headings, the values derived from
them, and the combinations that are refused. The hparams that fine-tuning shares (network, optimizer, devices) are
inherited from training/shared_hparams.py. Recipes, --hparams and flags (config.flags) all arrive at
`PretrainingConfig.from_dict`. A paper beside the core adds hparams in a subclass (`--paper`, config.papers). Imports no
TensorFlow, so that a wrong hparam fails in a fraction of a second.
"""

import dataclasses
import enum
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

from electra_tf2.config.hparams import checked as check_values
from electra_tf2.config.hparams import free_hparam, free_on_resume, hparam
from electra_tf2.config.papers import check_owners, paper_config_class
from electra_tf2.config.phases import Phase, config_in_phase, later_phase_problems, phases_of
from electra_tf2.model.architecture import HEAD_SIZE, Architecture, inner_width
from electra_tf2.model.costs import Part
from electra_tf2.training.shared_hparams import DeviceHparams, NetworkHparams, OptimizerHparams
from electra_tf2.util.errors import UserError

__all__ = ["MAIN_OBJECTIVES", "GeneratorKind", "Phase", "PretrainingConfig", "phases_of"]

# What to do about a generator that stays random.
TRAIN_GENERATOR = (
    "train one first (of electra_mini, bert_mini) and give its folder as --init-generator-checkpoint, or train both by "
    "--no-freeze-generator"
)
_PAPER_LEARNING_RATE = 2e-4  # of base and large models (ELECTRA, Table 6)

# Hparams that choose the objective of the main network. A run has one of them, or none: BERT.
MAIN_OBJECTIVES = (
    "electra_objective",
    "electric_objective",
    "replace_mlm_objective",
    "all_tokens_mlm_objective",
    "corrective_lm_objective",
)


class GeneratorKind(enum.Enum):
    """The source of the tokens in masked places (`PretrainingConfig.generator_kind`)."""

    NONE = "none"  # BERT: nothing is replaced; the only network is a masked language model
    UNIFORM = "uniform"  # uniform draws from the vocabulary, without a network
    SHARED = "shared"  # the main network itself, with a language model's head
    MASKED_LM = "masked_lm"  # ELECTRA's generator: a smaller masked language model
    TWO_TOWERS = "two_towers"  # Electric's generator: two causal transformers that read the unmasked text

    @property
    def has_own_network(self) -> bool:
        """True if the generator has layers that the main network does not have."""
        return self in (GeneratorKind.MASKED_LM, GeneratorKind.TWO_TOWERS)


# Why a generator has no network of its own, for notes.
_NO_GENERATOR_NETWORK = {
    GeneratorKind.NONE: "there is no generator",
    GeneratorKind.UNIFORM: "the generator draws uniformly, without a network",
    GeneratorKind.SHARED: "the generator is the main network",
}


@dataclasses.dataclass(frozen=True)
class PretrainingConfig(NetworkHparams, OptimizerHparams, DeviceHparams):
    """Everything that a pre-training run depends on."""

    model_name: str = free_hparam("electra_small", "name of the run, and of its recipe if there is one", heading="Run")
    recipe: str = free_hparam("", "recipe of the run; default: the one named like the model")
    paper: str = hparam(
        "",
        "paper beside the core whose hparams and model the run has: one of electra_tf2/papers, or a module of one's "
        "own, my_package.my_paper (docs/architecture.md)",
    )
    debug: bool = free_hparam(False, "a 3-layer, 144-wide model and 20 steps, to try out the machinery")
    do_train: bool = free_hparam(True, "train the model")
    do_eval: bool = free_hparam(False, "evaluate the model on held-out records; after training if both are set")
    overwrite: bool = free_hparam(False, "begin anew: what a previous run left in model_dir is renamed and kept")

    # ELECTRA, and ablations of it that its paper has (section 3.5, appendix F)
    electra_objective: bool = hparam(
        True, "replaced-token detection; false, without another objective: BERT", heading="ELECTRA"
    )
    gen_weight: float = hparam(1.0, "weight of the generator's loss", at_least=0)
    disc_weight: float = hparam(50.0, "weight of the main network's loss (lambda in the paper)", at_least=0)
    disc_tokens: str = hparam("all", "tokens of the detection loss; masked: ELECTRA 15 %", choices=("all", "masked"))
    adversarial_generator: bool = hparam(
        False, "the generator maximises the discriminator's loss, by REINFORCE (appendix F)"
    )
    replace_mlm_objective: bool = hparam(
        False, "Replace MLM: masked tokens are predicted; samples of the generator, not [MASK], stand in their place"
    )
    all_tokens_mlm_objective: bool = hparam(
        False, "All-Tokens MLM: the original of every token is predicted; a gate copies the input"
    )

    # Electric
    electric_objective: bool = hparam(
        False, "noise-contrastive estimation, with a two-tower generator", heading="Electric"
    )
    electric_candidates_only: bool = hparam(False, "Electric's loss leaves out [CLS] and [SEP], which cannot be masked")

    # COCO-LM
    corrective_lm_objective: bool = hparam(False, "corrective language modelling and copy detection", heading="COCO-LM")
    copy_weight: float = hparam(50.0, "weight of COCO-LM's copy loss (lambda_copy)", at_least=0)
    clm_weight: float = hparam(1.0, "weight of the main network's language-modelling loss", at_least=0)
    clm_loss: str = hparam(
        "mixture",
        "form of COCO-LM's language-modelling loss: mixture: the paper's equation 2; weighted_ce: the authors' code; "
        "plain_ce: without copying",
        choices=("mixture", "weighted_ce", "plain_ce"),
    )
    clm_head: str = hparam(
        "transform",
        "the main network's language model: tied: the word table alone; transform: BERT's dense layer before it",
        choices=("tied", "transform"),
    )
    clm_stop_gradient: bool = hparam(True, "the copy probability is a constant in COCO-LM's language-modelling loss")
    sequence_contrast_objective: bool = hparam(
        False,
        "sequence contrast: a corrupted text and a crop of the original get like vectors; beside another objective",
    )
    scl_weight: float = hparam(1.0, "weight of the loss of sequence contrast", at_least=0)
    scl_temperature: float = hparam(1.0, "temperature of the softmax of sequence contrast", above=0)
    scl_head: str = hparam(
        "none", "layers before sequence contrast: none (paper), mlp_ln (the authors' code)", choices=("none", "mlp_ln")
    )
    scl_gather: bool = hparam(False, "sequence contrast has negatives from all devices, not from each device's own")
    crop_fraction: float = hparam(0.9, "share of a sequence that a crop holds; above 1: how many tokens", above=0)
    crop_mode: str = hparam(
        "body",
        "body: a crop is cut from the tokens between [CLS] and [SEP]; raw_cls: from all, behind a [CLS] (others' code)",
        choices=("body", "raw_cls"),
    )

    # Masking
    mask_prob: float = hparam(0.15, "share of tokens that are masked", above=0, below=1, heading="Masking")
    max_predictions_per_seq: int = hparam(
        0, "masked tokens of a sequence, at most; 0: (mask_prob + 0.005) * length", at_least=0
    )
    mask_sampling: str = hparam(
        "with_replacement",
        "how the positions to mask are drawn; the original draws with replacement, so about 7 % of them twice",
        choices=("with_replacement", "without_replacement"),
    )
    mask_count: str = hparam(
        "round",
        "masked tokens of a sequence: mask_prob x length, rounded, or probabilistic: up or down at random",
        choices=("round", "probabilistic"),
    )
    mask_unit: str = hparam(
        "token",
        "what is masked as a whole: a token, a word with all its pieces (whole_word), a span of words (SpanBERT)",
        choices=("token", "whole_word", "span"),
    )
    mask_separators: bool = hparam(False, "whether [SEP] may be masked")
    mask_rates: list[float] = hparam(
        [0.85, 0.15, 0.0], "shares of masked positions that become [MASK], stay, become random (BERT: 0.8, 0.1, 0.1)"
    )

    # Optimization
    learning_rate: float = free_hparam(5e-4, "peak learning rate", at_least=0, heading="Steps and learning rate")
    lr_decay_power: float = hparam(1.0, "power of the polynomial decay to 0 (1: linear)", above=0)
    lr_schedule: str = hparam(
        "multiply",
        "multiply: warm-up factor x decay from step 0 (the original); separate: decay starts after warm-up; trapezoid: "
        "the peak is kept until lr_decay_steps are left, so that a run can be prolonged from before them",
        choices=("multiply", "separate", "trapezoid"),
    )
    lr_decay_steps: int = free_hparam(0, "steps of lr_schedule trapezoid's decay; 0: a fifth of all", at_least=0)
    num_warmup_steps: int = free_hparam(10000, "steps in which the learning rate rises, linearly", at_least=0)

    # Training
    iterations_per_loop: int = free_hparam(200, "steps between two reports", at_least=1, heading="Training")
    save_checkpoints_steps: int = free_hparam(1000, "steps between two checkpoints", at_least=1)
    num_train_steps: int = free_hparam(1000000, "training steps", at_least=0)
    num_eval_steps: int = free_hparam(100, "batches of an evaluation, at most", at_least=1)
    keep_checkpoint_max: int = free_hparam(5, "how many checkpoints are kept, the newest", at_least=1)
    eval_every_steps: int = free_hparam(0, "steps between evaluations on held-out records; 0: none", at_least=0)
    seed: int = hparam(0, "seed of initial values, masking, sampling, dropout and shuffling", at_least=0)
    phases: list[Any] = hparam(
        [],
        'changes of input and dropout hparams, each from a share of num_train_steps on: [{"from": 0.9, '
        '"max_seq_length": 512}]',
    )
    init_checkpoint: str | None = free_hparam(
        None,
        "weights to start from: a shipped model's name, or a folder of ours, Hugging Face's or the original's",
        place="other",
    )
    stack_layers: bool = hparam(
        False,
        "layers of a shallower init_checkpoint are used again, in order (stacking)",
        needs=("init_checkpoint", "the model whose layers are stacked"),
    )

    # Generator
    uniform_generator: bool = hparam(False, "replacements are drawn uniformly from the vocabulary", heading="Generator")
    two_tower_generator: bool = hparam(False, "the generator is two causal towers over the unmasked input")
    untied_generator_embeddings: bool = hparam(False, "the generator has embeddings of its own")
    untied_generator: bool = hparam(True, "the generator has a network of its own; false: it is the main network")
    generator_layers: float = hparam(1.0, "generator's layers as a share of the main network's", above=0, at_most=4)
    generator_hidden_size: float = hparam(0.25, "generator's width, as a share of the main one's", above=0, at_most=4)
    generator_embedding_size: int | None = hparam(
        None, "width of the generator's own embeddings; null: that of its layers", at_least=1
    )
    generator_hparam_overrides: dict[str, Any] = hparam(
        {},
        'sizes and switches in which the generator differs from the main network, as {"intermediate_size": 512}: for a '
        "generator of another architecture that init_generator_checkpoint loads",
        entries=Architecture,
        flags_for_entries=False,
    )
    disallow_correct: bool = hparam(False, "the generator never samples the original token")
    temperature: float = hparam(1.0, "temperature of the generator's softmax when it is sampled", above=0)
    generator_sample_mode: str = hparam(
        "train",
        "dropout of the network that is sampled: train: on; eval: a second pass without; zero_dropout: the generator "
        "has none and shares only the word table",
        choices=("train", "eval", "zero_dropout"),
    )
    freeze_generator: bool = hparam(False, "the generator is not trained")
    init_generator_checkpoint: str | None = hparam(
        None, "model that the generator starts from: a masked language model or another generator", place="other"
    )
    init_encoder_from_generator: bool = hparam(
        False,
        "the main network, and its language model, start as copies of the generator's (two-stage training)",
        needs=("init_generator_checkpoint", "the model of the first stage, a run with --no-electra-objective"),
    )

    # Batches
    max_seq_length: int = hparam(128, "tokens of a record", at_least=5, heading="Batches")
    train_batch_size: int = hparam(128, "sequences of a step, over all devices and micro-batches", at_least=1)
    eval_batch_size: int = free_hparam(128, "sequences of an evaluation batch, over all devices", at_least=1)

    # Files
    data_dir: str = free_hparam("data", "folder of vocabulary, records and models", place="other", heading="Files")
    pretrain_tfrecords: str = free_hparam(
        "", "pattern of the records; default <data_dir>/pretrain_tfrecords/pretrain_data.tfrecord*", place="read"
    )
    eval_tfrecords: str = free_hparam(
        "", "pattern of the held-out records; default <data_dir>/pretrain_tfrecords/dev_data.tfrecord*", place="read"
    )
    vocab_file: str = free_hparam("", "file of the vocabulary; default <data_dir>/vocab.txt", place="read")
    model_dir: str = free_hparam(
        "", "folder of checkpoints and logs; default <data_dir>/models/<model_name>", place="other"
    )
    results_dir: str = free_hparam("", "folder of the results; default <model_dir>/results", place="other")
    results_txt: str = free_hparam("", "table of metrics; default <results_dir>/unsup_results.txt", place="other")
    results_json: str = free_hparam("", "metrics as JSON; default <results_dir>/unsup_results.json", place="other")

    # The way in.

    @classmethod
    def from_dict(cls, hparams: Mapping[str, Any]) -> "PretrainingConfig":
        """Checks hparams, fills in those that follow from others, and refuses combinations that make no sense.

        Raises:
          UserError: names every problem.
        """
        config_class = cls.extended(hparams)
        config = config_class(**config_class.checked(hparams))
        config = dataclasses.replace(config, **config.derived())
        problems = list(config.problems())
        problems += later_phase_problems(config, problems)
        if problems:
            raise UserError("hparams: " + "; ".join(problems))
        return config

    @classmethod
    def extended(cls, hparams: Mapping[str, Any]) -> "type[PretrainingConfig]":
        """The class of the paper that the hparams name, else this class. Raises UserError: there is no such paper."""
        paper = hparams.get("paper")
        if cls is not PretrainingConfig:  # a paper's class is already extended
            return cls
        if not paper or not isinstance(paper, str):  # a wrong type is refused later, with all wrong values
            return cls
        return paper_config_class(paper, PretrainingConfig)

    @classmethod
    def checked(cls, hparams: Mapping[str, Any]) -> dict[str, Any]:
        """Checks types and ranges. Raises UserError, which for an hparam of a paper names the paper."""
        check_owners(hparams, {field.name for field in dataclasses.fields(cls)})
        return check_values(cls, hparams)

    # What is derived from the hparams.

    def derived(self) -> dict[str, Any]:
        """Values of hparams whose defaults follow from others; a paper's Config adds its own."""
        embedding_size = self.resolved_embedding_size
        if self.debug:  # its small network has no projection
            embedding_size = self.architecture.embedding_size
        records = os.path.join(self.data_dir, "pretrain_tfrecords")
        model_dir = self.model_dir or os.path.join(self.data_dir, "models", self.model_name)
        results_dir = self.results_dir or os.path.join(model_dir, "results")
        return {
            "max_predictions_per_seq": self.max_predictions_per_seq or self.default_predictions,
            "embedding_size": embedding_size,
            "two_tower_generator": self.two_tower_generator or self.electric_objective,
            "pretrain_tfrecords": self.pretrain_tfrecords or os.path.join(records, "pretrain_data.tfrecord*"),
            "eval_tfrecords": self.eval_tfrecords or os.path.join(records, "dev_data.tfrecord*"),
            "vocab_file": self.vocab_file or os.path.join(self.data_dir, "vocab.txt"),
            "model_dir": model_dir,
            "results_dir": results_dir,
            "results_txt": self.results_txt or os.path.join(results_dir, "unsup_results.txt"),
            "results_json": self.results_json or os.path.join(results_dir, "unsup_results.json"),
        }

    @property
    def main_objectives(self) -> list[str]:
        """Those of `MAIN_OBJECTIVES` that are set."""
        return [name for name in MAIN_OBJECTIVES if getattr(self, name)]

    @property
    def generator_kind(self) -> GeneratorKind:
        """The generator that the original's switches describe together; uniform_generator wins, as in the original."""
        if not self.main_objectives:
            return GeneratorKind.NONE
        if self.uniform_generator:
            return GeneratorKind.UNIFORM
        if not self.untied_generator:
            return GeneratorKind.SHARED
        if self.two_tower_generator:
            return GeneratorKind.TWO_TOWERS
        return GeneratorKind.MASKED_LM

    @property
    def default_predictions(self) -> int:
        """max_predictions_per_seq where it is 0: room for as many tokens as mask_prob asks for."""
        if self.mask_count == "round":
            return int((self.mask_prob + 0.005) * self.max_seq_length)
        return int(self.mask_prob * self.max_seq_length) + 1

    @property
    def crop_length(self) -> int:
        """Length of a crop of a full-length sequence, special tokens included (COCO-LM)."""
        if self.crop_mode == "raw_cls":
            return min(self.max_seq_length, self._crop_span(self.max_seq_length) + 1)
        return self._crop_span(self.max_seq_length - 2) + 2

    def _crop_span(self, tokens: int) -> int:
        """How many of so many tokens a crop holds; 0 is refused (`problems`)."""
        if self.crop_fraction > 1:
            return min(tokens, int(self.crop_fraction))
        return int(self.crop_fraction * tokens + 1e-4)

    @property
    def generator_architecture(self) -> Architecture:
        """Sizes of the generator's network; where it has no network of its own, those of the main network.

        In two cases they differ from the original's. A generator that is to be as wide as the main network has its
        heads and feed-forward width, too, where the original applies the rules of narrow ones. Another width is rounded
        to a multiple of the number of heads, without which the original fails.
        """
        main = self.architecture
        overrides = self.generator_hparam_overrides
        if not self.generator_kind.has_own_network:
            return main
        gated = overrides.get("gated_mlp", main.gated_mlp)
        hidden = round(main.hidden_size * self.generator_hidden_size)
        if self.compat == "original":
            heads = max(1, hidden // HEAD_SIZE)
            inner = inner_width(hidden, gated)
        elif hidden == main.hidden_size:
            heads = main.num_attention_heads
            inner = main.intermediate_size
            if gated != main.gated_mlp:
                inner = inner_width(hidden, gated)
        else:
            heads = max(1, hidden // HEAD_SIZE)
            hidden = max(1, round(hidden / heads)) * heads
            inner = inner_width(hidden, gated)
        embedding_size = main.embedding_size
        if self.untied_generator_embeddings:
            embedding_size = self.generator_embedding_size or hidden
        sizes: dict[str, Any] = {
            "hidden_size": hidden,
            "num_hidden_layers": round(main.num_hidden_layers * self.generator_layers),
            "intermediate_size": inner,
            "num_attention_heads": heads,
            "embedding_size": embedding_size,
        }
        if self.generator_sample_mode == "zero_dropout":
            sizes["hidden_dropout_prob"] = 0.0
            sizes["attention_probs_dropout_prob"] = 0.0
        return dataclasses.replace(main, **sizes | overrides)

    @property
    def decay_steps(self) -> int:
        """Steps of the final decay of lr_schedule trapezoid; 0 for other schedules."""
        if self.lr_schedule != "trapezoid":
            return 0
        return self.lr_decay_steps or max(1, self.num_train_steps // 5)

    @property
    def needs_whole_batch(self) -> bool:
        """True if a loss compares rows with one another. Several micro-batches then need a further forward pass."""
        return self.sequence_contrast_objective

    @property
    def free_to_change(self) -> frozenset[str]:
        """Names of the hparams that may differ when this run is resumed."""
        free = free_on_resume(type(self))
        if self.phases:
            # They begin at shares of num_train_steps: steps that are done already would fall into other phases.
            free -= {"num_train_steps"}
        return free

    @property
    def why_no_probabilities(self) -> str:
        """Why the trained model cannot score texts (inference.scoring), in one sentence; "" if it can."""
        if not (self.electra_objective or self.electric_objective):
            return ""
        if self.generator_kind is GeneratorKind.UNIFORM:
            return (
                "a model of uniform_generator was trained without a generator, so another model's does not fit: its "
                "detector alone scores by method detector"
            )
        if self.disallow_correct:
            return (
                "a model of disallow_correct gives no probabilities: how often a token is a replacement depends on the "
                "probabilities of all others"
            )
        return ""

    def in_phase(self, phase: Phase) -> "PretrainingConfig":
        """This configuration with the input and dropout of one of its phases."""
        return config_in_phase(self, phase)

    def further_parts(self) -> list[Part]:
        """Costs of what a paper adds to the model (pretrain.flops)."""
        return []

    # What is refused: a sentence for each combination that makes no sense.

    def problems(self) -> Iterator[str]:
        """Problems of a run without phases, or of a single phase. A paper's Config adds its own."""
        main = self.architecture
        yield from main.problems()
        yield from main.length_problems(self.max_seq_length)
        yield from self._objective_problems()
        yield from self._generator_problems()
        yield from self._masking_problems()
        yield from self._schedule_problems()
        yield from self.batch_problems(self.train_batch_size)
        yield from self.device_problems()

    def _objective_problems(self) -> Iterator[str]:
        objectives = self.main_objectives
        hidden_size = self.architecture.hidden_size
        predicts_tokens = self.replace_mlm_objective or self.all_tokens_mlm_objective or self.corrective_lm_objective

        if len(objectives) > 1:
            hint = ""
            if self.electra_objective:  # true by default, so perhaps not chosen
                hint = "; the others need electra_objective false"
            yield f"{' and '.join(objectives)} are both true: choose one{hint}"
        if not objectives and not self.gen_weight:
            yield "gen_weight is 0, so BERT's only loss is off"
        if predicts_tokens and self.clm_head == "tied" and self.architecture.embedding_size != hidden_size:
            yield f"clm_head tied needs embedding_size {hidden_size}, the hidden size"
        if self.adversarial_generator:
            yield from self._adversarial_problems()
        if self.electric_objective:
            yield from self._electric_problems()

        if self.sequence_contrast_objective:
            if not objectives:
                yield "sequence_contrast_objective stands beside another: set one, too"
            if self._crop_span(self.max_seq_length - 2) < 1:
                yield "crop_fraction leaves no token"
        if self.needs_whole_batch and self.scl_gather and self.gradient_accumulation_steps > 1:
            yield "scl_gather needs whole batches: gradient_accumulation_steps must be 1"

    def _adversarial_problems(self) -> Iterator[str]:
        kind = self.generator_kind
        if not self.electra_objective:
            yield "adversarial_generator needs electra_objective"
        if kind in (GeneratorKind.UNIFORM, GeneratorKind.TWO_TOWERS):
            yield "adversarial_generator needs a masked language model as generator"
        if kind is GeneratorKind.SHARED:
            yield "adversarial_generator needs untied_generator: one network cannot play both sides"
        if self.freeze_generator:
            yield "adversarial_generator needs a generator that is trained: freeze_generator must be false"
        if self.generator_sample_mode == "eval":
            yield "adversarial_generator needs the sampled pass to be trained: not generator_sample_mode eval"
        if self.temperature != 1.0 or self.disallow_correct:
            yield (
                "adversarial_generator needs samples of the distribution whose log-probability it weighs, else its "
                "gradient is biased: temperature must be 1 and disallow_correct false"
            )

    def _electric_problems(self) -> Iterator[str]:
        if self.uniform_generator:
            yield (
                "electric_objective needs the probabilities of its two-tower generator: uniform_generator must be false"
            )
        if not self.untied_generator:
            yield (
                "electric_objective needs the probabilities of its two-tower generator: untied_generator must be true"
            )
        if self.disallow_correct:
            yield (
                "electric_objective needs the probabilities of its two-tower generator as sampled: disallow_correct "
                "must be false"
            )
        if self.temperature != 1.0:
            yield (
                "electric_objective needs the probabilities of its two-tower generator as sampled: temperature must be "
                f"1, got {self.temperature:g}"
            )
        if self.generator_sample_mode == "eval":
            yield (
                "electric_objective needs the probabilities of its two-tower generator as sampled, dropout included: "
                "not generator_sample_mode eval"
            )
        if self.disc_tokens != "all":
            yield f"electric_objective tells noise from data: disc_tokens must be all, got {self.disc_tokens}"

    def _generator_problems(self) -> Iterator[str]:
        """Problems of the generator: which one, its sizes, its initial weights."""
        if self.uniform_generator and not self.main_objectives:
            yield "uniform_generator without a main network leaves nothing to train"
        # electric_objective sets two_tower_generator and has checks of its own.
        if self.two_tower_generator and not self.electric_objective:
            if self.uniform_generator:
                yield "two_tower_generator and uniform_generator are both true: choose one"
            if not self.main_objectives:
                yield "two_tower_generator needs electra_objective or electric_objective"
            if not self.untied_generator:
                yield "two_tower_generator needs untied_generator: a causal tower cannot be the main network"
        if self.mask_separators and self.two_tower_generator:
            yield (
                "mask_separators needs a masked language model as generator: the last token's right-to-left tower has "
                "read the token itself"
            )
        yield from self._generator_size_problems()
        yield from self._generator_override_problems()
        yield from self._generator_start_problems()

    def _generator_size_problems(self) -> Iterator[str]:
        main = self.architecture
        generator = self.generator_architecture
        is_divisible = generator.hidden_size % generator.num_attention_heads == 0
        if self.generator_embedding_size and not self.untied_generator_embeddings:
            yield (
                "generator_embedding_size is of embeddings of the generator's own: it needs untied_generator_embeddings"
            )
        if not is_divisible:
            yield (
                f"generator_hidden_size {self.generator_hidden_size:g} makes a width of {generator.hidden_size}, which "
                f"is not divisible by its {generator.num_attention_heads} heads"
            )
        if generator.num_hidden_layers < 1:
            yield f"generator_layers {self.generator_layers:g} leaves the generator without a layer"
        if generator != main and is_divisible:
            for problem in generator.problems():
                yield f"generator: {problem}"

    def _generator_override_problems(self) -> Iterator[str]:
        overrides = self.generator_hparam_overrides
        if not overrides:
            return
        main = self.architecture
        generator = self.generator_architecture
        if not self.generator_kind.has_own_network:
            yield "generator_hparam_overrides needs a generator network of its own"
        # Entries that are separate hparams of the generator, or would have no effect.
        if "hidden_size" in overrides:
            yield "generator_hparam_overrides has no hidden_size: give generator_hidden_size"
        if "num_hidden_layers" in overrides:
            yield "generator_hparam_overrides has no num_hidden_layers: give generator_layers"
        if "architecture" in overrides:
            yield "generator_hparam_overrides has no architecture: give its switches one by one"
        # Shared embeddings are the main network's tables, so entries that shape them cannot differ.
        different = []
        for name in ("embedding_norm", "type_vocab_size", "max_position_embeddings"):
            if getattr(generator, name) != getattr(main, name):
                different.append(name)
        if generator.positions.embedded != main.positions.embedded:
            different.append("relative_positions")
        if different and not self.untied_generator_embeddings:
            yield (
                f"generator_hparam_overrides: shared embeddings have the main network's {', '.join(different)}: "
                "others need untied_generator_embeddings"
            )
        if not main.length_problems(self.max_seq_length):
            for problem in generator.length_problems(self.max_seq_length):
                yield f"generator: {problem}"

    def _generator_start_problems(self) -> Iterator[str]:
        is_masked_lm = self.generator_kind is GeneratorKind.MASKED_LM
        starts = self.freeze_generator or self.init_generator_checkpoint or self.init_encoder_from_generator
        if starts and not is_masked_lm:
            yield (
                "freeze_generator, init_generator_checkpoint and init_encoder_from_generator need a masked language "
                "model of its own as generator"
            )
        if self.freeze_generator and not self.untied_generator_embeddings:
            yield "freeze_generator needs untied_generator_embeddings: shared ones are trained by the main network"
        if self.init_encoder_from_generator and is_masked_lm:
            main = self.architecture
            # Dropout has no weights, so it may differ.
            generator = dataclasses.replace(
                self.generator_architecture,
                hidden_dropout_prob=main.hidden_dropout_prob,
                attention_probs_dropout_prob=main.attention_probs_dropout_prob,
            )
            if generator != main:
                yield (
                    "init_encoder_from_generator needs a generator of the main network's size: generator_hidden_size "
                    f"1, generator_layers 1, embeddings of {main.embedding_size}, no generator_hparam_overrides"
                )

    def _masking_problems(self) -> Iterator[str]:
        most = self.max_predictions_per_seq
        if not 1 <= most <= self.max_seq_length:
            yield (
                f"max_predictions_per_seq is {most}; mask_prob {self.mask_prob:g} of {self.max_seq_length} tokens must "
                "come to between 1 and max_seq_length"
            )
        rates = self.mask_rates
        are_shares = all(type(rate) in (int, float) and 0 <= rate <= 1 for rate in rates)
        if len(rates) != 3 or not are_shares or not math.isclose(sum(rates), 1, abs_tol=1e-6):
            yield f"mask_rates must be three shares that add up to 1 ([MASK], kept, random), got {rates!r}"
        if self.mask_unit != "token" and self.mask_sampling != "without_replacement":
            yield f"mask_unit {self.mask_unit} needs mask_sampling without_replacement: a unit is masked once"

    def _schedule_problems(self) -> Iterator[str]:
        warmup = self.num_warmup_steps
        decay = self.decay_steps
        steps = self.num_train_steps
        if self.lr_decay_steps > 0 and self.lr_schedule != "trapezoid":
            yield f"lr_decay_steps {self.lr_decay_steps} needs lr_schedule trapezoid"
        if decay and warmup + decay > steps > 0:
            yield (
                f"num_warmup_steps {warmup} and lr_decay_steps {decay} together exceed num_train_steps {steps}: set "
                f"both, for example to {steps // 4} and {steps // 3}"
            )
        elif warmup > steps > 0:
            yield f"num_warmup_steps {warmup} exceeds num_train_steps {steps}: set it, for example to {steps // 10}"

    @property
    def generator_stays_random(self) -> bool:
        """True if the generator has random weights at the start and is not trained."""
        return self.freeze_generator and not (self.init_generator_checkpoint or self.init_checkpoint)

    def notes(self) -> Iterator[str]:
        """Remarks on hparams that are legal but deserve a look."""
        kind = self.generator_kind
        generator = self.generator_architecture
        asked_width = round(self.architecture.hidden_size * self.generator_hidden_size)
        if kind.has_own_network and generator.hidden_size != asked_width:
            yield (
                f"generator_hidden_size {self.generator_hidden_size:g} makes a width of {asked_width}, rounded to "
                f"{generator.hidden_size} so that {generator.num_attention_heads} heads divide it"
            )
        if self.untied_generator_embeddings and not kind.has_own_network:
            yield f"untied_generator_embeddings has no effect: {_NO_GENERATOR_NETWORK[kind]}"
        mode = self.generator_sample_mode
        samples_no_network = kind in (GeneratorKind.NONE, GeneratorKind.UNIFORM)
        if mode == "eval" and samples_no_network:
            yield f"generator_sample_mode eval has no effect: {_NO_GENERATOR_NETWORK[kind]}"
        if mode == "zero_dropout" and not kind.has_own_network:
            yield f"generator_sample_mode zero_dropout has no effect: {_NO_GENERATOR_NETWORK[kind]}"
        if self.generator_stays_random:
            yield f"freeze_generator without a trained generator, so that replacements stay random: {TRAIN_GENERATOR}"
        # The paper's rate is for batches of 256; batches of 2,048 bear a higher one.
        is_small_batch = self.train_batch_size <= 256
        exceeds_paper = self.model_size != "small" and self.learning_rate > _PAPER_LEARNING_RATE
        if self.electra_objective and is_small_batch and exceeds_paper:
            yield (
                f"learning_rate {self.learning_rate:g} is above the {_PAPER_LEARNING_RATE:g} of the paper's "
                f"{self.model_size} model: training may diverge"
            )
