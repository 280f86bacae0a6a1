"""The work behind build_pretraining_dataset.py: a corpus becomes shards of records, in parallel, resumably.

The corpus is cut into units, groups of whole files; each unit is one job that writes shards of its own from its own
random numbers. So the output is a function of (corpus, flags, seed) whatever the number of processes, a killed build
goes on at the unfinished units, and memory does not grow with the corpus.
"""

import concurrent.futures
import dataclasses
import hashlib
import json
import multiprocessing
import os
import random
import shutil
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pretrain.example_builder import Example, ExampleBuilder, serialize, to_arrays
from pretrain.record_metadata import METADATA_FILE
from util.errors import UserError
from util.files import write_json
from util.progress import duration
from util.text_files import COMPRESSED_SUFFIXES, find_corpus_files, read_blocks
from util.vocabulary import load_vocab, vocab_sha256

BUILDER_VERSION = 1
UNIT_BYTES = 8 << 20  # of text; a larger file is a unit by itself
SHARD_BYTES = 16 << 20  # of text
COMPRESSION = 3.0  # text bytes per byte of a compressed file, to size units; only their number depends on it
STATE_FOLDER = ".build"
_FLUSH = 2048  # examples serialised at a time


@dataclasses.dataclass(frozen=True)
class BuildSettings:
    """What the records depend on, besides the corpus."""

    corpus_dir: str
    vocab_file: str
    output_dir: str
    max_seq_length: int = 128
    blanks_separate_docs: bool = True
    do_lower_case: bool = True
    strip_accents: bool = True
    seed: int = 0
    dev_fraction: float = 0.0
    text_field: str = "text"
    recursive: bool = False
    compat: str = "none"


@dataclasses.dataclass(frozen=True)
class Unit:
    """One job: files, and the numbers of the training shards and of the dev shard that it writes."""

    number: int
    files: tuple[str, ...]
    shards: tuple[int, ...]
    total_shards: int
    total_units: int


def text_bytes(path: Path) -> float:
    """About how much text a file holds, from its size on disk."""
    return path.stat().st_size * (COMPRESSION if path.suffix in COMPRESSED_SUFFIXES else 1.0)


def plan(files: list[Path]) -> list[Unit]:
    """Cuts a sorted corpus into units; a function of the files' names and sizes alone."""
    groups: list[list[Path]] = [[]]
    size = 0.0
    for file in files:
        bytes_here = text_bytes(file)
        if groups[-1] and size + bytes_here > UNIT_BYTES:
            groups.append([])
            size = 0.0
        groups[-1].append(file)
        size += bytes_here
    counts = [max(1, round(sum(text_bytes(file) for file in group) / SHARD_BYTES)) for group in groups]
    units, first = [], 0
    for number, (group, count) in enumerate(zip(groups, counts, strict=True)):
        shards = tuple(range(first, first + count))
        units.append(Unit(number, tuple(map(str, group)), shards, sum(counts), len(groups)))
        first += count
    return units


