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
from electra_tf2.util.progress import duration


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


_DETECTOR = Stage("electra_mini", 0.62, 0.33, (("init_checkpoint", 0), ("init_generator_checkpoint", 0)))
_DEEP = (("init_checkpoint", 1), ("init_generator_checkpoint", 0))
RULES = (
    Rule(0.0, (Stage("electra_tiny", 1.0),), "a small network leaves the plateau of token frequencies in minutes"),
    Rule(
        1.5e14,
        (Stage("bert_mini", 0.38, 0.33), _DETECTOR),
        "a detector that starts from a masked language model follows its generator at once, where one from random "
        "weights calls everything real for thousands of steps",
    ),
    Rule(
        2e15,  # at 1.9e15 FLOPs eight layers, stacked so, detected better than four: 0.845 and 0.836 (commit 6585524)
        (Stage("bert_mini", 0.1, 0.33), _DETECTOR._replace(share=0.15), Stage("electra_deep", 0.75, 0.4, _DEEP)),
        "stacked to eleven, the layers go on at once from where four were",
    ),
)
VOCABULARIES = ((0.0, 4096, 4.0), (5e6, 8192, 4.6))  # from so many bytes of text on: WordPieces, bytes of a token
MANY_CHINESE, CHINESE_ALPHABET = 0.1, 6000  # share of the characters; --limit-alphabet, of which 8,192 tokens have room
LENGTH = 64  # tokens of a record, in all runs of docs/small_budgets.md
MOST_EPOCHS = 40  # beyond which the same text teaches next to nothing (Muennighoff et al. 2023, section 6)
FLOPS_OF_A_CORE = 1e11  # a second, bfloat16: an Intel Xeon with AMX; an AMD EPYC (Zen 5) had 2.2e11
EXPECTED = (  # FLOPs, held-out disc_auc, and scores of STS-B, SST-2 and chunking
    (2.3e13, "disc_auc 0.64"),
    (5.8e14, "disc_auc 0.802; STS-B 81.4, SST-2 81.3, chunking 93.1"),
    (2.4e16, "disc_auc 0.854; STS-B 83.2, SST-2 86.0, chunking 95.0"),
)
BAG_OF_WORDS = "a bag of words: STS-B 73.0, SST-2 81.7, chunking 88.5"


