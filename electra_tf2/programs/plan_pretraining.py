"""Says what to pre-train on a corpus of your own in the hours at hand: sizes, steps, and the commands, as a script.

  electra plan --corpus-dir corpus --hours 3 > plan.sh
  sh plan.sh

For some MB to some hundred MB of text and minutes to a day of processor cores. --measure times ten training steps here
first; otherwise a core is taken to have 0.1 TFLOP/s. What it chooses, and what to expect, are those of the runs in
docs/small_budgets.md; with GPUs for days or more text, take a recipe of the papers. The script goes on where it was
stopped.
"""

import contextlib
import dataclasses
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from shlex import quote
from typing import NamedTuple

from absl import flags

from electra_tf2.config import flags as util_flags
from electra_tf2.config.recipes import read_recipe
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.scripts import Sample, sample, warnings_of
from electra_tf2.corpus.text_files import Corpus
from electra_tf2.files.content import is_compressed
from electra_tf2.formats.huggingface_config import export_problems, is_like_modernbert
from electra_tf2.pretrain.flops import step_flops
from electra_tf2.util.environment import import_tensorflow
from electra_tf2.util.errors import UserError
from electra_tf2.util.machine import this_processor
from electra_tf2.util.progress import duration, warn


class Stage(NamedTuple):
    """A pre-training run of a plan, before the budget is known.

    share: of the plan's FLOPs.
    decay: share of its steps in which the learning rate falls; 0: as the recipe has it.
    start: flags that name what it starts from, and the number of the earlier stage whose model that is, from 0.
    """

    recipe: str
    share: float
    decay: float = 0.0
    start: tuple[tuple[str, int], ...] = ()


class Rule(NamedTuple):
    """The stages of all budgets from `least_flops` on, and the reason."""

    least_flops: float
    stages: tuple[Stage, ...]
    why: str


class VocabularySize(NamedTuple):
    """Number of WordPieces for corpora of at least so many bytes, and the bytes of English that a piece stands for."""

    least_bytes: float
    size: int
    bytes_per_token: float


class Expectation(NamedTuple):
    """Results of a measured budget (docs/small_budgets.md)."""

    flops: float
    scores: str


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
MANY_CHINESE = 0.1  # share of the characters of a corpus from which on the vocabulary makes room for them:
CHINESE_ALPHABET = 6000  # --limit-alphabet, for which 8,192 tokens have room
LENGTH = 64  # tokens of a record, in all runs of docs/small_budgets.md
MOST_EPOCHS = 40  # beyond which the same text teaches next to nothing (Muennighoff et al. 2023, section 6)
FLOPS_OF_A_CORE = 1e11  # a second, bfloat16: an Intel Xeon with AMX; an AMD EPYC (Zen 5) had 2.2e11
EXPECTED = (
    Expectation(2.3e13, "disc_auc 0.64"),
    Expectation(5.8e14, "disc_auc 0.802; STS-B 81.4, SST-2 81.3, chunking 93.1"),
    Expectation(2.4e16, "disc_auc 0.854; STS-B 83.2, SST-2 86.0, chunking 95.0"),
)
BAG_OF_WORDS = "a bag of words: STS-B 73.0, SST-2 81.7, chunking 88.5"
_NEAR = 0.85  # share of a measured budget that counts as having reached it
_TEXT_FIELD = "text"
_LINE_WIDTH = 80  # of the script


class PlannedRun(NamedTuple):
    """A stage with its numbers of steps and FLOPs, and the sequences of a step."""

    stage: Stage
    steps: int
    batch: int
    warmup: int
    decay: int
    flops: float


