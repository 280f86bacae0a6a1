"""The hyperparameters of pre-training: the original's names and defaults, and ours beside them.

Imports no TensorFlow: a wrong hparam fails in a fraction of a second. `PretrainingConfig.from_dict` is the one way
in; recipes, --hparams and flags all arrive there (util.flags).
"""

import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from electra_tf2.formats.folders import (
    check_shared_vocabulary,
    config_of,
    generator_hparams,
    network_hparams,
    vocabulary_hparams,
)
from electra_tf2.model.architecture import HEAD_SIZE, inner_width, make_architecture
from electra_tf2.pretrain.objectives.catalogue import (
    OBJECTIVES,
    AnyObjective,
    ObjectiveHparams,
    chosen,
    extended,
    own_objective,
)
from electra_tf2.pretrain.objectives.catalogue import problems as objective_problems
from electra_tf2.pretrain.objectives.objective import Needs
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.hparams import checked, closest, free_hparam, free_on_resume, hparam, layered, layered_by_entry

_PAPER_LEARNING_RATE = 2e-4  # of base and large (ELECTRA, Table 6)

_DEBUG: dict[str, Any] = {
    "num_train_steps": 20,
    "num_warmup_steps": 2,
    "save_checkpoints_steps": 5,
    "iterations_per_loop": 1,
    "num_eval_steps": 2,
    "train_batch_size": 32,
    "embedding_size": None,
    "model_hparam_overrides": {
        "num_hidden_layers": 3, "hidden_size": 144, "intermediate_size": 576, "num_attention_heads": 4,
    },
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class PretrainingConfig(ObjectiveHparams):
    """Everything that a pre-training run depends on."""

    # Run
    model_name: str = free_hparam("electra_small", "name of the run, and of its recipe if there is one", heading="Run")
    recipe: str = free_hparam("", "recipe of the run; default: the one named like the model")
    debug: bool = free_hparam(False, "a 3-layer, 144-wide model and 20 steps, to try out the machinery")
    do_train: bool = free_hparam(True, "train the model")
    do_eval: bool = free_hparam(False, "evaluate the model on held-out records; after training if both are set")

    objectives: list[str] = hparam(
        [],
        "objectives of one's own beside those below, as package.module:Class of the folder where the program is "
        "started or on PYTHONPATH; their hparams are flags, too (docs/architecture.md)",
    )

    # Training
    phases: list[Any] = hparam(
        [],
        'hparams of the input and dropout that change in the course of the run: [{"from": 0.9, "max_seq_length": 512, '
        '"pretrain_tfrecords": ...}, ...]',
        heading="Training",
    )
    iterations_per_loop: int = free_hparam(200, "steps between two reports of the losses", at_least=1)
    save_checkpoints_steps: int = free_hparam(1000, "steps between two checkpoints", at_least=1)
    keep_checkpoint_max: int = free_hparam(5, "number of checkpoints that are kept, the newest", at_least=1)
    eval_every_steps: int = free_hparam(0, "steps between evaluations on held-out records; 0: none", at_least=0)
    num_eval_steps: int = free_hparam(100, "number of batches of an evaluation, at most", at_least=1)
    init_checkpoint: str | None = free_hparam(
        None,
        "model to start from, its weights only: of ours, Hugging Face's, or the original's TF1 checkpoint",
        place="other",
    )
    overwrite: bool = free_hparam(False, "delete what a previous run left in model_dir")

    # Output
    model_dir: str = free_hparam(
        "", "folder of checkpoints and logs; default <data_dir>/models/<model_name>", heading="Output", place="other"
    )
    results_dir: str = free_hparam("", "folder of the results; default <model_dir>/results", place="other")
    results_txt: str = free_hparam("", "table of metrics; default <results_dir>/unsup_results.txt", place="other")
    results_json: str = free_hparam("", "metrics as JSON; default <results_dir>/unsup_results.json", place="other")

    @classmethod
    def from_dict(cls, hparams: Mapping[str, Any]) -> "PretrainingConfig":
        """Checks the hparams, fills in what follows from others, and refuses combinations that make no sense. Raises
        UserError: names every problem."""
        cls = cls.extended(hparams)
        values = checked(cls, hparams)
        if values.get("debug"):
            values = _DEBUG | values
        for kind in OBJECTIVES:
            if values.get(kind.flag):
                values |= kind.implies
        config = cls(**values)
        config = dataclasses.replace(config, **config.derived())
        problems = list(config._problems())
        if problems:
            raise UserError("hparams: " + "; ".join(problems))
        return config

    @classmethod
    def extended(cls, hparams: Mapping[str, Any]) -> "type[PretrainingConfig]":
        """The configuration with the hparams of the objectives of one's own that these hparams name. Raises UserError:
        there is no such objective, or its hparams do not go together with others."""
        names = hparams.get("objectives") or []
        if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise UserError(f"objectives must be a list of package.module:Class, got {shown(names)}")
        return extended(cls, tuple(names))

    @classmethod
    def implied(cls, hparams: Mapping[str, Any]) -> dict[str, Any]:
        """Size of the vocabulary; sizes, vocabulary and casing of the folders that network and generator start from;
        debug's small model.

        All win over a recipe, but for the number of layers where layers are stacked, and yield to what is given
        (formats.folders).

        Raises:
          UserError: wrong hparams; one of the folders holds a network that we do not have, or the generator's does not
            fit the other.
        """
        cls = cls.extended(hparams)
        hparams = checked(cls, hparams)
        main = _DEBUG if hparams.get("debug") else {}
        whole = hparams.get("init_checkpoint") or ""
        beside = os.path.join(hparams.get("data_dir", cls.data_dir), "vocab.txt")
        main = vocabulary_hparams(hparams.get("vocab_file") or beside) | main
        main = main | network_hparams(whole) | generator_hparams(whole)
        asked = hparams.get("model_hparam_overrides", {}).get("num_hidden_layers")
        if hparams.get("stack_layers") and asked and "model_hparam_overrides" in main:
            main = layered_by_entry(cls, main, {"num_hidden_layers": asked})
        start = hparams.get("init_generator_checkpoint") or ""
        generator = network_hparams(start)
        saved = config_of(start) or {}
        of_a_pair = any(saved.get(kind.flag) for kind in OBJECTIVES if kind.role == "main")
        if not generator:
            return main
        together = layered(cls, hparams, main)
        own_vocabulary = os.path.join(together.get("data_dir", cls.data_dir), "vocab.txt")
        check_shared_vocabulary(
            f"init_generator_checkpoint {start}",
            generator,
            {
                "vocab_size": together.get("vocab_size", cls.vocab_size),
                "vocab_file": together.get("vocab_file") or own_vocabulary,
                "do_lower_case": together.get("do_lower_case", cls.do_lower_case),
            },
        )
        if hparams.get("init_encoder_from_generator"):
            return main
        if together.get("untied_generator_embeddings") or together.get("embedding_sharing") == "nes":
            separate = of_a_pair and saved.get("embedding_sharing") == "nes"
            of_tables = saved.get("generator_embedding_size") if separate else generator["embedding_size"]
            main = main | {"generator_embedding_size": of_tables}
        if of_a_pair:  # whose generator is smaller than what its folder says
            return main
        vocab, overrides = generator["vocab_size"], together.get("model_hparam_overrides", {})
        sizes = make_architecture(together.get("model_size", "small"), overrides, vocab, None)
        own = make_architecture(generator["model_size"], generator["model_hparam_overrides"], vocab, None)
        width, shape = own.hidden_size, (own.num_attention_heads, own.intermediate_size)
        given = together.get("generator_hparam_overrides", {})
        inner = inner_width(width, given.get("gated_mlp", sizes.gated_mlp))
        rule = (given.get("num_attention_heads", max(1, width // HEAD_SIZE)), given.get("intermediate_size", inner))
        if width != sizes.hidden_size and shape != rule:
            raise UserError(
                f"init_generator_checkpoint: {start} has (heads, feed-forward width) {shape}; a generator of width "
                f"{width} has {rule} here: say what differs in generator_hparam_overrides"
            )
        return main | {
            "generator_hidden_size": width / sizes.hidden_size,
            "generator_layers": own.num_hidden_layers / sizes.num_hidden_layers,
        }

    def derived(self) -> dict[str, Any]:
        model_dir = self.model_dir or os.path.join(self.data_dir, "models", self.model_name)
        results_dir = self.results_dir or os.path.join(model_dir, "results")
        return super().derived() | {
            "embedding_size": self.architecture.embedding_size if self.debug else self.width_of_embeddings,
            "model_dir": model_dir,
            "results_dir": results_dir,
            "results_txt": self.results_txt or os.path.join(results_dir, "unsup_results.txt"),
            "results_json": self.results_json or os.path.join(results_dir, "unsup_results.json"),
        }

    @functools.cached_property
    def objective_classes(self) -> tuple[AnyObjective, ...]:
        return chosen(self, self._known_objectives)

    @functools.cached_property
    def trains_main_network(self) -> bool:
        return any(kind.role == "main" and kind.is_chosen(self) for kind in self._known_objectives)

    @property
    def _known_objectives(self) -> tuple[AnyObjective, ...]:
        """The built-in ones and one's own."""
        return (*OBJECTIVES, *map(own_objective, self.objectives))

    @property
    def needs(self) -> Needs:
        """All needs of the run's objectives."""
        return Needs.together(kind.needs(self) for kind in self.objective_classes)

    def _problems(self) -> Iterator[str]:
        """Reasons why the combination cannot be, each said by what owns the rule."""
        main = self.architecture
        yield from main.problems()
        yield from main.length_problems(self.max_seq_length)
        yield from objective_problems(self, self.objective_classes)
        yield from self.generator_problems()
        yield from self.masking_problems()
        yield from self.schedule_problems()
        yield from self.batch_problems(self.train_batch_size)
        networks = [main, self.generator_architecture] if self.has_masked_lm_generator else [main]
        yield from self.device_problems([network.head_size for network in networks])
        try:
            phases_of(self)
        except UserError as error:
            yield str(error).removeprefix("hparams: ")

    def notes(self) -> list[str]:
        """Remarks on what is legal but deserves a look."""
        notes = []
        main, generator = self.architecture, self.generator_architecture
        wanted = round(main.hidden_size * self.generator_hidden_size)
        if self.has_own_generator and generator.hidden_size != wanted:
            notes.append(
                f"generator_hidden_size {self.generator_hidden_size:g} makes a width of {wanted}, rounded to "
                f"{generator.hidden_size} so that {generator.num_attention_heads} heads divide it"
            )
        if self.embedding_sharing == "nes" and (self.uniform_generator or not self.has_own_generator):
            notes.append("embedding_sharing nes has no effect: the generator has no network of its own")
        mode = self.generator_sample_mode
        heeded = {"train": True, "eval": self.trains_main_network, "zero_dropout": self.has_own_generator}
        if not heeded[mode]:
            notes.append(f"generator_sample_mode {mode} has no effect: the generator has no network of its own")
        beside = any(kind.role == "beside" for kind in self.objective_classes)
        if self.initial_main_weight != 1.0 and not (self.trains_main_network or beside):
            notes.append("initial_main_weight has no effect: there is no main network beside the generator")
        if self.ramp_start + self.ramp_steps and not self.ramped:
            notes.append("ramp_start and ramp_steps have no effect: there is no initial_ value for them to move")
        if self.freeze_generator and not (self.init_generator_checkpoint or self.init_checkpoint):
            notes.append("freeze_generator without init_generator_checkpoint: replacements come from random weights")
        small_batch = self.train_batch_size <= 256  # batches of 2048 bear more
        too_high = self.model_size != "small" and self.learning_rate > _PAPER_LEARNING_RATE
        if self.electra_objective and small_batch and too_high:
            notes.append(
                f"learning_rate {self.learning_rate:g} is above the {_PAPER_LEARNING_RATE:g} of the paper's "
                f"{self.model_size} model: training may diverge"
            )
        return notes

    @property
    def free_to_change(self) -> frozenset[str]:
        """Names of the hparams that may differ when this run is resumed."""
        # Shares of the run: steps already done would move.
        shares = self.phases or self.temperature_decay or self.aux_combination in ("inc", "cmtl", "cmtl+")
        return free_on_resume(type(self)) - ({"num_train_steps"} if shares else set())


# What may change: the input and the dropout, which no variable depends on.
_CHANGES = (
    "max_seq_length",
    "max_predictions_per_seq",
    "train_batch_size",
    "eval_batch_size",
    "gradient_accumulation_steps",
    "pretrain_tfrecords",
    "eval_tfrecords",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
)


class Phase(NamedTuple):
    """Steps [start, end) of a run and their configuration; examples that were read before."""

    start: int
    end: int
    config: PretrainingConfig
    examples_before: int


def phases_of(config: PretrainingConfig) -> list[Phase]:
    """The phases of a run, one if nothing changes.

    Short sequences first (Devlin et al. 2019, appendix A.2) are `[{"from": 0.9, "max_seq_length": 512}]`, mBART's
    falling dropout `[{"from": 0.5, "hidden_dropout_prob": 0.05}, {"from": 0.8, "hidden_dropout_prob": 0.0}]`. A phase
    begins at a share of num_train_steps, at a checkpoint, and keeps the changes of those before it; so a run with
    phases keeps its num_train_steps when it is resumed.

    Raises:
      UserError: no object, shares that do not rise, hparams that cannot change or do not fit.
    """
    starts, configs = [0], [config]
    changes: dict[str, Any] = {}
    for described in config.phases:
        if not isinstance(described, dict) or not isinstance(described.get("from"), (int, float)):
            raise UserError(f'phases must be objects with a share "from" and hparams, got {shown(described)}')
        new = {name: value for name, value in described.items() if name != "from"}
        for name in new:
            if name not in _CHANGES:
                raise UserError(f"phases: {name} cannot change{closest(name, _CHANGES)} (one of {', '.join(_CHANGES)})")
        starts.append(round(described["from"] * config.num_train_steps))
        if not starts[-2] < starts[-1] < config.num_train_steps:
            raise UserError(f'phases: "from" must rise between 0 and 1, got {shown(described["from"])}')
        changes |= new
        # A number that follows from the length follows from the new one.
        follows = "max_seq_length" in changes and config.max_predictions_per_seq == config.default_predictions
        own = {"max_predictions_per_seq": 0} if follows else {}
        values = layered(type(config), dataclasses.asdict(config), own | changes | {"phases": []})
        configs.append(type(config).from_dict(values))
    phases, examples = [], 0
    for start, end, of_phase in zip(starts, [*starts[1:], config.num_train_steps], configs, strict=True):
        phases.append(Phase(start, end, of_phase, examples))
        examples += (end - start) * of_phase.train_batch_size
    return phases