def fingerprint(settings: BuildSettings, files: list[Path]) -> str:
    """A hash of everything that decides the records: flags, vocabulary, names and sizes of the corpus files."""
    values: dict[str, Any] = dataclasses.asdict(settings) | {
        "output_dir": "",
        "corpus_dir": "",
        "vocab_file": vocab_sha256(settings.vocab_file),
        "files": [[str(file.relative_to(settings.corpus_dir)), file.stat().st_size] for file in files],
        "version": BUILDER_VERSION,
    }
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def build(settings: BuildSettings, num_processes: int = 1, overwrite: bool = False) -> dict[str, Any]:
    """Builds, or goes on building, the records. Returns the metadata.

    Raises:
      UserError: an empty corpus, an unusable vocabulary, or another build's files in the output folder.
    """
    vocab = load_vocab(settings.vocab_file)
    files = find_corpus_files(settings.corpus_dir, settings.recursive)
    if not any(file.stat().st_size for file in files):
        raise UserError(f"--corpus-dir: the {len(files)} files of {settings.corpus_dir} are empty")
    mark = fingerprint(settings, files)
    output = Path(settings.output_dir)
    state = output / STATE_FOLDER
    finished = _prepare_output(output, mark, overwrite)
    if finished is not None:
        print(f"{output} already holds these records: nothing to do")
        return finished
    units = plan(files)
    todo = [unit for unit in units if not _unit_file(state, unit).exists()]
    if len(todo) < len(units):
        print(f"going on with an unfinished build: {len(units) - len(todo)} of {len(units)} parts are there")
    _run(settings, units, todo, num_processes, state)

    results = [json.loads(_unit_file(state, unit).read_text(encoding="utf-8")) for unit in units]
    shards = {name: shard for result in results for name, shard in result["shards"].items()}
    metadata = {
        "format_version": 1,
        "builder_version": BUILDER_VERSION,
        "fingerprint": mark,
        "vocab_sha256": vocab_sha256(settings.vocab_file),
        "vocab_size": len(vocab),
        "max_seq_length": settings.max_seq_length,
        "do_lower_case": settings.do_lower_case,
        "strip_accents": settings.strip_accents,
        "blanks_separate_docs": settings.blanks_separate_docs,
        "compat": settings.compat,
        "seed": settings.seed,
        "dev_fraction": settings.dev_fraction,
        "shards": dict(sorted(shards.items())),
        "train_examples": sum(s["examples"] for name, s in shards.items() if name.startswith("pretrain")),
        "dev_examples": sum(s["examples"] for name, s in shards.items() if name.startswith("dev")),
        "tokens": sum(s["tokens"] for s in shards.values()),
        "text_bytes": sum(result["text_bytes"] for result in results),
        "undecodable_bytes": sum(result["undecodable_bytes"] for result in results),
    }
    if not metadata["train_examples"]:
        raise UserError(
            f"--corpus-dir: {settings.corpus_dir} gave no training example; is it all blank, or all held out?"
        )
    write_json(output / METADATA_FILE, metadata)
    shutil.rmtree(state)
    return metadata


def _prepare_output(output: Path, mark: str, overwrite: bool) -> dict[str, Any] | None:
    """Makes the folder ready for this build; returns the metadata if the build is already complete."""
    state, metadata_file = output / STATE_FOLDER, output / METADATA_FILE
    if overwrite:
        for path in _our_files(output):
            path.unlink()
        shutil.rmtree(state, ignore_errors=True)
    elif metadata_file.exists():
        metadata = json.loads(metadata_file.read_text(encoding="utf-8"))
        if metadata.get("fingerprint") == mark:
            return metadata
    plan_file = state / "plan.json"
    if plan_file.exists():
        if json.loads(plan_file.read_text(encoding="utf-8"))["fingerprint"] == mark:
            return None
        raise UserError(
            f"--output-dir: {output} holds an unfinished build with other flags or corpus; --overwrite deletes it"
        )
    ours = _our_files(output)
    if ours:
        raise UserError(
            f"--output-dir: {output} holds other records ({ours[0].name} and {len(ours) - 1} more files); "
            "choose another folder, or --overwrite to delete them"
        )
    output.mkdir(parents=True, exist_ok=True)
    write_json(plan_file, {"fingerprint": mark})
    return None


def _our_files(output: Path) -> list[Path]:
    patterns = ("pretrain_data.tfrecord*", "dev_data.tfrecord*", METADATA_FILE)
    return sorted(path for pattern in patterns for path in output.glob(pattern))


def _unit_file(state: Path, unit: Unit) -> Path:
    return state / f"unit-{unit.number}.json"


def _run(settings: BuildSettings, units: list[Unit], todo: list[Unit], num_processes: int, state: Path) -> None:
    """Runs the jobs; a failing one stops the build with its file named."""
    total = sum(text_bytes(Path(file)) for unit in todo for file in unit.files)
    start, done = time.monotonic(), 0.0
    for unit, result in _results(settings, todo, num_processes):
        write_json(_unit_file(state, unit), result)
        done += sum(text_bytes(Path(file)) for file in unit.files)
        seconds = time.monotonic() - start
        print(
            f"{unit.number + 1}/{len(units)} parts: {result['text_bytes'] / 1e6:.1f} MB, "
            f"{sum(s['examples'] for s in result['shards'].values()):,} examples; "
            f"{done / 1e6 / seconds:.1f} MB/s, {duration((total - done) / max(done / seconds, 1e-9))} left",
            flush=True,
        )


def _results(settings: BuildSettings, todo: list[Unit], num_processes: int) -> Iterator[tuple[Unit, dict[str, Any]]]:
    processes = min(num_processes, len(todo))
    if processes <= 1:
        for unit in todo:
            yield unit, build_unit(settings, unit)
        return
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(processes, mp_context=context) as pool:
        jobs = {pool.submit(build_unit, settings, unit): unit for unit in todo}
        try:
            for job in concurrent.futures.as_completed(jobs):
                yield jobs[job], job.result()
        except concurrent.futures.process.BrokenProcessPool:
            raise UserError("a worker process died (out of memory?); run the same command again to go on") from None
        finally:
            pool.shutdown(cancel_futures=True)


