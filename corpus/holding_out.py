"""What the data builder keeps for evaluation: whole documents, or records where there are few documents."""

import hashlib
import itertools
import shutil
from pathlib import Path
from typing import NamedTuple

from electra_tf2.corpus.record_metadata import Shard
from electra_tf2.corpus.records import RecordFormat, read_batches, record_ends

_HEAD_BYTES = 64 << 10  # so much of a document decides whether it is held out


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


def hold_out_records(
    train: dict[str, Shard], folder: Path, held_out: str, fraction: float, record_format: RecordFormat
) -> dict[str, Shard]:
    """Moves a fraction of the records of all training files, at least one, to the held-out file.

    They are the last ones of each file, whose order is random. Returns what all these files hold afterwards.
    """
    total = sum(shard.examples for shard in train.values())
    wanted = max(1, round(total * fraction)) if total > 1 else 0
    taken, seen = {}, 0
    with open(folder / held_out, "wb") as target:
        for name, shard in train.items():
            before, seen = seen, seen + shard.examples
            taken[name] = seen * wanted // total - before * wanted // total
            ends = itertools.chain([0], record_ends(folder / name))
            kept_bytes = next(itertools.islice(ends, shard.examples - taken[name], None))
            with open(folder / name, "r+b") as source:
                source.seek(kept_bytes)
                shutil.copyfileobj(source, target)
                source.truncate(kept_bytes)
    batches = read_batches(folder / held_out, record_format)
    lengths = itertools.chain.from_iterable(batch["input_mask"].sum(axis=1).tolist() for batch in batches)
    files = {}
    for name, shard in train.items():
        tokens = sum(itertools.islice(lengths, taken[name]))
        files[name] = Shard(shard.examples - taken[name], shard.tokens - tokens, (folder / name).stat().st_size)
    before_and_after = zip(Shard.total(train.values()), Shard.total(files.values()), strict=True)
    return files | {held_out: Shard(*(had - has for had, has in before_and_after))}
