"""Speed of building records, per core and with several processes.

  python -m benchmarks.data_building --corpus-dir corpus --vocab-file vocab.txt

Reading, tokenising, packing, encoding and writing are all measured. Starting Python, importing TensorFlow and building
the tokenizer are not, which take some seconds once in each process: each process first does the smallest job.
"""

import concurrent.futures
import dataclasses
import functools
import multiprocessing
import os
import tempfile

from benchmarks.common import ArgumentParser, seconds
from electra_tf2.corpus.jobs import BuildPlan, BuildSettings, Job, make_plan
from electra_tf2.corpus.shards import JobReport, do_job, read_report
from electra_tf2.util.environment import use_processor_only

# Bytes of text and tokens (special ones included) in a second.
Rate = tuple[float, float]


def work(plan: BuildPlan, folder: str, job: Job) -> JobReport:
    """Does a job in a folder."""
    use_processor_only()
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
        # All are submitted at once, so that each goes to another process.
        warm_ups = [pool.submit(work, plan, tempfile.mkdtemp(dir=warm), smallest) for _ in range(processes)]
        for warm_up in warm_ups:
            warm_up.result()
        took = seconds(lambda: reports.extend(pool.map(functools.partial(work, plan, folder), plan.jobs)))
    text_bytes = 0
    tokens = 0
    for report in reports:
        text_bytes += report.text_bytes
        tokens += sum(shard.tokens for shard in report.files.values())
    return text_bytes / took, tokens / took


def main() -> None:
    parser = ArgumentParser(__doc__)
    parser.add_argument("--corpus-dir", required=True)
    parser.add_argument("--vocab-file", required=True)
    parser.add_flag("--max-seq-length", 128)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2], help="numbers of processes [1 2]")
    options = parser.parse_args()
    settings = BuildSettings(options.corpus_dir, options.vocab_file, "unused", options.max_seq_length, num_shards=24)
    use_processor_only()
    plan = make_plan(settings)
    print(f"length {settings.max_seq_length}, start-up not counted, {os.cpu_count()} cores in the machine")
    for processes in options.processes:
        text_bytes, tokens = measure(plan, processes)
        print(f"{processes} processes {text_bytes / 1e6:8.2f} MB/s  {tokens / processes:12,.0f} tokens/s per core")


if __name__ == "__main__":
    main()
