"""The input pipeline: an exactly resumable order, every record once per epoch, clear refusals."""

import itertools
import json
import os
import shutil

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from electra_tf2.corpus.vocabulary import vocab_sha256
from electra_tf2.files.reading import json_sha256, sha256_of
from electra_tf2.pretrain import pretrain_data
from electra_tf2.util.errors import UserError
from tests.support import golden
from tests.support.training import example

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
                writer.write(example(values))


def config(folder, **overrides):
    return golden.config(
        max_seq_length=LENGTH, pretrain_tfrecords=str(folder / "pretrain_data.tfrecord*"), mask_prob=0.2, **overrides
    )


def records(folder, **overrides):
    settings = config(folder, **overrides)
    return pretrain_data.find_records(settings.pretrain_tfrecords, settings, "pretrain_tfrecords")


def first_ids(dataset, batches):
    return np.concatenate([batch["input_ids"][:, 0] for batch in dataset.take(batches)])


@hypothesis.settings(max_examples=5, deadline=None)
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


@pytest.mark.parametrize("position", [0, 19, 20, 35, 60, 81, 125])
def test_a_run_resumes_in_any_window_of_any_epoch(tmp_path, monkeypatch, position):
    monkeypatch.setattr(pretrain_data, "WINDOW_SHARDS", 2)
    write_shards(tmp_path, [10] * 6)
    whole = first_ids(pretrain_data.training_batches(records(tmp_path), 5, 0, 0), 38)
    resumed = first_ids(pretrain_data.training_batches(records(tmp_path), 5, 0, position), 13)
    np.testing.assert_array_equal(resumed, whole[position : position + 65])


def test_windows_shuffle_shards_and_epochs_differ(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrain_data, "WINDOW_SHARDS", 2)
    write_shards(tmp_path, [10] * 6)
    ids = first_ids(pretrain_data.training_batches(records(tmp_path), 10, 0, 0), 12)
    first, second = ids[:60], ids[60:]
    assert sorted(first) == sorted(second) == list(range(60))
    assert (first != second).any() and (first != np.arange(60)).any()
    assert len({i // 10 for i in first[:20]}) == 2  # a window mixes just its two shards


def test_any_seed_that_a_run_may_have_shuffles(tmp_path):
    """A clock's nanoseconds, say; the seed of a window follows from it and must fit into 64 bits."""
    write_shards(tmp_path, [10])
    orders = [first_ids(pretrain_data.training_batches(records(tmp_path), 5, seed, 10), 2) for seed in (0, 2**63 - 1)]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(10)) and (orders[0] != orders[1]).any()


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


def write_metadata(folder, counts, **changes):
    """As the builder does."""
    settings = config(folder)
    shards = {
        f"pretrain_data.tfrecord-{shard}-of-{len(counts)}": {"examples": count, "tokens": count * LENGTH}
        for shard, count in enumerate(counts)
    }
    for name, shard in shards.items():
        shard["bytes"] = (folder / name).stat().st_size
        shard["sha256"] = sha256_of(folder / name)
    values = {
        "vocab_sha256": vocab_sha256(settings.vocab_file),
        "vocab_size": settings.vocab_size,
        "max_seq_length": LENGTH,
        "do_lower_case": settings.do_lower_case,
        "strip_accents": True,
        "unigram_entropy": 5.0,
        "shards": shards,
    } | changes
    values["shards_sha256"] = json_sha256(values["shards"])
    (folder / "metadata.json").write_text(json.dumps(values))
    return values


def test_counts_come_from_metadata_without_reading_the_shards(tmp_path, monkeypatch):
    write_shards(tmp_path, [3, 5])
    write_metadata(tmp_path, [3, 5])
    monkeypatch.setattr(pretrain_data, "count_records", lambda path: pytest.fail(f"{path} was scanned"))
    assert records(tmp_path).counts == [3, 5]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-7]), "is truncated.*record 5"),
        (lambda path: path.write_bytes(b""), r"holds 0 examples in 0 bytes, but .*metadata\.json says 5"),
        (lambda path: path.unlink(), r"is missing, but .*metadata\.json lists it"),
    ],
    ids=["truncated", "empty", "missing"],
)
def test_a_shard_that_is_not_as_metadata_lists_it_is_refused(tmp_path, change, message):
    write_shards(tmp_path, [3, 5])
    write_metadata(tmp_path, [3, 5])
    path = sorted(tmp_path.glob("pretrain*"))[1]
    change(path)
    with pytest.raises(UserError, match=f"{path.name} {message}"):
        records(tmp_path)


def test_held_out_shards_that_are_all_missing_are_not_replaced_by_the_training_records(tmp_path):
    write_shards(tmp_path, [3])
    listed = {"dev_data.tfrecord-0-of-1": {"examples": 3, "tokens": 9, "bytes": 99, "sha256": "0" * 64}}
    write_metadata(tmp_path, [3], shards=listed)
    pattern = str(tmp_path / "dev_data.tfrecord*")
    assert pretrain_data.has_records(pattern) and not pretrain_data.has_records(str(tmp_path / "test*"))
    with pytest.raises(UserError, match=r"dev_data\.tfrecord-0-of-1 is missing, but .*metadata\.json lists it"):
        pretrain_data.find_records(pattern, config(tmp_path), "eval_tfrecords")


def test_a_shard_that_metadata_does_not_list_is_left_out_aloud(tmp_path, capsys):
    write_shards(tmp_path, [3, 5])
    write_metadata(tmp_path, [3, 5])
    shutil.copy(tmp_path / "pretrain_data.tfrecord-0-of-2", tmp_path / "pretrain_data.tfrecord-0-of-3")
    assert records(tmp_path).counts == [3, 5]
    assert "tfrecord-0-of-3 is left out" in capsys.readouterr().err


