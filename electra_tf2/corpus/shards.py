"""Runs a job of a build: reads its text, tokenises, packs and encodes it, and writes its shards.

Every worker runs this, whether a process of this machine or of Apache Beam. What it writes depends on the plan and the
job only. Files are written under temporary names and renamed. The last one is the job's report, a JSON file beside the
first shard: a job that has a report is done.

    chunk --blocks of lines--> DocumentSplitter --training and held-out lines--> RecordMaker --records--> shards
"""

import contextlib
import functools
import hashlib
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from electra_tf2.corpus.jobs import BuildPlan, BuildSettings, Chunk, Job
from electra_tf2.corpus.packing import (
    ELECTRA,
    FULL_SENTENCES,
    ExampleBuilder,
    Packer,
    SentencePacker,
    Spans,
    assemble,
    example_lengths,
)
from electra_tf2.corpus.record_metadata import Shard
from electra_tf2.corpus.records import RecordEncoder, RecordFormat
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.corpus.unknown_tokens import characters_without_token
from electra_tf2.corpus.worker_pool import Advance
from electra_tf2.files.reading import read_json, sha256_of
from electra_tf2.files.writing import replacing, write_json
from electra_tf2.util.errors import UserError

UNKNOWN_SHOWN = 20  # characters without a token that a build names
_HEAD_BYTES = 64 << 10  # the start of a document, by which it is held out or not
_HELD_BYTES = 128 << 20  # the records of jobs with at most this much text are shuffled all together
_UNKNOWN_TEXT = 1 << 20  # characters of lines with [UNK], for each job, that are searched for unknown ones

Records = Sequence[tuple[bytes, int]]  # each with its number of tokens, special ones included

_tokenizer = functools.cache(WordpieceTokenizer)  # one for each process: it takes a second to build


class JobReport(NamedTuple):
    """Report of a finished job, the content of its JSON file.

    files: the files that it wrote. contents: SHA-256 of each chunk. token_counts: occurrences of each id in training
    records. unknown_characters: occurrences of characters without a token, in a part of the text. undecodable_files:
    bytes that were left out by file.
    """

    files: dict[str, Shard]
    contents: list[str]
    text_bytes: int
    undecodable_bytes: int
    token_counts: list[int]
    unknown_characters: dict[str, int]
    undecodable_files: dict[str, int]

    def write(self, path: Path) -> None:
        files = {name: shard._asdict() for name, shard in self.files.items()}
        write_json(path, self._asdict() | {"files": files})


def read_report(plan: BuildPlan, job: Job) -> JobReport | None:
    """Reads a job's report; None if the job is not done, or its files are missing."""
    try:
        values = read_json(plan.report_file(job), "report")
        values.setdefault("undecodable_files", {})  # which reports of earlier versions lack
        files = {name: Shard(**shard) for name, shard in values.pop("files").items()}
        for name, shard in files.items():
            if (plan.output / name).stat().st_size != shard.bytes:
                return None
        return JobReport(files, **values)
    except (UserError, OSError):  # the report or a file that it lists is missing
        return None


def do_job(plan: BuildPlan, job: Job, *, advance: Advance = lambda megabytes: None) -> None:
    """Writes a job's shards and its report.

    Args:
      advance: called with the megabytes of text, by the plan's estimate, that were built since the last call.

    Raises:
      UserError: text cannot be read, or shards cannot be written.
      RuntimeError: any other error, with the name of the corpus file.
    """
    work = _JobInProgress(plan, job, advance)
    try:
        work.run()
    except UserError:
        raise
    except Exception as error:
        chunk = work.chunk
        where = f"{Path(plan.settings.corpus_dir) / chunk.name}, bytes {chunk.start} to {chunk.end}"
        raise RuntimeError(f"{where}: {type(error).__name__}: {error}") from error


