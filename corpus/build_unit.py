"""Builds one unit of the plan: reads its text, tokenises, packs and encodes it, and writes its shards.

This is what every worker runs, whether processes of this machine or of Apache Beam. Its result is a function of the
plan and the unit. The order of examples is random within a shard. A unit writes into the build's own folder, its
report last, so a unit with a report is done and one without is done again.
"""

import hashlib
import lzma
import os
import random
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from corpus.build_plan import OPENWEBTEXT, BuildPlan, BuildSettings, Piece, Unit
from corpus.example_builder import ExampleBuilder, Examples, assemble, example_lengths
from corpus.record_encoding import ExampleEncoder
from corpus.text_files import CorpusError, TextBlock, is_json_lines, read_blocks, strip_lines, valid_utf8
from util.errors import UserError
from util.files import write_json

BLOCK_BYTES = 1 << 20
_HELD_BYTES = 128 << 20  # units of at most so much text are shuffled as a whole
_HEAD_BYTES = 64 << 10  # so much of a document decides whether it is held out
_MAX_MEMBER_BYTES = 1 << 30  # a text file in an archive that claims more is damaged

Report = Callable[[int, int], None]  # called with bytes of text, and planned bytes of text, that were done


def unit_report(staging: Path, unit: Unit) -> Path:
    """The file that says that the unit is done, and what it wrote."""
    return staging / f"unit-{unit.number}.json"


def dev_part(staging: Path, unit: Unit) -> Path:
    """The unit's held-out records."""
    return staging / f"dev-part-{unit.number}"


def token_counts(staging: Path, unit: Unit) -> Path:
    """How often each id occurs in the unit's training records, int64 [V]."""
    return staging / f"token-counts-{unit.number}.npy"


def build_unit(plan: BuildPlan, unit: Unit, staging: Path, report: Report | None = None) -> dict[str, Any]:
    """Writes the unit's shards and its report, which is also returned.

    Raises:
      UserError: text that cannot be read.
      RuntimeError: anything else that goes wrong, with the file named.
    """
    job = _UnitJob(plan, unit, staging)
    piece = unit.pieces[0]
    try:
        for piece in unit.pieces:
            job.add_piece(piece, report or (lambda text, planned: None))
        result = job.finish()
    except UserError:
        raise
    except Exception as error:
        path = Path(plan.settings.corpus_dir) / piece.name
        raise RuntimeError(f"{path}, bytes {piece.start} to {piece.end}: {type(error).__name__}: {error}") from error
    finally:
        job.close()
    np.save(token_counts(staging, unit), job.token_counts)
    write_json(unit_report(staging, unit), result)
    return result


class _UnitJob:
    def __init__(self, plan: BuildPlan, unit: Unit, staging: Path):
        settings = plan.settings
        self._settings = settings
        self._unit = unit
        self._tokenizer = _tokenizer(settings)
        seed = f"{settings.seed} unit {unit.number}"
        original = settings.compat == "original"
        self._builders = [
            ExampleBuilder(settings.max_seq_length, random.Random(f"{split} {seed}"), original)
            for split in ("train", "dev")
        ]
        self._splitter = DocumentSplitter(settings.dev_fraction)
        self._encoder = ExampleEncoder(settings.max_seq_length, len(self._tokenizer))
        names = [plan.shard_name(unit.first_shard + index) for index in range(unit.num_shards)]
        self._train = _ShuffledShards([staging / name for name in names], random.Random(f"shuffle {seed}"))
        self._dev = _Shard(dev_part(staging, unit)) if settings.dev_fraction else None
        self._stream = unit.text_bytes > _HELD_BYTES
        self._done = 0.0  # of the unit's planned text bytes
        self._text_bytes = self._undecodable_bytes = 0
        self.token_counts = np.zeros([len(self._tokenizer)], np.int64)

    def add_piece(self, piece: Piece, report: Report) -> None:
        done_before = self._done
        bytes_to_text = piece.text_bytes / max(piece.end - piece.start, 1)
        for block in _read_piece(self._settings, piece):
            if self._stream:
                self._train.advance(self._done / self._unit.text_bytes)
            self._add_lines(self._splitter.split(block.lines))
            self._text_bytes += block.raw_bytes
            self._undecodable_bytes += block.undecodable_bytes
            planned = block.file_bytes * bytes_to_text
            self._done += planned
            report(block.raw_bytes, round(planned))
        self._add_lines(self._splitter.split([b""]))  # documents never go on in another file
        self._done = done_before + piece.text_bytes

    def finish(self) -> dict[str, Any]:
        result: dict[str, Any] = {
            "shards": self._train.finish(),
            "text_bytes": self._text_bytes,
            "undecodable_bytes": self._undecodable_bytes,
        }
        if self._dev is not None:
            result["dev"] = self._dev.close()
        return result

    def close(self) -> None:
        if self._dev is not None:
            self._dev.close()

    def _add_lines(self, split: "SplitLines") -> None:
        for index, lines in enumerate(split):
            if not lines:
                continue
            tokens, lengths = self._tokenizer.tokenize(lines)
            spans = self._builders[index].add(tokens, lengths.tolist(), [not line for line in lines])
            if not len(spans.starts):
                continue
            special = self._tokenizer.special
            examples = assemble(spans, self._settings.max_seq_length, special.cls, special.sep)
            self._keep(index, examples, example_lengths(spans))

    def _keep(self, index: int, examples: Examples, tokens: np.ndarray) -> None:
        records = self._encoder.encode(examples)
        if index == 0:
            self._train.add(records, tokens)
            self.token_counts += np.bincount(
                examples.input_ids[examples.input_mask > 0], minlength=len(self.token_counts)
            )
        elif self._dev is not None:
            self._dev.write(records, int(tokens.sum()))


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