@pytest.mark.parametrize("listed", [True, False])
def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path, listed):
    write_shards(tmp_path, [3, 5])
    if listed:
        write_metadata(tmp_path, [3, 5])
    path = tmp_path / "pretrain_data.tfrecord-1-of-2"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UserError, match="tfrecord-1-of-2 is no file of records"):
        records(tmp_path)


@pytest.mark.parametrize(
    ("examples", "message"), [(100000, "'shards' has been changed since"), (-5, "'examples' is -5")]
)
def test_a_number_of_examples_that_is_not_true_stops_the_run(tmp_path, examples, message):
    write_shards(tmp_path, [4, 5])
    values = write_metadata(tmp_path, [4, 5])
    values["shards"]["pretrain_data.tfrecord-1-of-2"]["examples"] = examples
    (tmp_path / "metadata.json").write_text(json.dumps(values))
    with pytest.raises(UserError, match=message):
        records(tmp_path)


def test_metadata_without_checksums_are_refused(tmp_path):
    write_shards(tmp_path, [4])
    values = write_metadata(tmp_path, [4])
    del values["shards"]["pretrain_data.tfrecord-0-of-1"]["sha256"]
    (tmp_path / "metadata.json").write_text(json.dumps(values))
    with pytest.raises(UserError, match=r"metadata\.json: 'sha256' is .*build the records anew"):
        records(tmp_path)


def read_all(found):
    """Reads an epoch and the held-out records; what stops them is told as a run tells it."""
    for batches in (
        lambda: pretrain_data.training_batches(found, 1, 1, 0).take(12),
        lambda: pretrain_data.evaluation_batches(found, 4),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError) as raised:
            list(batches())
        problem = pretrain_data.find_problem(raised.value, found)
    raise UserError(problem)


def test_a_shard_that_was_edited_at_equal_size_and_time_stops_the_run(tmp_path):
    write_shards(tmp_path, [3, 5])
    write_metadata(tmp_path, [3, 5])
    assert len(list(pretrain_data.evaluation_batches(records(tmp_path), 4))) == 2  # as it was written
    path = tmp_path / "pretrain_data.tfrecord-1-of-2"
    before, names = path.stat(), (tmp_path / "metadata.json").read_text()
    with tf.io.TFRecordWriter(str(path)) as writer:  # whole records, others
        for _ in range(5):
            writer.write(example({"input_ids": [1] * LENGTH, "input_mask": [1] * LENGTH, "segment_ids": [0] * LENGTH}))
    if path.stat().st_size != before.st_size:
        names = names.replace(f'"bytes": {before.st_size}', f'"bytes": {path.stat().st_size}')
        values = json.loads(names)
        values["shards_sha256"] = json_sha256(values["shards"])
        (tmp_path / "metadata.json").write_text(json.dumps(values))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(UserError, match="1-of-2 is not the file that the builder wrote"):
        read_all(records(tmp_path))


def test_another_vocabulary_is_refused(tmp_path):
    write_shards(tmp_path, [3])
    write_metadata(tmp_path, [3], vocab_sha256="0" * 64)
    with pytest.raises(UserError, match="another vocabulary"):
        records(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_ids": [600] * LENGTH}, "holds token id 600, but vocab_size is 600"),
        ({"input_ids": [-1] * LENGTH}, "holds token id -1, but vocab_size is 600"),
        ({"input_ids": [5] * 7 + [2**32 + 5]}, "holds token id 4294967301, but vocab_size is 600"),
        ({"input_mask": [1] * 7 + [5]}, "holds 5 in input_mask, where only 0 and 1"),
        ({"segment_ids": [0] * 7 + [9]}, "holds 9 in segment_ids, where only 0 and 1"),
        ({"segment_ids": [-(2**32)] * LENGTH}, "holds -4294967296 in segment_ids"),
        ({"input_mask": [1] * 3}, f"has length 3, but max_seq_length is {LENGTH}"),
        ({"segment_ids": None}, "has no 'segment_ids' but input_ids, input_mask"),
        (b"\x0a\xff no example", "is no tf.train.Example"),
        (b"\x0a\x06\x0a\x04\x0a\x02\xff\xfe", "is no tf.train.Example"),  # a field whose name is not UTF-8
        (b"", "has no 'input_ids' but nothing"),
    ],
)
def test_a_bad_record_stops_training_and_evaluation_and_is_named(tmp_path, change, message):
    write_shards(tmp_path, [3, 4])
    found = records(tmp_path)
    assert pretrain_data.find_problem(tf.errors.DataLossError(None, None, ""), found) is None
    values = {"input_ids": [5] * LENGTH, "input_mask": [1] * LENGTH, "segment_ids": [0] * LENGTH}
    changed = values if isinstance(change, bytes) else values | change
    bad = change if isinstance(change, bytes) else example({name: of for name, of in changed.items() if of is not None})
    good = example(values)
    with tf.io.TFRecordWriter(found.files[1]) as writer:
        for record in (good, good, bad, good):
            writer.write(record)
    # Half of the cases in training, half in evaluation.
    is_training = len(message) % 2
    batches = (
        pretrain_data.training_batches(found, 7, 1, 0) if is_training else pretrain_data.evaluation_batches(found, 7)
    )
    with pytest.raises((tf.errors.InvalidArgumentError, UnicodeDecodeError)) as raised:
        next(iter(batches))
    problem = pretrain_data.find_problem(raised.value, None, found)
    assert problem is not None and f"{found.files[1]}: record 3 {message}" in problem
