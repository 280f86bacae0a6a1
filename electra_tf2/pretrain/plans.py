"""Plans of pre-training for a corpus and some hours: which runs, of which sizes, for how many steps.

The tables at the top rest on runs that were measured (docs/small_budgets.md); by them `make_plan` divides a budget of
FLOPs among runs. `electra plan` prints a plan as a script.
"""

import dataclasses
import math
from typing import NamedTuple

from electra_tf2.config.recipes import read_recipe
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain import next_steps
from electra_tf2.pretrain.flops import step_flops


class Stage(NamedTuple):
    """A pre-training run of a plan, before the budget is known.

    recipe: of the run.
    share: of the plan's FLOPs.
    decay: share of its steps in which the learning rate falls; 0: as in the recipe.
    start: (hparam that names a model to start from, index of the earlier stage that trains this model), ...
    """

    recipe: str
    share: float
    decay: float = 0.0
    start: tuple[tuple[str, int], ...] = ()


class Rule(NamedTuple):
    """Stages for budgets of at least `least_flops`, and the reason for them."""

    least_flops: float
    stages: tuple[Stage, ...]
    why: str


class VocabularySize(NamedTuple):
    """Size of the vocabulary for corpora of at least `least_bytes`; bytes of English that a token stands for."""

    least_bytes: float
    size: int
    bytes_per_token: float


class Expectation(NamedTuple):
    """Scores that a measured budget reached (docs/small_budgets.md).

    scores: of detection; of fine-tuning, where that was measured, and those of a bag of words to compare them with.
    """

    flops: float
    detection: str
    fine_tuning: str = ""

    @property
    def scores(self) -> str:
        if not self.fine_tuning:
            return self.detection
        return f"{self.detection}; {self.fine_tuning} ({BAG_OF_WORDS})"


_DETECTOR_START = (("init_checkpoint", 0), ("init_generator_checkpoint", 0))
_DEEP_START = (("init_checkpoint", 1), ("init_generator_checkpoint", 0))
RULES = (
    Rule(
        0.0,
        (Stage("electra_tiny", 1.0),),
        "a small network leaves the plateau of token frequencies in minutes",
    ),
    Rule(
        1.5e14,
        (
            Stage("bert_mini", 0.38, 0.33),
            Stage("electra_mini", 0.62, 0.33, _DETECTOR_START),
        ),
        "a detector that starts from a masked language model follows its generator at once, where one from random "
        "weights calls everything real for thousands of steps",
    ),
    Rule(
        2e15,  # at 1.9e15 FLOPs eight layers, stacked so, detected better than four: 0.845 and 0.836 (commit 6585524)
        (
            Stage("bert_mini", 0.1, 0.33),
            Stage("electra_mini", 0.15, 0.33, _DETECTOR_START),
            Stage("electra_deep", 0.75, 0.4, _DEEP_START),
        ),
        "stacked to eleven, the layers go on at once from where four were",
    ),
)
VOCABULARIES = (VocabularySize(0.0, 4096, 4.0), VocabularySize(5e6, 8192, 4.6))
MANY_CHINESE = 0.1  # share of Chinese characters in a corpus above which the vocabulary makes room for them
CHINESE_ALPHABET = 6000  # the --limit-alphabet for such a corpus, for which 8,192 tokens have room
LENGTH = 64  # tokens of a record, in all runs of docs/small_budgets.md
LEAST_HELD_OUT = 200_000  # bytes of text on which evaluations say something
MOST_EPOCHS = 40  # beyond which the same text teaches next to nothing (Muennighoff et al. 2023, section 6)
EXPECTED = (
    Expectation(2.3e13, "disc_auc 0.64"),
    Expectation(5.8e14, "disc_auc 0.802", "STS-B 82.1, SST-2 81.8, chunking 94.0"),
    Expectation(2.4e16, "disc_auc 0.854", "STS-B 84.4, SST-2 87.6, chunking 95.6"),
)
BAG_OF_WORDS = "a bag of words: 73.0, 81.7, 88.5"
_NEAR = 0.85  # a budget of this share of a measured one counts as having reached it
_FAR = 1.5  # a budget of this multiple of a measured one, or more, may reach other scores


class PlannedRun(NamedTuple):
    """A stage with its steps and FLOPs.

    batch: sequences of a step.
    warmup, decay: steps in which the learning rate rises, and falls.
    """

    stage: Stage
    steps: int
    batch: int
    warmup: int
    decay: int
    flops: float


