"""Batches of features: every example once an epoch, resumable at any batch, padded no further than needed."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_tf2.finetune.batching import FeatureTable, TaskFeatures, bucket_length
from electra_tf2.finetune.tasks.task import Features, Label

LABELS = {"label": Label("int32"), "tags": Label("int32", per_token=True), "weight": Label("float32")}


def features(lengths):
    return [
        Features(
            np.arange(1, length + 1, dtype=np.int32),
            np.arange(length, dtype=np.int32) // 2,
            {"label": number, "tags": np.full(min(number, length), number, np.int32), "weight": number / 2},
        )
        for number, length in enumerate(lengths)
    ]


def table(lengths, max_length=64, **settings):
    return FeatureTable([TaskFeatures("one", features(lengths), LABELS)], max_length, **settings)


def rows(dataset, batches):
    return [batch["row"].numpy().tolist() for batch in itertools.islice(dataset, batches)]


@given(st.integers(1, 512), st.integers(8, 512))
def test_a_bucket_holds_the_sequence_and_wastes_less_than_an_eighth(length, max_length):
    length = min(length, max_length)
    bucket = bucket_length(length, max_length)
    assert length <= bucket <= max_length
    assert bucket - length < max(8, length / 4)
    assert len({bucket_length(n, 512) for n in range(1, 513)}) <= 30


def batches_of_epochs(size, batch_size, epochs, seed=0, fixed=False):
    """Numbers of the examples in each batch, from the first to the one in which the last epoch ends."""
    lengths = np.random.default_rng(size).integers(1, 65, size)
    numbers = table(lengths, fixed_padding=fixed)._training_examples(batch_size, seed)
    return lengths, list(itertools.islice(numbers, -(-epochs * size // batch_size)))


# Tables of less than a batch, of a few, of less than a pool of 50 batches, of one, of more; odd and even sizes.
@pytest.mark.parametrize("size", [1, 20, 32, 40, 63, 64, 100, 269, 635, 1000, 1600, 1601, 2490, 8551])
@pytest.mark.parametrize("fixed", [False, True])
def test_after_every_epoch_each_example_was_seen_as_often(size, fixed):
    _, batches = batches_of_epochs(size, 32, 3, fixed=fixed)
    seen = np.concatenate(batches)
    for epochs in (1, 2, 3):
        counts = np.bincount(seen[: epochs * size], minlength=size)
        assert (counts == epochs).all()


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 3))
def test_no_batch_holds_an_example_twice_where_there_are_enough(size, batch_size, seed):
    _, batches = batches_of_epochs(size, batch_size, 6, seed)
    seen = np.concatenate(batches)
    assert (np.bincount(seen[: 6 * size]) == 6).all()
    if size >= batch_size:
        assert all(len(np.unique(batch)) == batch_size for batch in batches)


def test_batches_do_not_go_from_short_rows_to_long_ones():
    lengths, batches = batches_of_epochs(6400, 32, 1)
    means = [lengths[batch].mean() for batch in batches]
    for pool in (means[:50], means[50:100]):
        later = np.arange(50)
        assert abs(np.corrcoef(later, pool)[0, 1]) < 0.5  # sorted: 1; of 50 shuffled batches: 0.14 on average


def test_rows_that_share_a_batch_differ_from_epoch_to_epoch():
    _, batches = batches_of_epochs(320, 32, 2)
    neighbours = [{(a, b) for batch in epoch for a in batch for b in batch} for epoch in (batches[:10], batches[10:])]
    again = len(neighbours[0] & neighbours[1]) - 320  # a row is its own neighbour
    assert again < 0.5 * 320 * 31  # sorted as a whole, nearly all


@settings(max_examples=6, deadline=None)
@given(st.lists(st.integers(1, 64), min_size=3, max_size=12), st.integers(1, 5), st.integers(0, 120), st.booleans())
def test_training_goes_on_where_it_stopped(lengths, batch_size, start, fixed):
    examples = table(lengths, fixed_padding=fixed)
    whole = rows(examples.training_batches(batch_size, 1), start + 5)
    assert rows(examples.training_batches(batch_size, 1, start * batch_size), 5) == whole[start:]


def test_the_order_depends_on_the_seed():
    examples = table(range(1, 60))
    orders = {str(rows(examples.training_batches(4, seed), 10)) for seed in range(3)}
    assert len(orders) == 3


def test_every_epoch_has_an_order_of_its_own():
    seen = list(itertools.chain(*rows(table([8] * 12, fixed_padding=True).training_batches(4, seed=1), 9)))
    epochs = [seen[first : first + 12] for first in (0, 12, 24)]
    assert len(set(map(tuple, epochs))) == 3 and all(sorted(epoch) == list(range(12)) for epoch in epochs)


def test_batches_hold_examples_of_similar_length():
    lengths = np.random.RandomState(0).randint(3, 65, 400)
    padded = {}
    for fixed in (False, True):
        batches = itertools.islice(table(lengths, fixed_padding=fixed).training_batches(8, 0), 50)
        padded[fixed] = sum(batch["input_ids"].shape[1] for batch in batches)
    assert padded[True] == 50 * 64
    assert padded[False] < 1.25 * lengths.sum() / 8


@pytest.mark.parametrize("fixed", [False, True])
def test_evaluation_sees_every_row_once_and_marks_what_fills_up(fixed):
    lengths = [3, 60, 9, 17, 5]
    batches = list(table(lengths, fixed_padding=fixed).evaluation_batches(2))
    seen = np.concatenate([batch["row"].numpy() for batch in batches])
    assert sorted(seen) == [-1, 0, 1, 2, 3, 4]
    tasks = np.concatenate([batch["task_id"].numpy() for batch in batches])
    np.testing.assert_array_equal(tasks == -1, seen == -1)


def test_rows_that_fill_up_a_short_batch_are_not_cut_out_of_a_long_example():
    last = list(table([60, 50, 3, 4, 5]).evaluation_batches(4))[-1]
    assert last["row"].numpy().tolist() == [2, -1, -1, -1]
    for name in ("input_ids", "segment_ids", "input_mask", "one/tags"):
        assert (last[name].numpy() == last[name].numpy()[0]).all()


def test_a_batch_holds_the_features_padded_with_zeros():
    lengths = [3, 9]
    batch = next(iter(table(lengths).evaluation_batches(2)))
    assert batch["input_ids"].shape == (2, 16)
    for row, number in enumerate(batch["row"].numpy()):
        feature, length = features(lengths)[number], lengths[number]
        for name, values in (("input_ids", feature.input_ids), ("segment_ids", feature.segment_ids)):
            np.testing.assert_array_equal(batch[name][row], np.pad(values, (0, 16 - length)))
        np.testing.assert_array_equal(batch["input_mask"][row], [1] * length + [0] * (16 - length))
        tags = feature.labels["tags"]
        np.testing.assert_array_equal(batch["one/tags"][row], np.pad(tags, (0, 16 - len(tags))))
        assert batch["one/label"][row] == number and batch["one/weight"][row] == number / 2


def test_several_tasks_share_batches():
    parts = [TaskFeatures(name, features([5, 6, 7]), LABELS) for name in ("one", "two")]
    both = FeatureTable(parts, 64)
    for batch in both.evaluation_batches(3):
        task = batch["task_id"].numpy()
        np.testing.assert_array_equal(task, batch["row"].numpy() // 3)
        np.testing.assert_array_equal(batch["one/label"].numpy()[task == 1], 0)
        np.testing.assert_array_equal(batch["two/label"].numpy()[task == 1], batch["row"].numpy()[task == 1] - 3)


def test_a_host_gets_its_rows_of_every_batch():
    examples = table(range(1, 40))
    whole = rows(examples.training_batches(6, 0), 4)
    parts = [rows(examples.training_batches(6, 0, rows=part), 4) for part in (slice(0, 3), slice(3, 6))]
    assert [first + second for first, second in zip(*parts, strict=True)] == whole


def test_hosts_pad_a_batch_to_one_length():
    """Else each would compile a program of its own, and wait for the other's."""
    examples = table(range(1, 65))
    lengths = []
    for part in (slice(0, 3), slice(3, 6)):
        batches = itertools.islice(examples.training_batches(6, 0, rows=part), 10)
        lengths.append([batch["input_ids"].shape[1] for batch in batches])
    assert lengths[0] == lengths[1] and len(set(lengths[0])) > 1


@pytest.mark.parametrize("choices", [1, 2])
def test_plain_batches_hold_what_those_of_a_dataset_do(choices):
    lengths = [3, 60, 9, 17, 5, 22, 8, 40]
    part = TaskFeatures("one", features(lengths), LABELS)
    of_part = FeatureTable([part], 64, choices=choices)
    for found, expected in zip(of_part.plain_batches(2), of_part.evaluation_batches(2), strict=True):
        assert found.keys() == expected.keys()
        longest = max(lengths[row] for row in found["row"])
        for name, value in expected.items():
            kept = value.numpy() if value.shape.rank < 2 else value.numpy()[:, :longest]
            np.testing.assert_array_equal(found[name], kept, name)
