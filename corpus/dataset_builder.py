"""Runs the units of a build on this machine's processes and puts the result together.

build_pretraining_dataset.py calls this. Everything is written into the folder `.unfinished` of the output directory
and moved to its final names when all units are done, metadata.json last; so a killed build leaves nothing that looks
like records, and the same command goes on at the units that have no report yet. Existing records are only replaced
with `overwrite`, and not before the new ones are complete.
"""

import concurrent.futures
import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from corpus.build_plan import DEV_PREFIX, TRAIN_PREFIX, BuildPlan, BuildSettings, Unit, describe_difference
from corpus.build_unit import build_unit, dev_part, token_counts, unit_report
from corpus.record_metadata import METADATA_FILE, UNFINISHED_FOLDER, unigram_entropy
from corpus.vocabulary import load_vocab, special_ids
from util.environment import before_tensorflow
from util.errors import UserError
from util.files import write_json
from util.progress import duration

FORMAT_VERSION = 1
_PLAN_FILE = "plan.json"
_LINE_SECONDS = 10.0  # between lines of progress in a log

RunUnits = Callable[[BuildPlan, list[Unit], Path], None]


def build(plan: BuildPlan, run_units: RunUnits, overwrite: bool = False) -> dict[str, Any]:
    """Builds, or goes on building, the records of a plan. Returns the metadata.

    Args:
      run_units: runs the units that are given, each of which leaves its report.

    Raises:
      UserError: the output directory holds something else, or the corpus is unusable.
    """
    vocab = load_vocab(plan.settings.vocab_file)
    output = Path(plan.settings.output_dir)
    staging = output / UNFINISHED_FOLDER
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--output-dir {str(output)!r} cannot be made: {error.strerror}") from None
    with _locked(output):
        finished = _prepare(plan, output, staging, overwrite)
        if finished is not None:
            print(f"{output} already holds these records; nothing to do")
            return finished
        if not (staging / METADATA_FILE).exists():
            todo = [unit for unit in plan.units if not _is_done(plan, unit, staging)]
            if len(todo) < len(plan.units):
                print(
                    f"going on with an unfinished build: {len(plan.units) - len(todo)} of {len(plan.units)} units done"
                )
            run_units(plan, todo, staging)
            _complete(plan, staging, vocab)
        return _publish(output, staging)


def run_local(num_processes: int) -> RunUnits:
    """Runs units on this machine; num_processes=1 means in this process."""

    def run(plan: BuildPlan, units: list[Unit], staging: Path) -> None:
        progress = Progress(plan, units)
        # Large units first, so that the last ones to finish are small.
        units = sorted(units, key=lambda unit: -unit.text_bytes)
        if num_processes == 1 or len(units) <= 1:
            for unit in units:
                build_unit(plan, unit, staging, progress.add)
        else:
            _run_pool(plan, units, staging, min(num_processes, len(units)), progress)
        progress.close()

    return run


class Progress:
    """Rate and time left on stderr: one line rewritten on a terminal, a line every few seconds in a log."""

    def __init__(self, plan: BuildPlan, units: list[Unit]):
        self._total = sum(unit.text_bytes for unit in units)
        self._planned = self._bytes = 0
        self._terminal = sys.stderr.isatty()
        self._every = 1.0 if self._terminal else _LINE_SECONDS
        self._start: float | None = None  # the first report: loading TensorFlow does not count in the rate
        self._start_bytes = self._start_planned = 0
        self._shown = time.monotonic()

    def add(self, text_bytes: int, planned: int) -> None:
        self.update(self._bytes + text_bytes, self._planned + planned)

    def update(self, text_bytes: int, planned: int) -> None:
        """Reports totals: bytes of text read, and how much of the plan that is."""
        self._bytes, self._planned = text_bytes, planned
        now = time.monotonic()
        if not planned:
            return
        if self._start is None:
            self._start = self._shown = now
            self._start_bytes, self._start_planned = text_bytes, planned
        if now - self._shown >= self._every:
            self._shown = now
            self._show(now - self._start)

    def close(self) -> None:
        if self._terminal and self._planned:
            print(file=sys.stderr)

    def _show(self, seconds: float) -> None:
        seconds = max(seconds, 1e-3)
        rate = (self._bytes - self._start_bytes) / 1e6 / seconds
        speed = (self._planned - self._start_planned) / seconds
        left = max(self._total - self._planned, 0)
        share = 100 * self._planned / max(self._total, 1)
        line = f"{share:.0f}% {self._bytes / 1e6:.1f} MB of text, {rate:.1f} MB/s"
        if speed > 0:
            line += f", {duration(left / speed)} left"
        end = "" if self._terminal else "\n"
        print(("\r\033[K" if self._terminal else "") + line, end=end, file=sys.stderr, flush=True)


