"""Builds one unit of the plan: reads its text, tokenises, packs and encodes it, and writes its shards.

This is what every worker runs, whether processes of this machine or of Apache Beam. Its result is a function of the
plan and the unit. The order of examples is random within a shard. A unit writes into the build's own folder, its
report last, so a unit with a report is done and one without is done again.
"""

import contextlib
import functools
import hashlib
import os
import random
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.corpus.build_plan import ELECTRA, Piece, Unit, source_of
from electra_tf2.corpus.example_builder import (
    FULL_SENTENCES,
    ExampleBuilder,
    OtherSegments,
    SentencePacker,
    Spans,
    assemble,
    example_lengths,
    with_domain,
)
from electra_tf2.corpus.other_segments import OtherSegmentFinder
from electra_tf2.corpus.record_metadata import Shard
from electra_tf2.corpus.records import RecordEncoder, RecordFormat
from electra_tf2.corpus.staging import Staging, UnitReport
from electra_tf2.corpus.text_files import TextBlock
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.util.errors import UserError
from electra_tf2.util.files import writing
from electra_tf2.util.reading import sha256_of

_HEAD_BYTES = 64 << 10  # so much of a document decides whether it is held out
_HELD_BYTES = 128 << 20  # units of at most so much text are shuffled as a whole
_Packer = ExampleBuilder | SentencePacker | OtherSegmentFinder
_tokenizer = functools.cache(WordpieceTokenizer)  # one per process: it takes a second to build


def build_unit(staging: Staging, unit: Unit) -> Generator[float, None, None]:
    """Writes the unit's shards and its report, which is done when the iterator ends.

    Yields:
      Megabytes of text that have been built since the last time, by the plan's reckoning.

    Raises:
      UserError: text that cannot be read, or shards that cannot be written.
      RuntimeError: anything else that goes wrong, with the file named.
    """
    corpus = staging.plan.settings.corpus
    piece, done = unit.pieces[0], 0.0
    with contextlib.closing(_UnitJob(staging, unit)) as job:
        yield 0.0  # the first unit of a process has loaded TensorFlow and the vocabulary
        try:
            for piece in unit.pieces:
                job.begin(piece)
                before, text_per_byte = done, piece.text_bytes / (piece.end - piece.start)
                for block in corpus.read(piece.name, piece.start, piece.end):
                    job.add(block, done / unit.text_bytes)
                    done += block.file_bytes * text_per_byte
                    yield block.file_bytes * text_per_byte / 1e6
                job.end_document()  # none goes on in another file
                done = before + piece.text_bytes
            job.finish()
        except UserError:
            raise
        except Exception as error:
            place = f"{Path(corpus.directory) / piece.name}, bytes {piece.start} to {piece.end}"
            raise RuntimeError(f"{place}: {type(error).__name__}: {error}") from error


class SplitLines(NamedTuple):
    """Lines of training and of held-out documents; blank lines end documents."""

    train: list[bytes]
    dev: list[bytes]


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

    def split(self, lines: list[bytes]) -> SplitLines:
        """Lines in their order; those of an undecided document are kept back until a later call."""
        if not self._limit:
            return SplitLines(lines, [])
        out = SplitLines([], [])
        for line in lines:
            if not line:
                if self._head:
                    self._decide(out)
                if self._held_out is not None:
                    out[self._held_out].append(b"")
                    self._held_out = None
            elif self._held_out is not None:
                out[self._held_out].append(line)
            else:
                self._head.append(line)
                self._head_bytes += len(line) + 1
                if self._head_bytes >= _HEAD_BYTES:
                    self._decide(out)
        return out

    def _decide(self, out: SplitLines) -> None:
        text = b"\n".join(self._head)[:_HEAD_BYTES]
        self._held_out = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") < self._limit
        out[self._held_out].extend(self._head)
        self._head, self._head_bytes = [], 0


