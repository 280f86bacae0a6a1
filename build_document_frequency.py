"""Counts how many records hold each token, for the auxiliary task tf_idf.

  python build_document_frequency.py --data-dir data

reads <data-dir>/pretrain_tfrecords once and writes <data-dir>/document_frequency.npz (docs/papers.md).
"""

import tempfile
from functools import partial
from pathlib import Path

from absl import flags

from electra_tf2.corpus.document_frequency import KIND, count_documents, write_frequencies
from electra_tf2.corpus.key_counts import Counting, count_records_of
from electra_tf2.corpus.table_inputs import table_inputs
from electra_tf2.util.flags import define_table_flags, run


def main() -> None:
    found = table_inputs(KIND, flags.FLAGS)
    vocab_size = len(found.tokens)
    with tempfile.TemporaryDirectory(dir=flags.FLAGS.work_dir) as folder:
        count_in = partial(count_documents, vocab_size=vocab_size)
        counting = Counting(count_in, vocab_size, found.record_format, Path(folder), found.record_format.length)
        totals = count_records_of(found.files, counting, flags.FLAGS.num_processes)
    write_frequencies(found.output, totals, found.vocab_file)
    print(f"wrote {found.output}: {int((totals[:-1] > 0).sum()):,} tokens occur in {totals[-1]:,} records")


def command() -> None:
    define_table_flags(KIND)
    run(main, __doc__)


if __name__ == "__main__":
    command()