@dataclasses.dataclass(frozen=True)
class Plan:
    """Runs to make, one after the other.

    limit_alphabet: characters that the vocabulary has room for; 0: as many as build-vocab takes by itself.
    tokens: estimate of the corpus's.
    asked: FLOPs of the hours at hand; `flops`, those of the runs, may be fewer.
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
        """Scores of the largest measured budget that this one reaches, and that budget."""
        for expectation in reversed(EXPECTED):
            if self.flops >= _NEAR * expectation.flops:
                return f"{expectation.scores}, as {expectation.flops:.2g} FLOP had"
        return "less than any that was measured"


def main() -> int:
    values = flags.FLAGS
    check_flags()
    corpus = Corpus(values.corpus_dir, values.text_field, values.recursive)
    text = sample(corpus)
    text_bytes, is_estimate = size_of_text(corpus)

    def plan_for(rate: float) -> Plan:
        return make_plan(text_bytes, values.hours * 3600 * rate, text.chinese)

    rate = this_processor().cores * FLOPS_OF_A_CORE
    if values.tflops is not None:
        rate = values.tflops * 1e12
    if values.measure:
        # A plan for the usual rate says which network to time.
        rate = measured_rate(plan_for(rate))
    plan = plan_for(rate)

    amount = f"{text_bytes / 1e6:.3g} MB of text"
    if is_estimate:
        amount = f"about {amount}"
    print_script(plan, text, amount, rate)
    return 0


def check_flags() -> None:
    """Raises UserError if a flag is missing or makes no sense."""
    values = flags.FLAGS
    if not values.corpus_dir:
        raise UserError("--corpus-dir is needed; see --help")
    if values.measure and values.tflops is not None:
        raise UserError("--measure and --tflops: give one of them")
    if values.hours <= 0 or (values.tflops is not None and values.tflops <= 0):
        raise UserError("--hours and --tflops must be above 0")


def size_of_text(corpus: Corpus) -> tuple[float, bool]:
    """Bytes of text in a corpus, and whether that is an estimate: of tables and compressed files it is."""
    size = 0.0
    is_estimate = False
    for file in corpus.files():
        expansion = _expansion(file.name)
        size += expansion * file.size
        is_estimate = is_estimate or expansion != 1
    return size, is_estimate


def _expansion(file_name: str) -> float:
    """Bytes of text in a byte of a file, about."""
    if file_name.endswith(".parquet"):
        return 2.0
    if is_compressed(file_name):
        return 3.3
    return 1.0


def make_plan(text_bytes: float, flops: float, chinese: float = 0.0) -> Plan:
    """Divides a budget among runs.

    Args:
      text_bytes: size of the corpus, uncompressed.
      flops: what the hours at hand amount to.
      chinese: share of the characters that are Chinese, each of three bytes and a token of its own.
    """
    is_chinese = chinese > MANY_CHINESE
    vocabulary = VOCABULARIES[0]
    for larger in VOCABULARIES[1:]:
        if is_chinese or text_bytes >= larger.least_bytes:
            vocabulary = larger
    characters = text_bytes / (1 + 2 * chinese)
    tokens = characters * (chinese + (1 - chinese) / vocabulary.bytes_per_token)

    asked = flops
    # Where the text is too small, fewer FLOPs are spent. They may fall under another rule, whose steps cost less and
    # read more text for them: hence several rounds.
    for _ in range(9):
        rule = _rule_for(flops)
        runs = tuple(_planned(stage, stage.share * flops, vocabulary.size) for stage in rule.stages)
        epochs = sum(run.steps * run.batch for run in runs) * LENGTH / tokens
        if epochs <= MOST_EPOCHS:
            break
        flops *= MOST_EPOCHS / epochs
    limit_alphabet = CHINESE_ALPHABET if is_chinese else 0
    return Plan(rule, vocabulary.size, limit_alphabet, tokens, runs, asked, epochs)


def _rule_for(flops: float) -> Rule:
    rule = RULES[0]
    for larger in RULES[1:]:
        if flops >= larger.least_flops:
            rule = larger
    return rule


def _planned(stage: Stage, flops: float, vocab_size: int) -> PlannedRun:
    """The stage with as many steps as so many FLOPs pay."""
    config = _config(stage, vocab_size)
    flops_per_step = step_flops(config)
    steps = max(8, int(flops / flops_per_step))
    warmup = min(config.num_warmup_steps, steps // 4)
    decay = 0
    if stage.decay:
        decay = max(1, int(stage.decay * steps))
    return PlannedRun(stage, steps, config.train_batch_size, warmup, decay, steps * flops_per_step)


def _config(stage: Stage, vocab_size: int) -> PretrainingConfig:
    return PretrainingConfig.from_dict(read_recipe(stage.recipe) | {"vocab_size": vocab_size})


def measured_rate(plan: Plan) -> float:
    """FLOPs a second of this machine, by steps of the plan's last run, which most of its time goes to."""
    import_tensorflow()
    from electra_tf2.pretrain.speed import flops_per_second

    last = plan.runs[-1].stage
    # Standard output is the script.
    with contextlib.redirect_stdout(sys.stderr):
        print(f"timing steps of {last.recipe} on this machine ...", flush=True)
        return flops_per_second(_config(last, plan.vocab_size))


