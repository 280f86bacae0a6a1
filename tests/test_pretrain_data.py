"""The input pipeline: an exactly resumable order, every record once per epoch, clear refusals."""

import itertools

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from pretrain import pretrain_data
from tests import golden_support as golden
from util.errors import UserError

LENGTH = 8


def write_shards(folder, counts, length=LENGTH):
    number = itertools.count()
    folder.mkdir(parents=True, exist_ok=True)
    for shard, count in enumerate(counts):
        with tf.io.TFRecordWriter(str(folder / f"pretrain_data.tfrecord-{shard}-of-{len(counts)}")) as writer:
            for _ in range(count):
                values = {
                    "input_ids": [next(number) % 600] * length,
                    "input_mask": [1] * length,
                    "segment_ids": [0] * length,
                }
                features = {
                    name: tf.train.Feature(int64_list=tf.train.Int64List(value=value)) for name, value in values.items()
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def config(folder, **overrides):
    return golden.config(
        max_seq_length=LENGTH, pretrain_tfrecords=str(folder / "pretrain_data.tfrecord*"), mask_prob=0.2, **overrides
    )


def records(folder, **overrides):
    settings = config(folder, **overrides)
    return pretrain_data.find_records(settings.pretrain_tfrecords, settings, "pretrain_tfrecords")


def first_ids(dataset, batches):
    return np.concatenate([batch["input_ids"][:, 0] for batch in dataset.take(batches)])


@hypothesis.settings(max_examples=8, deadline=None)
@hypothesis.given(st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(sum), st.integers(0, 40))
def test_resuming_at_any_position_continues_the_stream(tmp_path_factory, counts, position):
    folder = tmp_path_factory.mktemp("records")
    write_shards(folder, counts)
    found = records(folder)
    whole = first_ids(pretrain_data.training_batches(found, 1, 3, 0), position + 12)
    resumed = first_ids(pretrain_data.training_batches(found, 4, 3, position), 3)
    np.testing.assert_array_equal(resumed, whole[position:])
    total = sum(counts)
    for start in range(0, len(whole) - total + 1, total):
        assert sorted(whole[start : start + total]) == list(range(total))


def test_windows_shuffle_shards_and_epochs_differ(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrain_data, "WINDOW_SHARDS", 2)
    write_shards(tmp_path, [10] * 6)
    ids = first_ids(pretrain_data.training_batches(records(tmp_path), 10, 0, 0), 12)
    first, second = ids[:60], ids[60:]
    assert sorted(first) == sorted(second) == list(range(60))
    assert (first != second).any() and (first != np.arange(60)).any()
    assert len({i // 10 for i in first[:20]}) == 2  # a window mixes just its two shards


def test_rows_of_one_host_are_a_slice_of_the_global_batch(tmp_path):
    write_shards(tmp_path, [7, 5])
    found = records(tmp_path)
    whole = first_ids(pretrain_data.training_batches(found, 4, 1, 0), 5).reshape(5, 4)
    part = first_ids(pretrain_data.training_batches(found, 4, 1, 0, slice(2, 4)), 5).reshape(5, 2)
    np.testing.assert_array_equal(part, whole[:, 2:])


def test_evaluation_sees_every_record_once(tmp_path):
    write_shards(tmp_path, [5, 0, 6])
    batches = list(pretrain_data.evaluation_batches(records(tmp_path), 4))
    assert all(batch["input_ids"].shape == (4, LENGTH) for batch in batches)
    ids = np.concatenate([batch["input_ids"] for batch in batches])[:, 0]
    real = np.concatenate([batch["input_mask"] for batch in batches])[:, 0]
    assert ids[real > 0].tolist() == list(range(11)) and real.sum() == 11


def test_no_records_lists_what_is_there(tmp_path):
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(UserError, match=r"notes\.txt"):
        records(tmp_path)


def test_a_truncated_file_is_named(tmp_path):
    write_shards(tmp_path, [3])
    path = next(tmp_path.iterdir())
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(UserError, match=f"{path.name} is truncated.*record 3"):
        records(tmp_path)


def test_another_length_is_refused(tmp_path):
    write_shards(tmp_path, [3], length=16)
    with pytest.raises(UserError, match="length 16, but max_seq_length is 8"):
        records(tmp_path)


def test_empty_files_are_refused(tmp_path):
    write_shards(tmp_path, [0, 0])
    with pytest.raises(UserError, match="hold no record"):
        records(tmp_path)
