"""Divides a corpus into units of work before any of it is read: the data builder's plan.

A unit is some pieces of the corpus and the numbers of the training shards that hold its examples. Pieces are whole
compressed files or stretches of plain ones that end between documents, dealt to units in random order, so that each
shard mixes documents from the whole corpus. The plan depends on the settings and on the names, sizes and contents of
the files, never on the number of processes; so neither do the records. No TensorFlow is imported.
"""

import dataclasses
import hashlib
import json
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from corpus.text_files import COMPRESSED_SUFFIXES, find_corpus_files, is_json_lines
from corpus.vocabulary import vocab_sha256
from util.errors import UserError

BUILDER_VERSION = 1
TRAIN_PREFIX = "pretrain_data.tfrecord"
DEV_PREFIX = "dev_data.tfrecord"

TEXT, OPENWEBTEXT = "text", "openwebtext"  # kinds of corpus: a directory of text files, or of archives of them

EXAMPLES_PER_SHARD = 8192  # about, unless that makes more than MANY_SHARDS
MANY_SHARDS = 1000
MAX_SHARD_TEXT_BYTES = 64 << 20
MIN_SHARDS = 4  # training shuffles the order of shards
_TEXT_BYTES_PER_TOKEN = 4.4  # English
_COMPRESSION = 3.5  # text bytes per byte of a compressed file; only the number of shards depends on it
_PIECES_PER_SHARD = 8
_MIN_PIECE_BYTES = 32 << 10
_MIN_SHARD_TEXT_BYTES = 8 << 10
_SCAN_BYTES = 64 << 10
_BLANK_LINE = re.compile(rb"\n[ \t\r\x0b\x0c]*\n")
_LINE_END = re.compile(rb"\n")


@dataclasses.dataclass(frozen=True)
class BuildSettings:
    """What to build; the flags of build_pretraining_dataset.py have the same names and explain them."""

    corpus_dir: str
    vocab_file: str
    output_dir: str
    max_seq_length: int = 128
    do_lower_case: bool = True
    strip_accents: bool = True
    blanks_separate_docs: bool = True
    seed: int = 0
    dev_fraction: float = 0.0
    num_shards: int = 0
    text_field: str = "text"
    recursive: bool = False
    compat: str = "none"
    corpus_kind: str = TEXT


class CorpusFile(NamedTuple):
    """A file of the corpus: path below the corpus directory, size on disk, time of the last change."""

    name: str
    size: int
    mtime_ns: int


class Piece(NamedTuple):
    """The bytes [start, end) of a file, and about how much text that is."""

    name: str
    start: int
    end: int
    text_bytes: int


class Unit(NamedTuple):
    """A job: its pieces become the shards first_shard ... first_shard + num_shards - 1."""

    number: int
    pieces: tuple[Piece, ...]
    first_shard: int
    num_shards: int

    @property
    def text_bytes(self) -> int:
        return sum(piece.text_bytes for piece in self.pieces)


@dataclasses.dataclass(frozen=True)
class BuildPlan:
    """Everything that decides the records. `identity` holds the same in a form to compare and to store."""

    settings: BuildSettings
    files: tuple[CorpusFile, ...]
    units: tuple[Unit, ...]
    num_shards: int
    identity: dict[str, Any]

    @property
    def build_hash(self) -> str:
        return hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()

    @property
    def num_dev_shards(self) -> int:
        fraction = self.settings.dev_fraction
        return min(len(self.units), max(1, round(self.num_shards * fraction))) if fraction else 0

    def shard_name(self, number: int) -> str:
        return f"{TRAIN_PREFIX}-{number}-of-{self.num_shards}"

    def dev_shard_name(self, number: int) -> str:
        return f"{DEV_PREFIX}-{number}-of-{self.num_dev_shards}"