def print_script(plan: Plan, text: Sample, amount: str, rate: float) -> None:
    """Prints what was chosen, as comments, and the commands.

    Args:
      amount: of text, in words. rate: FLOPs a second.
    """
    values = flags.FLAGS
    for warning in warnings_of(text, strip_accents=False):
        warn(warning)
    for name, reason in _choices(plan, text, amount, rate):
        print(textwrap.fill(reason, _LINE_WIDTH, initial_indent=f"# {name:12}", subsequent_indent="#" + " " * 13))
    print("\nset -e")
    if _program() == "electra" and shutil.which("electra") is None:
        # It was called by its path: its environment is not active.
        print(f"PATH={quote(os.path.dirname(sys.executable))}:$PATH")

    corpus_flags = [f"--corpus-dir {quote(values.corpus_dir)}"]
    if values.text_field != _TEXT_FIELD:
        corpus_flags.append(f"--text-field {quote(values.text_field)}")
    if values.recursive:
        corpus_flags.append("--recursive")
    accent_flags = ["--no-strip-accents"] if text.needs_marks else []
    for words in _commands(plan, corpus_flags, accent_flags, values.data_dir):
        print(_wrapped(words))


def _choices(plan: Plan, text: Sample, amount: str, rate: float) -> Iterator[tuple[str, str]]:
    """Name, value and reason of everything that is chosen."""
    measured = flags.FLAGS.measure
    yield "text", f"{amount}, about {plan.tokens / 1e6:.3g} million tokens, read {plan.epochs:.2g} times"
    rate_from = "measured" if measured else "--tflops"
    yield "budget", f"{plan.flops:.2g} FLOP: {_hours(plan.flops / rate)} at {rate / 1e12:.2g} TFLOP/s ({rate_from})"
    if plan.flops < 0.9 * plan.asked:
        yield (
            "",
            f"less than was asked for, {plan.asked:.2g}: after {MOST_EPOCHS} times the same text teaches next to "
            "nothing; more hours need more text",
        )

    vocabulary = f"{plan.vocab_size:,} WordPieces"
    if plan.vocab_size < VOCABULARIES[-1].size:
        vocabulary += " (fewer: the text is small)"
    if plan.limit_alphabet:
        vocabulary += f", {plan.limit_alphabet:,} of them characters: much of the text is Chinese"
    yield "vocabulary", vocabulary
    if text.needs_marks:
        yield "accents", "kept: without them letters of this language are others"
    yield "length", f"{LENGTH} tokens: short sequences are the better start"

    runs = [f"{run.stage.recipe} {run.steps:,} steps, {_hours(run.flops / rate)}" for run in plan.runs]
    yield ("runs" if len(runs) > 1 else "run"), "; ".join(runs)
    yield "why", plan.rule.why
    yield "expect", f"{plan.expected}; {BAG_OF_WORDS} (English)"
    yield "export", export_formats(plan)
    if not measured:
        yield "then", "the dry run says what this machine has: give that to --tflops, or plan with --measure"


