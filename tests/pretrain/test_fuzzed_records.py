"""Records and their metadata changed at random, seeded: a valid batch or one line of ours, whatever was changed."""

import collections
import functools
import gzip
import json
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.records import RecordFormat
from electra_tf2.corpus.vocabulary import vocab_sha256
from electra_tf2.pretrain.pretrain_data import Records, evaluation_batches, find_problem, find_records, training_batches
from electra_tf2.util.errors import UserError
from tests.support import golden

CASES = 300
LENGTH, VOCAB_SIZE, COUNTS = 8, 600, (4, 5)
FIELDS = ("input_ids", "input_mask", "segment_ids")
_NUMBERS = [-1, 2, 9, 599, 600, 2**15, 2**31, 2**32, 2**32 + 5, 2**63 - 1, -(2**63), -(2**32)]
_STRANGE: list[Any] = [None, -1, 0, 1e9, 2**70, "", "x", [], {}, True, "0" * 64]
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


def flipped(rng: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 5])):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def bits_of_a_file(rng: random.Random, folder: Path) -> None:
    path = a_shard(rng, folder)
    path.write_bytes(flipped(rng, path.read_bytes()))


def bits_of_a_record(rng: random.Random, folder: Path) -> None:
    rewrite_one(rng, folder, lambda record: flipped(rng, record))


def cut(rng: random.Random, folder: Path) -> None:
    path = a_shard(rng, folder)
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content))])


def more_bytes(rng: random.Random, folder: Path) -> None:
    path = a_shard(rng, folder)
    path.write_bytes(path.read_bytes() + rng.randbytes(rng.choice([1, 8, 16, 100])))


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


def a_file_missing(rng: random.Random, folder: Path) -> None:
    for path in rng.sample(sorted(folder.glob("pretrain_data*")), rng.randint(1, len(COUNTS))):
        path.unlink()


def a_file_empty(rng: random.Random, folder: Path) -> None:
    for path in rng.sample(sorted(folder.glob("pretrain_data*")), rng.randint(1, len(COUNTS))):
        path.write_bytes(b"")


def another_kind_of_file(rng: random.Random, folder: Path) -> None:
    path = a_shard(rng, folder)
    path.write_bytes(rng.choice([gzip.compress(path.read_bytes()), b"the text\n" * 30, bytes(200)]))


def metadata(rng: random.Random, folder: Path) -> None:
    path = folder / "metadata.json"
    values = json.loads(path.read_text())
    where = rng.choice([values, values["shards"], rng.choice([*values["shards"].values()])])
    name = rng.choice([*where])
    if rng.random() < 0.3:
        del where[name]
    else:
        where[name] = rng.choice(_STRANGE)
    path.write_text(json.dumps(values))


def bytes_of_metadata(rng: random.Random, folder: Path) -> None:
    path = folder / "metadata.json"
    content = path.read_bytes()
    path.write_bytes(rng.choice([flipped(rng, content), content[: rng.randrange(len(content))], b"\xff\xfe", b"[]"]))


OF_RECORDS: list[Mutation] = [
    bits_of_a_file, bits_of_a_record, bits_of_a_record, cut, more_bytes, fields, lengths, numbers, numbers, no_example,
    a_file_missing, a_file_empty, another_kind_of_file,
]  # fmt: skip
OF_METADATA: list[Mutation] = [metadata, bytes_of_metadata]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_whole(tmp_path_factory.mktemp("whole"))


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


def test_whatever_is_in_the_files_there_are_valid_batches_or_one_line(whole: Path, tmp_path: Path) -> None:
    rng = random.Random(3)
    ends: collections.Counter[str] = collections.Counter()
    folder = tmp_path / "records"
    settings = golden.config(
        max_seq_length=LENGTH, mask_prob=0.2, pretrain_tfrecords=str(folder / "pretrain_data.tfrecord*")
    )
    for number in range(CASES):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        mutation = rng.choice(OF_METADATA if number % 5 == 0 else OF_RECORDS)
        mutation(rng, folder)
        if number % 5 > 1:  # without metadata.json, which tells most changes by the size of a file
            (folder / "metadata.json").unlink()
        try:
            read(settings, training=bool(number % 2))
            ends["read"] += 1
        except UserError as error:
            message = str(error)
            assert "\n" not in message and 0 < len(message) < 2000 and str(folder) in message, (mutation, message)
            message.encode()
            ends[mutation.__name__] += 1
        except Exception as error:
            raise AssertionError(f"case {number}, {mutation.__name__}: {error!r}") from error
    assert CASES / 20 < ends["read"] < CASES / 2
    refused = {mutation.__name__ for mutation in (*OF_RECORDS, *OF_METADATA)}
    assert ends.keys() == refused | {"read"}
