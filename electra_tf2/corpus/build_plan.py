"""Divides a corpus into units of work before any of it is read: the data builder's plan.

A unit is some pieces of the corpus and the numbers of the training shards that hold its examples. Pieces are whole
compressed files or stretches of plain ones that end between documents, dealt to units in random order, so that each
shard mixes documents from the whole corpus. The plan depends on the settings and on the names, sizes and contents of
the files, never on the number of processes; so neither do the records. No TensorFlow is imported.
"""

import dataclasses
import math
import os
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

from electra_tf2.corpus.example_builder import MIN_LENGTH
from electra_tf2.corpus.text_files import Corpus, CorpusFile
from electra_tf2.corpus.vocabulary import PAD, load_vocab, vocab_sha256
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import track
from electra_tf2.util.reading import json_sha256

BUILDER_VERSION = 1
TRAIN_PREFIX = "pretrain_data.tfrecord"
DEV_PREFIX = "dev_data.tfrecord"

ELECTRA = "electra"  # packing; the others are in corpus.example_builder
# No part of older builds' identity.
_NEW_SETTINGS = {"packing": ELECTRA, "mix_alpha": 1.0, "domain_tokens": {}, "other_segments": False}
TEXT, OPENWEBTEXT = "text", "openwebtext"  # kinds of corpus: a directory of text files, or of archives of them

EXAMPLES_PER_SHARD = 8192  # about, unless that makes more than MANY_SHARDS
MANY_SHARDS = 1000
MAX_SHARD_TEXT_BYTES = 64 << 20
MOST_SHARD_TEXT_BYTES = 1 << 30  # of shards that the user makes fewer: each is shuffled in memory
MIN_SHARDS = 4  # training shuffles the order of shards
MOST_REPEATS = 100  # times that a source is read; more would teach its text by heart
_TEXT_BYTES_PER_TOKEN = 4.4  # English
_COMPRESSION = 3.5  # text bytes per byte of a compressed file; only the number of shards depends on it
_PIECES_PER_SHARD = 8
_MIN_PIECE_BYTES = 32 << 10
_MIN_SHARD_TEXT_BYTES = 8 << 10
_SCAN_BYTES = 64 << 10


@dataclasses.dataclass(frozen=True)
class BuildSettings:
    """Settings of a build; the flags of build_pretraining_dataset.py have the same names and explain them."""

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
    mix_alpha: float = 1.0
    domain_tokens: dict[str, str] = dataclasses.field(default_factory=dict)
    other_segments: bool = False

    @property
    def corpus(self) -> Corpus:
        archives = self.corpus_kind == OPENWEBTEXT
        return Corpus(self.corpus_dir, self.text_field, self.recursive, self.blanks_separate_docs, archives)


class Piece(NamedTuple):
    """The bytes [start, end) of a file, and about how much text that is; `again`: they are another piece too."""

    name: str
    start: int
    end: int
    text_bytes: int
    again: bool = False


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
    repeats: dict[str, float]  # source -> how often it is read

    @property
    def build_hash(self) -> str:
        return json_sha256(self.identity)

    @property
    def num_dev_shards(self) -> int:
        fraction = self.settings.dev_fraction
        return min(len(self.units), max(1, round(self.num_shards * fraction))) if fraction else 0

    def shard_name(self, number: int) -> str:
        return f"{TRAIN_PREFIX}-{number}-of-{self.num_shards}"

    def dev_shard_name(self, number: int) -> str:
        return f"{DEV_PREFIX}-{number}-of-{self.num_dev_shards}"