class _JobInProgress:
    """The state of a job: text in, shards out.

    Attributes:
      chunk: the chunk that is being read.
    """

    def __init__(self, plan: BuildPlan, job: Job, advance: Advance):
        settings = plan.settings
        self._plan = plan
        self._job = job
        self._advance = advance
        self._splitter = DocumentSplitter(settings.dev_fraction)
        self._train = RecordMaker("train", settings, job)
        self._dev = RecordMaker("dev", settings, job)
        # "unit" is an old name of a job, and stays: records depend on it.
        source = random.Random(f"shuffle {settings.seed} unit {job.index}")
        self._shards = _ShuffledShards(plan.shards(job), source)
        self._text_bytes = 0
        self._undecodable = Counter[str]()  # bytes by file
        self.chunk = job.chunks[0]

    def run(self) -> None:
        folder = Path(self._plan.settings.corpus_dir)
        files: dict[str, Shard] = {}
        contents = []
        text_before = 0  # bytes of text in earlier chunks
        with _shard_file(self._plan.dev_part(self._job), files) as write_dev:
            self._advance(0.0)  # shows progress: the first job of a process has just loaded TensorFlow
            for chunk in self._job.chunks:
                self.chunk = chunk
                contents.append(sha256_of(folder / chunk.name, chunk.start, chunk.end))
                self._read(chunk, text_before, write_dev)
                text_before += chunk.text_bytes
            self._shards.add(self._train.rest())
            write_dev(self._dev.rest())
        files |= self._shards.write_rest()
        report = JobReport(
            files,
            contents,
            self._text_bytes,
            self._undecodable.total(),
            self._train.token_counts.tolist(),
            self._train.unknown_characters(),
            dict(+self._undecodable),
        )
        report.write(self._plan.report_file(self._job))

    def _read(self, chunk: Chunk, text_before: int, write_dev: Callable[[Records], None]) -> None:
        """Makes records from a chunk. text_before: bytes of text in the job's earlier chunks."""
        text_per_byte = chunk.text_bytes / (chunk.end - chunk.start)
        text_read = float(text_before)
        for block in self._plan.settings.corpus.read(chunk.name, chunk.start, chunk.end):
            if self._job.text_bytes > _HELD_BYTES:
                self._shards.write_full(text_read / self._job.text_bytes)
            self._add(block.lines, write_dev)
            self._text_bytes += block.raw_bytes
            self._undecodable[chunk.name] += block.undecodable_bytes
            new_text = block.file_bytes * text_per_byte
            text_read += new_text
            self._advance(new_text / 1e6)
        self._add([b""], write_dev)  # ends the document: none continues in another chunk

    def _add(self, lines: list[bytes], write_dev: Callable[[Records], None]) -> None:
        train_lines, dev_lines = self._splitter.split(lines)
        self._shards.add(self._train.records(train_lines))
        write_dev(self._dev.records(dev_lines))


class DocumentSplitter:
    """Holds out a fraction of the documents, by a hash of their text.

    Neither the seed nor the sequence length matters: records of all lengths hold out the same documents, and copies of
    a document are all held out or all trained on.
    """

    def __init__(self, fraction: float):
        self._limit = fraction * 2.0**64
        self._head: list[bytes] = []  # first lines of the document, until it is decided
        self._head_bytes = 0
        self._is_held_out: bool | None = None  # the decision on the document; None: not yet made

    def split(self, lines: list[bytes]) -> tuple[list[bytes], list[bytes]]:
        """Divides lines into those of training and of held-out documents.

        Lines of an undecided document are kept for a later call.
        """
        if not self._limit:
            return lines, []
        train: list[bytes] = []
        dev: list[bytes] = []
        for line in lines:
            if line and self._is_held_out is None:
                self._head.append(line)
                self._head_bytes += len(line) + 1
                if self._head_bytes >= _HEAD_BYTES:
                    self._decide(train, dev)
            elif line:
                side = dev if self._is_held_out else train
                side.append(line)
            else:
                self._end_document(train, dev)
        return train, dev

    def _end_document(self, train: list[bytes], dev: list[bytes]) -> None:
        if self._head:
            self._decide(train, dev)
        if self._is_held_out is None:  # a further blank line: there is no document to end
            return
        side = dev if self._is_held_out else train
        side.append(b"")
        self._is_held_out = None

    def _decide(self, train: list[bytes], dev: list[bytes]) -> None:
        """Decides on the document by its first lines, and releases them."""
        text = b"\n".join(self._head)[:_HEAD_BYTES]
        digest = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
        self._is_held_out = digest < self._limit
        side = dev if self._is_held_out else train
        side.extend(self._head)
        self._head = []
        self._head_bytes = 0


