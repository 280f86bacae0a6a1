"""Parts that the benchmarks share: their command lines, the processor's name, and records of random tokens."""

import argparse
import os
from pathlib import Path

import numpy as np

from electra_tf2.corpus.example_builder import Examples
from electra_tf2.corpus.records import RecordEncoder, RecordFormat

ROOT = Path(__file__).resolve().parent.parent
VOCABULARY = 30522
_SPECIAL = {0: "[PAD]", 100: "[UNK]", 101: "[CLS]", 102: "[SEP]", 103: "[MASK]"}


def parser_of(doc: str | None, **defaults: str | float) -> argparse.ArgumentParser:
    """A parser whose help is the program's docstring, with a flag for each default, of its type."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value, help=f"default {value}")
    return parser


def processor() -> str:
    """Name of the processor, the cores that may be used, and its units that multiply matrices, where Linux says so."""
    cores, path = len(os.sched_getaffinity(0)), Path("/proc/cpuinfo")
    lines = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line) if path.exists() else {}
    facts = {name.strip(): value.strip() for name, value in lines.items()}
    units = [unit for unit in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if unit in facts.get("flags", "").split()]
    return f"{facts.get('model name', 'unknown processor')}, {cores} cores, {', '.join(units)}"


def write_vocabulary(path: Path, size: int = VOCABULARY) -> None:
    """A vocabulary of made-up words with the special tokens at BERT's places."""
    path.write_text("".join(f"{_SPECIAL.get(i, f'word{i}')}\n" for i in range(size)))


def write_records(folder: Path, length: int, examples: int, shards: int) -> None:
    """`examples` full records of `length` tokens in pretrain_data.tfrecord-* of `folder`."""
    import tensorflow as tf

    folder.mkdir(parents=True, exist_ok=True)
    encoder = RecordEncoder(RecordFormat(length, VOCABULARY))
    random = np.random.default_rng(0)
    for shard in range(shards):
        rows = examples // shards
        ids = random.integers(1000, 30000, [rows, length])
        ids[:, 0], ids[:, -1] = 101, 102
        segments = np.zeros([rows, length], np.uint8)
        segments[:, length // 2 :] = 1
        batch = Examples(ids, np.ones([rows, length], np.uint8), segments)
        with tf.io.TFRecordWriter(str(folder / f"pretrain_data.tfrecord-{shard}-of-{shards}")) as writer:
            for record in encoder.encode(batch):
                writer.write(record)
