"""Builds records: runs the jobs of a plan, on processes of this machine or on Beam, and writes the metadata last.

A build can be killed at any time. One that is resumed skips the jobs that are done (corpus.shards). After the last job,
the jobs' held-out records are joined, metadata.json is written, and temporary files are removed. Until then the folder
holds UNFINISHED_FILE, and readers of records refuse it.
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

_WORTH_A_PROCESS = 4 << 20  # bytes of text; building this much takes as long as a process's import of TensorFlow
# Settings that are repeated in metadata.json, for readers of the records.
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
    """Builds the records of a plan, or resumes a build. Returns the content of metadata.json.

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
        _remove_temporary_files(plan)
        return metadata


def _jobs_to_do(plan: BuildPlan) -> list[Job]:
    """The jobs that are not done, and those whose text has changed since."""
    jobs = []
    for job in plan.jobs:
        report = read_report(plan, job)
        if report is None or report.contents != plan.contents(job):
            jobs.append(job)
    return jobs


def run_local(num_processes: int = 0) -> RunJobs:
    """Makes a function that runs jobs on this machine.

    Args:
      num_processes: 1: this process; 0: one for each core, or fewer for a small corpus.
    """

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
    """Makes a function that runs jobs on Apache Beam, for corpora beyond one machine. The records are the same.

    All workers must see the corpus, the vocabulary and the output directory under the same paths.

    Args:
      options: Beam's own flags, such as --runner=FlinkRunner.
    """
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError:
        raise UserError("--runner=beam needs Apache Beam: pip install 'apache-beam>=2.60'") from None

    def run(plan: BuildPlan, jobs: list[Job]) -> None:
        indices = [job.index for job in jobs]
        with beam.Pipeline(options=PipelineOptions(shlex.split(options))) as pipeline:
            indices = pipeline | "Jobs" >> beam.Create(indices) | "Spread" >> beam.Reshuffle()
            _ = indices | "Build" >> beam.Map(_do_on_beam, plan)

    return run


def _do_on_beam(index: int, plan: BuildPlan) -> None:
    use_processor_only()
    do_job(plan, plan.jobs[index])


def _begin(plan: BuildPlan, overwrite: bool) -> dict[str, Any] | None:
    """Prepares the folder for the jobs. Returns the metadata if the records are already built, or else None.

    Raises:
      UserError: the output directory holds something else.
    """
    folder = plan.output
    marker = folder / UNFINISHED_FILE
    unfinished = None  # identity of an unfinished build in the folder
    if marker.exists():
        unfinished = read_json(marker, "unfinished build")
    is_resumed = unfinished is not None and json_sha256(unfinished) == plan.build_hash
    if unfinished is not None and not is_resumed and not overwrite:
        raise UserError(
            f"--output-dir {str(folder)!r} holds an unfinished build that cannot go on: "
            f"{describe_difference(plan.identity, unfinished)}. "
            "Repeat the command that began it, choose another directory, or pass --overwrite to start anew."
        )
    if is_resumed or not overwrite:
        # A resumed build, too, may have metadata, if it was killed after they were written.
        metadata = read_metadata(folder, unfinished=True)
        if metadata is not None and metadata.values.get("build_hash") == plan.build_hash:
            _check_done(plan, metadata)
            return metadata.values
    if is_resumed:
        return None
    old_files = _record_files(folder)
    if old_files and not overwrite:
        raise UserError(
            f"--output-dir {str(folder)!r} holds other records ({old_files[0].name} and {len(old_files) - 1} more "
            "files); choose another directory, or pass --overwrite to move them aside"
        )
    if old_files:
        _move_aside(folder, old_files)
    write_json(marker, plan.identity)
    return None


def _check_done(plan: BuildPlan, metadata: RecordMetadata) -> None:
    """Raises UserError if files of a finished build are damaged, or the corpus has changed since."""
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
    """Moves files to a new folder beside theirs, in the order of the list."""
    aside = name_aside(folder)
    with writing(aside):
        aside.mkdir()
        for file in files:
            file.rename(aside / file.name)
    say(f"moved the {len(files)} files of the records that were in {folder} to {aside}")


def _record_files(folder: Path) -> list[Path]:
    """All records in a folder and files of builds, in a safe order for moving them.

    The files without which the others are not read as records come last.
    """
    patterns = (f"{TRAIN_PREFIX}*", f"{DEV_PREFIX}*", f"{DEV_PART}-*", VOCAB_FILE, METADATA_FILE, UNFINISHED_FILE)
    files: list[Path] = []
    for pattern in patterns:
        files += sorted(folder.glob(pattern))
    return files


def _finish(plan: BuildPlan) -> dict[str, Any]:
    """Joins the jobs' held-out records and writes the metadata, when all jobs are done."""
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
    job_files: dict[str, Shard] = {}
    for report in reports:
        job_files |= report.files
    train = {name: shard for name, shard in job_files.items() if name.startswith(TRAIN_PREFIX)}
    dev = _join_held_out(plan, job_files)
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
    unknown = Counter[str]()
    undecodable = Counter[str]()
    for report in reports:
        unknown.update(report.unknown_characters)
        undecodable.update(report.undecodable_files)
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
        "undecodable_files": dict(undecodable.most_common(UNKNOWN_SHOWN)),
    }
    with replacing(folder / VOCAB_FILE) as temporary:
        temporary.write_bytes(vocab_bytes(settings.vocab_file))
    write_json(folder / METADATA_FILE, metadata)
    return metadata


def _join_held_out(plan: BuildPlan, job_files: dict[str, Shard]) -> dict[str, Shard]:
    """Joins the jobs' held-out records to few files. Returns these by name; {} if no document was held out.

    Args:
      job_files: the files that jobs wrote, by name.
    """
    if not plan.settings.dev_fraction:
        return {}
    if not any(job_files[plan.dev_part(job).name].examples for job in plan.jobs):
        return {}
    held_out = {}
    for name, jobs in plan.dev_shards().items():
        path = plan.output / name
        parts = [plan.dev_part(job) for job in jobs]
        _join(path, parts)
        total = Shard.total(job_files[part.name] for part in parts)
        held_out[name] = total._replace(sha256=sha256_of(path))
    return held_out


def _join(path: Path, parts: list[Path]) -> None:
    """Concatenates TFRecord files."""
    with replacing(path) as temporary, open(temporary, "wb") as target:
        for part in parts:
            with open(part, "rb") as source:
                shutil.copyfileobj(source, target, 1 << 20)


def _refusal(plan: BuildPlan, message: str) -> UserError:
    """Deletes the files of a build that can never be completed, so that another can begin. Returns the error."""
    for path in _record_files(plan.output):
        path.unlink()
    return UserError(message)


def _remove_temporary_files(plan: BuildPlan) -> None:
    """Removes the jobs' reports and held-out records, and at last the mark of an unfinished build."""
    marker = plan.output / UNFINISHED_FILE
    if not marker.exists():
        return
    files = []
    for job in plan.jobs:
        files.append(plan.report_file(job))
        files.append(plan.dev_part(job))
    files += [file for file in _record_files(plan.output) if file.suffix == ".tmp"]  # left by killed workers
    with writing(plan.output):
        for file in files:
            file.unlink(missing_ok=True)
        marker.unlink(missing_ok=True)
