"""Does a job of a build: reads its text, tokenises, packs and encodes it, and writes its shards.

Every worker runs this, whether a process of this machine or of Apache Beam. What it writes is a function of the plan
and the job. Files are written under temporary names and renamed, at last a JSON file beside the first shard, of what
the job wrote and was made of: a job that has one is done.

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
from electra_tf2.corpus.worker_pool import Advance
from electra_tf2.files.reading import read_json, sha256_of
from electra_tf2.files.writing import replacing, write_json
from electra_tf2.util.errors import UserError

UNKNOWN_SHOWN = 20  # characters without a token that a build names
_HEAD_BYTES = 64 << 10  # so much of a document decides whether it is held out
_HELD_BYTES = 128 << 20  # jobs of at most so much text are shuffled as a whole
_UNKNOWN_TEXT = 1 << 20  # characters of a job's lines with [UNK] that are looked through for the unknown ones

Records = Sequence[tuple[bytes, int]]  # and the number of tokens of each, special ones included

_tokenizer = functools.cache(WordpieceTokenizer)  # one per process: it takes a second to build


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

    def write(self, path: Path) -> None:
        files = {name: shard._asdict() for name, shard in self.files.items()}
        write_json(path, self._asdict() | {"files": files})


def read_report(plan: BuildPlan, job: Job) -> JobReport | None:
    """The report of a job that is done and whose files are there; None of any other."""
    try:
        values = read_json(plan.report_file(job), "report")
        files = {name: Shard(**shard) for name, shard in values.pop("files").items()}
        for name, shard in files.items():
            if (plan.output / name).stat().st_size != shard.bytes:
                return None
        return JobReport(files, **values)
    except (UserError, OSError):  # no report, or a file that it lists is not there
        return None


def do_job(plan: BuildPlan, job: Job, *, advance: Advance = lambda megabytes: None) -> None:
    """Writes a job's shards and its report.

    Args:
      advance: called with the megabytes of text built since its last call, as the plan estimates them.

    Raises:
      UserError: text that cannot be read, or shards that cannot be written.
      RuntimeError: anything else that goes wrong, with the file named.
    """
    work = _JobInProgress(plan, job, advance)
    try:
        work.run()
    except UserError:
        raise
    except Exception as error:
        place = f"{Path(plan.settings.corpus_dir) / work.chunk.name}, bytes {work.chunk.start} to {work.chunk.end}"
        raise RuntimeError(f"{place}: {type(error).__name__}: {error}") from error


class _JobInProgress:
    """A job's makers of records and its shards.

    Attributes:
      chunk: the one that is being read.
    """

    def __init__(self, plan: BuildPlan, job: Job, advance: Advance):
        settings = plan.settings
        self._plan = plan
        self._job = job
        self._advance = advance
        self._splitter = DocumentSplitter(settings.dev_fraction)
        self._train = RecordMaker("train", settings, job)
        self._dev = RecordMaker("dev", settings, job)
        source = random.Random(f"shuffle {settings.seed} unit {job.number}")
        self._shards = _ShuffledShards(plan.shards(job), source)
        self._text_bytes = 0
        self._undecodable_bytes = 0
        self.chunk = job.chunks[0]

    def run(self) -> None:
        folder = Path(self._plan.settings.corpus_dir)
        files: dict[str, Shard] = {}
        contents = []
        text_before = 0  # bytes of text in the chunks before
        with _shard_file(self._plan.dev_part(self._job), files) as write_dev:
            self._advance(0.0)  # the first job of a process has loaded TensorFlow and the vocabulary
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
            self._undecodable_bytes,
            self._train.token_counts.tolist(),
            self._train.unknown_characters(),
        )
        report.write(self._plan.report_file(self._job))

    def _read(self, chunk: Chunk, text_before: int, write_dev: Callable[[Records], None]) -> None:
        """Makes records of a chunk. text_before: bytes of text in the job's chunks before it."""
        text_per_byte = chunk.text_bytes / (chunk.end - chunk.start)
        done = float(text_before)
        for block in self._plan.settings.corpus.read(chunk.name, chunk.start, chunk.end):
            if self._job.text_bytes > _HELD_BYTES:
                self._shards.write_full(done / self._job.text_bytes)
            self._add(block.lines, write_dev)
            self._text_bytes += block.raw_bytes
            self._undecodable_bytes += block.undecodable_bytes
            done += block.file_bytes * text_per_byte
            self._advance(block.file_bytes * text_per_byte / 1e6)
        self._add([b""], write_dev)  # no document goes on in another file

    def _add(self, lines: list[bytes], write_dev: Callable[[Records], None]) -> None:
        train_lines, dev_lines = self._splitter.split(lines)
        self._shards.add(self._train.records(train_lines))
        write_dev(self._dev.records(dev_lines))


