"""Prompts: templates to wordpieces, demonstrations, few-shot splits, scores of label words, what is refused."""

import json

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.finetune.starts import configuration
from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.finetune.tasks.head import HeadInput
from electra_tf2.finetune.tasks.prompt import LabelWordHead, PromptTask, language_model_head
from electra_tf2.finetune.tasks.sampling import few_shot_split
from electra_tf2.finetune.tasks.targets import Scale
from electra_tf2.finetune.tasks.text import TextTask
from electra_tf2.finetune.tasks.text_files import TextExample
from electra_tf2.pretrain.objectives.ablations import copy_log_prob
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from electra_tf2.util.errors import UserError
from tests.support import golden
from tests.support.finetuning import write_lines
from tests.support.finetuning_runs import run
from tests.support.prompting import SIZES, SPECIAL, WORDS, coco_lm_in


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A vocabulary and MNLI-like files, two examples of each label in training."""
    folder = tmp_path_factory.mktemp("prompts")
    write_lines(folder / "vocab.txt", *SPECIAL, *WORDS)
    rows = [
        ("The dog barks.", "The dog runs.", "neutral"),
        ("The dog barks.", "A dog barks.", "entailment"),
        ("A cat sleeps.", "The cat barks.", "contradiction"),
        ("The cat runs.", "It was a cat.", "neutral"),
        ("A dog sleeps.", "The dog sleeps.", "entailment"),
        ("A dog runs.", "The dog sleeps.", "contradiction"),
    ]
    keys = ("premise", "hypothesis", "gold_label")
    for split in ("train", "dev_matched"):
        lines = [json.dumps(dict(zip(keys, row, strict=True))) for row in rows]
        write_lines(folder / "mnli" / f"{split}.jsonl", *lines)
    return folder


def make(folder, name="mnli", **overrides) -> PromptTask:
    settings = {"vocab_file": str(folder / "vocab.txt"), "vocab_size": len(SPECIAL + WORDS), "max_seq_length": 128}
    config = configuration(
        settings | {"task_names": [name], "raw_data_dir": str(folder), "prompt": True, "prompt_draws": 2} | overrides
    )
    task = make_tasks(config, WordpieceTokenizer(config.vocab_file))[0]
    assert isinstance(task, PromptTask)
    return task


def test_an_input_is_the_question_and_one_demonstration_of_each_label(folder):
    task = make(folder)
    split = task.load("train")
    feature = split.features[0]
    tokens = task.tokenizer.convert_ids_to_tokens(feature.input_ids)
    text = " ".join(tokens)
    assert text.startswith("[CLS] the dog barks ? [MASK] , the dog runs . [SEP] ")
    assert tokens[feature.labels["mask_positions"]] == "[MASK]" and tokens.count("[MASK]") == 1
    no, yes, maybe = text.split(" [SEP]")[1:4]
    assert no.split(" ? ")[1].split()[0] == "no" and ("cat sleeps" in no or "dog runs" in no)
    assert yes.split(" ? ")[1].split()[0] == "yes"
    assert maybe == " the cat runs ? maybe , it was a cat ."  # the other neutral example, never the question
    assert not feature.segment_ids.any()
    assert split.counts == [2] * 6 and len(split.features) == 12


def test_the_question_is_never_its_own_demonstration_and_draws_differ(folder):
    task = make(folder, prompt_draws=20)
    split = task.load("train")
    seen = set()
    for number, example in enumerate(split.examples):
        question = task.tokenizer.readable(task.tokenizer.tokenize([example.texts[1].lower().encode()])[0])
        first = task.tokenizer.readable(task.tokenizer.tokenize([example.texts[0][:-1].lower().encode()])[0])
        for feature in split.features[20 * number : 20 * number + 20]:
            text = task.tokenizer.readable(feature.input_ids)
            seen.add(text)
            demonstrations = text.split(" [SEP]", 1)[1]
            assert not any(f"{first} ? {word} , {question}" in demonstrations for word in ("yes", "no", "maybe"))
    assert len(seen) == 6 * 4  # each of the two other labels has two candidates
    again = [feature.input_ids.tolist() for feature in make(folder, prompt_draws=20).load("train").features]
    assert again == [feature.input_ids.tolist() for feature in split.features]


def test_a_split_without_labels_is_not_scored(folder):
    task = make(folder)
    task.load("train")
    examples = task.training
    assert task.encode(examples, "test").labelled
    assert not task.encode([example._replace(label=None) for example in examples], "test").labelled


def test_the_logits_of_the_draws_are_averaged(folder):
    task = make(folder, prompt_evaluation_draws=2)
    split = task.load("dev_matched")
    right = [feature.labels["label_ids"] for feature in split.features]
    predictions = []
    for number, label in enumerate(right):  # of each pair the first is sure of the truth, the second less of an error
        logits = np.zeros(3, np.float32)
        logits[label if number % 2 == 0 else (label + 1) % 3] = 3.0 if number % 2 == 0 else 2.0
        predictions.append({"logits": logits})
    assert len(predictions) == 12 and task.scores(split, predictions)["accuracy"] == 100.0
    answers = task.answers(split, predictions)
    assert [answer["label"] for answer in answers] == [example.label for example in split.examples]
    assert max(answers[0]["probabilities"].values()) == pytest.approx(np.exp(1.5) / (np.exp(1.5) + np.e + 1))


def test_long_texts_leave_the_mask_and_every_block_in_place(folder):
    path = folder / "long" / "train.jsonl"
    texts = ["dog " * 300, "cat " * 200, "a film", "dog barks"]
    write_lines(path, *[json.dumps({"text": text, "label": "ab"[i % 2]}) for i, text in enumerate(texts)])
    own = {"long": {"type": "classification", "held_out": 0}}
    words = {"a": "good", "b": "bad"}
    task = make(folder, "long", tasks=own, prompt_template="{0} it was [MASK] .", prompt_words=words, max_seq_length=64)
    for feature in task.load("train").features:
        tokens = task.tokenizer.convert_ids_to_tokens(feature.input_ids)
        assert len(tokens) <= 64 and tokens.count("[SEP]") == 3 and tokens.count("[MASK]") == 1
        assert tokens[feature.labels["mask_positions"]] == "[MASK]"
        assert tokens[feature.labels["mask_positions"] + 1] == "."


@settings(max_examples=20)
@given(st.lists(st.integers(0, 2), min_size=40, max_size=120), st.integers(1, 5), st.integers(0, 100))
def test_few_shot_splits_are_balanced_disjoint_and_reproducible(groups, size, seed):
    groups = np.array([0, 1, 2] * 10 + groups)
    train, dev = few_shot_split(groups, size, seed)
    assert not set(train) & set(dev)
    assert np.bincount(groups[train]).tolist() == np.bincount(groups[dev]).tolist() == [size] * 3
    assert few_shot_split(groups, size, seed) == (train, dev)


def test_the_scores_of_words_do_not_depend_on_the_copy_probability():
    config = PretrainingConfig.from_dict(
        {"vocab_size": 40, "corrective_lm_objective": True, "electra_objective": False, "embedding_size": 16}
        | {"model_hparam_overrides": SIZES, "vocab_file": str(golden.CHECKPOINT / "vocab.txt")}
    )
    model = PretrainingModel(config)
    assert model.encoder is not None
    head = LabelWordHead("clm_predictions", model.encoder, False, [9, 7, 30], False, 0)
    sequence = tf.random.stateless_normal([2, 6, 16], [1, 2])
    labels = {"mask_positions": tf.constant([3, 5]), "label_ids": tf.constant([0, 2])}
    logits = head(HeadInput(sequence, None, None, labels), None, False).predictions["logits"]
    full = head.language_model(tf.stack([sequence[:1, 3], sequence[1:, 5]]))  # [2, 1, V]
    log_probs = tf.nn.log_softmax(full)
    for copy in (-7.0, 0.0, 4.0):
        of_words = [
            copy_log_prob(tf.fill([2, 1], copy), log_probs[:, :, word], tf.zeros([2, 1], tf.bool))
            for word in (9, 7, 30)
        ]
        np.testing.assert_allclose(
            tf.nn.softmax(tf.concat(of_words, -1)), tf.nn.softmax(logits), rtol=1e-4, err_msg=str(copy)
        )


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"prompt_template": "{0} it was"}, r"\[MASK\] must occur once"),
        ({"prompt_template": "{2} [MASK]"}, "fields are"),
        ({"prompt_template": "[MASK]"}, "no field for a text"),
        ({"prompt_template": "{0} [MASK] {1} {0:lower}"}, r"\{0\} may occur once"),
        ({"task_names": ["sst"], "prompt_template": "{0} [MASK] {1}"}, r"sst has 1 text, so \{0\} is its only field"),
        ({"prompt_words": {"entailment": 3}}, "the word of entailment must be text, got 3"),
        ({"prompt_words": {"entailment": "yes"}}, "no word for contradiction, neutral"),
        ({"prompt_words": {"entailment": "yes", "neutral": "barking", "contradiction": "no"}}, "'barking' must be one"),
        ({"prompt_words": {"entailment": "yes", "neutral": "yes", "contradiction": "no"}}, "have the same word"),
        ({"max_seq_length": 16}, "too short for 4 prompts"),
        ({"few_shot": 2}, "few_shot 2 needs 4 training examples"),
        ({"few_shot": 1}, "but 2 are needed"),
        ({"random_init": True}, "not random_init"),
        ({"task_names": ["chunk"]}, "not for chunk"),
        ({"prompt": False, "prompt_template": "{0} [MASK]"}, "need prompt to be true"),
    ],
)
def test_what_cannot_be_prompted_is_refused(folder, overrides, message):
    with pytest.raises(UserError, match=message):
        make(folder, **overrides).load("train")


class Mine(TextTask):
    """A task with a head of its own."""


def test_a_task_in_python_with_another_head_is_not_prompted(folder):
    with pytest.raises(UserError, match="prompt: mine is a task with another head"):
        make(folder, "mine", tasks={"mine": {"type": f"{__name__}:Mine"}})


def test_a_detector_of_replaced_tokens_has_no_language_model():
    with pytest.raises(UserError, match="no language-model head"):
        language_model_head(str(golden.CHECKPOINT))


def test_few_examples_are_learned_from_the_command_line(tmp_path, folder):
    _, model_dir = coco_lm_in(tmp_path / "models" / "toy", folder, max_seq_length=32)
    random = np.random.RandomState(0)
    for split, size in (("train", 200), ("dev", 40)):
        rows = []
        for _ in range(size):
            animal = random.choice(["dog", "cat"])
            text = " ".join([*random.choice(["the", "a", "film", "it"], 3), animal, random.choice(["runs", "was"])])
            rows.append(json.dumps({"text": text, "label": animal}))
        write_lines(tmp_path / "data" / "finetuning_data" / "animal" / f"{split}.jsonl", *rows)
    settings = {"vocab_size": len(SPECIAL + WORDS), "vocab_file": str(folder / "vocab.txt"), "init_checkpoint": None}
    settings |= {"embedding_size": 16, "model_hparam_overrides": SIZES, "max_seq_length": 48, "learning_rate": 3e-3}
    settings |= {"tasks": {"animal": {"type": "classification"}}, "task_names": ["animal"], "few_shot": 16}
    settings |= {"num_train_epochs": 60.0, "eval_every_steps": 120, "keep_best": True}
    settings |= {"prompt": True, "prompt_template": "{0} it was [MASK] .", "prompt_demonstrations": False}
    settings["prompt_words"] = {"dog": "good", "cat": "bad"}
    output = run(tmp_path / "data", model_dir, **settings)
    assert "loaded" in output and "0 of new heads" in output
    scores = json.loads((model_dir / "results" / "animal_results.json").read_text())["trials"][0]["scores"]["animal"]
    assert scores["few_shot_dev"]["accuracy"] > 90 and scores["dev"]["accuracy"] > 90
    seen = json.loads(next(model_dir.glob("finetuning_models/*/eval/step-120.json")).read_text())
    assert not [name for name in seen if name.startswith("animal_dev")]  # chosen without the development data
    dev = [json.loads(row) for row in rows]
    new = write_lines(tmp_path / "new.jsonl", *(json.dumps({"text": row["text"]}) for row in dev))
    run(tmp_path / "data", model_dir, "--predict", str(new), **settings)
    labelled = (tmp_path / "new.jsonl.predictions.jsonl").read_text().splitlines()
    right = [json.loads(line)["label"] == row["label"] for line, row in zip(labelled, dev, strict=True)]
    assert 100 * np.mean(right) == pytest.approx(scores["dev"]["accuracy"])


def test_a_number_is_read_off_the_shares_of_the_two_words(folder):
    """The likelier the word of the scale's upper end, the nearer the number is to it, as the head learns it."""
    task = make(folder, name="sts", prompt_demonstrations=False)
    split = task.encode([TextExample(("A dog barks.", "A dog runs."), 4.0)] * 3, "dev")
    low, middle, high = task.answers(split, [{"logits": np.array(pair)} for pair in ([2.0, 0.0], [1, 1], [0.0, 2.0])])
    share = 1 / (1 + np.exp(-2.0))
    assert [low["label"], middle["label"], high["label"]] == pytest.approx([5 * (1 - share), 2.5, 5 * share])
    head_learns = task.target.encoded(high["label"])
    assert head_learns == pytest.approx(share)


@pytest.mark.parametrize(
    ("low", "high", "lower_half", "upper_half"), [(0, 5, 2.49, 2.5), (1, 5, 2.9, 3), (-4, 2, -2, 0)]
)
def test_few_shot_splits_of_numbers_take_as_many_of_either_half_of_the_scale(low, high, lower_half, upper_half):
    scale = Scale(low, high)
    assert [scale.group(label) for label in (low, lower_half, upper_half, high)] == [0, 0, 1, 1]
