"""The hyperparameters of pre-training: the original's names and defaults, and ours beside them.

Imports no TensorFlow: a wrong hparam fails in a fraction of a second. `PretrainingConfig.from_dict` is the one way
in; recipes, --hparams and flags all arrive there (util.flags).
"""

import dataclasses
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

from formats.folders import generator_hparams, network_hparams, read_config
from model.architecture import HEAD_SIZE, Architecture, make_architecture
from training.hparams import DeviceHparams, NetworkHparams, OptimizerHparams
from training.phases import phases_of
from util.catalogue import declared, module_names
from util.errors import UserError
from util.hparams import checked, closest, free_hparam, free_on_resume, hparam, layered

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


def _catalogue() -> tuple[Any, ...]:
    """Every objective that there is (pretrain.objectives.spec)."""
    return declared("pretrain.objectives", "_spec", "SPECS")


@dataclasses.dataclass(frozen=True)
class PretrainingConfig(NetworkHparams, OptimizerHparams, DeviceHparams):
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

    # Objectives
    electra_objective: bool = hparam(
        True, "replaced-token detection; false with electric_objective false is BERT", heading="Objectives"
    )
    electric_objective: bool = hparam(False, "noise-contrastive estimation (Electric); implies a two-tower generator")
    corrective_lm_objective: bool = hparam(False, "corrective language modelling and copy detection (COCO-LM)")
    sequence_contrast_objective: bool = hparam(
        False, "contrast of corrupted sequences and crops (COCO-LM), beside another"
    )
    replace_mlm_objective: bool = hparam(False, "masked positions predicted from replacements (ELECTRA's ablation)")
    all_tokens_mlm_objective: bool = hparam(False, "every token predicted, with a copy gate (ELECTRA's ablation)")
    multiple_choice_objective: bool = hparam(
        False, "every token is rejected as original or answered by one of a few candidates (MC-BERT)"
    )
    choice_candidates: int = hparam(
        10, "classes of multiple_choice_objective: the rejection and words, the generator's samples", at_least=2
    )
    adversarial_generator: bool = hparam(False, "the generator maximises the discriminator's loss, by REINFORCE")
    gen_weight: float = hparam(1.0, "weight of the generator's loss", at_least=0)
    disc_weight: float = hparam(50.0, "weight of the main network's loss (lambda in the paper)", at_least=0)
    disc_tokens: str = hparam(
        "all", "tokens that the discriminator's loss is computed on; masked: ELECTRA 15 %", choices=("all", "masked")
    )
    copy_weight: float = hparam(50.0, "weight of COCO-LM's copy loss (lambda_copy)", at_least=0)
    clm_weight: float = hparam(1.0, "weight of the main network's language-modelling loss", at_least=0)
    clm_loss: str = hparam(
        "mixture",
        "form of COCO-LM's language-modelling loss: mixture: the paper's equation 2; weighted_ce: the authors' code; "
        "plain_ce: without copying",
        choices=("mixture", "weighted_ce", "plain_ce"),
    )
    clm_stop_gradient: bool = hparam(True, "the copy probability is a constant in COCO-LM's language-modelling loss")
    clm_head: str = hparam(
        "transform",
        "output layer of the main network's language model: tied: the word table alone (COCO-LM); transform: BERT's "
        "dense layer before it",
        choices=("tied", "transform"),
    )
    scl_weight: float = hparam(1.0, "weight of the loss of sequence contrast", at_least=0)
    scl_temperature: float = hparam(1.0, "temperature of the softmax of sequence contrast", above=0)
    scl_head: str = hparam(
        "none",
        "layers between [CLS] states and the cosine of sequence contrast: none (paper), mlp_ln (the authors' code)",
        choices=("none", "mlp_ln"),
    )
    scl_gather: bool = hparam(
        False, "sequence contrast has its negatives from all devices, not from each device's own sequences"
    )
    crop_fraction: float = hparam(0.9, "part of a sequence that a crop holds; above 1: number of its tokens", above=0)
    crop_mode: str = hparam(
        "body",
        "what a crop is cut from: body: the tokens between [CLS] and [SEP]; raw_cls: all of them, and a [CLS] is put "
        "before (the authors' code)",
        choices=("body", "raw_cls"),
    )
    mpa_objective: bool = hparam(False, "attention from mis-predictions to what misled them is penalised (MPA)")
    mpa_gamma: float = hparam(0.1, "weight of MPA's penalty (gamma)", at_least=0)
    mpa_warmup_steps: int | None = hparam(
        None, "steps over which mpa_gamma grows from 0; null: num_warmup_steps", at_least=0
    )
    mpa_target: str = hparam(
        "scaled_logits",
        "what MPA penalises: scaled_logits: scores of attention (the poster); prob_mass: the attention itself (ours)",
        choices=("scaled_logits", "prob_mass"),
    )
    mpa_stop_gradient: bool = hparam(True, "the smaller scores that mpa_target scaled_logits aims at are constants")
    mpa_layers: list[int] = hparam([-1], "layers whose attention MPA penalises, from 0, or from -1, the last")
    mpa_heads: list[int] = hparam([], "heads of mpa_layers, from 0; none given: the first quarter")
    mpa_table: str = hparam(
        "sparse",
        "how MPA looks up scores of co-occurrence: sparse: among a token's neighbours; dense: in a table of "
        "vocab_size squared float16",
        choices=("sparse", "dense"),
    )
    teacher: str | None = hparam(
        None,
        "folder of a model to learn from, beside ELECTRA's or BERT's objective (DistilBERT); any that "
        "init_checkpoint takes",
        place="read",
    )
    distill_temperature: float = hparam(2.0, "temperature of teacher and student when they are compared", above=0)
    distill_token_weight: float = hparam(
        5.0, "weight of the teacher's distribution at BERT's masked tokens", at_least=0
    )
    distill_detection_weight: float = hparam(
        50.0, "weight of the teacher's opinion of which of ELECTRA's tokens were replaced (ours)", at_least=0
    )
    distill_hidden_weight: float = hparam(1.0, "weight of the cosine of last states and the teacher's", at_least=0)
    init_from_teacher: bool = hparam(
        False, "start from the teacher's weights, with layers 0, 2, 4, ... of one of twice the depth"
    )
    aux_tasks: list[str] = hparam(
        [],
        "auxiliary tasks beside the objective (On Losses), which predict: so (sentence order): whether the two "
        "segments were swapped; tgs (trigram shuffling): the order in which three tokens stood; tcp (token "
        "corruption): which tokens were tampered with; scp (sequence corruption): whether any was; qt (quick "
        "thoughts): which halves of records belong together; fs (FastSent): the other half's words; asp (adjacent "
        "segments): whether the second segment follows, precedes or is of another document; sdp (same document): "
        "whether it follows, is from elsewhere in the document or of another; tf, tf_idf (term frequency): how often "
        "a token occurs in its record, 0 to 10. asp and sdp need records built with --other-segments",
    )
    aux_weight: float = hparam(
        1.0,
        "weight of each auxiliary task's loss; tf and tf_idf have squared errors of up to 100, the others the "
        "cross-entropy of a choice",
        at_least=0,
    )
    aux_combination: str = hparam(
        "sum",
        "what is trained at a step: sum: everything; inc: one task more at each stage; alt: objective and tasks in "
        "turn; cmtl: one of them, in stages; alt+, cmtl+: the objective always, and one task beside it",
        choices=("sum", "inc", "alt", "alt+", "cmtl", "cmtl+"),
    )
    use_task_ids: bool = hparam(
        False,
        "the network is told of the auxiliary task of each step by a learned vector, added to its inputs; needs an "
        "aux_combination that takes turns",
    )
    mask_prob: float = hparam(0.15, "share of a sequence's tokens that is masked", above=0, below=1)
    mask_sampling: str = hparam(
        "with_replacement",
        "how the positions to mask are drawn; the original draws with replacement, so about 7 % of them twice",
        choices=("with_replacement", "without_replacement"),
    )
    mask_count: str = hparam(
        "round",
        "number of masked tokens of a sequence: mask_prob x length, rounded, or up or down at random to that mean "
        "(COCO-LM)",
        choices=("round", "probabilistic"),
    )
    mask_unit: str = hparam(
        "token",
        "what is masked as a whole: a token, a word with all its pieces, a span of words (SpanBERT), an n-gram of "
        "build_pmi_vocab.py (PMI-masking)",
        choices=module_names("pretrain.masking_units"),
    )
    unmasked_tokens: list[str] = hparam(
        [], "tokens that are never masked: those that mark sources (build_pretraining_dataset.py --domain-tokens)"
    )
    mask_separators: bool = hparam(False, "whether [SEP] may be masked (COCO-LM)")
    mask_rates: list[float] = hparam(
        [0.85, 0.15, 0.0],
        "shares of the drawn tokens that become [MASK], stay, become random ones (the paper's BERT: 0.8, 0.1, 0.1)",
    )
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
    electric_candidates_only: bool = hparam(
        False, "Electric's loss is computed only on tokens that can be masked, not on [CLS] and [SEP]"
    )

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

    # Generator
    uniform_generator: bool = hparam(
        False, "replacements are drawn uniformly from the vocabulary; no generator is trained", heading="Generator"
    )
    two_tower_generator: bool = hparam(False, "the generator is two causal towers over the unmasked input (Electric)")
    untied_generator: bool = hparam(
        True, "the generator has a network of its own; false: all its weights are the main network's"
    )
    untied_generator_embeddings: bool = hparam(False, "the generator has embeddings of its own")
    embedding_sharing: str | None = hparam(
        None,
        "embeddings of main network and generator: es: the same; nes: each its own; gdes: the main "
        "network's are the generator's, without gradient, plus differences of its own (DeBERTaV3); null: es or nes",
        choices=("es", "nes", "gdes"),
    )
    generator_layers: float = hparam(1.0, "generator's layers as a share of the main network's", above=0, at_most=4)
    generator_hidden_size: float = hparam(
        0.25, "generator's width as a share of the main network's", above=0, at_most=4
    )
    disallow_correct: bool = hparam(False, "the generator never samples the original token")
    temperature: float = hparam(1.0, "temperature of the generator's softmax when it is sampled", above=0)
    generator_sample_mode: str = hparam(
        "train",
        "dropout of the network that is sampled: train: on; eval: a second pass without (COCO-LM); zero_dropout: the "
        "generator has none and shares only the word table",
        choices=("train", "eval", "zero_dropout"),
    )
    generator_exits: list[int] = hparam(
        [],
        "layers of the generator, from 1, after each of which it is a language model of its own, whose logits are "
        "mixed (AMOS: [4, 6, 8] of 8); none given: the last layer alone, not mixed",
    )
    mixture_temperature: float = hparam(
        0.3, "temperature of the softmax whose gradient stands for that of generator_exits' samples", above=0
    )
    mixture_gradient: float = hparam(
        -1.0,
        "factor of the main network's gradient where it reaches the shares of generator_exits: -1: samples become "
        "harder (AMOS); 0: the shares are not trained",
    )
    freeze_generator: bool = hparam(False, "the generator is not trained")
    init_generator_checkpoint: str | None = hparam(
        None,
        "model whose weights the generator starts from: a masked language model or another generator",
        place="other",
    )
    init_encoder_from_generator: bool = hparam(
        False, "the main network starts as a copy of the generator (two-stage training)"
    )

    # Batches
    max_seq_length: int = hparam(128, "tokens of a record", at_least=5, heading="Batches")
    max_predictions_per_seq: int = hparam(
        0, "number of masked tokens of a sequence, at most; 0: int((mask_prob + 0.005) * length)", at_least=0
    )
    train_batch_size: int = hparam(128, "sequences of a step, over all devices and micro-batches", at_least=1)
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
        "", "file of mpa_objective's table, of build_cooccurrence.py; default <data_dir>/cooccurrence.npz", place="read"
    )
    pmi_vocab_file: str = free_hparam(
        "", "file of the n-grams of mask_unit pmi; default <data_dir>/pmi_vocab.npz", place="read"
    )
    document_frequency_file: str = free_hparam(
        "",
        "file of tf_idf's table, of build_document_frequency.py; default <data_dir>/document_frequency.npz",
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

    compat: str = hparam(
        "none",
        "which bugs of the original program that are fixed here return: none, or original: all (docs/differences.md)",
        choices=("none", "original"),
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
        """Sizes, vocabulary and casing of the folders that the network and the generator start from (formats.folders);
        debug's small model. All win over a recipe, and yield to what is given.

        Raises:
          UserError: one of them holds a network that we do not have, or the generator's does not fit the other.
        """
        main = _DEBUG if hparams.get("debug") else {}
        whole = hparams.get("init_checkpoint") or ""
        main = main | network_hparams(whole) | generator_hparams(whole)
        start = hparams.get("init_generator_checkpoint") or ""
        generator = network_hparams(start)
        saved = read_config(start) or {}
        of_a_pair = any(
            saved.get(spec.flag) for spec in _catalogue() if spec.role == "main"
        )  # its generator is smaller
        if not generator or of_a_pair or hparams.get("init_encoder_from_generator"):
            return main
        together = layered(cls, hparams, main)
        vocab, overrides = generator["vocab_size"], together.get("model_hparam_overrides", {})
        sizes = make_architecture(together.get("model_size", "small"), overrides, vocab, None)
        own = make_architecture(generator["model_size"], generator["model_hparam_overrides"], vocab, None)
        if "vocab_size" in main and main["vocab_size"] != generator["vocab_size"]:
            raise UserError(
                f"init_generator_checkpoint: {start} has {generator['vocab_size']} tokens, init_checkpoint "
                f"{main['vocab_size']}: they must share a vocabulary"
            )
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
        densest = max(self.mask_prob, self.initial_mask_prob or 0)
        return {
            "embedding_size": self.architecture.embedding_size if self.debug else self.width_of_embeddings,
            "max_predictions_per_seq": self.max_predictions_per_seq
            or (
                int((densest + 0.005) * self.max_seq_length)
                if self.mask_count == "round"
                else int(densest * self.max_seq_length) + 1
            ),
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
        yield from self._objective_problems()
        yield from self._generator_problems()
        yield from self._masking_problems()
        yield from self._schedule_problems()
        yield from self.batch_problems(self.train_batch_size)
        yield from self.device_problems()
        yield from self._phase_problems()

    def _objective_problems(self) -> Iterator[str]:
        main = [spec.flag for spec in self.objectives if spec.role == "main"]
        if len(main) > 1:
            others = "; the others need electra_objective false" if "electra_objective" in main else ""
            yield f"{' and '.join(main)} are both true: choose one{others}"
        for spec in self.objectives:
            if spec.role == "beside" and not main and not spec.without_main:
                yield f"{spec.flag} stands beside another: set one, too"
            yield from spec.problems(self)
        yield from self._task_problems()
        yield from self._unmet_needs()

    def _task_problems(self) -> Iterator[str]:
        known = [spec.task for spec in _catalogue() if spec.task]
        for task in self.aux_tasks:
            if task not in known:
                yield f"aux_tasks has {task!r}{closest(task, known)} (some of {', '.join(known)})"
        if len(set(self.aux_tasks)) < len(self.aux_tasks):
            yield f"aux_tasks names a task twice: {', '.join(map(str, self.aux_tasks))}"
        if self.aux_combination != "sum" and not self.aux_tasks:
            yield f"aux_combination {self.aux_combination} needs aux_tasks"
        elif self.aux_combination == "cmtl+" and len(self.aux_tasks) < 2:
            yield "aux_combination cmtl+ needs two aux_tasks or more: with one, it is sum"
        if self.use_task_ids and self.aux_combination in ("sum", "inc"):
            yield f"use_task_ids needs tasks that take turns: aux_combination {self.aux_combination} trains several"
        elif self.use_task_ids and self.aux_combination.endswith("+") and len(self.aux_tasks) < 2:
            yield f"use_task_ids with aux_combination {self.aux_combination} needs two aux_tasks or more to tell apart"

    def _unmet_needs(self) -> Iterator[str]:
        """What objectives need of the forward pass and the run cannot give."""
        layers, heads = self.architecture.num_hidden_layers, self.architecture.num_attention_heads
        needs = [spec.needs(self) for spec in self.objectives]
        wanted = sorted(set().union(*(need.attention for need in needs)))
        lacking = [f"head {head} of layer {layer}" for layer, head in wanted if layer >= layers or head >= heads]
        if lacking:
            yield f"an objective reads {', '.join(lacking)} (from 0); there are {layers} layers of {heads} heads"
        teachers = {need.teacher.checkpoint for need in needs if need.teacher is not None}
        if len(teachers) > 1:
            yield f"a run has one teacher, not {' and '.join(sorted(teachers))}"

    def _generator_problems(self) -> Iterator[str]:
        main, generator = self.architecture, self.generator_architecture
        if self.two_tower_generator and not self.electric_objective:
            if self.uniform_generator:
                yield "two_tower_generator and uniform_generator are both true: choose one"
            if not self.trains_main_network:
                yield "two_tower_generator needs electra_objective or electric_objective"
            if not self.untied_generator:
                yield "two_tower_generator needs untied_generator: a causal tower cannot be the main network"
        if self.freeze_generator or self.init_generator_checkpoint or self.init_encoder_from_generator:
            if not self._has_own_generator or self.uniform_generator or self.two_tower_generator:
                yield (
                    "freeze_generator, init_generator_checkpoint and init_encoder_from_generator need "
                    "a masked language model of its own as generator"
                )
            if self.freeze_generator and self.embedding_sharing == "es":
                yield "freeze_generator needs untied_generator_embeddings: shared ones are trained by the main network"
            if self.init_encoder_from_generator and generator != main:
                yield (
                    "init_encoder_from_generator needs a generator of the main network's size: generator_hidden_size "
                    f"1, generator_layers 1, embeddings of {main.embedding_size}"
                )
        if self.untied_generator_embeddings and self.embedding_sharing != "nes":
            yield f"untied_generator_embeddings and embedding_sharing {self.embedding_sharing} contradict each other"
        if self.embedding_sharing == "gdes":
            if not self._has_own_generator or self.uniform_generator:
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

    def _phase_problems(self) -> Iterator[str]:
        try:
            phases_of(self)
        except UserError as error:
            yield str(error).removeprefix("hparams: ")

    def _masking_problems(self) -> Iterator[str]:
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
        if self.mask_separators and self.two_tower_generator:
            yield (
                "mask_separators needs a masked language model as generator: the last token's right-to-left tower has "
                "read the token itself"
            )

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
        finals = {"mask_prob": self.mask_prob, "temperature": self.temperature, "main_weight": 1.0}
        ramped = [
            f"initial_{name}" for name, final in finals.items() if getattr(self, f"initial_{name}") not in (None, final)
        ]
        if self.temperature_decay:
            if "initial_temperature" not in ramped:
                yield "temperature_decay without another initial_temperature has no effect"
            ramped = [name for name in ramped if name != "initial_temperature"]
        if ramped and not self.ramp_start + self.ramp_steps:
            yield f"{', '.join(ramped)} without ramp_start or ramp_steps has no effect"

    def notes(self) -> list[str]:
        """What is legal but deserves a look."""
        notes = []
        main, generator = self.architecture, self.generator_architecture
        wanted = round(main.hidden_size * self.generator_hidden_size)
        if self._has_own_generator and generator.hidden_size != wanted:
            notes.append(
                f"generator_hidden_size {self.generator_hidden_size:g} makes a width of {wanted}, rounded to "
                f"{generator.hidden_size} so that {generator.num_attention_heads} heads divide it"
            )
        if self.freeze_generator and not self.init_generator_checkpoint:
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
    def generator_architecture(self) -> Architecture:
        """Sizes of the generator's network (the main network's if they share all weights).

        Where the rounded width is no multiple of its number of heads, it is rounded to the nearest that is; the
        original fails there. One that is as wide as the main network has its heads and feed-forward width too.
        """
        main = self.architecture
        if not self._has_own_generator:
            return main
        if self.generator_sample_mode == "zero_dropout":
            main = dataclasses.replace(main, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        hidden = round(main.hidden_size * self.generator_hidden_size)
        heads, inner = max(1, hidden // HEAD_SIZE), 4 * hidden
        if self.compat != "original":
            hidden = max(1, round(hidden / heads)) * heads
            inner = 4 * hidden
            if hidden == main.hidden_size:
                heads, inner = main.num_attention_heads, main.intermediate_size
        return dataclasses.replace(
            main,
            hidden_size=hidden,
            num_hidden_layers=round(main.num_hidden_layers * self.generator_layers),
            intermediate_size=inner,
            num_attention_heads=heads,
            embedding_size=hidden if self.untied_generator_embeddings else main.embedding_size,
        )

    @property
    def _has_own_generator(self) -> bool:
        return self.untied_generator and self.trains_main_network

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
        stages = bool(self.phases) or self.aux_combination in ("inc", "cmtl", "cmtl+")
        return free_on_resume(type(self)) - ({"num_train_steps"} if stages else set())

    @property
    def crop_length(self) -> int:
        """Tokens of a crop of a full-length sequence, special ones included."""
        if self.crop_mode == "raw_cls":
            return min(self.max_seq_length, self._crop_span(self.max_seq_length) + 1)
        return self._crop_span(self.max_seq_length - 2) + 2

    @property
    def half_length(self) -> int:
        """Tokens of half of a full-length sequence, special ones included."""
        return (self.max_seq_length - 1) // 2 + 2

    def _crop_span(self, tokens: int) -> int:
        if self.crop_fraction > 1:
            return min(tokens, int(self.crop_fraction))
        return max(1, int(self.crop_fraction * tokens + 1e-4))

    @property
    def objectives(self) -> list[Any]:
        """What the catalogue (pretrain.objectives.spec) says of the objectives of this run: the generator's first, then
        the main network's, then those beside it."""
        roles = ("generator", "main", "beside")
        return [spec for role in roles for spec in _catalogue() if spec.role == role and spec.is_chosen(self)]

    @property
    def trains_main_network(self) -> bool:
        """Whether there is a main network beside the generator; without one the run is BERT's."""
        return any(spec.is_chosen(self) for spec in _catalogue() if spec.role == "main")
