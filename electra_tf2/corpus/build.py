"""Builds records: has the jobs of a plan done, on processes of this machine or on Beam, and writes the metadata last.

A build that goes on skips the jobs that are done (corpus.shards). When all are, the held-out records of the jobs are
joined, metadata.json is written, and what served the build alone is removed. Until then the folder holds
UNFINISHED_FILE, and whoever reads records refuses it. So a build can be killed at any time.
"""

import functools
import shlex
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from electra_tf2.corpus.jobs import DEV_PART, DEV_PREFIX, TRAIN_PREFIX, BuildPlan, Job, describe_difference
from electra_tf2.corpus.record_metadata import (
    METADATA_FILE,
    UNFINISHED_FILE,
    VOCAB_FILE,
    RecordMetadata,
    Shard,
    read_metadata,
    unigram_entropy,
)
from electra_tf2.corpus.shards import UNKNOWN_SHOWN, do_job, read_report
from electra_tf2.corpus.vocabulary import load_vocab, special_ids, vocab_bytes
from electra_tf2.corpus.worker_pool import run_on_processes
from electra_tf2.files.reading import json_sha256, read_json, sha256_of
from electra_tf2.files.writing import lock, name_aside, replacing, write_json, writing
from electra_tf2.util.environment import use_processor_only
from electra_tf2.util.errors import UserError
from electra_tf2.util.machine import this_processor
from electra_tf2.util.progress import Progress, say, track, warn

_WORTH_A_PROCESS = 4 << 20  # bytes of text; importing TensorFlow once more takes as long as this
# Settings that metadata.json repeats for people and programs that read records.
_SETTINGS = (
    "max_seq_length",
    "do_lower_case",
    "strip_accents",
    "blanks_separate_docs",
    "seed",
    "dev_fraction",
    "compat",
    "packing",
)

RunJobs = Callable[[BuildPlan, list[Job]], None]


def build(plan: BuildPlan, run_jobs: RunJobs, overwrite: bool = False) -> dict[str, Any]:
    """Builds, or goes on building, the records of a plan. Returns the metadata.

    Raises:
      UserError: the output directory holds something else or cannot be written, or the corpus is unusable.
    """
    with writing(plan.output):
        plan.output.mkdir(parents=True, exist_ok=True)
    busy = f"another process is building in {str(plan.output)!r}; wait for it or stop it"
    with lock(plan.output / ".lock", busy):
        metadata = _begin(plan, overwrite)
        if metadata is None:
            jobs = _jobs_to_do(plan)
            if len(jobs) < len(plan.jobs):
                say(f"going on with an unfinished build: {len(plan.jobs) - len(jobs)} of {len(plan.jobs)} parts done")
            run_jobs(plan, jobs)
            metadata = _finish(plan)
        _remove_what_served_the_build(plan)
        return metadata


def _jobs_to_do(plan: BuildPlan) -> list[Job]:
    """The jobs that are not done, or were done of text that has changed since."""
    jobs = []
    for job in plan.jobs:
        report = read_report(plan, job)
        if report is None or report.contents != plan.contents(job):
            jobs.append(job)
    return jobs