class _Shard:
    """A TFRecord file being written."""

    def __init__(self, path: Path):
        import tensorflow as tf

        self._path = path
        self._writer: Any = tf.io.TFRecordWriter(str(path))
        self._examples = self._tokens = 0

    def write(self, records: list[bytes], tokens: int) -> None:
        for record in records:
            self._writer.write(record)
        self._examples += len(records)
        self._tokens += tokens

    def close(self) -> dict[str, int]:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        return {"examples": self._examples, "tokens": self._tokens, "bytes": os.path.getsize(self._path)}


class _ShuffledShards:
    """Collects the records of one shard, or of several that are filled together, and writes them in random order."""

    def __init__(self, paths: list[Path], source: random.Random):
        self._paths = paths
        self._source = source
        self._counts: dict[str, dict[str, int]] = {}
        self._records: list[bytes] = []
        self._tokens: list[np.ndarray] = []

    def add(self, records: list[bytes], tokens: np.ndarray) -> None:
        self._records.extend(records)
        self._tokens.append(tokens)

    def advance(self, fraction: float) -> None:
        """Writes the shards that should be full when this fraction of the unit has been read."""
        due = int(fraction * len(self._paths)) - len(self._counts)
        if due > 0:
            self._write(min(due, len(self._paths) - len(self._counts) - 1))

    def finish(self) -> dict[str, dict[str, int]]:
        """Writes the other shards. Returns examples, tokens and bytes by file name."""
        self._write(len(self._paths) - len(self._counts))
        return self._counts

    def _write(self, shards: int) -> None:
        """Divides what has been collected evenly among the next shards."""
        if not shards:
            return
        tokens = np.concatenate(self._tokens) if self._tokens else np.zeros([0], np.int64)
        order = list(range(len(self._records)))
        self._source.shuffle(order)
        for index in range(shards):
            chosen = order[index * len(order) // shards : (index + 1) * len(order) // shards]
            path = self._paths[len(self._counts)]
            shard = _Shard(path)
            shard.write([self._records[record] for record in chosen], int(tokens[chosen].sum()))
            self._counts[path.name] = shard.close()
        self._records, self._tokens = [], []


_tokenizers: dict[tuple[str, bool, bool], Any] = {}  # one per process: it takes a second to build


def _tokenizer(settings: BuildSettings) -> Any:
    key = (settings.vocab_file, settings.do_lower_case, settings.strip_accents)
    if key not in _tokenizers:
        from corpus.tokenization import WordpieceTokenizer

        _tokenizers[key] = WordpieceTokenizer(settings.vocab_file, settings.do_lower_case, settings.strip_accents)
    return _tokenizers[key]


def _read_piece(settings: BuildSettings, piece: Piece) -> Iterator[TextBlock]:
    """The piece's text, with blank lines where documents end and nowhere else."""
    path = Path(settings.corpus_dir) / piece.name
    if settings.corpus_kind == OPENWEBTEXT:
        yield from read_archive(path)
        return
    whole = piece.start == 0 and piece.end == path.stat().st_size
    span = None if whole else (piece.start, piece.end)
    for block in read_blocks(path, BLOCK_BYTES, settings.text_field, span):
        if settings.blanks_separate_docs or is_json_lines(path):
            yield block
        else:
            yield block._replace(lines=[line for line in block.lines if line])


def read_archive(path: Path) -> Iterator[TextBlock]:
    """A compressed tar of text files, one document each, read as a stream: nothing is unpacked to disk."""
    lines: list[bytes] = []
    text_bytes = undecodable = position = 0
    try:
        with open(path, "rb") as raw, tarfile.open(fileobj=raw, mode="r|*") as archive:
            for member in archive:
                if not member.isfile():
                    continue
                if member.size > _MAX_MEMBER_BYTES:
                    raise CorpusError(f"archive {str(path)!r}: {member.name!r} claims {member.size} bytes of text")
                file = archive.extractfile(member)
                data = file.read() if file is not None else b""
                text = valid_utf8(data)
                undecodable += len(data) - len(text)
                text_bytes += len(data)
                lines += [line for line in strip_lines(text.split(b"\n")) if line]
                lines.append(b"")
                if text_bytes >= BLOCK_BYTES:
                    moved = raw.tell() - position
                    position += moved
                    yield TextBlock(lines, undecodable, text_bytes, moved)
                    lines, text_bytes, undecodable = [], 0, 0
            yield TextBlock(lines, undecodable, text_bytes, os.path.getsize(path) - position)
    except (tarfile.TarError, lzma.LZMAError, zlib.error, OSError, EOFError) as error:
        raise CorpusError(f"archive {str(path)!r} is damaged or not a tar ({error}); fetch it again") from None
