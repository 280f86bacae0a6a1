"""Turns a directory of text into TFRecords for pre-training.

  python build_pretraining_dataset.py --corpus-dir corpus \\
      --vocab-file data/vocab.txt --output-dir data/pretrain_tfrecords \\
      --max-seq-length 128 --dev-fraction 0.01
  python build_pretraining_dataset.py --output-dir data/pretrain_tfrecords \\
      --inspect 3

Text files (.txt, .gz, .bz2, .xz, .zst, one paragraph or sentence a line, a blank line between documents) and JSON
lines (.jsonl, also compressed) become shards of int64 input_ids, input_mask and segment_ids, as the original's, with a
metadata.json beside them. The records depend on the corpus, the flags and the seed, not on the number of processes.
The same command goes on with a build that was stopped. Nothing is deleted without --overwrite.
"""

import dataclasses
import sys
from typing import Any

from absl import flags

from electra_tf2.config import flags as util_flags
from electra_tf2.config.hparams import dashed
from electra_tf2.corpus.build import build, run_beam, run_local
from electra_tf2.corpus.corpus_reader import undecodable_note
from electra_tf2.corpus.jobs import BuildSettings, make_plan
from electra_tf2.corpus.packing import DOC_SENTENCES, ELECTRA, FULL_SENTENCES
from electra_tf2.corpus.record_metadata import inspect, verify
from electra_tf2.corpus.scripts import sample, warnings_of
from electra_tf2.corpus.unknown_tokens import report_on_records
from electra_tf2.formats.folders import locate_vocabulary
from electra_tf2.util.environment import use_processor_only
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import say, warn


def define_common_flags() -> None:
    """Defines the flags that the builder for OpenWebText has, too."""
    flags.DEFINE_integer("max_seq_length", 128, "Number of tokens of an example, at least 5.", upper_bound=1 << 16)
    flags.DEFINE_integer(
        "num_processes", 0, "Number of processes, which change no record; 0: one for each core.", lower_bound=0
    )
    flags.DEFINE_bool("do_lower_case", True, "Lower-case the text (--no-lower-case: keep case).")
    flags.DEFINE_bool("do_strip_accents", True, "Strip accents when lower-casing (--no-strip-accents: keep them).")
    flags.DEFINE_integer("seed", 0, "Seed of all random decisions.", lower_bound=0)
    flags.DEFINE_float("dev_fraction", 0.0, "Share of the documents to hold out in dev_data.tfrecord*, at most 0.5.")
    flags.DEFINE_integer(
        "num_shards",
        0,
        "Number of training files, each of which is shuffled in memory; 0: as many as suit the corpus.",
        lower_bound=0,
    )
    flags.DEFINE_enum("compat", "none", ["none", "original"], "original: throw the ends of overlong lines away.")
    flags.DEFINE_enum(
        "packing",
        ELECTRA,
        [ELECTRA, FULL_SENTENCES, DOC_SENTENCES],
        "electra: one or two segments, some short; full_sentences: one full segment, across documents (RoBERTa); "
        "doc_sentences: the same within a document.",
    )
    flags.DEFINE_bool("overwrite", False, "Build though records are there, which are moved to <output-dir>.old-N.")
    flags.DEFINE_integer("inspect", 0, "Number of examples to print as text; needs --output-dir alone.", lower_bound=0)
    flags.DEFINE_bool("verify", False, "Read all records again and check them; needs --output-dir alone.")
    flags.DEFINE_enum("runner", "local", ["local", "beam"], "Where to build: on this machine, or by Apache Beam.")
    flags.DEFINE_string("beam_options", "", "Beam's own flags in one string, such as '--runner=FlinkRunner'.")


def define_flags() -> None:
    flags.DEFINE_string("corpus_dir", None, "Directory of the text.")
    flags.DEFINE_string(
        "vocab_file", None, "WordPiece vocabulary (electra build-vocab makes one); or a shipped model, for its own."
    )
    flags.DEFINE_string("output_dir", None, "Directory of the records.")
    flags.DEFINE_bool("blanks_separate_docs", True, "Blank lines end documents; else only files and JSON lines do.")
    flags.DEFINE_string("text_field", "text", "The field of .jsonl files that holds the text.")
    flags.DEFINE_bool("recursive", False, "Read the directories below --corpus-dir too.")
    define_common_flags()


