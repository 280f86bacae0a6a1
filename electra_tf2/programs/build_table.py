"""Counts over all records, once, and writes the table that some papers need.

  electra build-table KIND --data-dir data

The first argument is the kind of table, one of those at the end; it is written to <data-dir>/<KIND>.npz
(docs/papers.md says who reads it). A paper of your own, a module with TABLES, is named by --paper.

Memory is bounded by what a process may hold and by the largest 64th of what is counted.
"""

import itertools
import sys
import textwrap
from pathlib import Path

from absl import flags

from electra_tf2.config.flags import HELP, run
from electra_tf2.config.papers import load_paper, paper_names
from electra_tf2.corpus.vocabulary import load_vocab
from electra_tf2.files.writing import check_new
from electra_tf2.papers.counts import TableKind, record_inputs
from electra_tf2.util.errors import UserError, closest


def tables(paper: str | None = None) -> dict[str, TableKind]:
    """Kind of table -> how it is counted: those of the papers that come with the package, and of one more."""
    found: dict[str, TableKind] = {}
    for name in [*paper_names(), *([paper] if paper else [])]:
        found |= getattr(load_paper(name, "tables"), "TABLES", {})
    return found


def main() -> None:
    values, kinds = flags.FLAGS, tables(flags.FLAGS.paper)
    if values.kind not in kinds:
        given = f", not {values.kind!r}{closest(values.kind, kinds)}" if values.kind else ""
        raise UserError(f"the first argument is the kind of table: {', '.join(kinds)}{given}; see --help")
    table = kinds[values.kind]
    options = {name: values[name].value for name in table.options}
    output = values.output_file or str(Path(values.data_dir, f"{values.kind}.npz"))
    check_new("--output-file", output, values.overwrite)
    vocab_file = values.vocab_file or str(Path(values.data_dir, "vocab.txt"))
    load_vocab(vocab_file)
    pattern = values.pretrain_tfrecords or str(Path(values.data_dir, "pretrain_tfrecords", "pretrain_data.tfrecord*"))
    inputs = record_inputs(pattern, vocab_file)
    inputs = inputs._replace(num_processes=values.num_processes, work_dir=values.work_dir)
    print(f"wrote {output}: {table.build(inputs, output, **options)}")


def command() -> None:
    words = sys.argv[1:]
    if words and not words[0].startswith("-"):
        sys.argv[1] = words[0] = f"--kind={words[0]}"
    # Which flags there are depends on two of them.
    pairs = [(*word.partition("=")[::2], after) for word, after in itertools.pairwise([*words, ""])]
    given = {name: value or after for name, value, after in pairs if name in ("--kind", "--paper")}
    try:
        kinds = tables(given.get("--paper"))
    except UserError:  # `main` says it
        kinds = tables()
    flags.DEFINE_string("kind", None, f"Kind of table ({', '.join(kinds)}); may stand first, without the flag's name.")
    flags.DEFINE_string("paper", None, "Module of a paper of your own, by its dotted name, that has more kinds.")
    flags.DEFINE_string("data_dir", "data", "Folder of the vocabulary and the records.")
    flags.DEFINE_string("pretrain_tfrecords", None, "Pattern of the records (default: those in --data-dir).")
    flags.DEFINE_string("vocab_file", None, "Vocabulary of the records (default: <data-dir>/vocab.txt).")
    flags.DEFINE_string("output_file", None, "File of the table to write (default: <data-dir>/<kind>.npz).")
    flags.DEFINE_integer("num_processes", 0, "Number of processes that count (0: one for each core).", lower_bound=0)
    flags.DEFINE_string("work_dir", None, "Folder for counts while they are made (default: the system's).")
    flags.DEFINE_boolean("overwrite", False, "Replace the file if it exists.")
    # Of a kind that is not there all kinds' flags are known, so that `main` can say so.
    asked = [kinds[given["--kind"]]] if given.get("--kind") in kinds else [] if HELP & {*words} else kinds.values()
    for name, option in {name: option for table in asked for name, option in table.options.items()}.items():
        if option.choices:
            flags.DEFINE_enum(name, str(option.default), option.choices, option.help)
        else:
            flags.DEFINE_integer(name, int(option.default), option.help, option.at_least, option.at_most)
    lines = "\n".join(
        textwrap.fill(f"  {kind:19} {table.description}", 80, subsequent_indent=" " * 22)
        for kind, table in kinds.items()
    )
    run(main, f"{__doc__}\nKinds of table, each with flags of its own (KIND --help):\n\n{lines}\n", goes_on=True)


if __name__ == "__main__":
    command()
