"""Counts 64-bit keys (hashes, pairs of tokens) over records in bounded memory; writes and reads tables made of counts.

Several papers have such a table: `electra build-table` counts and writes it, pre-training reads it.

Keys are divided into parts. Each process counts the records of some files; when it holds HELD_KEYS keys, it appends
them, sorted and counted, to a file for each part. Afterwards the parts are merged one at a time. So memory is bounded
by what a process holds and by the largest part.

A table holds the checksum of its vocabulary, which is compared when the table is read: with another vocabulary every
entry would be silently wrong.
"""

import contextlib
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.corpus.record_metadata import read_metadata, record_files
from electra_tf2.corpus.records import RecordFormat, count_records, read_batches
from electra_tf2.corpus.vocabulary import load_vocab, vocab_sha256
from electra_tf2.corpus.worker_pool import Advance, run_on_processes
from electra_tf2.files.content import refuse_substitute
from electra_tf2.files.writing import replacing, writing
from electra_tf2.util.environment import use_processor_only
from electra_tf2.util.errors import UserError, reason
from electra_tf2.util.machine import this_processor
from electra_tf2.util.progress import Progress

PARTS = 64
# Keys that a process holds before it writes them: 256 MB, and 768 MB more while they are sorted.
HELD_KEYS = 1 << 24
# Most keys of the records that are counted at once, equal ones not yet counted together.
BATCH_KEYS = 1 << 22
_BATCH_RECORDS = 1024
_KEY_AND_COUNT = np.dtype([("key", np.int64), ("count", np.int64)])
_VOCABULARY = "vocab_sha256"
_KIND = "kind"

# Least count -> iterator over parts: keys that occur at least so often, in order, and their counts.
FrequentParts = Callable[[int], Iterator[tuple[np.ndarray, np.ndarray]]]


class Option(NamedTuple):
    """A flag of `electra build-table KIND`: an integer between two limits, or one of several words."""

    default: int | str
    help: str
    at_least: int = 1
    at_most: int = 1 << 40
    choices: tuple[str, ...] = ()


class TableKind(NamedTuple):
    """A kind of table, an entry of TABLES in a paper's module `tables`.

    description: for --help.
    build: counts and writes the table. Called with the inputs, the file to write and the options by name; returns a
      description of the table's content for the user.
    options: flags by name.
    """

    description: str
    build: Callable[..., str]
    options: Mapping[str, Option] = {}


class TableInputs(NamedTuple):
    """Records to be counted.

    tokens: of the vocabulary, by id.
    num_processes: 0: one for each core.
    work_dir: folder for counts that are not merged yet; None: the system's folder for temporary files.
    """

    files: list[str]
    record_format: RecordFormat
    vocab_file: str
    tokens: list[str]
    num_processes: int = 0
    work_dir: str | None = None


class Counted(NamedTuple):
    """Counts of some records.

    keys, counts: int64 [K], distinct keys and how often each occurs.
    totals: of any shape; they add up over records.
    """

    keys: np.ndarray
    counts: np.ndarray
    totals: np.ndarray


def record_inputs(pattern: str, vocab_file: str) -> TableInputs:
    """Finds the records of a pattern. Raises UserError if there are none, or if they have another vocabulary."""
    files = record_files(pattern)
    if not files:
        raise UserError(f"--pretrain-tfrecords: no file matches {pattern!r}: build some, electra build-data")
    folder = os.path.dirname(files[0])
    metadata = read_metadata(folder or ".")
    if metadata is None:
        raise UserError(f"{folder} has no metadata.json, which says how long its records are")
    if metadata.vocab_sha256 != vocab_sha256(vocab_file):
        raise UserError(f"--vocab-file {vocab_file} is not the vocabulary that {pattern} were built with")
    record_format = RecordFormat(metadata.max_seq_length, metadata.vocab_size)
    return TableInputs(files, record_format, vocab_file, load_vocab(vocab_file))


