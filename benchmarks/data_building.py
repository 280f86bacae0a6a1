"""Speed of building records, per core and with several processes, beside a plain Python rendering of the same job.

  python -m benchmarks.data_building --corpus-dir corpus --vocab-file vocab.txt

Reading, tokenising, packing, encoding and writing are all measured; starting Python, importing TensorFlow and building
the tokenizer (a few seconds per process, once) are not, on either side. The peer follows the original's algorithm: it
tokenises character by character, packs lists, and makes a tf.train.Example message for each example. It sees the first
--peer-megabytes of the text only, and its rate is that of one process.
"""

import concurrent.futures
import dataclasses
import functools
import multiprocessing
import os
import random
import tempfile
from collections.abc import Iterator

from benchmarks.common import parser_of, seconds
from electra_tf2.corpus.jobs import BuildPlan, BuildSettings, Job, make_plan
from electra_tf2.corpus.shards import JobReport, do_job, read_report
from electra_tf2.corpus.vocabulary import load_vocab
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


def plain_examples(lines: list[str], vocab: dict[str, int], length: int) -> Iterator[tuple[list[int], list[int]]]:
    """The original's packing with lists: (first segment, second segment)."""
    from tests.support.bert_reference import tokens

    sentences: list[list[int]] = []
    total, target = 0, length
    for line in lines:
        if line:
            sentences.append([vocab[token] for token in tokens(line, vocab)])
            total += len(sentences[-1])
        if total >= target or (total and not line):
            limit = 100_000 if random.random() < 0.1 else (target - 3) // 2
            first: list[int] = []
            second: list[int] = []
            for sentence in sentences:
                fits = not first or len(first) + len(sentence) < limit
                if fits or (not second and len(first) < limit and random.random() < 0.5):
                    first += sentence
                else:
                    second += sentence
            first = first[: length - 2]
            yield first, second[: max(0, length - len(first) - 3)]
            sentences, total = [], 0
            target = random.randint(5, length) if random.random() < 0.05 else length


def measure_plain(settings: BuildSettings, limit: int) -> Rate:
    """The peer, on the first `limit` bytes of the corpus."""
    import tensorflow as tf

    vocab = {token: index for index, token in enumerate(load_vocab(settings.vocab_file))}
    length, lines, text_bytes, lengths = settings.max_seq_length, list[str](), 0, list[int]()
    for file in settings.corpus.files():
        for block in settings.corpus.read(file.name, block_bytes=1 << 16):
            if text_bytes < limit:
                lines += [line.decode() for line in block.lines]
                text_bytes += block.raw_bytes

    def write(path: str) -> None:
        with tf.io.TFRecordWriter(path) as writer:
            for first, second in plain_examples(lines, vocab, length):
                ids = [vocab["[CLS]"], *first, vocab["[SEP]"], *([*second, vocab["[SEP]"]] if second else [])]
                lengths.append(len(ids))
                segments = [0] * (len(first) + 2) + [1] * (len(ids) - len(first) - 2)
                lists = {"input_ids": ids, "input_mask": [1] * len(ids), "segment_ids": segments}
                features = {
                    name: tf.train.Feature(int64_list=tf.train.Int64List(value=values + [0] * (length - len(ids))))
                    for name, values in lists.items()
                }
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(example.SerializeToString())

    list(plain_examples(lines[:50], vocab, length))
    with tempfile.TemporaryDirectory() as folder:
        took = seconds(lambda: write(os.path.join(folder, "records")))
    return text_bytes / took, sum(lengths) / took


def main() -> None:
    parser = parser_of(__doc__, corpus_dir=str, vocab_file=str, max_seq_length=128, peer_megabytes=1.0)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    given = parser.parse_args()
    settings = BuildSettings(given.corpus_dir, given.vocab_file, "unused", given.max_seq_length, num_shards=24)
    quiet_tensorflow()
    plan = make_plan(settings)
    peer = measure_plain(settings, int(given.peer_megabytes * 1e6))
    print(f"length {settings.max_seq_length}, start-up not counted, {os.cpu_count()} cores in the machine")
    for processes in (0, *given.processes):
        text_bytes, tokens = measure(plan, processes) if processes else peer
        name = f"builder, {processes} processes" if processes else "plain Python, 1 process"
        rates = f"{text_bytes / 1e6:8.2f} MB/s  {tokens / max(1, processes):12,.0f} tokens/s per core"
        print(f"{name:28} {rates}  {text_bytes / peer[0]:7.1f}x", flush=True)


if __name__ == "__main__":
    main()
