"""The hyperparameters of pre-training: the original's names and defaults, and ours beside them.

Imports no TensorFlow: a wrong hparam fails in a fraction of a second. `PretrainingConfig.from_dict` is the one way
in; recipes, --hparams and flags all arrive there (util.flags).
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import Any

from electra_tf2.exchange.formats.folders import check_shared_vocabulary, config_of, generator_hparams, network_hparams
from electra_tf2.model.architecture import HEAD_SIZE, make_architecture
from electra_tf2.training.hparams import DeviceHparams, OptimizerHparams
from electra_tf2.training.phases import phases_of
from electra_tf2.training.pretraining_hparams import GeneratorHparams, objective_catalogue
from electra_tf2.util.errors import UserError
from electra_tf2.util.hparams import checked, free_hparam, free_on_resume, hparam, layered

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
class PretrainingConfig(GeneratorHparams, OptimizerHparams, DeviceHparams):
    """Everything that a pre-training run depends on."""

    # Run
    model_name: str = free_hparam(
        "electra_small", "name of the run; also of the recipe used, where there is one", heading="Run"
    )
    recipe: str = free_hparam("", "recipe of the run; default: the one named like the model")
    data_dir: str = free_hparam("data", "folder of vocabulary, records and models", place="other")
    debug: bool = free_hparam(False, "a 3-layer, 144-wide model and 20 steps, to try out the machinery")
    do_train: bool = free_hparam(True, "train the model")
    do_eval: bool = free_hparam(False, "evaluate the model on held-out records; after training if both are set")

    # Optimisation
    learning_rate: float = hparam(5e-4, "peak learning rate", at_least=0, heading="Optimisation")
    lr_decay_power: float = hparam(1.0, "power of the polynomial decay to 0 (1: linear)", above=0)
    lr_schedule: str = hparam(
        "multiply",
        "how warm-up and decay go together: multiply: warm-up factor x decay from step 0 (the original); separate: "
        "decay starts after warm-up; trapezoid: the peak is kept until lr_decay_steps are left, so that a run can be "
        "prolonged from before them",
        choices=("multiply", "separate", "trapezoid"),
    )
    lr_decay_steps: int = free_hparam(
        0, "steps of the decay of lr_schedule trapezoid; 0: a fifth of num_train_steps", at_least=0
    )
    num_warmup_steps: int = hparam(10000, "steps in which the learning rate rises to its peak, linearly", at_least=0)
    initial_mask_prob: float | None = hparam(
        None, "mask_prob at the start of a run (see ramp_start); null: mask_prob", above=0, below=1
    )
    initial_temperature: float | None = hparam(None, "temperature at the start of a run; null: temperature", above=0)
    initial_main_weight: float = hparam(1.0, "factor of the main network's losses at the start of a run", at_least=0)
    ramp_start: int = hparam(0, "step from which the initial_ values move to mask_prob, temperature and 1", at_least=0)
    ramp_steps: int = hparam(0, "number of steps in which the initial_ values move, linearly", at_least=0)
    temperature_decay: float = hparam(
        0.0,
        "share of num_train_steps in which the distance from initial_temperature to temperature falls to 1/e "
        "(Fast-ELECTRA: 0.1); 0: linearly, by ramp_steps",
        at_least=0,
    )

    # Training
    num_train_steps: int = free_hparam(1000000, "number of training steps", at_least=0, heading="Training")
    phases: list[Any] = hparam(
        [],
        'hparams of the input and dropout that change in the course of the run: [{"from": 0.9, "max_seq_length": 512, '
        '"pretrain_tfrecords": ...}, ...]',
    )
    iterations_per_loop: int = free_hparam(200, "steps between two reports of the losses", at_least=1)
    save_checkpoints_steps: int = free_hparam(1000, "steps between two checkpoints", at_least=1)
    keep_checkpoint_max: int = free_hparam(5, "number of checkpoints that are kept, the newest", at_least=1)
    eval_every_steps: int = free_hparam(
        0, "steps between two evaluations on held-out records; 0: none during training", at_least=0
    )
    num_eval_steps: int = free_hparam(100, "number of batches of an evaluation, at most", at_least=1)
    seed: int = hparam(0, "seed of initial values, masking, sampling, dropout and shuffling", at_least=0)
    init_checkpoint: str | None = free_hparam(
        None,
        "model to start from, its weights only: of ours, Hugging Face's, or the original's TF1 checkpoint",
        place="other",
    )
    overwrite: bool = free_hparam(False, "delete what a previous run left in model_dir")

    # Batches
    train_batch_size: int = hparam(
        128, "sequences of a step, over all devices and micro-batches", at_least=1, heading="Batches"
    )
    eval_batch_size: int = free_hparam(128, "sequences of an evaluation batch, over all devices", at_least=1)

    # Files
    pretrain_tfrecords: str = free_hparam(
        "",
        "pattern of the training records; default <data_dir>/pretrain_tfrecords/pretrain_data.tfrecord*",
        heading="Files",
        place="read",
    )
    eval_tfrecords: str = free_hparam(
        "", "pattern of the held-out records; default <data_dir>/pretrain_tfrecords/dev_data.tfrecord*", place="read"
    )
    vocab_file: str = free_hparam("", "file of the vocabulary; default <data_dir>/vocab.txt", place="read")
    cooccurrence_file: str = free_hparam(
        "", "file of mpa_objective's table, of build_table.py; default <data_dir>/cooccurrence.npz", place="read"
    )
    pmi_vocab_file: str = free_hparam(
        "", "file of the n-grams of mask_unit pmi; default <data_dir>/pmi_vocab.npz", place="read"
    )
    document_frequency_file: str = free_hparam(
        "",
        "file of tf_idf's table, of build_table.py; default <data_dir>/document_frequency.npz",
        place="read",
    )
    model_dir: str = free_hparam(
        "", "folder of checkpoints and logs; default <data_dir>/models/<model_name>", place="other"
    )
    results_dir: str = free_hparam("", "folder of the results; default <model_dir>/results", place="other")
    results_txt: str = free_hparam(
        "", "file of metrics as a table; default <results_dir>/unsup_results.txt", place="other"
    )
    results_json: str = free_hparam(
        "", "file of metrics as JSON; default <results_dir>/unsup_results.json", place="other"
    )

    @classmethod
    def from_dict(cls, hparams: Mapping[str, Any]) -> "PretrainingConfig":
        """Checks the hparams, fills in what follows from others, and refuses combinations that make no sense.

        Raises:
          UserError: names every problem.
        """
        values = checked(cls, hparams)
        if values.get("debug"):
            values = _DEBUG | values
        if values.get("electric_objective"):
            values["two_tower_generator"] = True
        config = cls(**values)
        config = dataclasses.replace(config, **config._derived())
        problems = list(config._problems())
        if problems:
            raise UserError("hparams: " + "; ".join(problems))
        return config

    @classmethod
    def implied(cls, hparams: Mapping[str, Any]) -> dict[str, Any]:
        """Sizes, vocabulary and casing of the folders that network and generator start from; debug's small model.

        All win over a recipe, and yield to what is given (exchange.formats.folders).

        Raises:
          UserError: wrong hparams; one of the folders holds a network that we do not have, or the generator's does not
            fit the other.
        """
        hparams = checked(cls, hparams)
        main = _DEBUG if hparams.get("debug") else {}
        whole = hparams.get("init_checkpoint") or ""
        main = main | network_hparams(whole) | generator_hparams(whole)
        start = hparams.get("init_generator_checkpoint") or ""
        generator = network_hparams(start)
        saved = config_of(start) or {}
        of_a_pair = any(saved.get(spec.flag) for spec in objective_catalogue() if spec.role == "main")
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
        if width != sizes.hidden_size and shape != (rule := (max(1, width // HEAD_SIZE), 4 * width)):
            raise UserError(
                f"init_generator_checkpoint: {start} has (heads, feed-forward width) {shape}; a generator of width "
                f"{width} has {rule} here"
            )
        return main | {
            "generator_hidden_size": width / sizes.hidden_size,
            "generator_layers": own.num_hidden_layers / sizes.num_hidden_layers,
        }

    def _derived(self) -> dict[str, Any]:
        """Values of the fields that were left to follow from others."""
        records = os.path.join(self.data_dir, "pretrain_tfrecords")
        model_dir = self.model_dir or os.path.join(self.data_dir, "models", self.model_name)
        results_dir = self.results_dir or os.path.join(model_dir, "results")
        return {
            "embedding_size": self.architecture.embedding_size if self.debug else self.width_of_embeddings,
            "max_predictions_per_seq": self.max_predictions_per_seq or self.default_predictions,
            "pretrain_tfrecords": self.pretrain_tfrecords or os.path.join(records, "pretrain_data.tfrecord*"),
            "eval_tfrecords": self.eval_tfrecords or os.path.join(records, "dev_data.tfrecord*"),
            "vocab_file": self.vocab_file or os.path.join(self.data_dir, "vocab.txt"),
            "cooccurrence_file": self.cooccurrence_file or os.path.join(self.data_dir, "cooccurrence.npz"),
            "document_frequency_file": self.document_frequency_file
            or os.path.join(self.data_dir, "document_frequency.npz"),
            "embedding_sharing": self.embedding_sharing or ("nes" if self.untied_generator_embeddings else "es"),
            "untied_generator_embeddings": self.untied_generator_embeddings or self.embedding_sharing == "nes",
            "pmi_vocab_file": self.pmi_vocab_file or os.path.join(self.data_dir, "pmi_vocab.npz"),
            "model_dir": model_dir,
            "results_dir": results_dir,
            "results_txt": self.results_txt or os.path.join(results_dir, "unsup_results.txt"),
            "results_json": self.results_json or os.path.join(results_dir, "unsup_results.json"),
        }

    def _problems(self) -> Iterator[str]:
        """What is wrong with the combination, each said by what owns the rule."""
        main = self.architecture
        yield from main.problems()
        yield from main.length_problems(self.max_seq_length)
        yield from self.objective_problems()
        yield from self.generator_problems()
        yield from self.masking_problems()
        yield from self._schedule_problems()
        yield from self.batch_problems(self.train_batch_size)
        yield from self.device_problems()
        yield from self._phase_problems()

    def _phase_problems(self) -> Iterator[str]:
        try:
            phases_of(self)
        except UserError as error:
            yield str(error).removeprefix("hparams: ")

    def _schedule_problems(self) -> Iterator[str]:
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
        if self._ramped and not self.ramp_start + self.ramp_steps:
            yield f"{', '.join(self._ramped)} without ramp_start or ramp_steps has no effect"

    @property
    def _ramped(self) -> list[str]:
        """The hparams whose values move from ramp_start on."""
        finals = {"mask_prob": self.mask_prob, "main_weight": 1.0}
        if not self.temperature_decay:
            finals["temperature"] = self.temperature
        moves = {f"initial_{name}": getattr(self, f"initial_{name}") not in (None, finals[name]) for name in finals}
        return [name for name, does in moves.items() if does]

    def notes(self) -> list[str]:
        """What is legal but deserves a look."""
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
        beside = any(spec.role == "beside" for spec in self.objectives)
        if self.initial_main_weight != 1.0 and not (self.trains_main_network or beside):
            notes.append("initial_main_weight has no effect: there is no main network beside the generator")
        if self.ramp_start + self.ramp_steps and not self._ramped:
            notes.append("ramp_start and ramp_steps have no effect: there is no initial_ value for them to move")
        if self.freeze_generator and not (self.init_generator_checkpoint or self.init_checkpoint):
            notes.append("freeze_generator without init_generator_checkpoint: replacements come from random weights")
        small_batch = self.train_batch_size <= 256  # COCO-LM's batches of 2048 bear more
        too_high = self.model_size != "small" and self.learning_rate > _PAPER_LEARNING_RATE
        if self.electra_objective and small_batch and too_high:
            notes.append(
                f"learning_rate {self.learning_rate:g} is above the {_PAPER_LEARNING_RATE:g} of the paper's "
                f"{self.model_size} model: training may diverge"
            )
        return notes

    @property
    def default_predictions(self) -> int:
        """max_predictions_per_seq where it is not given: as many as mask_prob makes."""
        densest = max(self.mask_prob, self.initial_mask_prob or 0)
        if self.mask_count == "round":
            return int((densest + 0.005) * self.max_seq_length)
        return int(densest * self.max_seq_length) + 1

    @property
    def decay_steps(self) -> int:
        """Steps of a trapezoid's final decay; 0 for the other schedules."""
        if self.lr_schedule != "trapezoid":
            return 0
        return self.lr_decay_steps or max(1, self.num_train_steps // 5)

    @property
    def free_to_change(self) -> frozenset[str]:
        """Names of the hparams that may differ when this run is resumed."""
        # Shares of the run: steps already done would move.
        shares = self.phases or self.temperature_decay or self.aux_combination in ("inc", "cmtl", "cmtl+")
        return free_on_resume(type(self)) - ({"num_train_steps"} if shares else set())
