"""Says what to pre-train on a corpus of your own in the hours at hand: sizes, steps, and the commands, as a script.

  electra plan --corpus-dir corpus --hours 3 > plan.sh
  sh plan.sh

For some MB to some hundred MB of text and minutes to a day of processor cores. --measure times ten training steps here
first; otherwise a core is taken to have 0.1 TFLOP/s. What it chooses, and what to expect, are those of the runs in
docs/small_budgets.md; with GPUs for days or more text, take a recipe of the papers. The script goes on where it was
stopped.
"""

import contextlib
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from shlex import quote

from absl import flags

from electra_tf2.config import flags as util_flags
from electra_tf2.config.hparams import dashed
from electra_tf2.corpus.corpus_reader import TEXT_BYTES_PER_COMPRESSED_BYTE, Corpus
from electra_tf2.corpus.scripts import Sample, sample, warnings_of
from electra_tf2.files.content import is_compressed
from electra_tf2.pretrain.plans import (
    LENGTH,
    MOST_EPOCHS,
    VOCABULARIES,
    Plan,
    export_formats,
    held_out_share,
    make_plan,
    stage_config,
)
from electra_tf2.util.environment import import_tensorflow, program_called
from electra_tf2.util.errors import UserError
from electra_tf2.util.machine import this_processor
from electra_tf2.util.progress import duration, warn

FLOPS_OF_A_CORE = 1e11  # a second, in bfloat16, on an Intel Xeon with AMX; an AMD EPYC (Zen 5) had 2.2e11
_TEXT_BYTES_PER_PARQUET_BYTE = 2.0
_TEXT_FIELD = "text"
_LINE_WIDTH = 80  # of the script


def main() -> int:
    values = flags.FLAGS
    check_flags()
    if values.minutes is not None:
        values.hours = values.minutes / 60
    corpus = Corpus(values.corpus_dir, values.text_field, values.recursive)
    text = sample(corpus)
    text_bytes, is_estimate = size_of_text(corpus)

    def plan_for(rate: float) -> Plan:
        return make_plan(text_bytes, values.hours * 3600 * rate, text.chinese)

    rate = this_processor().cores * FLOPS_OF_A_CORE
    if values.tflops is not None:
        rate = values.tflops * 1e12
    if values.measure:
        # A first plan, for the usual rate, chooses the network to time.
        rate = measured_rate(plan_for(rate))
    plan = plan_for(rate)
    held_out = held_out_share(text_bytes)

    amount = f"{text_bytes / 1e6:.3g} MB of text"
    if is_estimate:
        amount = f"about {amount}"
    print_script(plan, text, amount, rate, held_out)
    return 0


def check_flags() -> None:
    """Raises UserError if a flag is missing or makes no sense."""
    values = flags.FLAGS
    if not values.corpus_dir:
        raise UserError("--corpus-dir is needed; see --help")
    if values.measure and values.tflops is not None:
        raise UserError("--measure and --tflops: give one of them")
    if values.minutes is not None and values["hours"].present:
        raise UserError("--hours and --minutes: give one of them")
    if min(values.hours, values.minutes or values.hours) <= 0 or (values.tflops is not None and values.tflops <= 0):
        raise UserError("--hours, --minutes and --tflops must be above 0")


def size_of_text(corpus: Corpus) -> tuple[float, bool]:
    """Bytes of text in a corpus, and True if that is an estimate, as for tables and compressed files."""
    size = 0.0
    is_estimate = False
    for file in corpus.files():
        expansion = _expansion(file.name)
        size += expansion * file.size
        is_estimate = is_estimate or expansion != 1
    return size, is_estimate


def _expansion(file_name: str) -> float:
    """Estimates the bytes of text in a byte of a file."""
    if file_name.endswith(".parquet"):
        return _TEXT_BYTES_PER_PARQUET_BYTE
    if is_compressed(file_name):
        return TEXT_BYTES_PER_COMPRESSED_BYTE
    return 1.0


def measured_rate(plan: Plan) -> float:
    """Times steps of the plan's last run, which takes most of the time. Returns the machine's FLOPs a second."""
    import_tensorflow()
    from electra_tf2.pretrain.speed import flops_per_second

    last = plan.runs[-1].stage
    # Standard output is for the script alone.
    with contextlib.redirect_stdout(sys.stderr):
        print(f"timing steps of {last.recipe} on this machine ...", flush=True)
        return flops_per_second(stage_config(last, plan.vocab_size))


