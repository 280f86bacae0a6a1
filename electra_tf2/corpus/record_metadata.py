"""metadata.json of a folder of pre-training records: written by the builder, checked by all who read records.

Training checks it before anything slow, and the content of a shard when it first reads it. Folders without one, such as
those of the original's builder, are read too. `inspect` and `verify` are build_pretraining_dataset.py's --inspect and
--verify: they read records as training does, so what passes there loads. Only they import TensorFlow.
"""

import fnmatch
import functools
import glob
import itertools
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.corpus.records import FIELDS, RecordFormat, count_records, read_batches
from electra_tf2.corpus.vocabulary import SpecialIds, load_vocab, special_ids, vocab_sha256
from electra_tf2.files.content import is_no_data
from electra_tf2.files.reading import is_file, json_sha256, read_json, sha256_of
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.progress import track

METADATA_FILE = "metadata.json"
VOCAB_FILE = "pretrain_vocab.txt"  # a copy, so that records can be shown as text wherever they are
UNFINISHED_FILE = "unfinished.json"  # of a folder whose records are being built: what they are built from
_AGAIN = "Build the records again with --overwrite"


class Shard(NamedTuple):
    """A file of records: its examples, their tokens (padding apart), its bytes, and the SHA-256 of its content.

    sha256: "" of a sum of shards.
    """

    examples: int
    tokens: int
    bytes: int
    sha256: str = ""

    @classmethod
    def total(cls, shards: Iterable["Shard"]) -> "Shard":
        examples, tokens, size = map(sum, zip((0, 0, 0), *(shard[:3] for shard in shards), strict=True))
        return cls(examples, tokens, size)

    def check_content(self, path: str | os.PathLike[str]) -> None:
        """Raises UserError unless a file holds what the builder wrote."""
        status = os.stat(path)
        _check_content(os.fspath(path), self, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@functools.lru_cache(maxsize=1 << 16)  # once for every state of a file: training reads it in every epoch
def _check_content(path: str, shard: Shard, *_: int) -> None:
    if sha256_of(path) != shard.sha256:
        raise UserError(f"{path} is not the file that the builder wrote: its SHA-256 differs. {_AGAIN}")


class RecordMetadata(NamedTuple):
    """The parts of metadata.json that readers use.

    shards: by file name.
    unigram_entropy: in nats, see the function of that name.
    values: all of it.
    """

    path: Path
    vocab_sha256: str
    vocab_size: int
    max_seq_length: int
    do_lower_case: bool
    strip_accents: bool
    shards: dict[str, Shard]
    unigram_entropy: float
    values: dict[str, Any]

    @property
    def record_format(self) -> RecordFormat:
        return RecordFormat(self.max_seq_length, self.vocab_size)

    def check_shard(self, name: str) -> int:
        """The examples of a listed file. Raises UserError if it is missing or not the file that the builder wrote."""
        path, shard = self.path.with_name(name), self.shards[name]
        if not is_file(path):
            problem = "is no file of records" if path.exists() else "is missing"
            raise UserError(f"{path} {problem}, but {self.path} lists it. {_AGAIN}")
        size = path.stat().st_size
        if size != shard.bytes:
            raise UserError(
                f"{path} holds {count_records(path):,} examples in {size:,} bytes, but {self.path} says "
                f"{shard.examples:,} in {shard.bytes:,}. {_AGAIN}"
            )
        return shard.examples

    def listed(self, pattern: str) -> list[str]:
        """Names of the listed files that a pattern asks for."""
        return fnmatch.filter(self.shards, os.path.basename(pattern))


def record_files(pattern: str) -> list[str]:
    """The files of records that a pattern asks for, sorted: listed ones only, where a metadata.json lists some of them.

    Raises:
      UserError: one is no regular file, such as a named pipe, which nobody may ever write to.
    """
    folder, name = os.path.split(pattern)
    if os.path.isdir(folder):  # its name may hold brackets
        pattern = os.path.join(glob.escape(folder), name)
    files: list[str] = []
    paths = sorted(
        path
        for path in glob.glob(pattern)
        if not path.endswith((".tmp", ".json")) and not is_no_data(os.path.basename(path))
    )
    for folder, found in itertools.groupby(paths, os.path.dirname):
        metadata = read_metadata(folder or ".")
        names = metadata.listed(pattern) if metadata else []
        for path in found:
            if names and os.path.basename(path) not in names:
                print(f"note: {path} is left out: metadata.json does not list it", file=sys.stderr)
                continue
            if not os.path.isfile(path):
                raise UserError(f"{path} is no file of records, but {pattern} asks for it: move it away")
            files.append(path)
    return files


def read_metadata(directory: str | os.PathLike[str], unfinished: bool = False) -> RecordMetadata | None:
    """The metadata of a folder of records; None if it has none.

    Args:
      unfinished: read them though the build has not ended.

    Raises:
      UserError: they cannot be read, or the records are still being built.
    """
    path = Path(directory) / METADATA_FILE
    if not unfinished and path.with_name(UNFINISHED_FILE).exists():
        raise UserError(
            f"{directory} holds an unfinished build of records ({UNFINISHED_FILE}): run the command that began it once "
            "more, or wait for it"
        )
    if not path.exists():
        return None
    values = read_json(path, "metadata of records")

    def typed(name: str, kind: Any, source: dict[str, Any] = values) -> Any:
        value = source.get(name)
        wrong = not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)
        if wrong or (isinstance(value, int) and not 0 <= value < 1 << 63):
            raise UserError(f"{path}: {name!r} is {shown(value)}; build the records anew or delete that file")
        return value

    shards, listed = typed("shards", dict), {}
    for name in shards:
        if os.path.basename(name) != name or name in ("", ".", ".."):
            raise UserError(f"{path}: 'shards' names {shown(name)}, but only files of its own folder are read")
        shard = typed(name, dict, shards)
        counts = {field: typed(field, int, shard) for field in Shard._fields[:3]}
        listed[name] = Shard(**counts, sha256=typed("sha256", str, shard))
    if values.get("shards_sha256") != json_sha256(shards):
        raise UserError(f"{path}: 'shards' has been changed since the builder wrote it. {_AGAIN}")
    return RecordMetadata(
        path,
        typed("vocab_sha256", str),
        typed("vocab_size", int),
        typed("max_seq_length", int),
        typed("do_lower_case", bool),
        typed("strip_accents", bool),
        listed,
        float(typed("unigram_entropy", (int, float))),
        values,
    )


