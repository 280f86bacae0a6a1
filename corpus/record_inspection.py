"""Looks at finished records: prints examples as text, and checks every record against the metadata.

build_pretraining_dataset.py's --inspect and --verify. Records are read as training reads them, so what passes here
loads there.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from corpus.build_plan import DEV_PREFIX, TRAIN_PREFIX
from corpus.record_metadata import RecordMetadata, count_records, read_metadata
from corpus.vocabulary import load_vocab, special_ids, vocab_sha256
from util.errors import UserError

_BATCH = 1024


def read_examples(path: str, length: int) -> Iterator[dict[str, np.ndarray]]:
    """Batches of a file's examples: input_ids, input_mask, segment_ids, int64 [examples, length] each."""
    import tensorflow as tf

    features = {name: tf.io.FixedLenFeature([length], tf.int64) for name in ("input_ids", "input_mask", "segment_ids")}
    try:
        for records in tf.data.TFRecordDataset(path).batch(_BATCH):
            yield {name: value.numpy() for name, value in tf.io.parse_example(records, features).items()}
    except tf.errors.DataLossError as error:
        raise UserError(f"{path} is damaged ({error.message}); build the records again with --overwrite") from None
    except tf.errors.InvalidArgumentError as error:
        raise UserError(f"{path}: its records are not examples of length {length} ({error.message})") from None


def inspect(output_dir: str, vocab_file: str, count: int) -> Iterator[str]:
    """The first examples of every few shards as lines of text, `count` in all."""
    vocab = load_vocab(vocab_file)
    special = special_ids(vocab)
    metadata = _metadata(output_dir, vocab_file)
    shown = 0
    for name, examples in metadata.shards.items():
        wanted = min(count - shown, examples, -(-count // len(metadata.shards)))
        for batch in read_examples(str(Path(output_dir) / name), metadata.max_seq_length) if wanted > 0 else ():
            for row in range(min(wanted, len(batch["input_ids"]))):
                ids, real, segments = (batch[key][row] for key in ("input_ids", "input_mask", "segment_ids"))
                shown += 1
                yield f"{name}, example {row}: {int(real.sum())} tokens of {len(ids)}"
                for segment in (0, 1):
                    kept = ids[(real == 1) & (segments == segment)]
                    words = [vocab[token] for token in kept if token not in (special.cls, special.sep)]
                    if len(kept):
                        yield f"  segment {segment + 1}: " + " ".join(words).replace(" ##", "")
            break


def verify(output_dir: str, vocab_file: str) -> int:
    """Reads every record and compares with the metadata. Returns the number of examples; raises UserError."""
    vocab = load_vocab(vocab_file)
    special = special_ids(vocab)
    metadata = _metadata(output_dir, vocab_file)
    total = 0
    for name, shard in metadata.values["shards"].items():
        path = Path(output_dir) / name
        if not path.exists():
            raise UserError(
                f"{path} is missing, but {metadata.path} lists it; build the records again with --overwrite"
            )
        examples = count_records(path)
        if examples != shard["examples"] or path.stat().st_size != shard["bytes"]:
            raise UserError(
                f"{path} holds {examples} examples in {path.stat().st_size} bytes, but {metadata.path} says "
                f"{shard['examples']} in {shard['bytes']}; build the records again with --overwrite"
            )
        tokens = 0
        for batch in read_examples(str(path), metadata.max_seq_length):
            problem = _problem(batch, len(vocab), special)
            if problem:
                raise UserError(f"{path}: {problem}; build the records again with --overwrite")
            tokens += int(batch["input_mask"].sum())
        if tokens != shard["tokens"]:
            raise UserError(f"{path} holds {tokens} tokens, but {metadata.path} says {shard['tokens']}")
        total += examples
    unlisted = [
        path.name
        for prefix in (TRAIN_PREFIX, DEV_PREFIX)
        for path in Path(output_dir).glob(f"{prefix}*")
        if path.name not in metadata.shards
    ]
    if unlisted:
        raise UserError(f"{output_dir} holds {sorted(unlisted)[0]}, which {metadata.path} does not list; move it away")
    return total


def _problem(batch: dict[str, np.ndarray], vocab_size: int, special: Any) -> str | None:
    """What is wrong with a batch of examples."""
    ids, real, segments = batch["input_ids"], batch["input_mask"], batch["segment_ids"]
    length = real.sum(axis=1)
    rows = np.arange(len(ids))
    if ids.min() < 0 or ids.max() >= vocab_size:
        return f"a token id is outside the vocabulary of {vocab_size}"
    if (real != (np.arange(ids.shape[1]) < length[:, None])).any():
        return "padding lies between tokens"
    if (ids[:, 0] != special.cls).any() or (ids[rows, length - 1] != special.sep).any():
        return "an example does not begin with [CLS] or end with [SEP]"
    if (ids * (1 - real)).any() or (segments * (1 - real)).any() or ((segments != 0) & (segments != 1)).any():
        return "padding is not zero or segment ids are not 0 and 1"
    return None


def _metadata(output_dir: str, vocab_file: str) -> RecordMetadata:
    metadata = read_metadata(output_dir)
    if metadata is None:
        raise UserError(f"--output-dir {output_dir!r} holds no metadata.json; build the records first")
    if vocab_sha256(vocab_file) != metadata.vocab_sha256:
        raise UserError(
            f"--vocab-file {vocab_file!r} is not the one that the records of {output_dir!r} were built with"
        )
    return metadata