def print_script(plan: Plan, text: Sample, amount: str, rate: float, held_out: float) -> None:
    """Prints the script: choices as comments, then the commands.

    Args:
      amount: size of the text, in words. rate: FLOPs a second. held_out: share of the documents to evaluate on.
    """
    values = flags.FLAGS
    for warning in warnings_of(text, strip_accents=False):
        warn(warning)
    for name, reason in _choices(plan, text, amount, rate):
        print(textwrap.fill(reason, _LINE_WIDTH, initial_indent=f"# {name:12}", subsequent_indent="#" + " " * 13))
    print("\nset -e")
    if program_called() == "electra" and shutil.which("electra") is None:
        # It was called by its path, so its environment is not active and the script would not find it.
        print(f"PATH={quote(os.path.dirname(sys.executable))}:$PATH")

    corpus_flags = [f"--corpus-dir {quote(values.corpus_dir)}"]
    if values.text_field != _TEXT_FIELD:
        corpus_flags.append(f"--text-field {quote(values.text_field)}")
    if values.recursive:
        corpus_flags.append("--recursive")
    accent_flags = ["--no-strip-accents"] if text.needs_marks else []
    for words in _commands(plan, corpus_flags, accent_flags, values.data_dir, held_out):
        print(_wrapped(words))


def _choices(plan: Plan, text: Sample, amount: str, rate: float) -> Iterator[tuple[str, str]]:
    """Yields the name of every choice, with its value and reason."""
    measured = flags.FLAGS.measure
    yield "text", f"{amount}, about {plan.tokens / 1e6:.3g} million tokens, read {plan.epochs:.2g} times"
    rate_from = "assumed: 0.1 a core. Old or shared cores may have a tenth of it: --measure tells, in a minute"
    if measured:
        rate_from = "measured"
    elif flags.FLAGS.tflops is not None:
        rate_from = "--tflops"
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
    yield "expect", f"of English: {plan.expected}"
    yield "export", export_formats(plan, rate)
    if not measured:
        yield "then", "the dry run says what this machine has: give that to --tflops, or plan with --measure"


def _commands(
    plan: Plan, corpus_flags: list[str], accent_flags: list[str], data_dir: str, held_out: float
) -> Iterator[list[str]]:
    """Yields each command as a list: the program, then flags with their values."""
    program = program_called()
    vocab = quote(f"{data_dir}/vocab.txt")
    text_flags = [*corpus_flags, f"--vocab-file {vocab}", *accent_flags]

    words = [f"test -e {vocab} || {program} build-vocab", *text_flags, f"--vocab-size {plan.vocab_size}"]
    if plan.limit_alphabet:
        words.append(f"--limit-alphabet {plan.limit_alphabet}")
    yield words

    records = quote(f"{data_dir}/pretrain_tfrecords")
    words = [f"test -e {records}/metadata.json || {program} build-data", *text_flags]
    words += [f"--output-dir {records}", f"--max-seq-length {LENGTH}", f"--dev-fraction {held_out:g}"]
    yield words

    for index, run in enumerate(plan.runs):
        words = [f"{program} pretrain", f"--data-dir {quote(data_dir)}", f"--recipe {run.stage.recipe}", *accent_flags]
        words += [f"--num-train-steps {run.steps}", f"--num-warmup-steps {run.warmup}"]
        if run.decay:
            words.append(f"--lr-decay-steps {run.decay}")
        for flag, earlier in run.stage.start:
            folder = quote(f"{data_dir}/models/{plan.runs[earlier].stage.recipe}")
            words.append(f"{dashed(flag)} {folder}")
        if index == 0:
            yield [*words, "--dry-run"]
        yield [*words, "--do-eval"]


def _hours(seconds: float) -> str:
    """A duration in words, in whole minutes from an hour on."""
    if seconds >= 3600:
        return duration(60 * round(seconds / 60))
    return duration(round(seconds))


def _wrapped(words: list[str]) -> str:
    """Breaks a command into lines that fit the script's width."""
    lines = [words[0]]
    for word in words[1:]:
        # A line needs a space before the word and " \" after it.
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
    flags.DEFINE_float("minutes", None, "the same in minutes")
    flags.DEFINE_float("tflops", None, "this machine's TFLOP/s, sustained; default: 0.1 a core (Intel Xeon, bfloat16)")
    flags.DEFINE_bool("measure", False, "time ten training steps on this machine, which takes a minute or two")
    util_flags.run(main, __doc__)


if __name__ == "__main__":
    command()
