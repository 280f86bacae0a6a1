"""Looks at finished records: prints examples as text, and checks every record against the metadata.

build_pretraining_dataset.py's --inspect and --verify. Records are read as training reads them, so what passes here
loads there.
"""

import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from electra_tf2.corpus.record_metadata import RecordMetadata, Shard, read_metadata
from electra_tf2.corpus.records import FIELDS, OTHER_FIELDS, count_records, read_batches
from electra_tf2.corpus.vocabulary import SpecialIds, load_vocab, special_ids, vocab_sha256
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import track

_OTHERS = dict(zip(OTHER_FIELDS, ("from elsewhere in the document", "of another document"), strict=True))
_AGAIN = "build the records again with --overwrite"


def inspect(output_dir: str, vocab_file: str | None, count: int) -> Iterator[str]:
    """The first examples of every few shards as lines of text, `count` in all."""
    metadata, vocab = _open(output_dir, vocab_file)
    special = special_ids(vocab)
    shown = 0
    for name, shard in metadata.shards.items():
        wanted = min(count - shown, shard.examples, -(-count // len(metadata.shards)))
        shown += wanted
        if wanted > 0:
            metadata.check_shard(name)
            batches = read_batches(metadata.path.with_name(name), metadata.record_format)
            for number, record in enumerate(itertools.islice(_records(batches), wanted), start=1):
                real = int(record["input_mask"].sum())
                yield f"{name}, example {number}: {real} tokens of {metadata.max_seq_length}"
                yield from _segments(record, vocab, special)


def _records(batches: Iterable[dict[str, np.ndarray]]) -> Iterator[dict[str, np.ndarray]]:
    """One after the other, [length] per field."""
    for batch in batches:
        for row in range(len(batch[FIELDS[0]])):
            yield {field: values[row] for field, values in batch.items()}


def _segments(record: dict[str, np.ndarray], vocab: list[str], special: SpecialIds) -> Iterator[str]:
    """A record's segments as text, and those that may stand in the second one's place."""
    ids, real, segments = (record[field] for field in FIELDS)
    for segment in (0, 1):
        kept = ids[(real == 1) & (segments == segment)]
        words = [vocab[token] for token in kept if token not in (special.cls, special.sep)]
        if len(kept):
            yield f"  segment {segment + 1}: " + " ".join(words).replace(" ##", "")
    for field in [field for field in OTHER_FIELDS if field in record and segments.any()]:
        words = [vocab[token] for token in record[field] if token]
        yield f"  or {_OTHERS[field]}: " + (" ".join(words).replace(" ##", "") or "none")


def verify(output_dir: str, vocab_file: str | None = None) -> int:
    """Reads every record and compares with the metadata. Returns the number of examples; raises UserError."""
    metadata, vocab = _open(output_dir, vocab_file)
    special = special_ids(vocab)
    for name, shard in track(metadata.shards.items(), "verifying file", len(metadata.shards)):
        path = metadata.path.with_name(name)
        metadata.check_shard(name)
        examples, tokens = count_records(path), 0
        for batch in read_batches(path, metadata.record_format):
            problem = _problem(batch, special)
            if problem:
                raise UserError(f"{path}: {problem}; {_AGAIN}")
            tokens += int(batch["input_mask"].sum())
        if (examples, tokens) != (shard.examples, shard.tokens):
            raise UserError(
                f"{path} holds {examples} examples and {tokens} tokens, but {metadata.path} says "
                f"{shard.examples} and {shard.tokens}; {_AGAIN}"
            )
    unlisted = {path.name for path in metadata.path.parent.glob("*.tfrecord*")} - metadata.shards.keys()
    if unlisted:
        raise UserError(f"{output_dir} holds {min(unlisted)}, which {metadata.path} does not list; move it away")
    return Shard.total(metadata.shards.values()).examples


def _problem(batch: dict[str, np.ndarray], special: SpecialIds) -> str | None:
    """Says what our builder would not have written in records that can be read; None if there is nothing."""
    ids, real, segments = (batch[field] for field in FIELDS)
    length = real.sum(axis=1)
    if (real != (np.arange(ids.shape[1]) < length[:, None])).any():
        return "padding lies between tokens"
    if (ids[:, 0] != special.cls).any() or (ids[np.arange(len(ids)), length - 1] != special.sep).any():
        return "an example does not begin with [CLS] or end with [SEP]"
    if (ids * (1 - real)).any() or (segments * (1 - real)).any():
        return "padding is not zero"
    room = np.maximum(0, segments.sum(axis=1) - 1)  # tokens of the second segment without [SEP]
    for field in [field for field in OTHER_FIELDS if field in batch]:
        filled = batch[field] > 0
        if (filled != (np.arange(ids.shape[1]) < filled.sum(axis=1)[:, None])).any():
            return f"{field} has zeros between tokens"
        if (filled.sum(axis=1) > room).any():
            return f"{field} is longer than the second segment"
    return None


def _open(output_dir: str, vocab_file: str | None) -> tuple[RecordMetadata, list[str]]:
    """The metadata and the vocabulary: that given, or that beside the records."""
    metadata = read_metadata(output_dir)
    if metadata is None:
        raise UserError(f"--output-dir {output_dir!r} holds no metadata.json; build the records first")
    if not vocab_file and not metadata.vocab_file.exists():
        raise UserError(f"--vocab-file is needed: {output_dir!r} holds no {metadata.vocab_file.name}")
    path = vocab_file or metadata.vocab_file
    if vocab_sha256(path) != metadata.vocab_sha256:
        raise UserError(f"{path} is not the vocabulary that the records of {output_dir!r} were built with")
    return metadata, load_vocab(path)
