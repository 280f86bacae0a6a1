"""The demo's task: marks become tags, modules are split, and what a model has to beat."""

import pytest
from sklearn.metrics import f1_score

from demo.make_task import bag_of_words, make_task, tagged
from electra_tf2.util.errors import UserError
from tests.support.finetuning import write_lines

SENTENCES = 'When a "file" is open, the (first) line is read. It returns the names of all 3.5 values, too.'


def test_marks_are_tags_of_the_words_before_them():
    found = tagged(SENTENCES)
    assert found is not None and found[:5] == [
        ("when", "O"),
        ("a", "O"),
        ("file", "O"),
        ("is", "O"),
        ("open", "B-comma"),
    ]
    assert [word for word, tag in found if tag == "B-period"] == ["read", "too"] and ("3.5", "O") in found
    one_sentence = SENTENCES.replace("read. It", "read and it")
    for other in (one_sentence, f"{SENTENCES} And more", SENTENCES.replace("names", "names;"), "Too short. It is."):
        assert tagged(other) is None


def test_development_paragraphs_are_of_documents_of_their_own():
    documents = [[SENTENCES.replace("file", f"{name}x")] * 3 for name in "abcdef"]
    train, dev = make_task(documents, train_size=10, dev_size=4)
    modules = [{words[2][0] for words in part} for part in (train, dev)]
    assert (len(train), len(dev)) == (10, 4) and not modules[0] & modules[1]
    with pytest.raises(UserError, match="1 documents are too few"):
        make_task(documents[:1], 1, 1)


def test_the_bags_score_is_f1_of_the_marks(tmp_path):
    """A word says its tag in training; one of the two marks of the development data follows another word."""
    write_lines(tmp_path / "train.txt", *["the O", "file O", "open B-comma", "read B-period", ""] * 20)
    write_lines(tmp_path / "dev.txt", *["the O", "file O", "open B-comma", "read O", "", "the O", "list B-period"])
    score = bag_of_words(tmp_path)
    gold, predicted = ["B-comma", "O", "B-period"], ["B-comma", "B-period", "O"]  # of open, read, list
    marks = ["B-comma", "B-period"]
    expected = 100 * f1_score(gold, predicted, labels=marks, average="micro")
    assert score == pytest.approx(expected)