@dataclasses.dataclass(frozen=True)
class Plan:
    """Runs to make, one after another.

    limit_alphabet: characters that the vocabulary has room for; 0: as many as build-vocab takes by default.
    tokens: estimated size of the corpus in tokens.
    asked: FLOPs of the hours at hand; `flops` is the FLOPs of the runs, which may be fewer.
    epochs: how often the text is read.
    """

    rule: Rule
    vocab_size: int
    limit_alphabet: int
    tokens: float
    runs: tuple[PlannedRun, ...]
    asked: float
    epochs: float

    @property
    def flops(self) -> float:
        return sum(run.flops for run in self.runs)

    @property
    def expected(self) -> str:
        """Describes the scores of the largest measured budget that this plan reaches, and says how far that is."""
        least = EXPECTED[0]
        if self.flops < _NEAR * least.flops:
            return f"less than was measured with the least budget, {least.scores} at {least.flops:.2g} FLOP"
        reached = least
        for larger in EXPECTED[1:]:
            if self.flops >= _NEAR * larger.flops:
                reached = larger
        measured = f"{reached.scores}, measured at {reached.flops:.2g} FLOP"
        if self.flops >= _FAR * reached.flops:
            measured += f", the nearest measured budget below: this is {self.flops / reached.flops:.2g} times as much"
        return measured


def make_plan(text_bytes: float, flops: float, chinese: float = 0.0) -> Plan:
    """Divides a budget among runs.

    Args:
      text_bytes: size of the corpus, uncompressed.
      flops: budget: the FLOPs of the hours at hand.
      chinese: share of Chinese characters, each of which is three bytes and a token by itself.
    """
    is_chinese = chinese > MANY_CHINESE
    vocabulary = VOCABULARIES[0]
    for larger in VOCABULARIES[1:]:
        if is_chinese or text_bytes >= larger.least_bytes:
            vocabulary = larger
    characters = text_bytes / (1 + 2 * chinese)
    tokens = characters * (chinese + (1 - chinese) / vocabulary.bytes_per_token)

    asked = flops
    # On a small text fewer FLOPs are spent, so that it is not read too often. They may fall under another rule, whose
    # steps cost less, so that the same FLOPs read more text: hence several rounds.
    for _ in range(9):
        rule = _rule_for(flops)
        runs = tuple(_planned(stage, stage.share * flops, vocabulary.size) for stage in rule.stages)
        epochs = sum(run.steps * run.batch for run in runs) * LENGTH / tokens
        if epochs <= MOST_EPOCHS:
            break
        flops *= MOST_EPOCHS / epochs
    limit_alphabet = CHINESE_ALPHABET if is_chinese else 0
    return Plan(rule, vocabulary.size, limit_alphabet, tokens, runs, asked, epochs)


def held_out_share(text_bytes: float) -> float:
    """Share of the documents to hold out: a hundredth, of small corpora up to a tenth."""
    share = LEAST_HELD_OUT / max(text_bytes, 1.0)
    return min(0.1, max(0.01, round(share, 2)))


def _rule_for(flops: float) -> Rule:
    rule = RULES[0]
    for larger in RULES[1:]:
        if flops >= larger.least_flops:
            rule = larger
    return rule


def _planned(stage: Stage, flops: float, vocab_size: int) -> PlannedRun:
    """The stage with as many steps as these FLOPs pay for."""
    config = stage_config(stage, vocab_size)
    flops_per_step = step_flops(config)
    steps = max(8, int(flops / flops_per_step))
    warmup = min(config.num_warmup_steps, steps // 4)
    decay = 0
    if stage.decay:
        decay = max(1, int(stage.decay * steps))
    return PlannedRun(stage, steps, config.train_batch_size, warmup, decay, steps * flops_per_step)


def stage_config(stage: Stage, vocab_size: int) -> PretrainingConfig:
    return PretrainingConfig.from_dict(read_recipe(stage.recipe) | {"vocab_size": vocab_size})


def export_formats(plan: Plan, rate: float) -> str:
    """Names the formats that the plan's last model can be written in, and what leads to all of them.

    Args:
      rate: FLOPs a second.
    """
    network = stage_config(plan.runs[-1].stage, plan.vocab_size).architecture
    formats = next_steps.export_formats(network)
    if next_steps.leaves_for_huggingface(network):
        return formats
    exportable = RULES[1]
    names = " and ".join(stage.recipe for stage in exportable.stages)
    hours = math.ceil(100 * exportable.least_flops / rate / 3600) / 100
    needed = f"--hours {hours:g} or more"
    if plan.asked >= exportable.least_flops:
        needed = "more text, for the hours that you have"
    return f"{formats}; {names} can be exported there, which a plan takes with {needed} (docs/pretraining.md: by hand)"