class Run(NamedTuple):
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
    tokens: of the corpus, about. flops: of all runs. asked: FLOPs of the hours at hand, of which `flops` may be less.
    epochs: times that the text is read.
    """

    rule: Rule
    vocab_size: int
    limit_alphabet: int
    tokens: float
    runs: tuple[Run, ...]
    asked: float
    epochs: float

    @property
    def flops(self) -> float:
        return sum(run.flops for run in self.runs)

    @property
    def expected(self) -> str:
        """Scores of the nearest measured budget, of those that are no larger, and that budget."""
        reached = (f"{scores}, as {flops:.2g} FLOP had" for flops, scores in EXPECTED[::-1]
                   if self.flops >= 0.85 * flops)  # fmt: skip
        return next(reached, "less than any that was measured")


def make_plan(text_bytes: float, flops: float, chinese: float = 0.0) -> Plan:
    """Divides a budget.

    Args:
      text_bytes: of the corpus, uncompressed.
      flops: that the hours at hand amount to.
      chinese: share of the characters that are Chinese: of three bytes, and a token each.
    """
    _, vocab_size, bytes_of_token = next(row for row in VOCABULARIES[::-1] if text_bytes >= row[0])
    limit_alphabet = 0
    if chinese > MANY_CHINESE:
        (_, vocab_size, bytes_of_token), limit_alphabet = VOCABULARIES[-1], CHINESE_ALPHABET
    token_share = chinese + (1 - chinese) / bytes_of_token  # tokens of a character
    tokens, asked = text_bytes * token_share / (1 + 2 * chinese), flops
    for _ in range(9):  # fewer FLOPs may be another rule's, whose steps cost less
        rule = next(rule for rule in RULES[::-1] if flops >= rule.least_flops)
        runs = tuple(_run(stage, stage.share * flops, vocab_size) for stage in rule.stages)
        epochs = sum(run.steps * run.batch for run in runs) * LENGTH / tokens
        if epochs <= MOST_EPOCHS:
            break
        flops *= MOST_EPOCHS / epochs
    return Plan(rule, vocab_size, limit_alphabet, tokens, runs, asked, epochs)


def _config(stage: Stage, vocab_size: int) -> PretrainingConfig:
    return PretrainingConfig.from_dict(read_recipe(stage.recipe) | {"vocab_size": vocab_size})


def _run(stage: Stage, flops: float, vocab_size: int) -> Run:
    config = _config(stage, vocab_size)
    of_step = step_flops(config)
    steps = max(8, int(flops / of_step))
    warmup, decay = min(config.num_warmup_steps, steps // 4), max(1, int(stage.decay * steps)) if stage.decay else 0
    return Run(stage, steps, config.train_batch_size, warmup, decay, steps * of_step)


_TEXT_FIELD = "text"
_COMPRESSED, _PARQUET = 3.3, 2.0  # bytes of text in one of its archive or table


def main() -> int:
    values = flags.FLAGS
    if not values.corpus_dir:
        raise UserError("--corpus-dir is needed; see --help")
    if values.measure and values.tflops is not None:
        raise UserError("--measure and --tflops: give one of them")
    if values.hours <= 0 or (values.tflops is not None and values.tflops <= 0):
        raise UserError("--hours and --tflops must be above 0")
    corpus = Corpus(values.corpus_dir, values.text_field, values.recursive)
    sizes = [(file.size, _expansion(corpus, file.name)) for file in corpus.files()]
    text_bytes = sum(size * times for size, times in sizes)
    found = sample(corpus)
    rate = this_processor().cores * FLOPS_OF_A_CORE
    if values.tflops is not None:
        rate = values.tflops * 1e12
    plan = make_plan(text_bytes, values.hours * 3600 * rate, found.chinese)
    if values.measure:
        rate = measured_rate(plan)
        plan = make_plan(text_bytes, values.hours * 3600 * rate, found.chinese)
    about = "about " if any(times != 1 for _, times in sizes) else ""
    for name, text in _choices(plan, found, f"{about}{text_bytes / 1e6:.3g} MB of text", rate, values.measure):
        print(textwrap.fill(text, 80, initial_indent=f"# {name:12}", subsequent_indent="#" + " " * 13))
    print("\nset -e")
    if _program() == "electra" and shutil.which("electra") is None:  # called by its path: its environment is not active
        print(f"PATH={quote(os.path.dirname(sys.executable))}:$PATH")
    corpus_flags = [f"--corpus-dir {quote(values.corpus_dir)}"]
    corpus_flags += [f"--text-field {quote(values.text_field)}"] if values.text_field != _TEXT_FIELD else []
    corpus_flags += ["--recursive"] if values.recursive else []
    for words in _commands(plan, corpus_flags, ["--no-strip-accents"] if found.needs_marks else [], values.data_dir):
        print(_wrapped(words))
    return 0


def measured_rate(plan: Plan) -> float:
    """FLOPs a second of this machine, by steps of the plan's last run, which most of its time goes to."""
    import_tensorflow()
    from electra_tf2.pretrain.speed import flops_per_second

    config = _config(plan.runs[-1].stage, plan.vocab_size)
    with contextlib.redirect_stdout(sys.stderr):  # standard output is the script
        print(f"timing steps of {plan.runs[-1].stage.recipe} on this machine ...", flush=True)
        return flops_per_second(config)


def leaves_for(plan: Plan) -> str:
    """Says which formats the plan's last model can be written as."""
    network = _config(plan.runs[-1].stage, plan.vocab_size).architecture
    like = "modernbert" if is_like_modernbert(network) else "bert"
    if not export_problems(network, like, but=("norm_eps",)):
        return "Hugging Face, sentence-transformers, ONNX, LiteRT and SavedModel (electra convert)"
    exporting = " and ".join(stage.recipe for stage in RULES[1].stages)
    return (
        "ONNX, LiteRT and SavedModel (electra convert), but not Hugging Face, whose classes lack such a network; "
        f"{exporting}, from about {RULES[1].least_flops:.2g} FLOP on, can be exported there"
    )