def check_metadata(
    metadata: RecordMetadata,
    vocab_file: str,
    max_seq_length: int,
    do_lower_case: bool,
    do_strip_accents: bool | None = None,
) -> None:
    """Raises UserError if records were built with another vocabulary, length or casing, or keep accents where a run
    would strip them from the texts that it reads later, or the other way round."""
    problems = []
    if metadata.max_seq_length != max_seq_length:
        problems.append(f"length {metadata.max_seq_length}, but max_seq_length is {max_seq_length}")
    if metadata.vocab_sha256 != vocab_sha256(vocab_file):
        problems.append(f"another vocabulary ({metadata.vocab_size} tokens) than {vocab_file}")
    if metadata.do_lower_case != do_lower_case:
        problems.append(f"do_lower_case {metadata.do_lower_case}, but do_lower_case is {do_lower_case}")
    if metadata.do_lower_case and metadata.strip_accents == (do_strip_accents is False):  # cased text keeps accents
        problems.append(f"strip_accents {metadata.strip_accents}, but do_strip_accents is {do_strip_accents}")
    if problems:
        raise UserError(
            f"{metadata.path}: the records were built with {'; '.join(problems)}. "
            "Change the hparam or build the records again."
        )


def unigram_entropy(counts: np.ndarray, special: SpecialIds) -> float:
    """The loss in nats of a masked language model that knows how frequent tokens are and nothing else.

    Args:
      counts: int64 [V], occurrences of each id; those that are never masked do not count.
    """
    counts = counts.astype(np.float64)
    counts[[special.pad, special.cls, special.sep, special.mask]] = 0
    shares = counts[counts > 0] / max(counts.sum(), 1)
    return float(-(shares * np.log(shares)).sum())


def inspect(output_dir: str, vocab_file: str | None, count: int) -> Iterator[str]:
    """The first examples, `count` in all, as lines of text."""
    metadata, vocab = _open(output_dir, vocab_file)
    special = special_ids(vocab)

    def text(ids: np.ndarray) -> str:
        words = (vocab[token] for token in ids if token not in (special.pad, special.cls, special.sep))
        return " ".join(words).replace(" ##", "")

    for name in metadata.shards if count else ():
        metadata.check_shard(name)
        number = 0
        for batch in read_batches(metadata.path.with_name(name), metadata.record_format):
            for row in range(min(count, len(batch["input_ids"]))):
                number, count = number + 1, count - 1
                record = {field: values[row] for field, values in batch.items()}
                ids, mask, segments = (record[field] for field in FIELDS)
                yield f"{name}, example {number}: {mask.sum()} tokens of {metadata.max_seq_length}"
                for segment in (0, 1):
                    if len(kept := ids[(mask == 1) & (segments == segment)]):
                        yield f"  segment {segment + 1}: {text(kept)}"
            if not count:
                return


def verify(output_dir: str, vocab_file: str | None = None) -> int:
    """Reads every record, and compares the files with the metadata. Returns the number of examples.

    Raises:
      UserError: a record is damaged or not of the format, or a file not the one that the builder wrote.
    """
    metadata = _open(output_dir, vocab_file)[0]
    for name, shard in track(metadata.shards.items(), "verifying file", len(metadata.shards)):
        path = metadata.path.with_name(name)
        metadata.check_shard(name)
        for _ in read_batches(path, metadata.record_format):
            pass
        shard.check_content(path)
    if unlisted := {path.name for path in metadata.path.parent.glob("*.tfrecord*")} - metadata.shards.keys():
        raise UserError(f"{output_dir} holds {min(unlisted)}, which {metadata.path} does not list; move it away")
    return Shard.total(metadata.shards.values()).examples


def _open(output_dir: str, vocab_file: str | None) -> tuple[RecordMetadata, list[str]]:
    """The metadata and the vocabulary: that given, or that beside the records."""
    metadata = read_metadata(output_dir)
    if metadata is None:
        raise UserError(f"--output-dir {output_dir!r} holds no metadata.json; build the records first")
    path = vocab_file or metadata.path.with_name(VOCAB_FILE)
    if not vocab_file and not os.path.exists(path):
        raise UserError(f"--vocab-file is needed: {output_dir!r} holds no {VOCAB_FILE}")
    if vocab_sha256(path) != metadata.vocab_sha256:
        raise UserError(f"{path} is not the vocabulary that the records of {output_dir!r} were built with")
    return metadata, load_vocab(path)
