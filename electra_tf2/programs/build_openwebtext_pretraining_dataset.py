"""Turns OpenWebText into TFRecords for pre-training.

  python build_openwebtext_pretraining_dataset.py --data-dir data \\
      --max-seq-length 128

Expects what openwebtext.tar.xz unpacks to, urlsf_subset*.xz archives of text files, in DATA_DIR/openwebtext, and the
vocabulary in DATA_DIR/vocab.txt; writes DATA_DIR/pretrain_tfrecords. The archives are read as streams, never unpacked
to disk. Each text file in them is a document, so blank lines in it do not matter. All else is as in
build_pretraining_dataset.py.
"""

import os

from absl import flags

from electra_tf2.config import flags as util_flags
from electra_tf2.corpus.jobs import OPENWEBTEXT
from electra_tf2.programs.build_pretraining_dataset import define_common_flags, run_build, verify_and_inspect
from electra_tf2.util.errors import UserError


def define_flags() -> None:
    flags.DEFINE_string("data_dir", None, "Directory of the vocabulary, the archives and the records.")
    flags.DEFINE_string("corpus_dir", None, "Directory of the archives [DATA_DIR/openwebtext].")
    flags.DEFINE_string("vocab_file", None, "WordPiece vocabulary [DATA_DIR/vocab.txt].")
    flags.DEFINE_string("output_dir", None, "Directory of the records [DATA_DIR/pretrain_tfrecords].")
    define_common_flags()


def main() -> None:
    values = flags.FLAGS
    may_only_inspect = (values.inspect or values.verify) and not values.corpus_dir
    has_paths = values.output_dir and (may_only_inspect or (values.corpus_dir and values.vocab_file))
    if not values.data_dir and not has_paths:
        raise UserError("--data-dir is needed, or all of --corpus-dir, --vocab-file and --output-dir; see --help")
    names_in_data_dir = {"corpus_dir": "openwebtext", "vocab_file": "vocab.txt", "output_dir": "pretrain_tfrecords"}
    paths = {}
    for flag, name in names_in_data_dir.items():
        paths[flag] = values[flag].value or os.path.join(values.data_dir or "", name)
    if may_only_inspect and (not values.data_dir or not os.path.isdir(paths["corpus_dir"])):
        verify_and_inspect(paths["output_dir"], values.vocab_file)
    else:
        run_build(blanks_separate_docs=False, corpus_kind=OPENWEBTEXT, **paths)


def command() -> None:
    define_flags()
    util_flags.run(main, __doc__, goes_on=True)


if __name__ == "__main__":
    command()
