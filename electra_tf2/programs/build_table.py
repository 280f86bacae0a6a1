"""Counts over all records, once, and writes the table that some papers need.

  electra build-table KIND --data-dir data

The first argument is the kind of table, one of those at the end; it is written to <data-dir>/<KIND>.npz
(docs/papers.md says who reads it). A paper of your own, a module with TABLES, is named by --paper.

Memory is bounded by what a process may hold and by the largest 64th of what is counted.
"""

import itertools
import sys
import textwrap
from collections.abc import Collection, Sequence
from pathlib import Path

from absl import flags

from electra_tf2.config.flags import HELP, run
from electra_tf2.config.papers import load_paper, paper_names
from electra_tf2.corpus.vocabulary import load_vocab
from electra_tf2.files.writing import check_new
from electra_tf2.papers.counts import Option, TableKind, record_inputs
from electra_tf2.util.errors import UserError, closest, see_help


def kinds_of_tables(paper: str | None = None) -> dict[str, TableKind]:
    """Kind of table -> how it is counted: for the papers of the package, and for one more."""
    papers = paper_names()
    if paper:
        papers.append(paper)
    kinds: dict[str, TableKind] = {}
    for name in papers:
        kinds |= getattr(load_paper(name, "tables"), "TABLES", {})
    return kinds


def main() -> None:
    values = flags.FLAGS
    kinds = kinds_of_tables(values.paper)
    if values.kind not in kinds:
        hint = ""
        if values.kind:
            hint = f", not {values.kind!r}{closest(values.kind, kinds)}"
        raise UserError(see_help(f"the first argument is the kind of table: {', '.join(kinds)}{hint}"))
    kind = kinds[values.kind]
    options = {name: values[name].value for name in kind.options}
    output = values.output_file or str(Path(values.data_dir, f"{values.kind}.npz"))
    check_new("--output-file", output, values.overwrite)
    vocab_file = values.vocab_file or str(Path(values.data_dir, "vocab.txt"))
    load_vocab(vocab_file)
    pattern = values.pretrain_tfrecords or str(Path(values.data_dir, "pretrain_tfrecords", "pretrain_data.tfrecord*"))
    inputs = record_inputs(pattern, vocab_file)
    inputs = inputs._replace(num_processes=values.num_processes, work_dir=values.work_dir)
    print(f"wrote {output}: {kind.build(inputs, output, **options)}")


def command() -> None:
    words = sys.argv[1:]
    if words and not words[0].startswith("-"):
        words[0] = f"--kind={words[0]}"
        sys.argv[1] = words[0]
    kind, paper = kind_and_paper(words)
    try:
        kinds = kinds_of_tables(paper)
    except UserError:  # `main` raises it again, where it is printed
        kinds = kinds_of_tables()
    define_flags(kinds)
    if kind in kinds:
        define_options([kinds[kind]])
    elif not HELP & {*words}:
        # The kind is unknown. With the flags of all kinds defined, `main` runs and refuses it.
        define_options(list(kinds.values()))
    descriptions = []
    for name, table_kind in kinds.items():
        descriptions.append(textwrap.fill(f"  {name:19} {table_kind.description}", 80, subsequent_indent=" " * 22))
    lines = "\n".join(descriptions)
    run(main, f"{__doc__}\nKinds of table, each with flags of its own (KIND --help):\n\n{lines}\n", goes_on=True)


def kind_and_paper(words: list[str]) -> tuple[str, str | None]:
    """Values of --kind and --paper. They are needed before absl reads flags, since they decide which flags exist."""
    values = {}
    for word, next_word in itertools.pairwise([*words, ""]):
        name, _, value = word.partition("=")
        if name in ("--kind", "--paper"):
            values[name] = value or next_word
    return values.get("--kind", ""), values.get("--paper")


def define_flags(kinds: Collection[str]) -> None:
    """Defines the flags that all kinds share."""
    flags.DEFINE_string("kind", None, f"Kind of table ({', '.join(kinds)}); may stand first, without the flag's name.")
    flags.DEFINE_string("paper", None, "Module of a paper of your own, by its dotted name, that has more kinds.")
    flags.DEFINE_string("data_dir", "data", "Folder of the vocabulary and the records.")
    flags.DEFINE_string("pretrain_tfrecords", None, "Pattern of the records (default: those in --data-dir).")
    flags.DEFINE_string("vocab_file", None, "Vocabulary of the records (default: <data-dir>/vocab.txt).")
    flags.DEFINE_string("output_file", None, "File of the table to write (default: <data-dir>/<kind>.npz).")
    flags.DEFINE_integer("num_processes", 0, "Number of processes that count (0: one for each core).", lower_bound=0)
    flags.DEFINE_string("work_dir", None, "Folder for counts while they are made (default: the system's).")
    flags.DEFINE_boolean("overwrite", False, "Replace the file if it exists.")


def define_options(kinds: Sequence[TableKind]) -> None:
    """Defines the flags of some kinds. Kinds may share a flag."""
    options: dict[str, Option] = {}
    for kind in kinds:
        options |= kind.options
    for name, option in options.items():
        if option.choices:
            flags.DEFINE_enum(name, str(option.default), option.choices, option.help)
        else:
            flags.DEFINE_integer(name, int(option.default), option.help, option.at_least, option.at_most)


if __name__ == "__main__":
    command()
