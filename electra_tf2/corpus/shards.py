"""Does a job of a build: reads its text, tokenises, packs and encodes it, and writes its shards.

Every worker runs this, whether a process of this machine or of Apache Beam. What it writes is a function of the plan
and the job. Files are written under temporary names and renamed, at last a JSON file beside the first shard, of what
the job wrote and was made of: a job that has one is done.
"""

import contextlib
import functools
import hashlib
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from electra_tf2.corpus.jobs import BuildPlan, BuildSettings, Job
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
from electra_tf2.corpus.worker_pool import Advance
from electra_tf2.util.errors import UserError
from electra_tf2.util.files import replacing, write_json
from electra_tf2.util.reading import read_json, sha256_of

UNKNOWN_SHOWN = 20  # characters without a token that a build names
_HEAD_BYTES = 64 << 10  # so much of a document decides whether it is held out
_HELD_BYTES = 128 << 20  # jobs of at most so much text are shuffled as a whole
_UNKNOWN_TEXT = 1 << 20  # characters of a job's lines with [UNK] that are looked through for the unknown ones

Records = Sequence[tuple[bytes, int]]  # and the number of tokens of each, special ones included

_tokenizer = functools.cache(WordpieceTokenizer)  # one per process: it takes a second to build


class RecordsOfPaper(Protocol):
    """Additions to records by --paper: functions of the paper's module, or of its part "records"."""

    def check_settings(self, settings: BuildSettings) -> None:
        """Raises UserError for settings that the paper's fields cannot be built with."""

    def extra_fields(self, max_length: int, vocab_size: int) -> Mapping[str, tuple[int, int]]:
        """Field -> its length, and what its numbers are below (`corpus.records.ExtraField`)."""

    def extend(self, packer: Packer, max_length: int, source: random.Random) -> Packer:
        """A packer of the same examples whose spans have these fields."""


class JobReport(NamedTuple):
    """Outcome of a job, as its JSON file holds it.

    files: the files that it wrote. contents: SHA-256 of each chunk. token_counts: occurrences of each id in training
    records. unknown_characters: those without a token, counted in a part of the text.
    """

    files: dict[str, Shard]
    contents: list[str]
    text_bytes: int
    undecodable_bytes: int
    token_counts: list[int]
    unknown_characters: dict[str, int]


def read_report(plan: BuildPlan, job: Job) -> JobReport | None:
    """The report of a job that is done, and whose files are there."""
    try:
        values = read_json(plan.report_file(job), "report")
        files = {name: Shard(**shard) for name, shard in values.pop("files").items()}
        whole = all((plan.output / name).stat().st_size == shard.bytes for name, shard in files.items())
        return JobReport(files, **values) if whole else None
    except (UserError, KeyError, TypeError, AttributeError, OSError):  # none there, or of another version
        return None


def do_job(plan: BuildPlan, job: Job, *, advance: Advance = lambda megabytes: None) -> None:
    """Writes a job's shards and its report.

    Args:
      advance: told the megabytes of text that have been built since the last time, by the plan's reckoning.

    Raises:
      UserError: text that cannot be read, or shards that cannot be written.
      RuntimeError: anything else that goes wrong, with the file named.
    """
    settings, corpus = plan.settings, plan.settings.corpus
    chunk, done = job.chunks[0], 0.0
    files: dict[str, Shard] = {}
    contents: list[str] = []
    text_bytes = undecodable_bytes = 0
    try:
        splitter = DocumentSplitter(settings.dev_fraction)
        train, dev = _Split("train", settings, job), _Split("dev", settings, job)
        shards = _ShuffledShards(plan.shards(job), random.Random(f"shuffle {settings.seed} unit {job.number}"))
        with _shard_file(plan.dev_part(job), files) as write_dev:

            def add(lines: list[bytes]) -> None:
                train_lines, dev_lines = splitter.split(lines)
                shards.add(train.records(train_lines))
                write_dev(dev.records(dev_lines))

            advance(0.0)  # the first job of a process has loaded TensorFlow and the vocabulary
            for chunk in job.chunks:
                before, text_per_byte = done, chunk.text_bytes / (chunk.end - chunk.start)
                contents.append(sha256_of(Path(corpus.directory) / chunk.name, chunk.start, chunk.end))
                for block in corpus.read(chunk.name, chunk.start, chunk.end):
                    if job.text_bytes > _HELD_BYTES:
                        shards.write_full(done / job.text_bytes)
                    add(block.lines)
                    text_bytes += block.raw_bytes
                    undecodable_bytes += block.undecodable_bytes
                    done += block.file_bytes * text_per_byte
                    advance(block.file_bytes * text_per_byte / 1e6)
                add([b""])  # no document goes on in another file
                done = before + chunk.text_bytes
            shards.add(train.rest())
            write_dev(dev.rest())
        files |= shards.write_rest()
        counts, unknown = train.token_counts.tolist(), train.unknown_characters()
        report = JobReport(files, contents, text_bytes, undecodable_bytes, counts, unknown)
        write_json(plan.report_file(job), report._asdict() | {"files": {n: s._asdict() for n, s in files.items()}})
    except UserError:
        raise
    except Exception as error:
        place = f"{Path(corpus.directory) / chunk.name}, bytes {chunk.start} to {chunk.end}"
        raise RuntimeError(f"{place}: {type(error).__name__}: {error}") from error


