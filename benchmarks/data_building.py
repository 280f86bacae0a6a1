"""Speed of building records, per core and with several processes.

  python -m benchmarks.data_building --corpus-dir corpus --vocab-file vocab.txt

Reading, tokenising, packing, encoding and writing are all measured; starting Python, importing TensorFlow and building
the tokenizer (a few seconds per process, once) are not.
"""

import concurrent.futures
import dataclasses
import functools
import multiprocessing
import os
import tempfile

from benchmarks.common import parser_of, seconds
from electra_tf2.corpus.jobs import BuildPlan, BuildSettings, Job, make_plan
from electra_tf2.corpus.shards import JobReport, do_job, read_report
from electra_tf2.util.environment import quiet_tensorflow

# A measurement: bytes of text and tokens with special ones, both in a second.
Rate = tuple[float, float]


def work(plan: BuildPlan, folder: str, job: Job) -> JobReport:
    """Does a job in a folder."""
    quiet_tensorflow()
    plan = dataclasses.replace(plan, settings=dataclasses.replace(plan.settings, output_dir=folder))
    do_job(plan, job)
    report = read_report(plan, job)
    assert report is not None
    return report


def measure(plan: BuildPlan, processes: int) -> Rate:
    """All jobs, after every process has loaded everything and done the smallest one."""
    smallest = min(plan.jobs, key=lambda job: job.text_bytes)
    reports: list[JobReport] = []
    with (
        tempfile.TemporaryDirectory() as warm,
        tempfile.TemporaryDirectory() as folder,
        concurrent.futures.ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool,
    ):
        for turn in [pool.submit(work, plan, tempfile.mkdtemp(dir=warm), smallest) for _ in range(processes)]:
            turn.result()  # a new process for each, as none is idle
        took = seconds(lambda: reports.extend(pool.map(functools.partial(work, plan, folder), plan.jobs)))
    tokens = sum(shard.tokens for report in reports for shard in report.files.values())
    return sum(report.text_bytes for report in reports) / took, tokens / took


def main() -> None:
    parser = parser_of(__doc__, corpus_dir=str, vocab_file=str, max_seq_length=128)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    given = parser.parse_args()
    settings = BuildSettings(given.corpus_dir, given.vocab_file, "unused", given.max_seq_length, num_shards=24)
    quiet_tensorflow()
    plan = make_plan(settings)
    print(f"length {settings.max_seq_length}, start-up not counted, {os.cpu_count()} cores in the machine")
    for processes in given.processes:
        text_bytes, tokens = measure(plan, processes)
        print(f"{processes} processes {text_bytes / 1e6:8.2f} MB/s  {tokens / processes:12,.0f} tokens/s per core")


if __name__ == "__main__":
    main()