def _expansion(corpus: Corpus, name: str) -> float:
    """About how many bytes of text one of a file holds."""
    return _PARQUET if name.endswith(".parquet") else _COMPRESSED if is_compressed(name) else 1


def _choices(plan: Plan, found: Sample, text: str, rate: float, measured: bool) -> Iterator[tuple[str, str]]:
    """(what, its value and why) of everything that is chosen."""
    yield "text", f"{text}, about {plan.tokens / 1e6:.3g} million tokens, read {plan.epochs:.2g} times"
    rate_from = "measured" if measured else "--tflops"
    yield "budget", f"{plan.flops:.2g} FLOP: {_hours(plan.flops / rate)} at {rate / 1e12:.2g} TFLOP/s ({rate_from})"
    if plan.flops < 0.9 * plan.asked:
        less = f"less than was asked for, {plan.asked:.2g}: after {MOST_EPOCHS} times the same text teaches next to "
        yield "", f"{less}nothing; more hours need more text"
    fewer = " (fewer: the text is small)" if plan.vocab_size < 8192 else ""
    characters = (
        f", {plan.limit_alphabet:,} of them characters: much of the text is Chinese" if plan.limit_alphabet else ""
    )
    yield "vocabulary", f"{plan.vocab_size:,} WordPieces{fewer}{characters}"
    if found.needs_marks:
        yield "accents", "kept: without them letters of this language are others"
    for warning in warnings_of(found, strip_accents=False):
        yield "WARNING", warning
    yield "length", f"{LENGTH} tokens: short sequences are the better start"
    runs = [f"{run.stage.recipe} {run.steps:,} steps, {_hours(run.flops / rate)}" for run in plan.runs]
    yield ("runs" if len(runs) > 1 else "run"), "; ".join(runs)
    yield "why", plan.rule.why
    yield "expect", f"{plan.expected}; {BAG_OF_WORDS} (English)"
    yield "export", leaves_for(plan)
    if not measured:
        yield "then", "the dry run says what this machine has: give that to --tflops, or plan with --measure"


def _program() -> str:
    """The program as it was called."""
    return "electra" if sys.argv[0].startswith("electra") else "python -m electra_tf2"


def _commands(plan: Plan, corpus: list[str], casing: list[str], data_dir: str) -> Iterator[list[str]]:
    """The commands: the program, then its flags with their values; `casing` of all of them."""
    program = _program()
    vocab = quote(f"{data_dir}/vocab.txt")
    text = [*corpus, f"--vocab-file {vocab}", *casing]
    alphabet = [f"--limit-alphabet {plan.limit_alphabet}"] if plan.limit_alphabet else []
    yield [f"test -e {vocab} || {program} build-vocab", *text, f"--vocab-size {plan.vocab_size}", *alphabet]
    records = quote(f"{data_dir}/pretrain_tfrecords")
    yield [
        *(f"test -e {records}/metadata.json || {program} build-data", *text),
        *(f"--output-dir {records}", f"--max-seq-length {LENGTH}", "--dev-fraction 0.01"),
    ]
    for number, run in enumerate(plan.runs):
        words = [f"{program} pretrain", f"--data-dir {quote(data_dir)}", f"--recipe {run.stage.recipe}"]
        words += [*casing, f"--num-train-steps {run.steps}", f"--num-warmup-steps {run.warmup}"]
        words += [f"--lr-decay-steps {run.decay}"] if run.decay else []
        for flag, earlier in run.stage.start:
            folder = quote(f"{data_dir}/models/{plan.runs[earlier].stage.recipe}")
            words.append(f"--{flag.replace('_', '-')} {folder}")
        if not number:
            yield [*words, "--dry-run"]
        yield [*words, "--do-eval"]


def _hours(seconds: float) -> str:
    return duration(60 * round(seconds / 60)) if seconds >= 3600 else duration(round(seconds))


def _wrapped(words: list[str]) -> str:
    """A command on lines of 80 columns."""
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + len(word) > 76:
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