class DocumentSplitter:
    """Holds out a fraction of the documents, decided by their text.

    Neither the seed nor the sequence length plays a part: records of other lengths hold out the same documents, and
    copies of a document stay on one side.
    """

    def __init__(self, fraction: float):
        self._limit = fraction * 2.0**64
        self._head: list[bytes] = []  # the start of a document that is not yet decided on
        self._head_bytes = 0
        self._is_held_out: bool | None = None  # whether the document is; None: not yet decided

    def split(self, lines: list[bytes]) -> tuple[list[bytes], list[bytes]]:
        """Lines of training and of held-out documents; those of an undecided document wait for a later call."""
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
        if self._is_held_out is None:  # blank lines in a row: there is no document
            return
        side = dev if self._is_held_out else train
        side.append(b"")
        self._is_held_out = None

    def _decide(self, train: list[bytes], dev: list[bytes]) -> None:
        """Decides on the document by its start, which no longer waits."""
        text = b"\n".join(self._head)[:_HEAD_BYTES]
        number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
        self._is_held_out = number < self._limit
        side = dev if self._is_held_out else train
        side.extend(self._head)
        self._head = []
        self._head_bytes = 0


class RecordMaker:
    """Turns lines of documents into records.

    Args:
      name: "train" or "dev", whose random decisions differ.
    """

    def __init__(self, name: str, settings: BuildSettings, job: Job):
        self._tokenizer = _tokenizer(settings.vocab_file, settings.do_lower_case, settings.strip_accents)
        self._length = settings.max_seq_length
        source = random.Random(f"{name} {settings.seed} unit {job.number}")
        self._packer = _packer(settings, source, self._tokenizer.special.sep)
        vocab_size = len(self._tokenizer)
        self._encoder = RecordEncoder(RecordFormat(self._length, vocab_size))
        self.token_counts = np.zeros([vocab_size], np.int64)
        self._unknown = Counter[str]()

    def records(self, lines: list[bytes]) -> Records:
        """The records of the examples that these lines complete."""
        tokens, lengths = self._tokenizer.tokenize(lines)
        self._look_for_unknown(lines, tokens, lengths)
        ends_document = [not line for line in lines]
        return self._encoded(self._packer.add(tokens, lengths.tolist(), ends_document))

    def rest(self) -> Records:
        """The records of the text that waits."""
        return self._encoded(self._packer.finish())

    def _encoded(self, spans: Spans) -> Records:
        special = self._tokenizer.special
        examples = assemble(spans, self._length, special.cls, special.sep)
        ids = examples.input_ids[examples.input_mask > 0]
        self.token_counts += np.bincount(ids, minlength=len(self.token_counts))
        records = self._encoder.encode(examples)
        return list(zip(records, example_lengths(spans).tolist(), strict=True))

    def _look_for_unknown(self, lines: list[bytes], tokens: np.ndarray, lengths: np.ndarray) -> None:
        """Counts the characters of lines that have an unknown word, until there are enough."""
        places = np.flatnonzero(tokens == self._tokenizer.special.unk)
        if not len(places) or self._unknown.total() >= _UNKNOWN_TEXT:
            return
        ends = np.cumsum(lengths)
        numbers = np.unique(np.searchsorted(ends, places, side="right"))  # of the lines with [UNK]
        text = self._tokenizer.normalize.joined([lines[number] for number in numbers.tolist()]).decode()
        self._unknown.update(text[:_UNKNOWN_TEXT])

    def unknown_characters(self) -> dict[str, int]:
        """The characters without a token among those counted, the commonest first."""
        return dict(self._tokenizer.without_token(self._unknown)[: 10 * UNKNOWN_SHOWN])


def _packer(settings: BuildSettings, source: random.Random, separator: int) -> Packer:
    """Makes the packer that --packing names. separator: id of [SEP]."""
    if settings.packing == ELECTRA:
        return ExampleBuilder(settings.max_seq_length, source, settings.compat == "original")
    if settings.packing == FULL_SENTENCES:
        return SentencePacker(settings.max_seq_length, separator)
    return SentencePacker(settings.max_seq_length, None)


@contextlib.contextmanager
def _shard_file(path: Path, files: dict[str, Shard]) -> Iterator[Callable[[Records], None]]:
    """A function that writes records to a file, which is entered in `files` when it is whole. Raises UserError."""
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
    """Collects the records of one shard, or of several that are filled together, and writes them in random order."""

    def __init__(self, paths: list[Path], source: random.Random):
        self._paths = paths
        self._source = source
        self._written: dict[str, Shard] = {}
        self._records: list[tuple[bytes, int]] = []

    def add(self, records: Records) -> None:
        self._records += records

    def write_full(self, fraction: float) -> None:
        """Writes the shards that should be full when this fraction of the job's text has been read, never the last."""
        full = min(int(fraction * len(self._paths)), len(self._paths) - 1)
        self._write(full - len(self._written))

    def write_rest(self) -> dict[str, Shard]:
        """Writes the other shards. Returns all by file name."""
        self._write(len(self._paths) - len(self._written))
        return self._written

    def _write(self, shards: int) -> None:
        """Divides what has been collected evenly among the next shards."""
        if shards <= 0:
            return
        self._source.shuffle(self._records)
        for number in range(shards):
            first = len(self._records) * number // shards
            end = len(self._records) * (number + 1) // shards
            with _shard_file(self._paths[len(self._written)], self._written) as write:
                write(self._records[first:end])
        self._records = []
