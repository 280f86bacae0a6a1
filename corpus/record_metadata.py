"""What a folder of pre-training records says about itself, without TensorFlow.

The builder writes `metadata.json` beside its records; training checks it before anything slow, and counts the records
of folders that have none (those of the original's builder) by hopping from header to header.
"""

import json
import os
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from corpus.vocabulary import SpecialIds, vocab_sha256
from util.errors import UserError

METADATA_FILE = "metadata.json"
UNFINISHED_FOLDER = ".unfinished"  # where the builder works; it holds metadata.json while shards are being moved out
_HEADER = struct.Struct("<Q4x")  # length, its checksum
_FOOTER_BYTES = 4


class RecordMetadata(NamedTuple):
    """The parts of metadata.json that readers use.

    shards: file name -> its number of examples.
    unigram_entropy: in nats, see the function of that name; None in records of builders that did not count it.
    """

    path: Path
    vocab_sha256: str
    vocab_size: int
    max_seq_length: int
    do_lower_case: bool
    shards: dict[str, int]
    unigram_entropy: float | None
    values: dict[str, Any]


def read_metadata(directory: str | os.PathLike[str]) -> RecordMetadata | None:
    """The metadata of a folder of records; None if it has none.

    Raises:
      UserError: it cannot be read, or the build was stopped while it moved its files to their places.
    """
    path = Path(directory) / METADATA_FILE
    if (Path(directory) / UNFINISHED_FOLDER / METADATA_FILE).exists():
        raise UserError(f"{directory}: the build of these records was stopped just before its end; run it once more")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}); build the records anew or delete it") from None
    try:
        return RecordMetadata(
            path=path,
            vocab_sha256=values["vocab_sha256"],
            vocab_size=values["vocab_size"],
            max_seq_length=values["max_seq_length"],
            do_lower_case=values["do_lower_case"],
            shards={name: shard["examples"] for name, shard in values["shards"].items()},
            unigram_entropy=values.get("unigram_entropy"),
            values=values,
        )
    except (KeyError, TypeError) as error:
        raise UserError(f"{path} lacks {error}; build the records anew or delete it") from None


def check_metadata(metadata: RecordMetadata, vocab_file: str, max_seq_length: int, do_lower_case: bool) -> None:
    """Raises UserError if records were built with another vocabulary, length or casing."""
    problems = []
    if metadata.max_seq_length != max_seq_length:
        problems.append(f"length {metadata.max_seq_length}, but max_seq_length is {max_seq_length}")
    if metadata.vocab_sha256 != vocab_sha256(vocab_file):
        problems.append(f"another vocabulary ({metadata.vocab_size} tokens) than {vocab_file}")
    if metadata.do_lower_case != do_lower_case:
        problems.append(f"do_lower_case {metadata.do_lower_case}, but do_lower_case is {do_lower_case}")
    if problems:
        raise UserError(
            f"{metadata.path}: the records were built with {'; '.join(problems)}. "
            "Change the hparam or build the records again."
        )


def unigram_entropy(counts: np.ndarray, special: SpecialIds) -> float:
    """The loss in nats of a masked language model that knows how frequent tokens are and nothing else.

    Args:
      counts: int64 [V], occurrences of each id; those that are never masked do not count.
    """
    counts = counts.astype(np.float64)
    counts[[special.pad, special.cls, special.sep, special.mask]] = 0
    shares = counts[counts > 0] / max(counts.sum(), 1)
    return float(-(shares * np.log(shares)).sum())


def count_records(path: str | os.PathLike[str]) -> int:
    """The number of records of an uncompressed TFRecord file, from its headers.

    Raises:
      UserError: the file ends within a record.
    """
    size = os.path.getsize(path)
    count = position = 0
    with open(path, "rb") as file:
        while position < size:
            file.seek(position)
            header = file.read(_HEADER.size)
            if len(header) == _HEADER.size:
                position += _HEADER.size + _HEADER.unpack(header)[0] + _FOOTER_BYTES
            if len(header) < _HEADER.size or position > size:
                raise UserError(
                    f"{path} is truncated or no TFRecord: it ends within record {count + 1} of {size} bytes. "
                    "Delete it and build it again."
                )
            count += 1
    return count
