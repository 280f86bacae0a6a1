"""Plans a build: divides a corpus into jobs before any of it is read.

A job is a list of chunks of the corpus, and the training shards that their examples fill. A chunk is a whole compressed
file, or a part of a plain file that ends between documents. Chunks are shuffled before they are divided among jobs, so
that each shard mixes documents from the whole corpus.

The plan, and so the records, depend on the settings and on the names, sizes and contents of the files, but never on the
number of processes. No TensorFlow is imported.
"""

import dataclasses
import math
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from electra_tf2.config.hparams import dashed
from electra_tf2.corpus.corpus_reader import TEXT_BYTES_PER_COMPRESSED_BYTE, Boundary, Corpus, CorpusFile
from electra_tf2.corpus.packing import ELECTRA, MIN_LENGTH
from electra_tf2.corpus.vocabulary import load_vocab, vocab_sha256
from electra_tf2.files.content import is_compressed
from electra_tf2.files.reading import json_sha256, sha256_of
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import track

BUILDER_VERSION = 1
TRAIN_PREFIX = "pretrain_data.tfrecord"
DEV_PREFIX = "dev_data.tfrecord"
DEV_PART = "dev_part"  # names of the jobs' held-out records begin so, until they are joined

# Kinds of corpus: a directory of text files, or of archives of them.
TEXT = "text"
OPENWEBTEXT = "openwebtext"

# The default number of shards.
EXAMPLES_PER_SHARD = 8192  # more, if that makes more than MANY_SHARDS shards
MANY_SHARDS = 1000
MAX_SHARD_TEXT_BYTES = 64 << 20
MIN_SHARDS = 4  # training shuffles the order of shards
# The limit of --num-shards: a shard is shuffled in memory.
MOST_SHARD_TEXT_BYTES = 1 << 30
_TEXT_BYTES_PER_TOKEN = 4.4  # English
_CHUNKS_PER_SHARD = 8
_MIN_CHUNK_BYTES = 32 << 10
_MIN_SHARD_TEXT_BYTES = 8 << 10
_SCAN_BYTES = 64 << 10


@dataclasses.dataclass(frozen=True)
class BuildSettings:
    """Settings of a build. Flags of `electra build-data` have the same names and explain them."""

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
    packing: str = ELECTRA

    @property
    def corpus(self) -> Corpus:
        archives = self.corpus_kind == OPENWEBTEXT
        return Corpus(self.corpus_dir, self.text_field, self.recursive, self.blanks_separate_docs, archives)


class Chunk(NamedTuple):
    """The bytes [start, end) of a file, and an estimate of their uncompressed text."""

    name: str
    start: int
    end: int
    text_bytes: int


@dataclasses.dataclass(frozen=True)
class Job:
    """Chunks that become the training shards first_shard ... first_shard + num_shards - 1."""

    index: int
    chunks: tuple[Chunk, ...]
    first_shard: int
    num_shards: int

    @property
    def text_bytes(self) -> int:
        return sum(chunk.text_bytes for chunk in self.chunks)


@dataclasses.dataclass(frozen=True)
class BuildPlan:
    """Everything that determines the records.

    identity: the same as JSON, which is stored and compared.
    """

    settings: BuildSettings
    jobs: tuple[Job, ...]
    num_shards: int
    identity: dict[str, Any]

    @property
    def build_hash(self) -> str:
        return json_sha256(self.identity)

    @property
    def output(self) -> Path:
        return Path(self.settings.output_dir)

    def shards(self, job: Job) -> list[Path]:
        """Files of a job's training records."""
        indices = range(job.first_shard, job.first_shard + job.num_shards)
        return [self.output / f"{TRAIN_PREFIX}-{index}-of-{self.num_shards}" for index in indices]

    def report_file(self, job: Job) -> Path:
        """File that is written when a job is done, with what it wrote."""
        return self.output / f"{self.shards(job)[0].name}.json"

    def dev_part(self, job: Job) -> Path:
        """File of a job's held-out records."""
        return self.output / f"{DEV_PART}-{job.index}"

    def dev_shards(self) -> dict[str, tuple[Job, ...]]:
        """File of held-out records -> the jobs whose parts are joined in it."""
        fraction = self.settings.dev_fraction
        if not fraction:
            return {}
        count = min(len(self.jobs), max(1, round(self.num_shards * fraction)))
        shards = {}
        for index in range(count):
            first = len(self.jobs) * index // count
            end = len(self.jobs) * (index + 1) // count
            shards[f"{DEV_PREFIX}-{index}-of-{count}"] = self.jobs[first:end]
        return shards

    def contents(self, job: Job) -> list[str]:
        """The SHA-256 of each chunk of a job, from the corpus as it is now."""
        folder = Path(self.settings.corpus_dir)
        return [sha256_of(folder / chunk.name, chunk.start, chunk.end) for chunk in job.chunks]