def summed(keys: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct keys in order, and the sums of their counts."""
    if not len(keys):
        return keys, counts
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    counts = counts[order]
    # Where a key differs from the one before it; something different is put before the first.
    firsts = np.flatnonzero(np.diff(keys, prepend=keys[:1] - 1))
    return keys[firsts], np.add.reduceat(counts, firsts)


@contextlib.contextmanager
def counted(
    inputs: TableInputs,
    count_in: Callable[[np.ndarray], Counted],
    group: int,
    keys_of_record: int,
) -> Iterator[tuple[np.ndarray, FrequentParts]]:
    """Counts all records.

    Args:
      count_in: int32 [records, L] ids of tokens -> counts; a function that can be pickled.
      group: keys with the same key // group are in the same part.
      keys_of_record: most keys of a record, equal ones not yet counted together.

    Yields:
      The sum of the totals; and a function that iterates over the parts (`FrequentParts`), within the context.

    Raises:
      UserError: a record is damaged or not of the format; the disk is full.
    """
    use_processor_only()
    records = sum(map(count_records, inputs.files))
    if not records:
        raise UserError(f"the {len(inputs.files)} files of records are empty; build the records again")
    processes = min(inputs.num_processes or this_processor().cores, len(inputs.files))
    batch_records = max(1, min(_BATCH_RECORDS, BATCH_KEYS // keys_of_record))
    with tempfile.TemporaryDirectory(dir=inputs.work_dir, prefix="counts.") as name:
        folder = Path(name)
        count_file = partial(_count_file, inputs.record_format, count_in, group, batch_records, folder)
        indexed_files = list(enumerate(inputs.files))
        with Progress("counting record", records) as progress:
            advice = "run again with a smaller --num-processes"
            totals_by_file = run_on_processes(count_file, indexed_files, processes, progress, advice)
        totals = [totals for totals in totals_by_file if totals is not None]
        yield np.sum(totals, axis=0), partial(_merged_parts, folder)


def _count_file(
    record_format: RecordFormat,
    count_in: Callable[[np.ndarray], Counted],
    group: int,
    batch_records: int,
    folder: Path,
    indexed_file: tuple[int, str],
    *,
    advance: Advance,
) -> np.ndarray | None:
    """Counts the keys of a file of records, into a file for each part. Returns the totals; None without records."""
    index, file = indexed_file
    held: list[Counted] = []
    held_keys = 0
    totals: np.ndarray | None = None
    for batch in read_batches(file, record_format, size=batch_records):
        counts = count_in(batch["input_ids"])
        held.append(counts)
        held_keys += len(counts.keys)
        totals = counts.totals if totals is None else totals + counts.totals
        if held_keys >= HELD_KEYS:
            _append_to_parts(held, group, folder, index)
            held = []
            held_keys = 0
        advance(len(batch["input_ids"]))
    if held:
        _append_to_parts(held, group, folder, index)
    return totals


def _append_to_parts(held: list[Counted], group: int, folder: Path, index: int) -> None:
    """Appends counts, pairs of key and count, to the files PART.INDEX of their parts."""
    all_keys = np.concatenate([counts.keys for counts in held])
    all_counts = np.concatenate([counts.counts for counts in held])
    keys, counts = summed(all_keys, all_counts)
    parts = (keys // group) % PARTS
    for part in range(PARTS):
        is_of_part = parts == part
        pairs = np.empty(int(is_of_part.sum()), _KEY_AND_COUNT)
        pairs["key"] = keys[is_of_part]
        pairs["count"] = counts[is_of_part]
        with writing(folder), open(folder / f"{part}.{index}", "ab") as stream:
            pairs.tofile(stream)


def _merged_parts(folder: Path, at_least: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields, part by part, the distinct keys that occur `at_least` times in all files together, and their counts."""
    for part in range(PARTS):
        pieces = [np.empty(0, _KEY_AND_COUNT)]
        for file in sorted(folder.glob(f"{part}.*")):
            pieces.append(np.fromfile(file, _KEY_AND_COUNT))
        pairs = np.concatenate(pieces)
        keys, counts = summed(pairs["key"], pairs["count"])
        is_frequent = counts >= at_least
        yield keys[is_frequent], counts[is_frequent]


def write_table(path: str | os.PathLike[str], kind: str, vocab_file: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes a table whole or not at all. Raises UserError as `files.writing.writing`."""
    about = {_KIND: np.array(kind), _VOCABULARY: np.array(vocab_sha256(vocab_file))}
    save: Any = np.savez_compressed
    with replacing(path) as temporary, open(temporary, "wb") as file:
        save(file, **about, **arrays)


def read_table(path: str, hparam: str, kind: str, vocab_file: str) -> dict[str, np.ndarray]:
    """Reads the arrays of a table.

    Args:
      hparam: name of the hparam that holds the path, for messages.
      kind: that of `write_table`.

    Raises:
      UserError: there is no such file, it is no table of this kind, or one of another vocabulary.
    """
    hint = f"make it with electra build-table {kind}"
    refuse_substitute(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise UserError(f"{hparam}: {path!r} does not exist; {hint}") from None
    except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile) as error:  # TypeError: a single array
        why = reason(error) if isinstance(error, OSError) else str(error)
        raise UserError(f"{hparam}: {path!r} cannot be read ({why}); {hint}") from None
    if str(arrays.pop(_KIND, "")) != kind:
        raise UserError(f"{hparam}: {path!r} is no table of this kind; {hint}")
    if str(arrays.pop(_VOCABULARY, "")) != vocab_sha256(vocab_file):
        raise UserError(f"{hparam}: {path!r} was counted with another vocabulary than {vocab_file}; {hint}")
    return arrays