# ---- processes ----

_worker: tuple[BuildPlan, Path, Any] | None = None  # in a worker: what its units have in common


def _start_worker(plan: BuildPlan, staging: Path, counters: Any) -> None:
    global _worker
    _worker = (plan, staging, counters)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends the workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    quiet_tensorflow()
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)  # there are as many processes as wanted
    tf.config.threading.set_inter_op_parallelism_threads(1)


def _end_with_parent() -> None:
    """A killed parent cannot end its workers, and they must not write into a build that has been taken up again."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def quiet_tensorflow() -> None:
    """Before TensorFlow is imported: keeps it off the GPU and its start-up messages off the screen."""
    before_tensorflow(log_level=3)
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"


def _work(number: int) -> None:
    if _worker is None:
        raise RuntimeError("not in a worker process")
    plan, staging, counters = _worker

    def report(text_bytes: int, planned: int) -> None:
        with counters.get_lock():
            counters[0] += text_bytes
            counters[1] += planned

    build_unit(plan, plan.units[number], staging, report)


def _run_pool(plan: BuildPlan, units: list[Unit], staging: Path, processes: int, progress: Progress) -> None:
    context = multiprocessing.get_context("spawn")  # TensorFlow cannot be forked
    counters = context.Array("q", 2)
    pool = concurrent.futures.ProcessPoolExecutor(
        processes, mp_context=context, initializer=_start_worker, initargs=(plan, staging, counters)
    )
    try:
        waiting = {pool.submit(_work, unit.number) for unit in units}
        while waiting:
            done, waiting = concurrent.futures.wait(waiting, timeout=1, return_when="FIRST_COMPLETED")
            for job in done:
                job.result()
            progress.update(counters[0], counters[1])
    except concurrent.futures.process.BrokenProcessPool:
        raise UserError(
            "a worker process was killed (out of memory?); run the same command again to go on, "
            "with a smaller --num-processes if memory is short"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


# ---- the output directory ----


def _prepare(plan: BuildPlan, output: Path, staging: Path, overwrite: bool) -> dict[str, Any] | None:
    """Makes the staging folder ready; returns the metadata if the records are already there."""
    times = {file.name: file.mtime_ns for file in plan.files}
    begun = _read_json(staging / _PLAN_FILE)
    if begun is not None:
        same_times = begun.get("times") == times
        if begun.get("build_hash") == plan.build_hash and same_times:
            if not (overwrite or begun.get("overwrite") or (staging / METADATA_FILE).exists()):
                _check_no_records(output)
            return None
        difference = describe_difference(plan.identity, begun.get("identity", {}))
        if begun.get("build_hash") == plan.build_hash:
            before = begun.get("times", {})
            changed = next(name for name in times if before.get(name) != times[name])
            difference = f"corpus file {changed!r} has changed since"
        if not overwrite:
            raise UserError(
                f"--output-dir {str(output)!r} holds an unfinished build that cannot go on: {difference}. "
                "Repeat the command that began it, choose another directory, or pass --overwrite to start anew."
            )
    elif not overwrite:
        metadata = _read_json(output / METADATA_FILE)
        if metadata is not None and metadata.get("build_hash") == plan.build_hash and _is_complete(output, metadata):
            return metadata
        _check_no_records(output)
    try:
        if staging.exists():
            shutil.rmtree(staging)
        staging.mkdir()
    except OSError as error:
        raise UserError(f"--output-dir {str(output)!r} cannot be written: {error.strerror}") from None
    begun = {"build_hash": plan.build_hash, "identity": plan.identity, "times": times, "overwrite": overwrite}
    write_json(staging / _PLAN_FILE, begun)
    return None


def _check_no_records(output: Path) -> None:
    ours = _record_files(output)
    if ours:
        raise UserError(
            f"--output-dir {str(output)!r} holds other records ({ours[0].name} and {len(ours) - 1} more files); "
            "choose another directory, or pass --overwrite to replace them"
        )


@contextlib.contextmanager
def _locked(output: Path) -> Iterator[None]:
    """Keeps a second build out of the same directory; where directories cannot be locked, nothing happens."""
    try:
        import fcntl
    except ImportError:  # not on this platform
        yield
        return
    descriptor = os.open(output, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(f"another process is building in {str(output)!r}; wait for it or stop it") from None
        yield
    finally:
        os.close(descriptor)


def _is_done(plan: BuildPlan, unit: Unit, staging: Path) -> bool:
    result = _read_json(unit_report(staging, unit))
    if result is None or not token_counts(staging, unit).exists():
        return False
    sizes = {staging / name: shard["bytes"] for name, shard in result["shards"].items()}
    if plan.settings.dev_fraction:
        sizes[dev_part(staging, unit)] = result["dev"]["bytes"]
    return all(path.exists() and path.stat().st_size == size for path, size in sizes.items())


def _complete(plan: BuildPlan, staging: Path, vocab: list[str]) -> None:
    """Joins the held-out parts to few files and writes the metadata."""
    reports = []
    for unit in plan.units:
        result = _read_json(unit_report(staging, unit))
        if result is None:
            raise RuntimeError(f"unit {unit.number} of the build left no report in {staging}")
        reports.append(result)
    train: dict[str, dict[str, int]] = {}
    for result in reports:
        train |= result["shards"]
    dev: dict[str, dict[str, int]] = {}
    for number in range(plan.num_dev_shards):
        first, end = (len(plan.units) * edge // plan.num_dev_shards for edge in (number, number + 1))
        name = plan.dev_shard_name(number)
        with open(staging / name, "wb") as joined:  # TFRecord files can be joined end to end
            for unit in plan.units[first:end]:
                with open(dev_part(staging, unit), "rb") as part:
                    shutil.copyfileobj(part, joined, 1 << 20)
        dev[name] = {
            key: sum(result["dev"][key] for result in reports[first:end]) for key in ("examples", "tokens", "bytes")
        }
    _check_not_empty(plan.settings, train, dev)
    counts = np.zeros([len(vocab)], np.int64)
    for unit in plan.units:
        counts += np.load(token_counts(staging, unit))
    settings = plan.settings
    shards = train | dev
    metadata = {
        "format_version": FORMAT_VERSION,
        "build_hash": plan.build_hash,
        "vocab_sha256": plan.identity["vocab_sha256"],
        "vocab_size": len(vocab),
        "builder_version": plan.identity["builder_version"],
        "max_seq_length": settings.max_seq_length,
        "do_lower_case": settings.do_lower_case,
        "strip_accents": settings.strip_accents,
        "blanks_separate_docs": settings.blanks_separate_docs,
        "seed": settings.seed,
        "dev_fraction": settings.dev_fraction,
        "compat": settings.compat,
        "shards": shards,
        "train_examples": sum(shard["examples"] for shard in train.values()),
        "dev_examples": sum(shard["examples"] for shard in dev.values()),
        "tokens": sum(shard["tokens"] for shard in shards.values()),
        "unigram_entropy": unigram_entropy(counts, special_ids(vocab)),
        "text_bytes": sum(result["text_bytes"] for result in reports),
        "undecodable_bytes": sum(result["undecodable_bytes"] for result in reports),
    }
    write_json(staging / METADATA_FILE, metadata)


def _check_not_empty(settings: BuildSettings, train: dict[str, Any], dev: dict[str, Any]) -> None:
    if any(shard["examples"] for shard in train.values()):
        return
    if any(shard["examples"] for shard in dev.values()):
        raise UserError(f"--dev-fraction {settings.dev_fraction} holds out every document; make it smaller")
    raise UserError(f"corpus directory {settings.corpus_dir!r} holds no text: its files are blank")


def _publish(output: Path, staging: Path) -> dict[str, Any]:
    """Moves the finished build to its final names. If killed here, the next run goes on here."""
    metadata = _read_json(staging / METADATA_FILE)
    if metadata is None:
        raise RuntimeError(f"{staging / METADATA_FILE} has disappeared")
    for path in _record_files(output):  # not there without --overwrite, but for what has been moved already
        if path.name not in metadata["shards"] or (staging / path.name).exists():
            path.unlink()
    for name in metadata["shards"]:
        if (staging / name).exists():
            os.replace(staging / name, output / name)
    os.replace(staging / METADATA_FILE, output / METADATA_FILE)
    shutil.rmtree(staging)
    return metadata


def _is_complete(output: Path, metadata: dict[str, Any]) -> bool:
    files = {output / name: shard["bytes"] for name, shard in metadata["shards"].items()}
    return all(path.exists() and path.stat().st_size == size for path, size in files.items())


def _record_files(output: Path) -> list[Path]:
    """Records and metadata in a folder, whoever made them."""
    patterns = (f"{TRAIN_PREFIX}*", f"{DEV_PREFIX}*", METADATA_FILE)
    return sorted(path for pattern in patterns for path in output.glob(pattern))


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        raise UserError(f"{str(path)!r} is damaged (no valid JSON); delete it or pass --overwrite") from None
    return values if isinstance(values, dict) else None
