"""What build_pmi_vocab.py and build_cooccurrence.py count, and where their table goes.

Both count over all records (corpus/key_counts.py) and write one table (corpus/table_file.py).
"""

from pathlib import Path
from typing import NamedTuple

from corpus.key_counts import record_files
from corpus.records import RecordFormat
from corpus.vocabulary import load_vocab
from util.errors import UserError
from util.files import check_writable


class TableInputs(NamedTuple):
    """files: of the records. tokens: of their vocabulary. output: file of the table, which may be written."""

    files: list[str]
    record_format: RecordFormat
    vocab_file: str
    tokens: list[str]
    output: str


def table_inputs(
    data_dir: str, pretrain_tfrecords: str | None, vocab_file: str | None, output: str, overwrite: bool
) -> TableInputs:
    """Finds the records and their vocabulary, in `data_dir` where no other place is given.

    Raises:
      UserError: the output exists or cannot be written; no records, or records of another vocabulary.
    """
    if Path(output).exists() and not overwrite:
        raise UserError(f"--output-file {output!r} exists; pass --overwrite to replace it or name another file")
    check_writable(output)
    vocab_file = vocab_file or str(Path(data_dir, "vocab.txt"))
    tokens = load_vocab(vocab_file)
    pattern = pretrain_tfrecords or str(Path(data_dir, "pretrain_tfrecords", "pretrain_data.tfrecord*"))
    return TableInputs(*record_files(pattern, vocab_file), vocab_file, tokens, output)