def run_local(num_processes: int = 0) -> RunJobs:
    """Does jobs here. num_processes: 1 runs in this process; 0 uses one per core, fewer for small corpora."""

    def run(plan: BuildPlan, jobs: list[Job]) -> None:
        # Large jobs first, so that the last ones to finish are small.
        jobs = sorted(jobs, key=lambda job: -job.text_bytes)
        total = sum(job.text_bytes for job in jobs)
        processes = num_processes
        if not processes:
            processes = min(this_processor().cores, 1 + total // _WORTH_A_PROCESS)
        processes = min(processes, len(jobs))
        with Progress("MB of text", total / 1e6, unit="MB") as progress:
            advice = "run the same command again to go on, with a smaller --num-processes if memory is short"
            run_on_processes(functools.partial(do_job, plan), jobs, processes, progress, advice)

    return run


def run_beam(options: str = "") -> RunJobs:
    """Does jobs on Apache Beam, for corpora beyond one machine; the records are the same.

    The corpus, the vocabulary and the output directory must lie on a file system that all workers see under the same
    paths.

    Args:
      options: Beam's own flags, such as --runner=FlinkRunner.
    """
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError:
        raise UserError("--runner=beam needs Apache Beam: pip install 'apache-beam>=2.60'") from None

    def run(plan: BuildPlan, jobs: list[Job]) -> None:
        numbers = [job.number for job in jobs]
        with beam.Pipeline(options=PipelineOptions(shlex.split(options))) as pipeline:
            numbers = pipeline | "Jobs" >> beam.Create(numbers) | "Spread" >> beam.Reshuffle()
            _ = numbers | "Build" >> beam.Map(_do_on_beam, plan)

    return run


def _do_on_beam(number: int, plan: BuildPlan) -> None:
    use_processor_only()
    do_job(plan, plan.jobs[number])


def _begin(plan: BuildPlan, overwrite: bool) -> dict[str, Any] | None:
    """Makes the folder ready for the jobs; returns the metadata if the records are there already.

    Raises:
      UserError: the output directory holds something else.
    """
    folder = plan.output
    marker = folder / UNFINISHED_FILE
    begun = None  # identity of a build that has begun here
    if marker.exists():
        begun = read_json(marker, "unfinished build")
    goes_on = begun is not None and json_sha256(begun) == plan.build_hash
    if begun is not None and not goes_on and not overwrite:
        raise UserError(
            f"--output-dir {str(folder)!r} holds an unfinished build that cannot go on: "
            f"{describe_difference(plan.identity, begun)}. "
            "Repeat the command that began it, choose another directory, or pass --overwrite to start anew."
        )
    if goes_on or not overwrite:
        # Also of a build that goes on: it may have been killed between the metadata and the end.
        metadata = read_metadata(folder, unfinished=True)
        if metadata is not None and metadata.values.get("build_hash") == plan.build_hash:
            _check_done(plan, metadata)
            return metadata.values
    if goes_on:
        return None
    old = _record_files(folder)
    if old and not overwrite:
        raise UserError(
            f"--output-dir {str(folder)!r} holds other records ({old[0].name} and {len(old) - 1} more files); "
            "choose another directory, or pass --overwrite to move them aside"
        )
    if old:
        _move_aside(folder, old)
    write_json(marker, plan.identity)
    return None


def _check_done(plan: BuildPlan, metadata: RecordMetadata) -> None:
    """Raises UserError unless the records of a finished build are whole, and of the corpus as it is now."""
    for name in metadata.shards:
        metadata.check_shard(name)
    jobs = track(plan.jobs, "comparing the corpus with what was built: part", len(plan.jobs))
    if metadata.values.get("corpus_sha256") != json_sha256([plan.contents(job) for job in jobs]):
        raise UserError(
            f"--output-dir {str(plan.output)!r} holds records of these flags, but the corpus has changed since; pass "
            "--overwrite to build them anew, or choose another directory"
        )
    say(
        f"{plan.output} already holds these records: flags, vocabulary, names and sizes of the corpus files are the "
        "same; nothing to do (--overwrite builds them anew)"
    )


def _move_aside(folder: Path, files: list[Path]) -> None:
    """Moves files to a folder beside theirs, in their order."""
    aside = name_aside(folder)
    with writing(aside):
        aside.mkdir()
        for file in files:
            file.rename(aside / file.name)
    say(f"moved the {len(files)} files of the records that were in {folder} to {aside}")


def _record_files(folder: Path) -> list[Path]:
    """Records, whoever made them, and what builds leave, in the order in which they may be moved away.

    Last come the files without which the others are not read as records.
    """
    patterns = (f"{TRAIN_PREFIX}*", f"{DEV_PREFIX}*", f"{DEV_PART}-*", VOCAB_FILE, METADATA_FILE, UNFINISHED_FILE)
    files: list[Path] = []
    for pattern in patterns:
        files += sorted(folder.glob(pattern))
    return files


def _finish(plan: BuildPlan) -> dict[str, Any]:
    """Joins the held-out records of the jobs to few files and writes the metadata, once all jobs are done."""
    folder = plan.output
    settings = plan.settings
    reports = []
    for job in plan.jobs:
        report = read_report(plan, job)
        if report is None:
            raise UserError(
                f"{plan.report_file(job)} cannot be read, though that part of the build is done; "
                "run the same command again to go on"
            )
        reports.append(report)
    vocab = load_vocab(settings.vocab_file)
    special = special_ids(vocab)
    written: dict[str, Shard] = {}
    for report in reports:
        written |= report.files
    train = {name: shard for name, shard in written.items() if name.startswith(TRAIN_PREFIX)}
    dev = _join_held_out(plan, written)
    if not Shard.total([*train.values(), *dev.values()]).examples:
        raise _refusal(plan, f"corpus directory {settings.corpus_dir!r} holds no text: its files are blank")
    if not Shard.total(train.values()).examples:
        raise _refusal(plan, f"--dev-fraction {settings.dev_fraction} holds out every document; make it smaller")
    if settings.dev_fraction and not dev:
        warn(
            f"--dev-fraction {settings.dev_fraction} holds out none of the documents, which are few: "
            "evaluations will be on training records. A larger fraction, or blank lines between documents, would help"
        )
    files = train | dev
    shards = {name: shard._asdict() for name, shard in files.items()}
    counts = np.sum([report.token_counts for report in reports], axis=0)
    unknown = sum((Counter(report.unknown_characters) for report in reports), Counter[str]())
    metadata = {
        "format_version": 1,
        "build_hash": plan.build_hash,
        "vocab_sha256": plan.identity["vocab_sha256"],
        "vocab_size": len(vocab),
        "builder_version": plan.identity["builder_version"],
        **{name: getattr(settings, name) for name in _SETTINGS},
        "shards": shards,
        "shards_sha256": json_sha256(shards),
        "corpus_sha256": json_sha256([report.contents for report in reports]),
        "train_examples": Shard.total(train.values()).examples,
        "dev_examples": Shard.total(dev.values()).examples,
        "tokens": Shard.total(files.values()).tokens,
        "unigram_entropy": unigram_entropy(counts, special),
        "unknown_tokens": int(counts[special.unk]),
        "unknown_characters": dict(unknown.most_common(UNKNOWN_SHOWN)),
        "text_bytes": sum(report.text_bytes for report in reports),
        "undecodable_bytes": sum(report.undecodable_bytes for report in reports),
    }
    with replacing(folder / VOCAB_FILE) as temporary:
        temporary.write_bytes(vocab_bytes(settings.vocab_file))
    write_json(folder / METADATA_FILE, metadata)
    return metadata


def _join_held_out(plan: BuildPlan, written: dict[str, Shard]) -> dict[str, Shard]:
    """Joins the held-out records of the jobs to few files; returns these, none if no document was held out.

    Args:
      written: what the jobs wrote, by file name.
    """
    if not plan.settings.dev_fraction:
        return {}
    if not any(written[plan.dev_part(job).name].examples for job in plan.jobs):
        return {}
    held_out = {}
    for name, jobs in plan.dev_shards().items():
        path = plan.output / name
        parts = [plan.dev_part(job) for job in jobs]
        _join(path, parts)
        held_out[name] = Shard.total(written[part.name] for part in parts)._replace(sha256=sha256_of(path))
    return held_out


def _join(path: Path, parts: list[Path]) -> None:
    """Joins TFRecord files end to end."""
    with replacing(path) as temporary, open(temporary, "wb") as target:
        for part in parts:
            with open(part, "rb") as source:
                shutil.copyfileobj(source, target, 1 << 20)


def _refusal(plan: BuildPlan, message: str) -> UserError:
    """The error of a build that no repetition completes; its files go, so that another command can begin."""
    for path in _record_files(plan.output):
        path.unlink()
    return UserError(message)


def _remove_what_served_the_build(plan: BuildPlan) -> None:
    """Removes the jobs' reports and held-out records, and at last the mark of an unfinished build."""
    marker = plan.output / UNFINISHED_FILE
    if not marker.exists():
        return
    files = []
    for job in plan.jobs:
        files.append(plan.report_file(job))
        files.append(plan.dev_part(job))
    files += [file for file in _record_files(plan.output) if file.suffix == ".tmp"]  # of workers that were killed
    with writing(plan.output):
        for file in files:
            file.unlink(missing_ok=True)
        marker.unlink(missing_ok=True)
