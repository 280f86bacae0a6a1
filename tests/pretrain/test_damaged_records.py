"""Records and their metadata changed at random, seeded: a run takes valid batches or refuses them in one line."""

import collections
import functools
import json
import random
from pathlib import Path

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.records import RecordFormat
from electra_tf2.corpus.vocabulary import vocab_sha256
from electra_tf2.pretrain.pretrain_data import Records, evaluation_batches, find_problem, find_records, training_batches
from electra_tf2.util.errors import UserError
from tests.support import golden, training
from tests.support.fuzzing import damage_file, fresh_copy, some_bytes

LIMITS = {"input_ids": 600, "input_mask": 2, "segment_ids": 2}


def a_shard(rng: random.Random, folder: Path) -> Path:
    return rng.choice(sorted(folder.glob("pretrain_data*")))


def a_record(rng: random.Random, folder: Path) -> None:
    """Changes the bytes of one record, with a checksum that fits."""
    path = a_shard(rng, folder)
    records = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
    number = rng.randrange(len(records))
    records[number] = some_bytes(rng, records[number])
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)


def write_whole(folder: Path) -> Path:
    """Two files of records and their metadata.json."""
    training.write_records(folder, examples=10)
    shards = {path.name: {"examples": 5, "tokens": 60, "bytes": path.stat().st_size} for path in folder.iterdir()}
    values = {"vocab_sha256": vocab_sha256(golden.CHECKPOINT / "vocab.txt"), "vocab_size": LIMITS["input_ids"]}
    values |= {"max_seq_length": training.LENGTH, "do_lower_case": True, "unigram_entropy": 4.5, "shards": shards}
    (folder / "metadata.json").write_text(json.dumps(values))
    return folder


@functools.cache
def batches(files: tuple[str, ...], counts: tuple[int, ...], is_training: bool) -> tf.data.Dataset:
    """More than an epoch of training batches, or all of an evaluation. Building one takes longer than reading files."""
    records = Records([*files], [*counts], RecordFormat(training.LENGTH, LIMITS["input_ids"]))
    return training_batches(records, 4, 0, 0).take(4) if is_training else evaluation_batches(records, 4)


def read(settings: PretrainingConfig, is_training: bool) -> None:
    """Batches that a step can take, or a UserError, as a run would have it."""
    records = find_records(settings.pretrain_tfrecords, settings, "pretrain_tfrecords")
    try:
        for batch in batches(tuple(records.files), tuple(records.counts), is_training):
            for name, limit in LIMITS.items():
                values = batch[name].numpy()
                assert values.shape == (4, training.LENGTH) and values.min() >= 0 and values.max() < limit
    except (tf.errors.OpError, UnicodeDecodeError) as error:
        problem = find_problem(error, records)
        assert problem is not None, f"nobody explains {error!r}"
        raise UserError(problem) from None


def test_damaged_records_are_valid_batches_or_one_line(tmp_path: Path) -> None:
    rng, work = random.Random(3), tmp_path / "records"
    whole = write_whole(tmp_path / "whole")
    pattern = str(work / "pretrain_data.tfrecord*")
    settings = golden.config(max_seq_length=training.LENGTH, mask_prob=0.2, pretrain_tfrecords=pattern)
    ends: collections.Counter[str] = collections.Counter()
    for number in range(60):
        fresh_copy(whole, work)
        if number % 3 == 0:
            damage_file(rng, work / "metadata.json")
        elif number % 3 == 1:
            a_record(rng, work)
        else:
            damage_file(rng, a_shard(rng, work))
        if number % 2 and number % 3:  # without metadata.json, which tells most changes by the size of a file
            (work / "metadata.json").unlink()
        try:
            read(settings, is_training=bool(number % 4 > 1))
            ends["taken"] += 1
        except UserError as error:
            assert "\n" not in str(error) and str(work) in str(error), (number, str(error))
            ends["refused"] += 1
    assert ends["taken"] > 2 and ends["refused"] > 30
