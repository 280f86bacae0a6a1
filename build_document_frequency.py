"""Counts how many records hold each token, for the auxiliary task tf_idf.

  python build_document_frequency.py --data-dir data

reads <data-dir>/pretrain_tfrecords once and writes <data-dir>/document_frequency.npz (docs/papers.md).
"""

import tempfile
from functools import partial
from pathlib import Path

from absl import flags

from corpus.document_frequency import KIND, count_documents, write_frequencies
from corpus.key_counts import Counting, count_records_of
from corpus.table_inputs import table_inputs
from util.flags import run


def _define_flags() -> None:
    flags.DEFINE_string("data_dir", "data", "Folder of vocabulary, records and models.")
    flags.DEFINE_string("pretrain_tfrecords", None, "Pattern of the records (default: those in --data-dir).")
    flags.DEFINE_string("vocab_file", None, "Their vocabulary (default: <data-dir>/vocab.txt).")
    flags.DEFINE_string("output_file", None, f"What to write (default: <data-dir>/{KIND}.npz).")
    flags.DEFINE_integer("num_processes", 0, "Processes that count (0: one for each core).", lower_bound=0)
    flags.DEFINE_boolean("overwrite", False, "Replace the file if it exists.")


def main() -> None:
    values = flags.FLAGS
    output = values.output_file or str(Path(values.data_dir, f"{KIND}.npz"))
    found = table_inputs(
        values.data_dir, values.pretrain_tfrecords, values.vocab_file, output, overwrite=values.overwrite
    )
    vocab_size = len(found.tokens)
    with tempfile.TemporaryDirectory() as folder:
        count_in = partial(count_documents, vocab_size=vocab_size)
        counting = Counting(count_in, vocab_size, found.record_format, Path(folder))
        totals = count_records_of(found.files, counting, values.num_processes)
    write_frequencies(found.output, totals, found.vocab_file)
    print(f"wrote {found.output}: {int((totals[:-1] > 0).sum()):,} tokens occur in {totals[-1]:,} records")


if __name__ == "__main__":
    _define_flags()
    run(main, __doc__)
