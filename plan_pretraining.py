"""Says what to pre-train on a corpus of your own in the hours at hand: sizes, steps, and the commands, as a script.

  python plan_pretraining.py --corpus-dir corpus --hours 3 > plan.sh
  sh plan.sh

For some MB to some hundred MB of text and minutes to a day of processor cores. What it chooses, and what to expect,
are those of the runs in docs/small_budgets.md; with GPUs or more text, take a recipe of the papers. The script goes on
where it was stopped.
"""

import sys
import textwrap
from collections.abc import Iterator
from shlex import quote

from absl import flags

from electra_tf2.corpus.text_files import Corpus
from electra_tf2.pretrain.small_budget import BAG_OF_WORDS, FLOPS_OF_A_CORE, LENGTH, MOST_EPOCHS, Plan, make_plan
from electra_tf2.util import flags as util_flags
from electra_tf2.util.environment import cores
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import duration

_COMPRESSED = 3.3  # bytes of text in one of its archive


def main() -> int:
    values = flags.FLAGS
    if not values.corpus_dir:
        raise UserError("--corpus-dir is needed; see --help")
    if values.hours <= 0 or (values.tflops is not None and values.tflops <= 0):
        raise UserError("--hours and --tflops must be above 0")
    corpus = Corpus(values.corpus_dir)
    sizes = [(file.size, corpus.is_compressed(file.name)) for file in corpus.files()]
    text_bytes = sum(size * (_COMPRESSED if compressed else 1) for size, compressed in sizes)
    rate = cores() * FLOPS_OF_A_CORE if values.tflops is None else values.tflops * 1e12
    plan = make_plan(text_bytes, values.hours * 3600 * rate)
    about = "about " if any(compressed for _, compressed in sizes) else ""
    for name, text in _choices(plan, f"{about}{text_bytes / 1e6:.3g} MB of text", rate):
        print(textwrap.fill(text, 80, initial_indent=f"# {name:12}", subsequent_indent="#" + " " * 13))
    print("\nset -e")
    for words in _commands(plan, values.corpus_dir, values.data_dir):
        print(_wrapped(words))
    return 0


def _choices(plan: Plan, text: str, rate: float) -> Iterator[tuple[str, str]]:
    """(what, its value and why) of everything that is chosen."""
    yield "text", f"{text}, about {plan.tokens / 1e6:.3g} million tokens, read {plan.epochs:.2g} times"
    yield "budget", f"{plan.flops:.2g} FLOP: {_hours(plan.flops / rate)} at {rate / 1e12:.2g} TFLOP/s (--tflops)"
    if plan.flops < 0.9 * plan.asked:
        yield (
            "",
            (
                f"less than was asked for, {plan.asked:.2g}: after {MOST_EPOCHS} times the same text teaches next to "
                "nothing; more hours need more text"
            ),
        )
    fewer = " (fewer: the text is small)" if plan.vocab_size < 8192 else ""
    yield "vocabulary", f"{plan.vocab_size:,} WordPieces{fewer}"
    yield "length", f"{LENGTH} tokens, in batches of 64: short sequences are the better start"
    runs = [f"{run.stage.recipe} {run.steps:,} steps, {_hours(run.flops / rate)}" for run in plan.runs]
    yield ("runs" if len(runs) > 1 else "run"), "; ".join(runs)
    yield "why", plan.rule.why
    yield "expect", f"{plan.expected}, as that budget had on Wikipedia; {BAG_OF_WORDS}"
    yield "then", "the dry run times some steps: where they take longer, give --tflops what this machine has"


def _commands(plan: Plan, corpus_dir: str, data_dir: str) -> Iterator[list[str]]:
    """The commands: the program, then its flags with their values."""
    program = "electra" if sys.argv[0].startswith("electra") else "python -m electra_tf2"
    vocab = quote(f"{data_dir}/vocab.txt")
    text = [f"--corpus-dir {quote(corpus_dir)}", f"--vocab-file {vocab}"]
    yield [f"test -e {vocab} || {program} build-vocab", *text, f"--vocab-size {plan.vocab_size}"]
    records = quote(f"{data_dir}/pretrain_tfrecords")
    yield [
        *(f"test -e {records}/metadata.json || {program} build-data", *text),
        *(f"--output-dir {records}", f"--max-seq-length {LENGTH}", "--dev-fraction 0.01"),
    ]
    for number, run in enumerate(plan.runs):
        words = [f"{program} pretrain", f"--data-dir {quote(data_dir)}", f"--recipe {run.stage.recipe}"]
        words += [f"--num-train-steps {run.steps}", f"--num-warmup-steps {run.warmup}"]
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
    flags.DEFINE_string("data_dir", "data", "folder for vocabulary, records and models")
    flags.DEFINE_float("hours", 1.0, "hours to train, on all cores that this process may use")
    flags.DEFINE_float(
        "tflops", None, "sustained rate of this machine in TFLOP/s; default: 0.1 a core, an Intel Xeon's in bfloat16"
    )
    util_flags.run(main, __doc__)


if __name__ == "__main__":
    command()
