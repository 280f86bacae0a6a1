"""What a model has to beat on the demo's task: no marks at all, and logistic regression on words (scikit-learn)."""

from pathlib import Path

from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from electra_tf2.finetune.tagging.conll import Sentence, read_sentences

_REACH = 3  # words to either side, the best of 1, 2 and 3


def baselines(folder: Path) -> dict[str, float]:
    """F1 in percent of commas and full stops on dev.txt, of what was fitted to train.txt.

    The bag holds a word and its neighbours, each with its distance.
    """
    train, dev = (read_sentences(folder / f"{part}.txt") for part in ("train", "dev"))
    model = make_pipeline(DictVectorizer(), LogisticRegression(C=10, max_iter=300))
    model.fit(_bags(train), _tags(train))
    gold, predicted = _tags(dev), model.predict(_bags(dev))
    right = sum(tag == guess != "O" for tag, guess in zip(gold, predicted, strict=True))
    marks = sum(tag != "O" for tag in gold) + sum(guess != "O" for guess in predicted)
    return {"no marks": 0.0, "a bag of neighbouring words": 200 * right / marks}


def _bags(sentences: list[Sentence]) -> list[dict[str, int]]:
    reach = range(-_REACH, _REACH + 1)
    padded = [[""] * _REACH + sentence.words + [""] * _REACH for sentence in sentences]
    return [
        {f"{distance} {words[place + distance]}": 1 for distance in reach}
        for words in padded
        for place in range(_REACH, len(words) - _REACH)
    ]


def _tags(sentences: list[Sentence]) -> list[str]:
    return [tag for sentence in sentences for tag in sentence.tags]
