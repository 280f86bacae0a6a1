"""metadata.json in a folder of pre-training records: the builder writes it, every reader checks it.

Training checks it at the start, and the content of a shard when it first reads it. Folders without one, such as those
of the original's builder, can be read, too. `inspect` and `verify` are --inspect and --verify of `electra build-data`.
They read records as training does, and only they import TensorFlow.
"""

import fnmatch
import functools
import glob
import itertools
import os
import shlex
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
UNFINISHED_FILE = "unfinished.json"  # while records are being built: what determines them
_AGAIN = "Build the records again with --overwrite"


class Shard(NamedTuple):
    """A file of records.

    examples: number of examples. tokens: number of their tokens, without padding. bytes: size of the file. sha256: of
    its content; "" for a total of several shards.
    """

    examples: int
    tokens: int
    bytes: int
    sha256: str = ""

    @classmethod
    def total(cls, shards: Iterable["Shard"]) -> "Shard":
        examples = 0
        tokens = 0
        size = 0
        for shard in shards:
            examples += shard.examples
            tokens += shard.tokens
            size += shard.bytes
        return cls(examples, tokens, size)

    def check_content(self, path: str | os.PathLike[str]) -> None:
        """Raises UserError if the file does not hold what the builder wrote."""
        status = os.stat(path)
        _check_content(os.fspath(path), self, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@functools.lru_cache(maxsize=1 << 16)
def _check_content(path: str, shard: Shard, *state: int) -> None:
    """Compares a file's checksum. It is cached, since training reads a file in every epoch.

    Args:
      state: size and times of the file, so that a changed file is checked again.
    """
    del state
    if sha256_of(path) != shard.sha256:
        raise UserError(f"{path} is not the file that the builder wrote: its SHA-256 differs. {_AGAIN}")


class RecordMetadata(NamedTuple):
    """The entries of metadata.json that readers use.

    shards: file name -> shard. unigram_entropy: in nats, from `unigram_entropy` below. values: the whole content.
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
        """Number of examples of a listed file. Raises UserError if it is missing or has another size than it had."""
        path = self.path.with_name(name)
        shard = self.shards[name]
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
        """Names of the listed files that match a pattern."""
        return fnmatch.filter(self.shards, os.path.basename(pattern))


def record_files(pattern: str) -> list[str]:
    """The sorted files of records that match a pattern.

    In a folder whose metadata.json lists some of them, these only.

    Raises:
      UserError: a match is no regular file, such as a named pipe, to which nobody may ever write.
    """
    folder, name = os.path.split(pattern)
    if os.path.isdir(folder):  # brackets in its name are no pattern
        pattern = os.path.join(glob.escape(folder), name)
    paths = []
    for path in glob.glob(pattern):
        if not path.endswith((".tmp", ".json")) and not is_no_data(os.path.basename(path)):
            paths.append(path)
    files: list[str] = []
    for folder, folder_paths in itertools.groupby(sorted(paths), os.path.dirname):
        metadata = read_metadata(folder or ".")
        listed = []
        if metadata is not None:
            listed = metadata.listed(pattern)
        for path in folder_paths:
            if listed and os.path.basename(path) not in listed:
                print(f"note: {path} is left out: metadata.json does not list it", file=sys.stderr)
                continue
            if not os.path.isfile(path):
                if os.path.isdir(path) and path == pattern:
                    records = os.path.join(path, "pretrain_data.tfrecord*")
                    raise UserError(f"{path} is a folder: name the records in it, {shlex.quote(records)}")
                raise UserError(f"{path} is no file of records, but {pattern} asks for it: move it away")
            files.append(path)
    return files


def read_metadata(directory: str | os.PathLike[str], unfinished: bool = False) -> RecordMetadata | None:
    """Reads a folder's metadata.json; None if there is none.

    Args:
      unfinished: True: also of an unfinished build.

    Raises:
      UserError: it is damaged, or the records are still being built.
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
    return RecordMetadata(
        path,
        vocab_sha256=_typed(values, "vocab_sha256", str, path),
        vocab_size=_typed(values, "vocab_size", int, path),
        max_seq_length=_typed(values, "max_seq_length", int, path),
        do_lower_case=_typed(values, "do_lower_case", bool, path),
        strip_accents=_typed(values, "strip_accents", bool, path),
        shards=_shards(values, path),
        unigram_entropy=float(_typed(values, "unigram_entropy", (int, float), path)),
        values=values,
    )


def _shards(values: dict[str, Any], path: Path) -> dict[str, Shard]:
    """Shards in a metadata.json, by file name. Raises UserError if they are malformed or were changed."""
    listed = _typed(values, "shards", dict, path)
    shards = {}
    for name in listed:
        if os.path.basename(name) != name or name in ("", ".", ".."):
            raise UserError(f"{path}: 'shards' names {shown(name)}, but only files of its own folder are read")
        shard = _typed(listed, name, dict, path)
        shards[name] = Shard(
            examples=_typed(shard, "examples", int, path),
            tokens=_typed(shard, "tokens", int, path),
            bytes=_typed(shard, "bytes", int, path),
            sha256=_typed(shard, "sha256", str, path),
        )
    if values.get("shards_sha256") != json_sha256(listed):
        raise UserError(f"{path}: 'shards' has been changed since the builder wrote it. {_AGAIN}")
    return shards


def _typed(values: dict[str, Any], name: str, expected_type: Any, path: Path) -> Any:
    """An entry of a metadata.json. Raises UserError if it has another type, or is an integer out of range."""
    value = values.get(name)
    has_type = isinstance(value, expected_type)
    if isinstance(value, bool) and expected_type is not bool:  # in Python, True is an integer
        has_type = False
    if not has_type or (isinstance(value, int) and not 0 <= value < 1 << 63):
        raise UserError(f"{path}: {name!r} is {shown(value)}; build the records anew or delete that file")
    return value


def check_metadata(
    metadata: RecordMetadata,
    vocab_file: str,
    max_seq_length: int,
    do_lower_case: bool,
    do_strip_accents: bool | None = None,
) -> None:
    """Raises UserError if records were built with another vocabulary, length, casing or treatment of accents.

    The model would be pre-trained on other input than it gets later, as in fine-tuning.
    """
    problems = []
    advice = "Change the hparam or build the records again."
    if metadata.max_seq_length != max_seq_length:
        problems.append(f"length {metadata.max_seq_length}, but max_seq_length is {max_seq_length}")
        advice = (
            f"Give --max-seq-length {metadata.max_seq_length}, or build records of {max_seq_length} tokens: every "
            "recipe has its own length (electra recipes)."
        )
    if metadata.vocab_sha256 != vocab_sha256(vocab_file):
        problems.append(f"another vocabulary ({metadata.vocab_size} tokens) than {vocab_file}")
    if metadata.do_lower_case != do_lower_case:
        problems.append(f"do_lower_case {metadata.do_lower_case}, but do_lower_case is {do_lower_case}")
    strips_accents = do_strip_accents is not False
    if metadata.do_lower_case and metadata.strip_accents != strips_accents:  # cased text keeps accents in any case
        problems.append(f"strip_accents {metadata.strip_accents}, but do_strip_accents is {do_strip_accents}")
    if problems:
        raise UserError(f"{metadata.path}: the records were built with {'; '.join(problems)}. {advice}")


def unigram_entropy(counts: np.ndarray, special: SpecialIds) -> float:
    """The loss, in nats, of a masked language model that only knows the frequencies of tokens.

    Args:
      counts: int64 [V], occurrences of each id. Special tokens, which are never masked, do not count.
    """
    counts = counts.astype(np.float64)
    counts[[special.pad, special.cls, special.sep, special.mask]] = 0
    shares = counts[counts > 0] / max(counts.sum(), 1)
    return float(-(shares * np.log(shares)).sum())


def inspect(output_dir: str, vocab_file: str | None, count: int) -> Iterator[str]:
    """Yields lines of text that show the first `count` examples."""
    metadata, vocab = _open(output_dir, vocab_file)
    special = special_ids(vocab)

    def text(ids: np.ndarray) -> str:
        tokens = [vocab[token_id] for token_id in ids if token_id not in (special.pad, special.cls, special.sep)]
        return " ".join(tokens).replace(" ##", "")

    for record in itertools.islice(_records(metadata), count):
        yield f"{record.file}, example {record.position}: {record.mask.sum()} tokens of {metadata.max_seq_length}"
        for segment in (0, 1):
            ids = record.ids[(record.mask == 1) & (record.segments == segment)]
            if len(ids):
                yield f"  segment {segment + 1}: {text(ids)}"


class _Record(NamedTuple):
    """A record. file: name of its file. position: its place in the file, from 1. ids, mask, segments: [length]."""

    file: str
    position: int
    ids: np.ndarray
    mask: np.ndarray
    segments: np.ndarray


def _records(metadata: RecordMetadata) -> Iterator[_Record]:
    """Yields all records. Each file is checked before it is read."""
    ids_field, mask_field, segments_field = FIELDS
    for name in metadata.shards:
        metadata.check_shard(name)
        position = 0
        for batch in read_batches(metadata.path.with_name(name), metadata.record_format):
            for row in range(len(batch[ids_field])):
                position += 1
                yield _Record(name, position, batch[ids_field][row], batch[mask_field][row], batch[segments_field][row])


def verify(output_dir: str, vocab_file: str | None = None) -> int:
    """Reads every record and compares the files with the metadata. Returns the number of examples.

    Raises:
      UserError: a record is invalid, or a file differs from what the builder wrote.
    """
    metadata, _ = _open(output_dir, vocab_file)
    for name, shard in track(metadata.shards.items(), "verifying file", len(metadata.shards)):
        path = metadata.path.with_name(name)
        metadata.check_shard(name)
        for _ in read_batches(path, metadata.record_format):
            pass
        shard.check_content(path)
    files = {path.name for path in metadata.path.parent.glob("*.tfrecord*")}
    unlisted = files - metadata.shards.keys()
    if unlisted:
        raise UserError(f"{output_dir} holds {min(unlisted)}, which {metadata.path} does not list; move it away")
    return Shard.total(metadata.shards.values()).examples


def _open(output_dir: str, vocab_file: str | None) -> tuple[RecordMetadata, list[str]]:
    """Reads the metadata and the vocabulary, by default the copy beside the records."""
    metadata = read_metadata(output_dir)
    if metadata is None:
        raise UserError(f"--output-dir {output_dir!r} holds no metadata.json; build the records first")
    path = vocab_file or metadata.path.with_name(VOCAB_FILE)
    if not vocab_file and not os.path.exists(path):
        raise UserError(f"--vocab-file is needed: {output_dir!r} holds no {VOCAB_FILE}")
    if vocab_sha256(path) != metadata.vocab_sha256:
        raise UserError(f"{path} is not the vocabulary that the records of {output_dir!r} were built with")
    return metadata, load_vocab(path)