_tokenizers: dict[tuple[str, bool, bool], Any] = {}  # one per process: loading it takes seconds


def _tokenizer(settings: BuildSettings) -> Any:
    key = (settings.vocab_file, settings.do_lower_case, settings.strip_accents)
    if key not in _tokenizers:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        from model.tokenization import WordpieceTokenizer

        _tokenizers[key] = WordpieceTokenizer(settings.vocab_file, settings.do_lower_case, settings.strip_accents)
    return _tokenizers[key]


def build_unit(settings: BuildSettings, unit: Unit) -> dict[str, Any]:
    """Writes one unit's shards under temporary names and renames them. Returns their counts."""
    tokenizer = _tokenizer(settings)
    output = Path(settings.output_dir)
    train = [f"pretrain_data.tfrecord-{shard}-of-{unit.total_shards}" for shard in unit.shards]
    dev = [f"dev_data.tfrecord-{unit.number}-of-{unit.total_units}"] if settings.dev_fraction else []
    text = {"text_bytes": 0, "undecodable_bytes": 0}
    writers = {name: ShardWriter(output / name, settings.max_seq_length, tokenizer.special) for name in train + dev}
    try:
        written = 0
        for example, held_out in _examples(settings, unit, tokenizer, text):
            name = dev[0] if held_out else train[written % len(train)]
            written += not held_out
            writers[name].add(example)
        for writer in writers.values():
            writer.finish()
    except BaseException:
        for writer in writers.values():
            writer.discard()
        raise
    return {"shards": {name: writer.counts for name, writer in writers.items()}} | text


def _examples(
    settings: BuildSettings, unit: Unit, tokenizer: Any, text: dict[str, int]
) -> Iterator[tuple[Example, bool]]:
    """The unit's examples and whether their document is held out."""
    keep_overflow = settings.compat != "original"
    source = random.Random(f"{settings.seed}/{unit.number}")
    builders = {held_out: ExampleBuilder(settings.max_seq_length, source, keep_overflow) for held_out in (False, True)}
    for file in unit.files:
        document = 0
        held_out = _is_held_out(settings, file, document)
        for block in read_blocks(file, text_field=settings.text_field):
            text["text_bytes"] += block.raw_bytes
            text["undecodable_bytes"] += block.undecodable_bytes
            ids, lengths = tokenizer.tokenize(block.lines)
            start = 0
            for line, length in zip(block.lines, lengths.tolist(), strict=True):
                if line:
                    for example in builders[held_out].add_line(ids[start : start + length]):
                        yield example, held_out
                    start += length
                elif settings.blanks_separate_docs:
                    for example in builders[held_out].end_document():
                        yield example, held_out
                    document += 1
                    held_out = _is_held_out(settings, file, document)
        for example in builders[held_out].end_document():
            yield example, held_out


def _is_held_out(settings: BuildSettings, file: str, document: int) -> bool:
    if not settings.dev_fraction:
        return False
    name = os.path.relpath(file, settings.corpus_dir)
    return zlib.crc32(f"{settings.seed}/{name}/{document}".encode()) < settings.dev_fraction * 2**32


class ShardWriter:
    """Writes examples to a TFRecord file that appears under its name only when it is complete."""

    def __init__(self, path: Path, max_length: int, special: Any) -> None:
        import tensorflow as tf

        self._path, self._temporary = path, path.with_name(path.name + ".tmp")
        self._max_length, self._special = max_length, special
        self._writer = tf.io.TFRecordWriter(str(self._temporary))
        self._pending: list[Example] = []
        self.counts = {"examples": 0, "tokens": 0, "bytes": 0}

    def add(self, example: Example) -> None:
        self._pending.append(example)
        if len(self._pending) == _FLUSH:
            self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        ids, mask, segments = to_arrays(self._pending, self._max_length, self._special.cls, self._special.sep)
        for record in serialize(ids, mask, segments):
            self._writer.write(record)
        self.counts["examples"] += len(self._pending)
        self.counts["tokens"] += int(mask.sum())
        self._pending = []

    def finish(self) -> None:
        self._flush()
        self._writer.close()
        os.replace(self._temporary, self._path)
        self.counts["bytes"] = self._path.stat().st_size

    def discard(self) -> None:
        self._writer.close()
        self._temporary.unlink(missing_ok=True)
