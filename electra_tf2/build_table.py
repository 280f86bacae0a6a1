"""Counts over all records, once, and writes the table that some papers need.

  electra build-table KIND --data-dir data

The first argument is the kind of table, which is listed at the end; it is written to <data-dir>/<KIND>.npz
(docs/papers.md says who reads it). A paper of your own, a module with TABLES, is named by --paper.

Memory is bounded by what a process may hold and by the largest 64th of what is counted.
"""

import itertools
import sys
import textwrap
from pathlib import Path

from absl import flags

from electra_tf2.corpus.tables import Option, Table, record_inputs
from electra_tf2.corpus.vocabulary import load_vocab
from electra_tf2.util.errors import UserError
from electra_tf2.util.files import check_writable
from electra_tf2.util.flags import run
from electra_tf2.util.hparams import closest
from electra_tf2.util.papers import load_paper, paper_names


def tables(paper: str | None = None) -> dict[str, Table]:
    """Kind of table -> how it is counted: those of the papers that come with the package, and of one more."""
    found: dict[str, Table] = {}
    for name in [*paper_names(), *([paper] if paper else [])]:
        found |= getattr(load_paper(name, "tables"), "TABLES", {})
    return found


def _define_flags(kinds: dict[str, Table]) -> None:
    flags.DEFINE_string("kind", None, f"Kind of table ({', '.join(kinds)}); may stand first, without the flag's name.")
    flags.DEFINE_string("paper", None, "Module of a paper of your own, by its dotted name, that has more kinds.")
    flags.DEFINE_string("data_dir", "data", "Folder of the vocabulary and the records.")
    flags.DEFINE_string("pretrain_tfrecords", None, "Pattern of the records (default: those in --data-dir).")
    flags.DEFINE_string("vocab_file", None, "Vocabulary of the records (default: <data-dir>/vocab.txt).")
    flags.DEFINE_string("output_file", None, "File of the table to write (default: <data-dir>/<kind>.npz).")
    flags.DEFINE_integer("num_processes", 0, "Number of processes that count (0: one for each core).", lower_bound=0)
    flags.DEFINE_string("work_dir", None, "Folder for counts while they are made (default: the system's).")
    flags.DEFINE_boolean("overwrite", False, "Replace the file if it exists.")
    for name in dict.fromkeys(name for table in kinds.values() for name in table.options):
        uses = {kind: table.options[name] for kind, table in kinds.items() if name in table.options}
        text = "; ".join(f"{kind}: {_described(option)}" for kind, option in uses.items())
        is_number = all(isinstance(option.default, int) for option in uses.values())
        (flags.DEFINE_integer if is_number else flags.DEFINE_string)(name, None, text)


def _described(option: Option) -> str:
    choices = f"<{'|'.join(option.choices)}> " if option.choices else ""
    return f"{choices}{option.help} [{option.default}]"


def _options(kind: str, table: Table) -> dict[str, int | str]:
    """The options of a kind, from the flags. Raises UserError."""
    values, others = flags.FLAGS, set().union(*(of.options for of in tables(flags.FLAGS.paper).values()))
    for name in others - table.options.keys():
        if values[name].present:
            raise UserError(f"--{name.replace('_', '-')} is not for {kind}; see --help")
    options = {}
    for name, option in table.options.items():
        value = option.default if values[name].value is None else values[name].value
        if option.choices and value not in option.choices:
            raise UserError(f"--{name.replace('_', '-')} {value}: {kind} has {', '.join(option.choices)}")
        if isinstance(value, int) and not option.at_least <= value <= option.at_most:
            limits = f"between {option.at_least} and {option.at_most}"
            raise UserError(f"--{name.replace('_', '-')} must be {limits}, got {value}")
        options[name] = value
    return options


def main() -> None:
    values, kinds = flags.FLAGS, tables(flags.FLAGS.paper)
    if values.kind not in kinds:
        given = f", not {values.kind!r}{closest(values.kind, kinds)}" if values.kind else ""
        raise UserError(f"the first argument is the kind of table: {', '.join(kinds)}{given}; see --help")
    table = kinds[values.kind]
    options = _options(values.kind, table)  # refused before anything slow
    output = values.output_file or str(Path(values.data_dir, f"{values.kind}.npz"))
    if Path(output).exists() and not values.overwrite:
        raise UserError(f"--output-file {output!r} exists; pass --overwrite to replace it or name another file")
    check_writable(output)
    vocab_file = values.vocab_file or str(Path(values.data_dir, "vocab.txt"))
    load_vocab(vocab_file)
    pattern = values.pretrain_tfrecords or str(Path(values.data_dir, "pretrain_tfrecords", "pretrain_data.tfrecord*"))
    inputs = record_inputs(pattern, vocab_file)
    inputs = inputs._replace(num_processes=values.num_processes, work_dir=values.work_dir)
    print(f"wrote {output}: {table.build(inputs, output, **options)}")


def command() -> None:
    words = sys.argv[1:]
    if words and not words[0].startswith("-"):
        sys.argv[1] = f"--kind={words[0]}"
    named = [word.partition("=")[2] or after for word, after in itertools.pairwise([*words, ""])
             if word.partition("=")[0] == "--paper"]  # fmt: skip
    try:
        kinds = tables(named[-1] if named else None)
    except UserError:  # `main` says it
        kinds = tables()
    _define_flags(kinds)
    lines = "\n".join(
        textwrap.fill(f"  {kind:19} {table.description}", 80, subsequent_indent=" " * 22)
        for kind, table in kinds.items()
    )
    run(main, f"{__doc__}\nKinds of table:\n\n{lines}\n", goes_on=True)


if __name__ == "__main__":
    command()