def make_plan(settings: BuildSettings) -> BuildPlan:
    """Plans a build; raises UserError for settings, a vocabulary or a corpus that cannot be built from."""
    shortest = MIN_LENGTH + bool(settings.domain_tokens)
    if settings.max_seq_length < shortest:
        raise UserError(f"--max-seq-length {settings.max_seq_length} is too short; at least {shortest} is needed")
    if not 0 <= settings.dev_fraction <= 0.5:
        raise UserError(f"--dev-fraction must lie between 0 and 0.5, got {settings.dev_fraction}")
    if not 0 <= settings.mix_alpha <= 1:
        raise UserError(f"--mix-alpha must lie between 0 and 1, got {settings.mix_alpha:g}")
    for flag, given in (("mix-alpha", settings.mix_alpha != 1), ("domain-tokens", settings.domain_tokens)):
        if given and not settings.recursive:
            raise UserError(f"--{flag} is for a corpus with a folder for each source: give --recursive too")
    if settings.packing != ELECTRA and settings.compat == "original":
        raise UserError("--compat original packs as the original does: not with --packing " + settings.packing)
    if settings.other_segments and (settings.packing != ELECTRA or settings.compat == "original"):
        raise UserError("--other-segments needs --packing electra, which makes second segments, and --compat none")
    if settings.other_segments and load_vocab(settings.vocab_file)[0] != PAD:
        raise UserError(
            f"--other-segments needs {PAD} as token 0 of {settings.vocab_file!r}, with which records are filled"
        )
    vocabulary = vocab_sha256(settings.vocab_file)
    paths = {name: os.path.abspath(getattr(settings, name)) for name in ("corpus_dir", "vocab_file", "output_dir")}
    settings = dataclasses.replace(settings, **paths)  # for workers that may run elsewhere
    corpus = settings.corpus
    files = corpus.files()
    expansion = {file: _COMPRESSION if corpus.is_compressed(file.name) else 1 for file in files}
    text_bytes = {file: round(file.size * expansion[file]) for file in files}
    sizes, read = Counter[str](), Counter[str]()
    for file, size in text_bytes.items():
        sizes[source_of(file.name)] += size
    times = repeats(sizes, settings.mix_alpha) if sum(sizes.values()) else dict.fromkeys(sizes, 1.0)
    check_repeats(times, settings.mix_alpha)
    if settings.domain_tokens:
        check_tokens(settings.domain_tokens, list(sizes), load_vocab(settings.vocab_file))
    total = round(sum(size * times[source] for source, size in sizes.items()))
    num_shards = settings.num_shards or default_num_shards(total, settings.max_seq_length)
    examples = total / _TEXT_BYTES_PER_TOKEN / settings.max_seq_length
    if num_shards > max(MANY_SHARDS, examples):
        raise UserError(f"--num-shards {num_shards:,} is more than this corpus has examples, about {examples:,.0f}")
    if total > num_shards * MOST_SHARD_TEXT_BYTES:
        raise UserError(
            f"--num-shards {num_shards:,} makes shards of {total / num_shards / 1e9:,.1f} GB of text, each shuffled in "
            f"memory; at least {math.ceil(total / MOST_SHARD_TEXT_BYTES):,} are needed, and 0 chooses their number"
        )
    piece_bytes = max(_MIN_PIECE_BYTES, total // (num_shards * _PIECES_PER_SHARD))
    pieces = [
        piece
        for file in track(files, "planning: corpus file", len(files))
        for piece in _pieces(corpus, file, text_bytes[file], piece_bytes)
    ]
    pieces += _repeated(pieces, times, settings.seed)
    for piece in pieces:
        read[source_of(piece.name)] += piece.text_bytes
    times = {source: read[source] / size if size else 0.0 for source, size in sizes.items()}  # whole pieces, so about
    random.Random(f"pieces {settings.seed}").shuffle(pieces)
    fields = dataclasses.asdict(settings)
    for name in paths:  # where something lies does not matter, what it is does
        del fields[name]
    fields = {name: value for name, value in fields.items() if _NEW_SETTINGS.get(name) != value}
    identity = {
        "builder_version": BUILDER_VERSION,
        "vocab_sha256": vocabulary,
        "settings": fields,
        "files": [[file.name, file.size] for file in files],
    }
    return BuildPlan(settings, tuple(files), tuple(_units(pieces, num_shards)), num_shards, identity, times)


def default_num_shards(text_bytes: int, max_seq_length: int) -> int:
    """Shards of EXAMPLES_PER_SHARD examples; fewer examples for a small corpus, more for a large one."""
    wanted = EXAMPLES_PER_SHARD * max_seq_length * _TEXT_BYTES_PER_TOKEN
    shard_bytes = min(MAX_SHARD_TEXT_BYTES, max(wanted, text_bytes / MANY_SHARDS))
    at_least = min(MIN_SHARDS, max(1, text_bytes // _MIN_SHARD_TEXT_BYTES))
    return max(at_least, round(text_bytes / shard_bytes))


def _repeated(pieces: list[Piece], times: dict[str, float], seed: int) -> Iterator[Piece]:
    """The pieces once more, as often as their source is read beyond the first time; of a part, pieces at random."""
    for source, count in times.items():
        own = [piece for piece in pieces if source_of(piece.name) == source]
        own_bytes = sum(piece.text_bytes for piece in own)
        for turn in range(1, math.ceil(count)):
            random.Random(f"again {source} {turn} {seed}").shuffle(own)
            left = own_bytes * min(1.0, count - turn)
            for piece in own:
                if left < piece.text_bytes / 2:
                    break
                yield piece._replace(again=True)
                left -= piece.text_bytes


def _pieces(corpus: Corpus, file: CorpusFile, text_bytes: int, piece_bytes: int) -> Iterator[Piece]:
    """The file in pieces of about piece_bytes, where it can be divided."""
    boundary = corpus.boundary(file.name)
    if boundary is None or file.size <= piece_bytes:
        if file.size:
            yield Piece(file.name, 0, file.size, text_bytes)
        return
    start, wanted = 0, piece_bytes
    with open(os.path.join(corpus.directory, file.name), "rb") as stream:
        while start < file.size:
            end = _next_boundary(stream, wanted, boundary) if wanted < file.size else None
            end = min(end or file.size, file.size)
            yield Piece(file.name, start, end, end - start)
            start, wanted = end, (end // piece_bytes + 1) * piece_bytes


def _next_boundary(file: BinaryIO, position: int, boundary: re.Pattern[bytes]) -> int | None:
    """Finds the start of the text after the first boundary from a position on."""
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
    """Tells a person in what two plans' identities differ."""
    ours, others = mine["settings"], theirs.get("settings", {})
    for name in {**ours, **others}:
        before, now = (settings.get(name, _NEW_SETTINGS.get(name)) for settings in (others, ours))
        if before != now:
            return f"--{name.replace('_', '-')} was {before!r} there and is {now!r} now"
    if mine["vocab_sha256"] != theirs.get("vocab_sha256"):
        return "it was begun with another vocabulary"
    if mine["files"] != theirs.get("files"):
        before, now = dict(map(tuple, theirs.get("files", []))), dict(map(tuple, mine["files"]))
        changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
        return f"corpus file {changed[0]!r} is not the same" if changed else "the corpus is not the same"
    return "it was made by another version of the builder"


def source_of(name: str) -> str:
    """The source of a file, which is named by its path below the corpus directory."""
    folder, slash, _ = name.partition("/")
    return folder if slash else ""


def repeats(text_bytes: Mapping[str, int], alpha: float) -> dict[str, float]:
    """Times that each source is read to make its share p^alpha, normalised (mBART, Liu et al. 2020, equation 1).

    The largest source is read once: the smaller ones are read more often, and nothing is left out.

    Args:
      alpha: 1 leaves the shares p as they are, 0 makes them equal.
    """
    largest = max(text_bytes.values())
    return {source: (largest / size) ** (1.0 - alpha) if size else 0.0 for source, size in text_bytes.items()}


def check_repeats(times: Mapping[str, float], alpha: float) -> None:
    """Raises UserError if a source is so small beside the others that it would be read over and over."""
    for source, count in times.items():
        if count > MOST_REPEATS:
            which = f"folder {source!r}" if source else "the files beside the folders"
            raise UserError(
                f"--mix-alpha {alpha:g} would read {which} {count:,.0f} times, and {MOST_REPEATS} are the most: it "
                "holds too little text. Raise --mix-alpha, or move these files into the folder of another source."
            )


def parse_tokens(given: Sequence[str]) -> dict[str, str]:
    """Source -> token of "source=token" each. Raises UserError."""
    tokens: dict[str, str] = {}
    for one in given:
        source, equals, token = one.partition("=")
        if not equals or not source or not token or source in tokens:
            raise UserError(f"--domain-tokens wants different sources, each as source=token, got {one!r}")
        tokens[source] = token
    if len(set(tokens.values())) < len(tokens):
        raise UserError(f"--domain-tokens: two sources have the same token: {', '.join(given)}")
    return tokens


def check_tokens(tokens: Mapping[str, str], sources: Sequence[str], vocab: Sequence[str]) -> None:
    """Raises UserError unless every source, and nothing else, has a token that no text can hold."""
    if "" in sources:
        raise UserError(
            "--domain-tokens: some files lie beside the folders of --corpus-dir and have no source; move "
            "them into a folder"
        )
    missing, unknown = set(sources) - tokens.keys(), tokens.keys() - set(sources)
    if missing or unknown:
        listed = ", ".join(repr(source) for source in sorted(sources))
        raise UserError(f"--domain-tokens must name all sources, which are {listed} (the folders below --corpus-dir)")
    for token in tokens.values():
        if token not in vocab or not (token.startswith("[unused") and token.endswith("]")):
            raise UserError(
                f"--domain-tokens: {token} must be an [unusedN] of the vocabulary, which no text holds "
                "(electra build-vocab --num-unused reserves some)"
            )
