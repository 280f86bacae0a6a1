"""Records and their metadata changed at random, seeded: a run takes valid batches or refuses them in one line."""

import collections
import functools
import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.records import RecordFormat
from electra_tf2.corpus.vocabulary import vocab_sha256
from electra_tf2.pretrain.pretrain_data import Records, evaluation_batches, find_problem, find_records, training_batches
from electra_tf2.util.errors import UserError
from tests.support import golden
from tests.support.fuzzing import damage_file, fresh_copy

LENGTH, VOCAB_SIZE, COUNTS = 8, 600, (4, 5)
FIELDS = ("input_ids", "input_mask", "segment_ids")
_NUMBERS = [-1, 2, 9, 599, 600, 2**15, 2**31, 2**32, 2**32 + 5, 2**63 - 1, -(2**63), -(2**32)]
Mutation = Callable[[random.Random, Path], None]


def example(values: dict[str, list[Any]]) -> bytes:
    """A tf.train.Example of lists of integers, or else of floats or bytes."""
    features = {}
    for name, value in values.items():
        kinds = {bool(value) and isinstance(value[0], kind): kind for kind in (float, bytes)}
        if kinds.get(True) is float:
            features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=value))
        elif kinds.get(True) is bytes:
            features[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=value))
        else:
            features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=value))
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def good(rng: random.Random) -> dict[str, list[Any]]:
    size = rng.randint(5, LENGTH)
    ids = [2, *(rng.randrange(5, VOCAB_SIZE) for _ in range(size - 2)), 3] + [0] * (LENGTH - size)
    return {
        "input_ids": ids,
        "input_mask": [1] * size + [0] * (LENGTH - size),
        "segment_ids": [0] * LENGTH,
    }


def write(path: Path, records: list[bytes]) -> None:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)


def records_in(path: Path) -> list[bytes]:
    """Without TensorFlow: length, its checksum, data, its checksum."""
    content, records = path.read_bytes(), []
    while content:
        (size,) = struct.unpack("<Q", content[:8])
        records.append(content[12 : 12 + size])
        content = content[16 + size :]
    return records


def a_shard(rng: random.Random, folder: Path) -> Path:
    return rng.choice(sorted(folder.glob("pretrain_data*")))


def rewrite_one(rng: random.Random, folder: Path, change: Callable[[bytes], bytes]) -> None:
    """Changes one record, with a checksum that fits."""
    path = a_shard(rng, folder)
    records = records_in(path)
    number = rng.randrange(len(records))
    records[number] = change(records[number])
    write(path, records)


def bits_of_a_record(rng: random.Random, folder: Path) -> None:
    def change(record: bytes) -> bytes:
        flipped = bytearray(record)
        for _ in range(rng.choice([1, 1, 2, 5])):
            flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
        return bytes(flipped)

    rewrite_one(rng, folder, change)


def a_file(rng: random.Random, folder: Path) -> None:
    damage_file(rng, a_shard(rng, folder))


def a_file_missing(rng: random.Random, folder: Path) -> None:
    a_shard(rng, folder).unlink()


def fields(rng: random.Random, folder: Path) -> None:
    values = good(rng)
    name = rng.choice(FIELDS)
    change = rng.randrange(4)
    if change == 0:
        values[rng.choice(["ids", "input_id", "x" * 300])] = values.pop(name)
    elif change == 1:
        values[name] = [float(value) for value in values[name]]
    elif change == 2:
        values[name] = [str(value).encode() for value in values[name]]
    else:
        values["more"] = [b"\xff\x00"]  # harmless
    rewrite_one(rng, folder, lambda record: example(values))


def lengths(rng: random.Random, folder: Path) -> None:
    values = good(rng)
    for name in rng.sample(FIELDS, rng.randint(1, 3)):
        values[name] = (values[name] * 3)[: rng.choice([0, 1, LENGTH - 1, LENGTH + 1, 3 * LENGTH])]
    rewrite_one(rng, folder, lambda record: example(values))


def numbers(rng: random.Random, folder: Path) -> None:
    values = good(rng)
    values[rng.choice(FIELDS)][rng.randrange(LENGTH)] = rng.choice(_NUMBERS)
    rewrite_one(rng, folder, lambda record: example(values))


def no_example(rng: random.Random, folder: Path) -> None:
    rewrite_one(rng, folder, lambda record: rng.choice([b"", rng.randbytes(rng.randint(1, 200)), record[:-3], b"{}"]))


OF_RECORDS: list[Mutation] = [a_file, a_file_missing, bits_of_a_record, fields, lengths, numbers, no_example]


def write_whole(folder: Path) -> Path:
    """Two files of records and their metadata.json."""
    rng = random.Random(1)
    shards = {}
    for shard, count in enumerate(COUNTS):
        path = folder / f"pretrain_data.tfrecord-{shard}-of-{len(COUNTS)}"
        write(path, [example(good(rng)) for _ in range(count)])
        shards[path.name] = {"examples": count, "tokens": 6 * count, "bytes": path.stat().st_size}
    values = {
        "vocab_sha256": vocab_sha256(golden.CHECKPOINT / "vocab.txt"),
        "vocab_size": VOCAB_SIZE,
        "max_seq_length": LENGTH,
        "do_lower_case": True,
        "unigram_entropy": 4.5,
        "shards": shards,
    }
    (folder / "metadata.json").write_text(json.dumps(values))
    return folder


@functools.cache
def batches(files: tuple[str, ...], counts: tuple[int, ...], training: bool) -> tf.data.Dataset:
    """More than an epoch of training batches, or all of an evaluation. Building one takes longer than reading files."""
    records = Records([*files], [*counts], RecordFormat(LENGTH, VOCAB_SIZE))
    return training_batches(records, 4, 0, 0).take(4) if training else evaluation_batches(records, 4)


def read(settings: PretrainingConfig, training: bool) -> None:
    """Batches that a step can take, or a UserError, as a run would have it."""
    records = find_records(settings.pretrain_tfrecords, settings, "pretrain_tfrecords")
    try:
        for batch in batches(tuple(records.files), tuple(records.counts), training):
            limits = dict(zip(FIELDS, (VOCAB_SIZE, 2, 2), strict=True))
            for name, limit in limits.items():
                values = batch[name].numpy()
                assert values.shape == (4, LENGTH) and values.min() >= 0 and values.max() < limit
    except (tf.errors.OpError, UnicodeDecodeError) as error:
        problem = find_problem(error, records)
        assert problem is not None, f"nobody explains {error!r}"
        raise UserError(problem) from None


def test_damaged_records_are_valid_batches_or_one_line(tmp_path: Path) -> None:
    rng, work = random.Random(3), tmp_path / "records"
    (tmp_path / "whole").mkdir()
    whole = write_whole(tmp_path / "whole")
    pattern = str(work / "pretrain_data.tfrecord*")
    settings = golden.config(max_seq_length=LENGTH, mask_prob=0.2, pretrain_tfrecords=pattern)
    ends: collections.Counter[str] = collections.Counter()
    for number in range(200):
        fresh_copy(whole, work)
        damage = rng.choice(OF_RECORDS)
        if number % 5 == 0:
            damage_file(rng, work / "metadata.json")
        else:
            damage(rng, work)
        if number % 5 > 1:  # without metadata.json, which tells most changes by the size of a file
            (work / "metadata.json").unlink()
        try:
            read(settings, training=bool(number % 2))
            ends["taken"] += 1
        except UserError as error:
            assert "\n" not in str(error) and str(work) in str(error), (number, damage, str(error))
            ends["refused"] += 1
    assert ends["taken"] > 10 and ends["refused"] > 100