def run_build(**overrides: Any) -> None:
    """Builds records and prints a summary; then does --verify and --inspect.

    Args:
      overrides: settings that differ from the flags.
    """
    values = flags.FLAGS
    settings_of_flags = {"strip_accents": values.do_strip_accents}
    for field in dataclasses.fields(BuildSettings):
        if field.name in values:
            settings_of_flags[field.name] = values[field.name].value
    settings = BuildSettings(**(settings_of_flags | overrides))
    if values.beam_options and values.runner != "beam":
        raise UserError("--beam-options are for --runner beam")
    plan = make_plan(settings)
    for warning in warnings_of(sample(settings.corpus), settings.do_lower_case and settings.strip_accents):
        warn(warning)
    use_processor_only()
    if values.runner == "beam":
        run_jobs = run_beam(values.beam_options)
    else:
        run_jobs = run_local(values.num_processes)
    metadata = build(plan, run_jobs, values.overwrite)
    examples = metadata["train_examples"] + metadata["dev_examples"]
    padding = 1 - metadata["tokens"] / (examples * settings.max_seq_length)
    share = metadata["dev_examples"] / examples
    held_out = ""
    if settings.dev_fraction:
        held_out = f" and {metadata['dev_examples']:,} held-out ones ({100 * share:.1f} %)"
    say(
        f"{metadata['train_examples']:,} training examples{held_out}, {metadata['tokens']:,} tokens "
        f"({100 * padding:.1f} % padding) from {metadata['text_bytes'] / 1e6:.1f} MB of text, in "
        f"{len(metadata['shards'])} files of {settings.output_dir}"
    )
    if metadata["dev_examples"] and not 0.5 <= share / settings.dev_fraction <= 2:
        print(
            f"note: --dev-fraction {settings.dev_fraction:g} is a share of the documents, which are held out whole, "
            "and here they are few or of very different lengths",
            file=sys.stderr,
        )
    if metadata["undecodable_bytes"]:
        files = list(metadata.get("undecodable_files", {}))
        print(undecodable_note(metadata["undecodable_bytes"], metadata["text_bytes"], files), file=sys.stderr)
    share_unknown = metadata["unknown_tokens"] / max(metadata["tokens"], 1)
    unknown = report_on_records(share_unknown, list(metadata["unknown_characters"]))
    if unknown:
        warn(unknown)
    verify_and_inspect(settings.output_dir, settings.vocab_file)


def verify_and_inspect(output_dir: str, vocab_file: str | None) -> None:
    """Does --verify and --inspect, if they are given."""
    use_processor_only()
    if flags.FLAGS.verify:
        print(f"verified {verify(output_dir, vocab_file):,} examples")
    if flags.FLAGS.inspect:
        for line in inspect(output_dir, vocab_file, flags.FLAGS.inspect):
            print(line)


def main() -> None:
    values = flags.FLAGS
    builds = values.corpus_dir or not (values.inspect or values.verify)
    needed = ["corpus_dir", "vocab_file", "output_dir"] if builds else ["output_dir"]
    for name in needed:
        if not values[name].value:
            raise UserError(f"{dashed(name)} is needed; see --help")
    if values.vocab_file:
        values.vocab_file = locate_vocabulary(values.vocab_file)
    if not builds:
        verify_and_inspect(values.output_dir, values.vocab_file)
    else:
        run_build()


def command() -> None:
    define_flags()
    # The original's flag takes a value after a blank, absl's boolean flags do not: both words become one. From the last
    # word to the first, since the list gets shorter.
    for index in range(len(sys.argv) - 2, 0, -1):
        flag, value = sys.argv[index : index + 2]
        if flag.replace("_", "-") == "--blanks-separate-docs" and value.lower() in ("true", "false", "0", "1"):
            sys.argv[index : index + 2] = [f"{flag}={value}"]
    util_flags.run(main, __doc__, goes_on=True)


if __name__ == "__main__":
    command()
