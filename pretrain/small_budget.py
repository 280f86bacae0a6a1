"""Plans of what to pre-train on 10 to 100 MB of one's own text in the hours at hand, as docs/small_budgets.md measured.

The rules are the tables at the top. `make_plan` prices the recipes that they name and divides the hours among them. No
TensorFlow is imported.
"""

import dataclasses
from typing import NamedTuple

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.flops import training_flops_per_example, update_flops
from electra_tf2.util.flags import read_recipe


class Stage(NamedTuple):
    """A run of the plan.

    share: of the plan's FLOPs. decay: share of its steps in which the rate falls; 0: as the recipe says.
    start: what it starts from: flag -> number of an earlier stage, from 0.
    """

    recipe: str
    share: float
    decay: float = 0.0
    start: tuple[tuple[str, int], ...] = ()


class Rule(NamedTuple):
    """Stages from so many FLOPs on, and why."""

    least_flops: float
    stages: tuple[Stage, ...]
    why: str


_YOUNG = Stage("bert_mini_t5", 0.1, 0.001)  # stopped before its rate falls: a start is better that still moves
_BOTH = Stage("electra_mini_t5", 0.35, 0.25, (("init_generator_checkpoint", 0),))
_FROZEN = (("init_checkpoint", 1), ("init_generator_checkpoint", 1))
RULES = (
    Rule(0.0, (Stage("electra_tiny", 1.0),), "a small network leaves the plateau of token frequencies in minutes"),
    Rule(
        1.5e14,
        (
            Stage("bert_mini", 0.38, 0.33),
            Stage("electra_mini", 0.62, 0.33, (("init_checkpoint", 0), ("init_generator_checkpoint", 0))),
        ),
        "a detector that starts from a masked language model follows its generator at once, where one from random "
        "weights calls everything real for thousands of steps",
    ),
    Rule(
        1.2e15,
        (
            _YOUNG,
            _BOTH,
            Stage("electra_evening_4_layers", 0.55, 0.35, _FROZEN),
        ),
        "against a generator that stays as it is, a step costs a third less",
    ),
    Rule(
        3.5e15,
        (
            _YOUNG._replace(share=0.025),
            _BOTH._replace(share=0.105),
            Stage("electra_evening_4_layers", 0.18, 0.35, _FROZEN),
            Stage("electra_evening", 0.69, 0.25, (("init_checkpoint", 2), ("init_generator_checkpoint", 1))),
        ),
        "stacked to eight, the layers go on at once from where four were",
    ),
)
VOCABULARIES = ((0.0, 4096, 4.0), (5e6, 8192, 4.6))  # from so many bytes of text on: WordPieces, bytes of a token
LENGTH = 64  # tokens of a record, in all runs of docs/small_budgets.md
MOST_EPOCHS = 40  # beyond which the same text teaches next to nothing (Muennighoff et al. 2023, section 6)
FLOPS_OF_A_CORE = 1e11  # a second, bfloat16: an Intel Xeon with AMX; an AMD EPYC (Zen 5) had 2.2e11
EXPECTED = (  # FLOPs, held-out disc_auc, and scores of STS-B, SST-2 and chunking on Wikipedia's text
    (2.3e13, "disc_auc 0.64"),
    (5.8e14, "disc_auc 0.802; STS-B 80.6, SST-2 82.0, chunking 93.6"),
    (1.9e15, "disc_auc 0.836; STS-B 81.6, SST-2 84.9, chunking 93.4"),
    (6.2e15, "disc_auc 0.867; STS-B 82.8, SST-2 85.9, chunking 94.4"),
)
BAG_OF_WORDS = "a bag of words: STS-B 73.0, SST-2 81.7, chunking 88.5"


class Run(NamedTuple):
    """A stage with its numbers of steps and FLOPs."""

    stage: Stage
    steps: int
    warmup: int
    decay: int
    flops: float


@dataclasses.dataclass(frozen=True)
class Plan:
    """Runs to make, one after the other.

    tokens: of the corpus, about. flops: of all runs. asked: FLOPs of the hours at hand, of which `flops` may be less.
    epochs: times that the text is read.
    """

    rule: Rule
    vocab_size: int
    tokens: float
    runs: tuple[Run, ...]
    asked: float
    epochs: float

    @property
    def flops(self) -> float:
        return sum(run.flops for run in self.runs)

    @property
    def expected(self) -> str:
        """Scores that the nearest of the measured budgets had, of those that are no larger."""
        return next(
            (scores for flops, scores in EXPECTED[::-1] if self.flops >= 0.85 * flops), "less than any measured"
        )


def make_plan(text_bytes: float, flops: float) -> Plan:
    """Divides a budget.

    Args:
      text_bytes: of the corpus, uncompressed.
      flops: that the hours at hand amount to.
    """
    _, vocab_size, bytes_of_token = next(row for row in VOCABULARIES[::-1] if text_bytes >= row[0])
    tokens, asked = text_bytes / bytes_of_token, flops
    for _ in range(9):  # fewer FLOPs may be another rule's, whose steps cost less
        rule = next(rule for rule in RULES[::-1] if flops >= rule.least_flops)
        runs = tuple(_run(stage, stage.share * flops, vocab_size) for stage in rule.stages)
        epochs = sum(run.steps for run in runs) * _config(rule.stages[0], vocab_size).train_batch_size * LENGTH / tokens
        if epochs <= MOST_EPOCHS:
            break
        flops *= MOST_EPOCHS / epochs
    return Plan(rule, vocab_size, tokens, runs, asked, epochs)


def _config(stage: Stage, vocab_size: int) -> PretrainingConfig:
    return PretrainingConfig.from_dict(read_recipe(stage.recipe) | {"vocab_size": vocab_size})


def _run(stage: Stage, flops: float, vocab_size: int) -> Run:
    config = _config(stage, vocab_size)
    of_step = config.train_batch_size * training_flops_per_example(config) + update_flops(config)
    steps = max(8, int(flops / of_step))
    warmup, decay = min(config.num_warmup_steps, steps // 4), max(1, int(stage.decay * steps)) if stage.decay else 0
    return Run(stage, steps, warmup, decay, steps * of_step)