def make_plan(settings: BuildSettings) -> BuildPlan:
    """Plans a build.

    Raises:
      UserError: the settings, the vocabulary or the corpus are unusable.
    """
    _check_settings(settings)
    load_vocab(settings.vocab_file)  # raises UserError
    # Workers may run in another folder, so paths must be absolute.
    settings = dataclasses.replace(
        settings,
        corpus_dir=os.path.abspath(settings.corpus_dir),
        vocab_file=os.path.abspath(settings.vocab_file),
        output_dir=os.path.abspath(settings.output_dir),
    )
    corpus = settings.corpus
    corpus.refuse_inside("--vocab-file", settings.vocab_file)
    corpus.refuse_inside("--output-dir", settings.output_dir, TRAIN_PREFIX)
    files = corpus.files()
    if not corpus.archives:
        for file in files:
            # Reading the first block raises UserError if the file is no text, before anything is built.
            next(corpus.read(file.name, block_bytes=_SCAN_BYTES), None)
    total = sum(_text_bytes(file) for file in files)
    num_shards = settings.num_shards or default_num_shards(total, settings.max_seq_length)
    _check_num_shards(num_shards, total, settings.max_seq_length)

    chunk_bytes = max(_MIN_CHUNK_BYTES, total // (num_shards * _CHUNKS_PER_SHARD))
    chunks: list[Chunk] = []
    for file in track(files, "planning: corpus file", len(files)):
        chunks += _chunks(corpus, file, chunk_bytes)
    # "pieces" is an old name of chunks, and stays: records depend on it.
    random.Random(f"pieces {settings.seed}").shuffle(chunks)
    jobs = tuple(_jobs(chunks, num_shards))
    return BuildPlan(settings, jobs, num_shards, _identity(settings, files))


def _check_settings(settings: BuildSettings) -> None:
    """Raises UserError for settings that are wrong for any corpus."""
    if settings.max_seq_length < MIN_LENGTH:
        raise UserError(f"--max-seq-length {settings.max_seq_length} is too short; at least {MIN_LENGTH} is needed")
    if not 0 <= settings.dev_fraction <= 0.5:
        raise UserError(f"--dev-fraction must lie between 0 and 0.5, got {settings.dev_fraction}")
    if settings.packing != ELECTRA and settings.compat == "original":
        raise UserError(
            f"--compat original packs as the original, not with --packing {settings.packing}: leave one of them out"
        )


def _check_num_shards(num_shards: int, text_bytes: int, max_seq_length: int) -> None:
    """Raises UserError if shards would be too small or too large."""
    examples = text_bytes / _TEXT_BYTES_PER_TOKEN / max_seq_length
    if num_shards > max(MANY_SHARDS, examples):
        raise UserError(f"--num-shards {num_shards:,} is more than this corpus has examples, about {examples:,.0f}")
    if text_bytes > num_shards * MOST_SHARD_TEXT_BYTES:
        at_least = math.ceil(text_bytes / MOST_SHARD_TEXT_BYTES)
        raise UserError(
            f"--num-shards {num_shards:,} makes shards of {text_bytes / num_shards / 1e9:,.1f} GB of text, each "
            f"shuffled in memory: at least {at_least:,} are needed, or 0 to let the program choose"
        )


def _identity(settings: BuildSettings, files: list[CorpusFile]) -> dict[str, Any]:
    """Everything that determines the records: settings, the vocabulary's content, names and sizes of the corpus files.

    Folders do not, so a build can be moved.
    """
    values = dataclasses.asdict(settings)
    for name in ("corpus_dir", "vocab_file", "output_dir"):
        del values[name]
    return {
        "builder_version": BUILDER_VERSION,
        "vocab_sha256": vocab_sha256(settings.vocab_file),
        "settings": values,
        "files": [[file.name, file.size] for file in files],
    }


def _text_bytes(file: CorpusFile) -> int:
    """Estimates the uncompressed text of a file. Only the numbers of shards and chunks depend on it."""
    if is_compressed(file.name):
        return round(file.size * TEXT_BYTES_PER_COMPRESSED_BYTE)
    return file.size


def default_num_shards(text_bytes: int, max_seq_length: int) -> int:
    """Number of shards with EXAMPLES_PER_SHARD examples; with fewer for a small corpus, more for a large one."""
    usual_bytes = EXAMPLES_PER_SHARD * max_seq_length * _TEXT_BYTES_PER_TOKEN
    shard_bytes = min(MAX_SHARD_TEXT_BYTES, max(usual_bytes, text_bytes / MANY_SHARDS))
    at_least = min(MIN_SHARDS, max(1, text_bytes // _MIN_SHARD_TEXT_BYTES))
    return max(at_least, round(text_bytes / shard_bytes))


def _chunks(corpus: Corpus, file: CorpusFile, chunk_bytes: int) -> Iterator[Chunk]:
    """Cuts a file into chunks of about chunk_bytes if it can be divided."""
    if not file.size:
        return
    boundary = corpus.boundary(file.name)
    if not boundary or file.size <= chunk_bytes:
        yield Chunk(file.name, 0, file.size, _text_bytes(file))
        return
    start = 0
    with open(os.path.join(corpus.directory, file.name), "rb") as stream:
        while start < file.size:
            stream.seek((start // chunk_bytes + 1) * chunk_bytes)
            end = min(_next_boundary(stream, boundary), file.size)
            yield Chunk(file.name, start, end, end - start)
            start = end


def _next_boundary(stream: BinaryIO, boundary: Boundary) -> int:
    """Reads on to the end of the line, or of the next blank line. Returns that position."""
    # The first line read is the rest of one. It may look blank though there is text before.
    is_blank = False
    while True:
        piece = stream.readline(_SCAN_BYTES)  # a part of a line, since a line may be larger than memory
        if not piece:
            break
        is_blank = is_blank and not piece.strip()
        if piece.endswith(b"\n"):
            if is_blank or boundary == "line":
                break
            is_blank = True
    return stream.tell()


def _jobs(chunks: list[Chunk], num_shards: int) -> Iterator[Job]:
    """Groups consecutive chunks so that each job has text for at least one shard."""
    total = sum(chunk.text_bytes for chunk in chunks)
    group: list[Chunk] = []
    job_index = 0
    assigned_shards = 0  # to the jobs so far
    text_bytes = 0  # in the chunks so far
    for chunk in chunks:
        group.append(chunk)
        text_bytes += chunk.text_bytes
        new_shards = text_bytes * num_shards // total - assigned_shards
        if new_shards:
            yield Job(job_index, tuple(group), assigned_shards, new_shards)
            job_index += 1
            assigned_shards += new_shards
            group = []


def describe_difference(mine: dict[str, Any], theirs: dict[str, Any]) -> str:
    """Describes the first difference between two builds' identities."""
    my_settings = mine["settings"]
    their_settings = theirs.get("settings", {})
    for name, my_value in my_settings.items():
        their_value = their_settings.get(name)
        if their_value != my_value:
            return f"{dashed(name)} was {their_value!r} there and is {my_value!r} now"
    if mine["vocab_sha256"] != theirs.get("vocab_sha256"):
        return "it was begun with another vocabulary"
    my_sizes = dict(map(tuple, mine["files"]))
    their_sizes = dict(map(tuple, theirs.get("files", [])))
    for name in sorted(my_sizes.keys() | their_sizes.keys()):
        if my_sizes.get(name) != their_sizes.get(name):
            return f"corpus file {name!r} is not the same"
    return "it was made by another version of the builder"
