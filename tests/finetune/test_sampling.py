"""Rows of a table that are held out, the share that is trained on, and few-shot parts."""

from collections import Counter

import pytest

from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.finetune.tasks.files import FEW_SHOT_DEV
from electra_tf2.util.errors import UserError
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


def held_out(tmp_path, rows, **described):
    """The examples that are trained on and those that are held out, of a task with these rows of pairs."""
    path = write_lines(tmp_path / "pairs.csv", "a,b,label", *rows)
    described = {"type": "classification", "text_columns": ["a", "b"], "files": {"train": str(path)}} | described
    task = support.task(tmp_path, "mine", tasks={"mine": described})
    return [task.load(split).examples for split in ("train", "dev")]


def texts_in(examples):
    return {" ".join(text.split()).casefold() for example in examples for text in example.texts}


def test_pairs_with_a_text_in_common_are_held_out_together(tmp_path):
    """Ten claims about each source; some sources are linked by a claim about both."""
    rows = [f"claim {number},the source {number // 10},{number % 2}" for number in range(400)]
    rows += ["Claim  7,the source 5,0", "the source 9,claim 3,1"]
    train, dev = held_out(tmp_path, rows)
    assert 30 <= len(dev) <= 50 and len(train) + len(dev) == 402
    assert not texts_in(train) & texts_in(dev)


@pytest.mark.parametrize("linked", [100, 45])
def test_pairs_are_held_out_alone_where_all_of_a_class_are_linked(tmp_path, capsys, linked):
    rows = [f"claim {number},the source,{number % 2}" for number in range(100)]
    if linked < 100:
        rows = [f"claim {number},the source,1" for number in range(linked)]
        rows += [f"claim {number},source {number},0" for number in range(linked, 100)]
    train, dev = held_out(tmp_path, rows)
    assert (len(train), len(dev)) == (90, 10) and {example.label for example in dev} == {"0", "1"}
    assert "10 % of train held out (seed 0), whole pairs, since most have texts in common" in capsys.readouterr().out


def test_no_class_is_lost_on_either_side(tmp_path):
    """Ten copies of each text are more than a class's share."""
    rows = [f"text {number % 10},b {number % 10},{number % 10 // 5}" for number in range(100)]
    for part in held_out(tmp_path, rows):
        assert {example.label for example in part} == {"0", "1"}
    rows = [f"text {number % 2},b {number % 2},{number % 2}" for number in range(100)]
    with pytest.raises(UserError, match="too few different texts, to hold out"):
        held_out(tmp_path, rows)


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
