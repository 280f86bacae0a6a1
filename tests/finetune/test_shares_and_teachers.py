"""Shares of the training data."""

import json
from typing import Any

import numpy as np
import pytest

from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.model.softmax import soft_losses
from electra_tf2.util.errors import UserError
from tests.support import finetuning as support
from tests.support.finetuning import write_lines


def test_shares_of_the_training_data_are_nested(tmp_path):
    rows = [json.dumps({"sentence": f"the file {number}", "label": str(number % 2)}) for number in range(40)]
    for split in ("train", "dev"):
        write_lines(tmp_path / "cola" / f"{split}.jsonl", *rows)
    kept = {}
    for share in (0.1, 0.5, 1.0):
        config = support.config("cola", raw_data_dir=str(tmp_path), train_share=share)
        (task,) = make_tasks(config, support.tokenizer())
        kept[share] = {example.texts for example in task.load("train").examples}
        assert len(task.load("dev").examples) == 40
    assert len(kept[0.1]) == 4 and len(kept[0.5]) == 20 and kept[0.1] < kept[0.5] < kept[1.0]


def test_a_share_of_tagged_sentences_leaves_development_data_whole(tmp_path):
    for split in ("train", "dev"):
        write_lines(tmp_path / "chunk" / f"{split}.txt", *(["the B-NP", ""] * 20))
    config = support.config("chunk", raw_data_dir=str(tmp_path), train_share=0.5)
    (task,) = make_tasks(config, support.tokenizer())
    sizes = {split: len(task.load(split).examples) for split in ("train", "dev")}
    assert sizes == {"train": 10, "dev": 20}


def test_a_share_is_of_pairs_not_of_their_orders_and_demonstrations_are_of_it(tmp_path):
    pairs = [{"sentence1": f"file {i}", "sentence2": f"list {i}", "label": str(i % 2)} for i in range(40)]
    for split in ("train", "dev"):
        write_lines(tmp_path / "mrpc" / f"{split}.jsonl", *map(json.dumps, pairs))
    settings: dict[str, Any] = {"raw_data_dir": str(tmp_path), "train_share": 0.25}
    (plain,) = make_tasks(support.config("mrpc", **settings), support.tokenizer())
    examples = plain.load("train").examples
    assert len(examples) == 20 and len({frozenset(example.texts) for example in examples}) == 10
    words: dict[str, Any] = {"prompt_words": {"0": "file", "1": "list"}, "prompt_template": "{0} {1} [MASK]"}
    prompted = support.config("mrpc", prompt=True, max_seq_length=48, prompt_evaluation_draws=4, **words, **settings)
    task = make_tasks(prompted, support.tokenizer())[0]
    shared = {" ".join(sorted(example.texts)) for example in task.load("train").examples}
    assert len(shared) == 10
    dev = task.load("dev")
    for text in (task.tokenizer.readable(feature.input_ids) for feature in dev.features):
        for demonstration in text.split(" [SEP]")[1:3]:
            number = "".join(letter for letter in demonstration.split("list")[0] if letter.isdigit())
            assert f"file {number} list {number}" in shared


def test_soft_targets():
    random = np.random.default_rng(0)
    logits, teacher = random.normal(size=(2, 5, 3)).astype(np.float32)
    for temperature in (1.0, 2.0):
        p, q = (np.exp(x / temperature) / np.exp(x / temperature).sum(-1, keepdims=True) for x in (teacher, logits))
        expected = temperature**2 * (p * np.log(p / q)).sum(-1)
        np.testing.assert_allclose(soft_losses(teacher, logits, temperature), expected, atol=1e-5)
    np.testing.assert_allclose(soft_losses(logits + 3.0, logits, 2.0), 0, atol=1e-6)


@pytest.mark.parametrize(
    ("hparams", "message"),
    [
        ({"few_shot": 4, "train_share": 0.5}, "few_shot and train_share"),
        ({"train_share": 0.0}, "train_share"),
        ({"do_eval": False, "write_test_outputs": True}, "write_test_outputs needs do_eval"),
    ],
)
def test_what_does_not_go_together_is_refused(hparams, message):
    with pytest.raises(UserError, match=message):
        support.config("cola", **hparams)
