"""Turns a directory of text into TFRecords for pre-training.

  python build_pretraining_dataset.py --corpus-dir corpus --vocab-file data/vocab.txt \\
      --output-dir data/pretrain_tfrecords --max-seq-length 128 --num-processes 8 --dev-fraction 0.01

Text files (.txt, .gz, .bz2, .xz, .zst, one paragraph or sentence a line, a blank line between documents) and JSON
lines (.jsonl, also compressed) become shards of int64 input_ids, input_mask and segment_ids, as the original's. The
same command goes on with a build that was stopped. Nothing is deleted without --overwrite.
"""

import sys
from pathlib import Path

from absl import flags

from pretrain.dataset_builder import BuildSettings, build
from util import flags as util_flags
from util.errors import UserError
from util.vocabulary import load_vocab


def define_flags() -> None:
    flags.DEFINE_string("corpus_dir", None, "directory of the text")
    flags.DEFINE_string("vocab_file", None, "WordPiece vocabulary (build_vocab.py makes one)")
    flags.DEFINE_string("output_dir", None, "directory of the records")
    flags.DEFINE_integer("max_seq_length", 128, "tokens of an example", lower_bound=5)
    flags.DEFINE_integer("num_processes", 1, "processes; the records do not depend on it", lower_bound=1)
    flags.DEFINE_bool("blanks_separate_docs", True, "blank lines are document boundaries")
    flags.DEFINE_bool("do_lower_case", True, "lower-case the text")
    flags.DEFINE_bool("do_strip_accents", True, "strip accents")
    flags.DEFINE_integer("seed", 0, "of all random decisions", lower_bound=0)
    flags.DEFINE_float("dev_fraction", 0.0, "share of documents held out", lower_bound=0.0, upper_bound=0.5)
    flags.DEFINE_string("text_field", "text", "field of .jsonl files that holds the text")
    flags.DEFINE_bool("recursive", False, "read the folders below --corpus-dir too")
    flags.DEFINE_enum("compat", "none", ["none", "original"], "original: text beyond a full example is thrown away")
    flags.DEFINE_bool("overwrite", False, "delete the records that --output-dir holds")
    flags.DEFINE_integer("inspect", 0, "print so many examples of --output-dir as text, and stop", lower_bound=0)


def inspect(output_dir: str, vocab_file: str, count: int) -> None:
    """Prints examples of the records that are there."""
    import tensorflow as tf

    vocab = load_vocab(vocab_file)
    files = sorted(map(str, Path(output_dir).glob("pretrain_data.tfrecord*")))
    if not files:
        raise UserError(f"--output-dir: {output_dir} holds no records to inspect")
    for number, record in enumerate(tf.data.TFRecordDataset(files).take(count).as_numpy_iterator()):
        features = tf.train.Example.FromString(record).features.feature
        ids, mask, segments = (features[name].int64_list.value for name in ("input_ids", "input_mask", "segment_ids"))
        print(f"example {number}: {sum(mask)} of {len(ids)} tokens")
        for segment in (0, 1):
            words = [vocab[i] for i, real, s in zip(ids, mask, segments, strict=True) if real and s == segment]
            if words:
                print(f"  segment {segment}: {' '.join(words).replace(' ##', '')}")


def main() -> int:
    values = flags.FLAGS
    for name in ("vocab_file", "output_dir") if values.inspect else ("corpus_dir", "vocab_file", "output_dir"):
        if not values[name].value:
            raise UserError(f"--{name.replace('_', '-')} is needed; see --help")
    if values.inspect:
        inspect(values.output_dir, values.vocab_file, values.inspect)
        return 0
    settings = BuildSettings(
        corpus_dir=values.corpus_dir,
        vocab_file=values.vocab_file,
        output_dir=values.output_dir,
        max_seq_length=values.max_seq_length,
        blanks_separate_docs=values.blanks_separate_docs,
        do_lower_case=values.do_lower_case,
        strip_accents=values.do_strip_accents,
        seed=values.seed,
        dev_fraction=values.dev_fraction,
        text_field=values.text_field,
        recursive=values.recursive,
        compat=values.compat,
    )
    metadata = build(settings, values.num_processes, values.overwrite)
    print(
        f"{metadata['train_examples']:,} training and {metadata['dev_examples']:,} held-out examples, "
        f"{metadata['tokens']:,} tokens from {metadata['text_bytes'] / 1e6:.1f} MB of text in {values.output_dir}"
    )
    if metadata["undecodable_bytes"]:
        print(f"WARNING: {metadata['undecodable_bytes']:,} bytes were not UTF-8 and were left out")
    return 0


define_flags()

if __name__ == "__main__":
    sys.exit(util_flags.run(main, __doc__))  # type: ignore[func-returns-value]