def export_formats(plan: Plan) -> str:
    """Names the formats that the plan's last model can be written in."""
    network = _config(plan.runs[-1].stage, plan.vocab_size).architecture
    model_type = "modernbert" if is_like_modernbert(network) else "bert"
    if not export_problems(network, model_type, but=("norm_eps",)):
        return "Hugging Face, sentence-transformers, ONNX, LiteRT and SavedModel (electra convert)"
    exportable = " and ".join(stage.recipe for stage in RULES[1].stages)
    return (
        "ONNX, LiteRT and SavedModel (electra convert), but not Hugging Face, whose classes lack such a network; "
        f"{exportable}, from about {RULES[1].least_flops:.2g} FLOP on, can be exported there"
    )


def _commands(plan: Plan, corpus_flags: list[str], accent_flags: list[str], data_dir: str) -> Iterator[list[str]]:
    """Yields the commands: the program, then flags with their values."""
    program = _program()
    vocab = quote(f"{data_dir}/vocab.txt")
    text_flags = [*corpus_flags, f"--vocab-file {vocab}", *accent_flags]

    words = [f"test -e {vocab} || {program} build-vocab", *text_flags, f"--vocab-size {plan.vocab_size}"]
    if plan.limit_alphabet:
        words.append(f"--limit-alphabet {plan.limit_alphabet}")
    yield words

    records = quote(f"{data_dir}/pretrain_tfrecords")
    words = [f"test -e {records}/metadata.json || {program} build-data", *text_flags]
    words += [f"--output-dir {records}", f"--max-seq-length {LENGTH}", "--dev-fraction 0.01"]
    yield words

    for number, run in enumerate(plan.runs):
        words = [f"{program} pretrain", f"--data-dir {quote(data_dir)}", f"--recipe {run.stage.recipe}", *accent_flags]
        words += [f"--num-train-steps {run.steps}", f"--num-warmup-steps {run.warmup}"]
        if run.decay:
            words.append(f"--lr-decay-steps {run.decay}")
        for flag, earlier in run.stage.start:
            folder = quote(f"{data_dir}/models/{plan.runs[earlier].stage.recipe}")
            words.append(f"--{flag.replace('_', '-')} {folder}")
        if number == 0:
            yield [*words, "--dry-run"]
        yield [*words, "--do-eval"]


def _program() -> str:
    """The program as it was called."""
    return "electra" if sys.argv[0].startswith("electra") else "python -m electra_tf2"


def _hours(seconds: float) -> str:
    """A duration: in whole minutes from an hour on."""
    if seconds >= 3600:
        return duration(60 * round(seconds / 60))
    return duration(round(seconds))


def _wrapped(words: list[str]) -> str:
    """A command on lines that fit the script's width."""
    lines = [words[0]]
    for word in words[1:]:
        # A space before the word, and " \\" behind it.
        if len(lines[-1]) + 1 + len(word) + 2 > _LINE_WIDTH - 1:
            lines.append("   ")
        lines[-1] += f" {word}"
    return " \\\n".join(lines)


def command() -> None:
    flags.DEFINE_string("corpus_dir", None, "directory of the text, as of electra build-data")
    flags.DEFINE_string("text_field", _TEXT_FIELD, "field of .jsonl files that holds the text")
    flags.DEFINE_bool("recursive", False, "read the folders below --corpus-dir, too")
    flags.DEFINE_string("data_dir", "data", "folder for vocabulary, records and models")
    flags.DEFINE_float("hours", 1.0, "hours to train, on all cores that this process may use")
    flags.DEFINE_float("tflops", None, "this machine's TFLOP/s, sustained; default: 0.1 a core (Intel Xeon, bfloat16)")
    flags.DEFINE_bool("measure", False, "time ten training steps on this machine, which takes a minute or two")
    util_flags.run(main, __doc__)


if __name__ == "__main__":
    command()