class _UnitJob:
    def __init__(self, staging: Staging, unit: Unit):
        self._staging, self._unit = staging, unit
        settings = self._settings = staging.plan.settings
        self._tokenizer = _tokenizer(settings.vocab_file, settings.do_lower_case, settings.strip_accents)
        self._splitter = DocumentSplitter(settings.dev_fraction)
        seed = f"{settings.seed} unit {unit.number}"
        original = settings.compat == "original"
        special = self._tokenizer.special
        tokens = settings.domain_tokens.values()
        self._domains = dict(zip(settings.domain_tokens, map(self._tokenizer.vocab.index, tokens), strict=True))
        self._length = settings.max_seq_length - bool(self._domains)  # without the source's token
        self._packers: list[_Packer] = []
        for split in SplitLines._fields:
            if settings.packing == ELECTRA:
                packer = ExampleBuilder(self._length, random.Random(f"{split} {seed}"), original)
                others = random.Random(f"others {split} {seed}")
                finder = OtherSegmentFinder(packer, self._length, others) if settings.other_segments else None
                self._packers.append(finder or packer)
            else:
                separator = special.sep if settings.packing == FULL_SENTENCES else None
                self._packers.append(SentencePacker(self._length, separator))
        self._piece = unit.pieces[0]
        self._encoder = RecordEncoder(RecordFormat(settings.max_seq_length, len(self._tokenizer)))
        self._train = _ShuffledShards(staging.shards(unit), random.Random(f"shuffle {seed}"))
        self._dev = _ShardFile(staging.dev_part(unit))
        self._token_counts = np.zeros([len(self._tokenizer)], np.int64)
        self._contents: list[str] = []
        self._text_bytes = self._undecodable_bytes = 0

    def begin(self, piece: Piece) -> None:
        """Begins a piece, to which all belongs that is added from now on."""
        if self._domains and source_of(piece.name) != source_of(self._piece.name):
            self._flush()  # an example is of one source
        self._piece = piece
        self._contents.append(sha256_of(Path(self._settings.corpus_dir) / piece.name, piece.start, piece.end))

    def add(self, block: TextBlock, fraction: float) -> None:
        """Adds text, before which this fraction of the unit's has been read."""
        if self._unit.text_bytes > _HELD_BYTES:
            self._train.advance(fraction)
        self._add_lines(block.lines)
        self._text_bytes += block.raw_bytes
        self._undecodable_bytes += block.undecodable_bytes

    def end_document(self) -> None:
        self._add_lines([b""])

    def finish(self) -> None:
        self._flush()
        files = self._train.finish() | {self._staging.dev_part(self._unit).name: self._dev.finish()}
        with writing(self._staging.folder):
            self._staging.token_counts(self._unit).write_bytes(self._token_counts.tobytes())
        report = UnitReport(files, self._contents, self._text_bytes, self._undecodable_bytes)
        self._staging.write_report(self._unit, report)

    def close(self) -> None:
        self._dev.close()

    def _add_lines(self, lines: list[bytes]) -> None:
        split = self._splitter.split(lines)
        if self._piece.again:  # what is held out is held out once
            split = split._replace(dev=[line for line in split.dev if not line])
        self._write(*(self._packed(*pair) for pair in zip(self._packers, split, strict=True)))

    def _packed(self, packer: _Packer, lines: list[bytes]) -> Spans:
        """The examples that these lines complete."""
        tokens, lengths = self._tokenizer.tokenize(lines)
        return packer.add(tokens, lengths.tolist(), [not line for line in lines])

    def _flush(self) -> None:
        self._write(*(packer.finish() for packer in self._packers))

    def _write(self, train: Spans, dev: Spans) -> None:
        records, tokens, ids = self._records(train)
        self._train.add(records, tokens)
        self._token_counts += np.bincount(ids, minlength=len(self._token_counts))
        records, tokens, _ = self._records(dev)
        self._dev.write(records, int(tokens.sum()))

    def _records(self, spans: Spans) -> tuple[list[bytes], np.ndarray, np.ndarray]:
        """The records of examples, the number of tokens of each, and the tokens of all."""
        special = self._tokenizer.special
        examples = assemble(spans, self._length, special.cls, special.sep)
        lengths, others = example_lengths(spans), spans.others
        if self._domains:
            examples, lengths = with_domain(examples, self._domains[source_of(self._piece.name)]), lengths + 1
            others = others and OtherSegments(*(np.pad(ids, [(0, 0), (0, 1)]) for ids in others))
        return self._encoder.encode(examples, others), lengths, examples.input_ids[examples.input_mask > 0]


class _ShardFile:
    """A TFRecord file being written."""

    def __init__(self, path: Path):
        import tensorflow as tf

        self._path, self._error = path, tf.errors.OpError
        self._examples = self._tokens = 0
        with self._writing():
            self._writer: Any = tf.io.TFRecordWriter(str(path))

    def write(self, records: list[bytes], tokens: int) -> None:
        with self._writing():
            for record in records:
                self._writer.write(record)
        self._examples += len(records)
        self._tokens += tokens

    def close(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            with self._writing():
                writer.close()

    def finish(self) -> Shard:
        """Closes the file and describes it."""
        self.close()
        return Shard(self._examples, self._tokens, os.path.getsize(self._path), sha256_of(self._path))

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except self._error as error:
            raise UserError(
                f"cannot write {self._path}: {error.message}; when there is room, the same command goes on"
            ) from None


class _ShuffledShards:
    """Collects the records of one shard, or of several that are filled together, and writes them in random order."""

    def __init__(self, paths: list[Path], source: random.Random):
        self._paths = paths
        self._source = source
        self._written: dict[str, Shard] = {}
        self._records: list[bytes] = []
        self._tokens: list[np.ndarray] = []

    def add(self, records: list[bytes], tokens: np.ndarray) -> None:
        self._records.extend(records)
        self._tokens.append(tokens)

    def advance(self, fraction: float) -> None:
        """Writes the shards that should be full when this fraction of the unit has been read."""
        due = int(fraction * len(self._paths)) - len(self._written)
        if due > 0:
            self._write(min(due, len(self._paths) - len(self._written) - 1))

    def finish(self) -> dict[str, Shard]:
        """Writes the other shards. Returns all by file name."""
        self._write(len(self._paths) - len(self._written))
        return self._written

    def _write(self, shards: int) -> None:
        """Divides what has been collected evenly among the next shards."""
        if not shards:
            return
        tokens = np.concatenate(self._tokens) if self._tokens else np.zeros([0], np.int64)
        order = list(range(len(self._records)))
        self._source.shuffle(order)
        for index in range(shards):
            chosen = order[index * len(order) // shards : (index + 1) * len(order) // shards]
            path = self._paths[len(self._written)]
            file = _ShardFile(path)
            file.write([self._records[record] for record in chosen], int(tokens[chosen].sum()))
            self._written[path.name] = file.finish()
        self._records, self._tokens = [], []
