"""The table of data tells what is cut of the training data of every kind of task."""

import json
import re

import pytest

from electra_tf2.finetune.data_report import data_table
from electra_tf2.finetune.tasks import make_tasks
from tests.support import finetuning as support
from tests.support.finetuning import write_lines

LONG = "of " * 60  # tokens
TARGET = {"span1_index": 0, "span1_text": "the man", "span2_index": 2, "span2_text": "of"}
WSC = {"text": "the man of " + LONG, "target": TARGET}
ANSWER = [{"text": "man", "answer_start": 4}]
QUESTION = {"id": "a", "question": "of?", "context": "the man " + LONG, "answers": ANSWER}
FILES = {  # task -> name of its file, a line that is short, one that is long, tokens of it that are lost at 32
    "cola": ("cola/train.jsonl", {"sentence": "of", "label": "0"}, {"sentence": LONG, "label": "1"}, 30),
    "mrpc": ("mrpc/train.jsonl", {"sentence1": "of", "sentence2": "of", "label": 0},
             {"sentence1": LONG, "sentence2": LONG, "label": 1}, 91),
    "sts": ("sts/train.jsonl", {"sentence1": "of", "sentence2": "of", "label": 0},
            {"sentence1": LONG, "sentence2": "of", "label": 1}, 32),
    "wsc": ("WSC/train.jsonl", WSC | {"text": "the man of", "label": False}, WSC | {"label": True}, 34),
    "copa": ("COPA/train.jsonl", {"premise": "of", "choice1": "of", "choice2": "of", "question": "cause", "label": 0},
             {"premise": LONG, "choice1": "of", "choice2": "of", "question": "cause", "label": 1}, 44),
    "sentence_embedding": ("sentence_embedding/train.jsonl", {"text": "of", "positive": "the"},
                           {"text": LONG, "positive": "the"}, 30),
    "squadv1": ("squadv1/train.jsonl", QUESTION, QUESTION | {"id": "b", "question": LONG}, 52),
    "chunk": ("chunk/train.txt", "of B-NP\n", "of B-NP\n" * 60, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_the_table_of_data_counts_what_is_cut(tmp_path, name):
    file, short, long, lost = FILES[name]
    lines = [line if isinstance(line, str) else json.dumps(line) for line in (short, long)]
    write_lines(tmp_path / file, *lines)
    config = support.config(name, raw_data_dir=str(tmp_path), max_seq_length=32, max_query_length=8)
    (task,) = make_tasks(config, support.tokenizer())
    split = task.load("train")
    cut = [count for count in split.cut if count]
    assert len(cut) == len(split.examples) // 2 * (lost != 0) and set(cut) == ({lost} if lost else set())
    rows = dict(re.split(r" {2,}", line)[:2] for line in data_table(task, {"train": split}).splitlines())
    expected = ("50.0 %", f"{sum(cut):,}") if lost else (None, None)
    assert (
        rows.get(f"cut at {split.longest_text or config.max_seq_length} tokens"),
        rows.get("tokens cut off"),
    ) == expected


def test_a_single_token_that_is_cut_is_told(tmp_path):
    rows = [{"sentence": "of " * length, "label": str(length % 2)} for length in (30, 31)]
    write_lines(tmp_path / "cola" / "train.jsonl", *map(json.dumps, rows))
    task = support.task(tmp_path, "cola", max_seq_length=32)
    lines = [" ".join(line.split()) for line in data_table(task, {"train": task.load("train")}).splitlines()]
    assert {"cut at 32 tokens 50.0 %", "tokens cut off 1"} <= {*lines}


def test_the_table_of_data_has_the_median_and_the_95th_percentile_of_the_lengths(tmp_path):
    rows = []
    for number in range(100):
        words = 4 if number < 94 else 20  # and two special tokens
        rows.append({"sentence": "of " * words, "label": str(number % 2)})
    write_lines(tmp_path / "cola" / "train.jsonl", *map(json.dumps, rows))
    task = support.task(tmp_path, "cola", max_seq_length=32)
    lines = [" ".join(line.split()) for line in data_table(task, {"train": task.load("train")}).splitlines()]
    assert {"tokens, median 6", "tokens, 95 % 22", "tokens, longest 22"} <= {*lines}
