"""Rows of a table that are held out, the share that is trained on, and few-shot parts."""

from collections import Counter

import pytest

from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.finetune.tasks.files import FEW_SHOT_DEV
from tests.support import finetuning as support
from tests.support.finetuning import write_lines


def parts(tmp_path, lines, splits, **hparams):
    """The first texts of the splits of a task with these rows."""
    write_lines(tmp_path / "finetuning_data" / "mine" / "train.csv", *lines)
    described = {"mine": {"type": "classification"}}
    config = support.config("mine", data_dir=str(tmp_path), raw_data_dir="", tasks=described, **hparams)
    task = make_tasks(config, support.tokenizer())[0]
    return [[example.texts[0] for example in task.load(split).examples] for split in splits]


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_differ_in_case_or_spaces_alone_are_held_out_together(tmp_path, seed):
    rows = []
    for number in range(40):
        rows += [f"The file {number},{number % 2}", f"the  FILE {number} ,{number % 2}"]
    train, dev = parts(tmp_path, ["text,label", *rows], ("train", "dev"), seed=seed)
    assert len(dev) == 8 and len(train) == 72
    numbers = [{text.split()[-1] for text in part} for part in (train, dev)]
    assert not numbers[0] & numbers[1]


def test_a_share_keeps_the_order_of_the_file_and_lies_within_a_larger_one(tmp_path):
    rows = [f"file {number},{number % 2}" for number in range(40)]
    lines = ["text,label", *rows]
    write_lines(tmp_path / "finetuning_data" / "mine" / "dev.csv", *lines)
    (quarter,) = parts(tmp_path, lines, ["train"], train_share=0.25)
    (half,) = parts(tmp_path, lines, ["train"], train_share=0.5)
    assert (len(quarter), len(half)) == (10, 20) and set(quarter) < set(half)
    for part in (quarter, half):
        assert part == sorted(part, key=lambda text: int(text.split()[1]))


def test_few_examples_are_as_many_of_each_label_in_training_and_in_choosing_the_best(tmp_path):
    labels = [number % 3 for number in range(60)]
    lines = ["text,label", *(f"file {number},{label}" for number, label in enumerate(labels))]
    write_lines(tmp_path / "finetuning_data" / "mine" / "dev.csv", *lines)
    train, choosing, dev = parts(tmp_path, lines, ("train", FEW_SHOT_DEV, "dev"), few_shot=4)
    for part in (train, choosing):
        assert Counter(labels[int(text.split()[1])] for text in part) == {0: 4, 1: 4, 2: 4}
    assert not set(train) & set(choosing) and len(dev) == 60


def test_a_run_to_debug_takes_the_first_rows(tmp_path):
    lines = ["text,label", *(f"file {number},{number % 2}" for number in range(20))]
    write_lines(tmp_path / "finetuning_data" / "mine" / "dev.csv", *lines)
    assert parts(tmp_path, lines, ["train"], debug_examples=3) == [["file 0", "file 1", "file 2"]]
