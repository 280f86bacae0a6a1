"""What scripts count over all records (build_cooccurrence.py and its like), and where their table goes.

They count by corpus/key_counts.py and write one table, `<data-dir>/<kind>.npz` (corpus/table_file.py).
"""

from pathlib import Path
from typing import Any, NamedTuple

from electra_tf2.corpus.key_counts import record_files
from electra_tf2.corpus.records import RecordFormat
from electra_tf2.corpus.vocabulary import load_vocab
from electra_tf2.util.errors import UserError
from electra_tf2.util.files import check_writable


class TableInputs(NamedTuple):
    """What to count, and where to write it.

    files: of the records. tokens: of their vocabulary. output: file of the table, which may be written. domain_tokens:
    those that mark the sources of the records (corpus.sources), no text.
    """

    files: list[str]
    record_format: RecordFormat
    vocab_file: str
    tokens: list[str]
    output: str
    domain_tokens: tuple[str, ...] = ()


def table_inputs(kind: str, flags: Any) -> TableInputs:
    """Finds the records and their vocabulary, as the values of `util.flags.define_table_flags` say.

    Raises:
      UserError: the output exists or cannot be written; no records, or records of another vocabulary.
    """
    output = flags.output_file or str(Path(flags.data_dir, f"{kind}.npz"))
    if Path(output).exists() and not flags.overwrite:
        raise UserError(f"--output-file {output!r} exists; pass --overwrite to replace it or name another file")
    check_writable(output)
    vocab_file = flags.vocab_file or str(Path(flags.data_dir, "vocab.txt"))
    tokens = load_vocab(vocab_file)
    pattern = flags.pretrain_tfrecords or str(Path(flags.data_dir, "pretrain_tfrecords", "pretrain_data.tfrecord*"))
    files, metadata = record_files(pattern, vocab_file)
    return TableInputs(
        files, metadata.record_format, vocab_file, tokens, output, domain_tokens=tuple(metadata.domain_tokens)
    )
