"""Baselines for fine-tuned models: linear models of words, on the files that run_finetuning.py reads.

  python -m benchmarks.bag_of_words --data-dir data --tasks sst,sts,qnli,mrpc,chunk,cola,rte

Texts are TF-IDF weights of words and pairs of neighbouring words; a pair of texts u, v is |u - v|, u v and their
cosine. Classes are told by logistic regression, numbers by ridge regression, tags by logistic regression on a word, its
ending, whether it is capitalised, and two neighbours to either side (scikit-learn). Nothing is tuned on the development
data, whose scores are printed beside those of always answering the commonest label.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.preprocessing import OneHotEncoder

from benchmarks.common import parser_of
from electra_tf2.util.environment import quiet_tensorflow

if TYPE_CHECKING:
    from electra_tf2.finetune.classification.tasks import TextTask
    from electra_tf2.finetune.tagging.tasks import TaggingTask


def features_of(words: TfidfVectorizer, rows: Sequence[tuple[str, ...]]) -> Any:
    """float64 [rows, features], of scipy.sparse: TF-IDF of a text, or of two and of what they share."""
    first, *more = (words.transform(column) for column in zip(*rows, strict=True))
    if not more:
        return first
    both = first.multiply(more[0]).tocsr()
    return scipy.sparse.hstack([abs(first - more[0]), both, both.sum(axis=1)]).tocsr()


def text_scores(task: "TextTask") -> dict[str, dict[str, float]]:
    """Scores of the linear model and of the commonest label, or the mean, on the development data."""
    from electra_tf2.finetune.tasks.metrics import measured

    train, dev = task.examples("train"), task.examples("dev")
    labels, gold = (np.array([task.target.encoded(example.label) for example in part]) for part in (train, dev))
    words = TfidfVectorizer(token_pattern=r"\w+|[^\w\s]", ngram_range=(1, 2), sublinear_tf=True)
    words.fit([text for example in train for text in example.texts])
    inputs = [features_of(words, [example.texts for example in part]) for part in (train, dev)]
    if task.is_regression:
        predicted = Ridge(alpha=1.0).fit(inputs[0], labels).predict(inputs[1])
        return {"bag of words": measured(task.spec.metrics, gold, predicted)}
    model = LogisticRegression(C=10, max_iter=1000).fit(inputs[0], labels)
    commonest = np.full_like(gold, np.bincount(labels).argmax())
    answers = {"bag of words": model.predict(inputs[1]), "commonest label": commonest}
    classes = len(task.label_names)
    return {name: measured(task.spec.metrics, gold, found, classes) for name, found in answers.items()}


def rows_of(sentence: Sequence[str]) -> list[list[str]]:
    """A row of each word of a sentence: it and its neighbours, its last letters, whether it has capitals and digits."""
    padded = ["", "", *(word.lower() for word in sentence), "", ""]
    return [
        [*padded[place : place + 5], word.lower()[-3:], str(word[:1].isupper()), str(any(map(str.isdigit, word)))]
        for place, word in enumerate(sentence)
    ]


def tagging_scores(task: "TaggingTask") -> dict[str, dict[str, float]]:
    """Scores on the development data of the linear model, which predicts the tags of the file as they are."""
    from electra_tf2.finetune.tagging.conll import read_sentences
    from electra_tf2.finetune.tagging.tasks import tagging_scores as scored

    train, dev = (read_sentences(task.data_dir / f"{split}.txt") for split in ("train", "dev"))
    features = OneHotEncoder(handle_unknown="ignore")
    inputs = features.fit_transform([row for one in train for row in rows_of(one.words)])
    model = SGDClassifier(loss="log_loss", alpha=1e-6, max_iter=20, tol=None, random_state=0)
    model.fit(inputs, [tag for one in train for tag in one.tags])
    predicted = [model.predict(features.transform(rows_of(one.words))).tolist() for one in dev]
    return {"bag of words": scored([one.tags for one in dev], predicted, task.spans)}


def main() -> None:
    options = parser_of(__doc__, data_dir="data", tasks="sst,sts,qnli,mrpc,chunk,cola,rte").parse_args()
    quiet_tensorflow()

    from electra_tf2.configure_finetuning import FinetuningConfig
    from electra_tf2.finetune.classification.tasks import TextTask
    from electra_tf2.finetune.tagging.tasks import TaggingTask
    from electra_tf2.finetune.task_classes import make_task

    names = options.tasks.split(",")
    config = FinetuningConfig.from_dict({"data_dir": options.data_dir, "model_name": "none", "task_names": names})
    for name in names:
        task = make_task(name, config, None)  # type: ignore[arg-type]  # nothing is tokenised
        assert isinstance(task, TaggingTask | TextTask)
        found = tagging_scores(task) if isinstance(task, TaggingTask) else text_scores(task)
        for what, scores in found.items():
            listed = ", ".join(f"{metric} {score:.1f}" for metric, score in scores.items())
            print(f"{name:6} {what:16} {listed}", flush=True)


if __name__ == "__main__":
    main()
