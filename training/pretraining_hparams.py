"""What pre-training masks, generates and learns: groups of hparams, each with what is wrong in its combinations.

`configure_pretraining` puts them together with those of a run. No TensorFlow here; objectives are known by what they
declare (pretrain.objectives.spec).
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from electra_tf2.model.architecture import HEAD_SIZE, Architecture
from electra_tf2.training.hparams import NetworkHparams
from electra_tf2.util.catalogue import declared, module_names
from electra_tf2.util.hparams import closest, hparam


def objective_catalogue() -> tuple[Any, ...]:
    """Every objective that there is (pretrain.objectives.spec)."""
    return declared("electra_tf2.pretrain.objectives", "_spec", "SPECS")


@dataclasses.dataclass(frozen=True)
class MaskingHparams:
    """Which tokens of a sequence are masked."""

    max_seq_length: int = hparam(128, "tokens of a record", at_least=5, heading="Sequences and masking")
    max_predictions_per_seq: int = hparam(
        0, "number of masked tokens of a sequence, at most; 0: int((mask_prob + 0.005) * length)", at_least=0
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
        "build_table.py (PMI-masking)",
        choices=module_names("electra_tf2.pretrain.masking_units"),
    )
    unmasked_tokens: list[str] = hparam(
        [], "tokens that are never masked: those that mark sources (build_pretraining_dataset.py --domain-tokens)"
    )
    mask_separators: bool = hparam(False, "whether [SEP] may be masked (COCO-LM)")
    mask_rates: list[float] = hparam(
        [0.85, 0.15, 0.0],
        "shares of the drawn tokens that become [MASK], stay, become random ones (the paper's BERT: 0.8, 0.1, 0.1)",
    )

    def masking_problems(self) -> Iterator[str]:
        """Why no sequence can be masked so."""
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
class ObjectiveHparams(MaskingHparams, NetworkHparams):
    """What the main network learns."""

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
        "before (others' code)",
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
    stack_layers: bool = hparam(
        False,
        "layers of an init_checkpoint with fewer of them are used again, in order, until there are as many as here "
        "(progressive stacking)",
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
        "weight of each auxiliary task's loss; tf and tf_idf have squared errors of up to 100, fs of up to 4, the "
        "others the cross-entropy of a choice",
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
    electric_candidates_only: bool = hparam(
        False, "Electric's loss is computed only on tokens that can be masked, not on [CLS] and [SEP]"
    )

    @property
    def objectives(self) -> list[Any]:
        """What the catalogue (pretrain.objectives.spec) says of the objectives of this run: the generator's first, then
        the main network's, then those beside it."""
        roles = ("generator", "main", "beside")
        return [spec for role in roles for spec in objective_catalogue() if spec.role == role and spec.is_chosen(self)]

    @property
    def trains_main_network(self) -> bool:
        """Whether there is a main network beside the generator; without one the run is BERT's."""
        return any(spec.is_chosen(self) for spec in objective_catalogue() if spec.role == "main")

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

    def objective_problems(self) -> Iterator[str]:
        """Why these objectives do not go together, each said by what owns the rule."""
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
        known = [spec.task for spec in objective_catalogue() if spec.task]
        for task in self.aux_tasks:
            if task not in known:
                yield f"aux_tasks has {task!r}{closest(task, known)} (some of {', '.join(known)})"
        if any(self.aux_tasks.count(task) > 1 for task in self.aux_tasks):
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


@dataclasses.dataclass(frozen=True)
class GeneratorHparams(ObjectiveHparams):
    """Where replacements come from."""

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
    generator_embedding_size: int | None = hparam(
        None, "width of embeddings that are the generator's own (embedding_sharing nes); null: its width", at_least=1
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
        False,
        "the main network starts as a copy of the generator (two-stage training), a language model of its own with the "
        "generator's head",
    )

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
            embedding_size=self.generator_embedding_size or hidden
            if self.untied_generator_embeddings
            else main.embedding_size,
        )

    @property
    def has_own_generator(self) -> bool:
        return self.untied_generator and self.trains_main_network

    def generator_problems(self) -> Iterator[str]:
        """Why there can be no such generator."""
        main, generator = self.architecture, self.generator_architecture
        if self.two_tower_generator and not self.electric_objective:
            if self.uniform_generator:
                yield "two_tower_generator and uniform_generator are both true: choose one"
            if not self.trains_main_network:
                yield "two_tower_generator needs electra_objective or electric_objective"
            if not self.untied_generator:
                yield "two_tower_generator needs untied_generator: a causal tower cannot be the main network"
        if self.mask_separators and self.two_tower_generator:
            yield (
                "mask_separators needs a masked language model as generator: the last token's right-to-left tower has "
                "read the token itself"
            )
        if self.freeze_generator or self.init_generator_checkpoint or self.init_encoder_from_generator:
            if not self.has_own_generator or self.uniform_generator or self.two_tower_generator:
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
                    f"1, generator_layers 1, embeddings of {main.embedding_size}"
                )
        if self.untied_generator_embeddings and self.embedding_sharing != "nes":
            yield f"untied_generator_embeddings and embedding_sharing {self.embedding_sharing} contradict each other"
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