class RecordMaker:
    """Turns lines of documents into records.

    Args:
      name: "train" or "dev", a part of the seed.
    """

    def __init__(self, name: str, settings: BuildSettings, job: Job):
        self._tokenizer = _tokenizer(settings.vocab_file, settings.do_lower_case, settings.strip_accents)
        self._length = settings.max_seq_length
        # "unit" stays, as in JobWriter.
        source = random.Random(f"{name} {settings.seed} unit {job.index}")
        self._packer = _packer(settings, source, self._tokenizer.special.sep)
        vocab_size = len(self._tokenizer)
        self._encoder = RecordEncoder(RecordFormat(self._length, vocab_size))
        self.token_counts = np.zeros([vocab_size], np.int64)
        self._unknown = Counter[str]()

    def records(self, lines: list[bytes]) -> Records:
        """The records of the examples that these lines complete."""
        tokens, lengths = self._tokenizer.tokenize(lines)
        self._count_unknown(lines, tokens, lengths)
        ends_document = [not line for line in lines]
        return self._encoded(self._packer.add(tokens, lengths.tolist(), ends_document))

    def rest(self) -> Records:
        """The records of the text that is left in the packer."""
        return self._encoded(self._packer.finish())

    def _encoded(self, spans: Spans) -> Records:
        special = self._tokenizer.special
        examples = assemble(spans, self._length, special.cls, special.sep)
        ids = examples.input_ids[examples.input_mask > 0]
        self.token_counts += np.bincount(ids, minlength=len(self.token_counts))
        records = self._encoder.encode(examples)
        return list(zip(records, example_lengths(spans).tolist(), strict=True))

    def _count_unknown(self, lines: list[bytes], tokens: np.ndarray, lengths: np.ndarray) -> None:
        """Counts the characters of lines with an unknown word, up to `_UNKNOWN_TEXT` of them."""
        positions = np.flatnonzero(tokens == self._tokenizer.special.unk)
        if not len(positions) or self._unknown.total() >= _UNKNOWN_TEXT:
            return
        line_ends = np.cumsum(lengths)
        lines_with_unknown = np.unique(np.searchsorted(line_ends, positions, side="right"))
        text = self._tokenizer.normalize.joined([lines[index] for index in lines_with_unknown.tolist()]).decode()
        self._unknown.update(text[:_UNKNOWN_TEXT])

    def unknown_characters(self) -> dict[str, int]:
        """The counted characters that have no token, the most frequent first."""
        commonest_first = characters_without_token(self._tokenizer, self._unknown)
        return dict(commonest_first[: 10 * UNKNOWN_SHOWN])


def _packer(settings: BuildSettings, source: random.Random, separator: int) -> Packer:
    """Makes the packer that --packing chooses. separator: id of [SEP]."""
    if settings.packing == ELECTRA:
        return ExampleBuilder(settings.max_seq_length, source, settings.compat == "original")
    if settings.packing == FULL_SENTENCES:
        return SentencePacker(settings.max_seq_length, separator)
    return SentencePacker(settings.max_seq_length, None)


@contextlib.contextmanager
def _shard_file(path: Path, files: dict[str, Shard]) -> Iterator[Callable[[Records], None]]:
    """Opens a file of records: gives a function that writes records. The closed file is added to `files`.

    Raises:
      UserError: the file cannot be written.
    """
    import tensorflow as tf

    examples = 0
    tokens = 0

    def write(records: Records) -> None:
        nonlocal examples, tokens
        for record, length in records:
            writer.write(record)
            tokens += length
        examples += len(records)

    try:
        with replacing(path) as temporary:
            with tf.io.TFRecordWriter(os.fspath(temporary)) as writer:
                yield write
            files[path.name] = Shard(examples, tokens, os.path.getsize(temporary), sha256_of(temporary))
    except tf.errors.OpError as error:
        message = f"cannot write {path}: {error.message}; when there is room, the same command goes on"
        raise UserError(message) from None


class _ShuffledShards:
    """Collects records, and writes them in random order into one shard, or into several at once."""

    def __init__(self, paths: list[Path], source: random.Random):
        self._paths = paths
        self._source = source
        self._written: dict[str, Shard] = {}
        self._records: list[tuple[bytes, int]] = []

    def add(self, records: Records) -> None:
        self._records += records

    def write_full(self, fraction: float) -> None:
        """Writes the shards for this fraction of the job's text, but never the last shard."""
        full = min(int(fraction * len(self._paths)), len(self._paths) - 1)
        self._write(full - len(self._written))

    def write_rest(self) -> dict[str, Shard]:
        """Writes the remaining shards. Returns all shards of the job by file name."""
        self._write(len(self._paths) - len(self._written))
        return self._written

    def _write(self, shards: int) -> None:
        """Divides the collected records evenly among the next shards."""
        if shards <= 0:
            return
        self._source.shuffle(self._records)
        for index in range(shards):
            first = len(self._records) * index // shards
            end = len(self._records) * (index + 1) // shards
            with _shard_file(self._paths[len(self._written)], self._written) as write:
                write(self._records[first:end])
        self._records = []