class DocumentSplitter:
    """Holds out a fraction of the documents, decided by their text.

    Neither the seed nor the sequence length plays a part: records of other lengths hold out the same documents, and
    copies of a document stay on one side.
    """

    def __init__(self, fraction: float):
        self._limit = fraction * 2.0**64
        self._head: list[bytes] = []  # the start of a document that is not yet decided on
        self._head_bytes = 0
        self._held_out: bool | None = None

    def split(self, lines: list[bytes]) -> tuple[list[bytes], list[bytes]]:
        """Lines of training and of held-out documents; those of an undecided document wait for a later call."""
        if not self._limit:
            return lines, []
        parts: tuple[list[bytes], list[bytes]] = ([], [])
        for line in lines:
            if line and self._held_out is None:
                self._head.append(line)
                self._head_bytes += len(line) + 1
            if self._head and (not line or self._head_bytes >= _HEAD_BYTES):
                text = b"\n".join(self._head)[:_HEAD_BYTES]
                self._held_out = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") < self._limit
                parts[self._held_out].extend(self._head)
                self._head, self._head_bytes = [], 0
            elif line and self._held_out is not None:
                parts[self._held_out].append(line)
            if not line and self._held_out is not None:
                parts[self._held_out].append(b"")
                self._held_out = None
        return parts


class _Split:
    """Turns the training or the held-out documents of a job into records."""

    def __init__(self, name: str, settings: BuildSettings, job: Job):
        self._tokenizer = _tokenizer(settings.vocab_file, settings.do_lower_case, settings.strip_accents)
        self._length, vocab_size = settings.max_seq_length, len(self._tokenizer)
        seed = f"{name} {settings.seed} unit {job.number}"
        if settings.packing == ELECTRA:
            packer: Packer = ExampleBuilder(self._length, random.Random(seed), settings.compat == "original")
        else:
            crosses = settings.packing == FULL_SENTENCES
            packer = SentencePacker(self._length, self._tokenizer.special.sep if crosses else None)
        paper: Any = settings.load_paper()
        self._packer = paper.extend(packer, self._length, random.Random(f"others {seed}")) if paper else packer
        extra = paper.extra_fields(self._length, vocab_size) if paper else {}
        self._encoder = RecordEncoder(RecordFormat(self._length, vocab_size, extra))
        self.token_counts = np.zeros([vocab_size], np.int64)
        self._unknown = Counter[str]()

    def records(self, lines: list[bytes]) -> Records:
        """The records of the examples that these lines complete."""
        tokens, lengths = self._tokenizer.tokenize(lines)
        self._look_for_unknown(lines, tokens, lengths)
        return self._encoded(self._packer.add(tokens, lengths.tolist(), [not line for line in lines]))

    def rest(self) -> Records:
        """The same of the text that waits."""
        return self._encoded(self._packer.finish())

    def _encoded(self, spans: Spans) -> Records:
        special = self._tokenizer.special
        examples = assemble(spans, self._length, special.cls, special.sep)
        ids = examples.input_ids[examples.input_mask > 0]
        self.token_counts += np.bincount(ids, minlength=len(self.token_counts))
        records = self._encoder.encode(examples, spans.extra)
        return [*zip(records, example_lengths(spans).tolist(), strict=True)]

    def _look_for_unknown(self, lines: list[bytes], tokens: np.ndarray, lengths: np.ndarray) -> None:
        """Counts the characters of lines that have an unknown word, until there are enough."""
        places = np.flatnonzero(tokens == self._tokenizer.special.unk)
        if len(places) and self._unknown.total() < _UNKNOWN_TEXT:
            numbers = np.unique(np.searchsorted(np.cumsum(lengths), places, side="right")).tolist()
            text = self._tokenizer.normalize.joined([lines[number] for number in numbers]).decode()
            self._unknown.update(text[:_UNKNOWN_TEXT])

    def unknown_characters(self) -> dict[str, int]:
        """The characters without a token among those counted, the commonest first."""
        return dict(self._tokenizer.without_token(self._unknown)[: 10 * UNKNOWN_SHOWN])


@contextlib.contextmanager
def _shard_file(path: Path, files: dict[str, Shard]) -> Iterator[Callable[[Records], None]]:
    """A function that writes records to a file, which is entered in `files` when it is whole. Raises UserError."""
    import tensorflow as tf

    examples = tokens = 0

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
    """Collects the records of one shard, or of several that are filled together, and writes them in random order."""

    def __init__(self, paths: list[Path], source: random.Random):
        self._paths, self._source = paths, source
        self._written: dict[str, Shard] = {}
        self._records: list[tuple[bytes, int]] = []

    def add(self, records: Records) -> None:
        self._records += records

    def write_full(self, fraction: float) -> None:
        """Writes the shards that should be full when this fraction of the job's text has been read, never the last."""
        self._write(min(int(fraction * len(self._paths)), len(self._paths) - 1) - len(self._written))

    def write_rest(self) -> dict[str, Shard]:
        """Writes the other shards. Returns all by file name."""
        self._write(len(self._paths) - len(self._written))
        return self._written

    def _write(self, shards: int) -> None:
        """Divides what has been collected evenly among the next shards."""
        if shards > 0:
            self._source.shuffle(self._records)
            for index in range(shards):
                first, end = (len(self._records) * number // shards for number in (index, index + 1))
                with _shard_file(self._paths[len(self._written)], self._written) as write:
                    write(self._records[first:end])
            self._records = []