def make_plan(settings: BuildSettings) -> BuildPlan:
    """Plans a build; raises UserError for a corpus that cannot be built from."""
    files = _corpus_files(settings)
    text_bytes = sum(_text_bytes(settings, file.name, file.size) for file in files)
    num_shards = settings.num_shards or default_num_shards(text_bytes, settings.max_seq_length)
    piece_bytes = max(_MIN_PIECE_BYTES, text_bytes // (num_shards * _PIECES_PER_SHARD))
    pieces = [piece for file in files if file.size for piece in _pieces(settings, file, piece_bytes)]
    random.Random(f"pieces {settings.seed}").shuffle(pieces)
    fields = dataclasses.asdict(settings)
    for name in ("corpus_dir", "vocab_file", "output_dir"):  # where something lies does not matter, what it is does
        del fields[name]
    identity = {
        "builder_version": BUILDER_VERSION,
        "vocab_sha256": vocab_sha256(settings.vocab_file),
        "settings": fields,
        "files": [[file.name, file.size] for file in files],
    }
    return BuildPlan(settings, tuple(files), tuple(_units(pieces, num_shards)), num_shards, identity)


def default_num_shards(text_bytes: int, max_seq_length: int) -> int:
    """Shards of EXAMPLES_PER_SHARD examples; fewer examples for a small corpus, more for a large one."""
    wanted = EXAMPLES_PER_SHARD * max_seq_length * _TEXT_BYTES_PER_TOKEN
    shard_bytes = min(MAX_SHARD_TEXT_BYTES, max(wanted, text_bytes / MANY_SHARDS))
    at_least = min(MIN_SHARDS, max(1, text_bytes // _MIN_SHARD_TEXT_BYTES))
    return max(at_least, round(text_bytes / shard_bytes))


def _corpus_files(settings: BuildSettings) -> list[CorpusFile]:
    root = Path(settings.corpus_dir)
    if settings.corpus_kind == OPENWEBTEXT:
        paths = sorted(root.glob("urlsf_subset*.xz"))
        if not paths:
            there = "does not exist" if not root.is_dir() else "holds no urlsf_subset*.xz"
            raise UserError(
                f"corpus directory {str(root)!r} {there}; it must hold the archives that openwebtext.tar.xz contains"
            )
    else:
        paths = find_corpus_files(root, settings.recursive)
    stats = [(path, path.stat()) for path in paths]
    return [CorpusFile(path.relative_to(root).as_posix(), stat.st_size, stat.st_mtime_ns) for path, stat in stats]


def _text_bytes(settings: BuildSettings, name: str, size: int) -> int:
    compressed = settings.corpus_kind == OPENWEBTEXT or name.lower().endswith(COMPRESSED_SUFFIXES)
    return round(size * _COMPRESSION) if compressed else size


def _pieces(settings: BuildSettings, file: CorpusFile, piece_bytes: int) -> list[Piece]:
    text_bytes = _text_bytes(settings, file.name, file.size)
    if text_bytes != file.size or file.size <= piece_bytes:
        return [Piece(file.name, 0, file.size, text_bytes)]
    if is_json_lines(file.name):
        boundary = _LINE_END
    elif settings.blanks_separate_docs:
        boundary = _BLANK_LINE
    else:
        return [Piece(file.name, 0, file.size, text_bytes)]
    starts = [0, *_boundaries(Path(settings.corpus_dir) / file.name, file.size, piece_bytes, boundary)]
    ends = [*starts[1:], file.size]
    return [Piece(file.name, start, end, end - start) for start, end in zip(starts, ends, strict=True)]


def _boundaries(path: Path, size: int, step: int, boundary: re.Pattern[bytes]) -> Iterator[int]:
    """The first boundary after each multiple of step, none twice and none at the end of the file."""
    wanted = step
    with open(path, "rb") as file:
        while wanted < size:
            found = _next_boundary(file, wanted, boundary)
            if found is None or found >= size:
                return
            yield found
            wanted = (found // step + 1) * step


def _next_boundary(file: Any, position: int, boundary: re.Pattern[bytes]) -> int | None:
    """Where the text after the first boundary from a position on begins."""
    file.seek(position)
    data = b""
    while chunk := file.read(_SCAN_BYTES):
        data += chunk
        match = boundary.search(data)
        if match:
            return position + match.end()
        # A blank line may go on in the next chunk; what precedes the last line end cannot be part of it.
        keep = max(data.rfind(b"\n"), 0)
        if data[keep:].strip(b" \t\r\n\x0b\x0c"):
            keep = len(data)
        position += keep
        data = data[keep:]
    return None


def _units(pieces: list[Piece], num_shards: int) -> Iterator[Unit]:
    """Groups pieces in their order so that each unit has at least one shard's share of the text."""
    total = sum(piece.text_bytes for piece in pieces)
    group: list[Piece] = []
    number = assigned = seen = 0
    for piece in pieces:
        group.append(piece)
        seen += piece.text_bytes
        shards = seen * num_shards // total - assigned
        if shards:
            yield Unit(number, tuple(group), assigned, shards)
            group = []
            number += 1
            assigned += shards


def describe_difference(mine: dict[str, Any], theirs: dict[str, Any]) -> str:
    """In what two plans' identities differ, for a person."""
    ours, others = mine["settings"], theirs.get("settings", {})
    for name, value in ours.items():
        if others.get(name) != value:
            return f"--{name.replace('_', '-')} was {others.get(name)!r} there and is {value!r} now"
    if mine["vocab_sha256"] != theirs.get("vocab_sha256"):
        return "it was begun with another vocabulary"
    if mine["files"] != theirs.get("files"):
        before, now = dict(map(tuple, theirs.get("files", []))), dict(map(tuple, mine["files"]))
        changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
        return f"corpus file {changed[0]!r} is not the same" if changed else "the corpus is not the same"
    return "it was made by another version of the builder"


def absolute(settings: BuildSettings) -> BuildSettings:
    """The settings with absolute paths, for workers that may run elsewhere."""
    paths = {name: os.path.abspath(getattr(settings, name)) for name in ("corpus_dir", "vocab_file", "output_dir")}
    return dataclasses.replace(settings, **paths)
