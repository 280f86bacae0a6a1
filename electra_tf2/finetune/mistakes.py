"""Finds what a model gets wrong (confusion of labels, spans by type, the worst mistakes) and constant answers."""

import textwrap
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from electra_tf2.finetune.data_report import MOST_LABELS, short
from electra_tf2.finetune.results import aligned, figure_of
from electra_tf2.finetune.tasks.qa import QATask
from electra_tf2.finetune.tasks.qa_scores import Comparison
from electra_tf2.finetune.tasks.task import Split, Task
from electra_tf2.util.progress import counted

_MISTAKES = 5  # that are listed
_NO_ANSWER = "(no answer)"
_CLEARLY_ABOVE = 1.1  # times the loss of saying nothing
_FAR_ABOVE = 1.5  # times that loss, from which on a line says so
_FEW_STEPS = 100  # with fewer, training may simply have been too short
_FEW_STEPS_OF_QUESTIONS = 1000  # answers take longer to learn than labels
_MIN_F1_GAIN = 1.0  # of F1 in percent, from which on another threshold is worth a line
_FEW_QUESTIONS = 5  # by which fewer answers are right, the threshold of a split is chance
_PART_OF_PAIR = 90  # characters of each text of a pair that are shown
_LOW_F1 = 20.0  # F1 of the questions that have an answer, in percent, below which a model has hardly learned to answer


def complaint(split: Split, answers: Sequence[Mapping[str, Any]], steps: int = 0) -> str | None:
    """Describes the problem of answers that are the same for every example; None: they are not.

    Args:
      steps: number of training steps; 0: unknown.
    """
    verdicts = []
    for answer in answers:
        verdicts += _verdicts(answer)
    if len(verdicts) < 2 or any(verdict != verdicts[0] for verdict in verdicts):
        return None
    if len({*split.golds}) == 1:
        # All examples have one label, or number.
        return None
    of_questions = "prediction_text" in answers[0]
    advice = remedy(steps, of_questions)
    if of_questions and verdicts[0] == _NO_ANSWER:
        return f"collapsed: no answer to any of {len(verdicts):,} questions, though some have one; {advice}"
    return f"collapsed: the same answer, {verdicts[0]!r}, {len(verdicts):,} times, though not all are alike; {advice}"


def _verdicts(answer: Mapping[str, Any]) -> list[Any]:
    """Lists the labels, tags and numbers of an answer, or its text, but no vectors, which are hardly ever equal."""
    verdicts = []
    if "prediction_text" in answer:
        verdicts.append(answer["prediction_text"] or _NO_ANSWER)
    if "label" in answer:
        verdicts.append(answer["label"])
    if "similarity" in answer:
        verdicts.append(round(answer["similarity"], 4))
    verdicts += answer.get("tags", [])
    for inner in answer.get("answers", []):
        verdicts += _verdicts(inner)
    return verdicts


def learned_by_heart(scores: Mapping[str, float], golds: Collection[Any]) -> bool:
    """Tells of a classifier whether it is sure of wrong labels: its loss is clearly above the entropy of the labels."""
    return "accuracy" in scores and scores.get("loss", 0.0) > _CLEARLY_ABOVE * _entropy(golds)


def note_on_sureness(scores: Mapping[str, float], golds: Collection[Any]) -> str:
    """Says of a classifier that its probabilities are too sure; "" if they are not."""
    loss = scores.get("loss", 0.0)
    entropy = _entropy(golds)
    if "accuracy" not in scores or loss <= _FAR_ABOVE * entropy:
        return ""
    return (
        f"its probabilities are too sure: their loss is {loss:.3g}, while the shares of the labels alone have "
        f"{entropy:.2g}. More rows help, or fewer epochs"
    )


def _entropy(golds: Collection[Any]) -> float:
    """The loss of predicting each label with its share, in nats."""
    counts = np.array(list(Counter(golds).values()), float)
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def remedy(steps: int, of_questions: bool = False, by_heart: bool = False) -> str:
    """Gives advice for a model that has not learned its task.

    Args:
      steps: number of training steps; 0: unknown.
      of_questions: whether the task is to find answers in contexts.
      by_heart: whether it is sure of wrong labels.
    """
    if of_questions and 0 < steps < _FEW_STEPS_OF_QUESTIONS:
        return (
            f"{steps} steps are few for answers, which take longer to learn than labels: raise num_train_epochs, give "
            "more questions, or start from a larger model or one that was fine-tuned on questions "
            "(docs/own_tasks.md#questions)"
        )
    if 0 < steps < _FEW_STEPS:
        return f"{steps} steps are few: raise num_train_epochs, to some {_FEW_STEPS} steps or more"
    if by_heart:
        return "it is sure of wrong labels, as if it had learned its rows by heart: give more rows, or a larger model"
    return "try more epochs, another seed or a lower learning_rate"


def hardly_answers(scores: Mapping[str, float]) -> bool:
    """Tells of scores of answers to questions whether hardly one of those that have an answer is right."""
    return scores.get("HasAns_f1", scores["f1"]) < _LOW_F1


def better_threshold(scores: Mapping[str, float]) -> str:
    """Names the threshold at which answers that may be missing have a clearly better F1; "": there is none."""
    gain = scores.get("best_f1", 0.0) - scores["f1"]
    if gain < _MIN_F1_GAIN or gain / 100 * scores["total"] < _FEW_QUESTIONS:
        return ""
    threshold = figure_of("best_f1_thresh", scores["best_f1_thresh"])
    return f"with --qa-na-threshold {threshold} F1 is {scores['best_f1']:.4g} in place of {scores['f1']:.4g}"


def is_baseline(metric: str, scores: Mapping[str, float], majority: Mapping[str, float]) -> bool:
    """Tells whether a metric is no better than that of a constant answer, such as the commonest label.

    Args:
      majority: scores of that answer; {}: there is none.
    """
    return metric in majority and scores[metric] <= majority[metric]


def answered_rows(task: Task, split: Split, answers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Joins each example's input and answer to one object, as in the file of predictions."""
    return [row | answer for row, answer in zip(task.inputs(split), answers, strict=True)]


def errors_of(task: Task, split: Split, answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Finds what is wrong in the answers to a labelled split.

    Returns:
      JSON; {} for answers of another form than these.
      "mistakes": the worst ones. Classes and numbers: rows as in the file of predictions, by the probability of the
      wrong label or the distance of the number. Tags, spans and answers to questions: the wrong ones by their
      probability.
      "labels" and "confusion" (classes, tags of single words): counts [gold][predicted].
      "by_label" (classes, tags of single words, types of spans): {"count", "precision", "recall", "f1"} by label, in
      percent.
    """
    rows = answered_rows(task, split, answers)
    if not rows or "gold" not in rows[0]:
        return {}
    if "entities" in rows[0]:
        return _wrong_spans(rows)
    if "tags" in rows[0]:
        return _wrong_tags(rows)
    if isinstance(task, QATask):
        return _wrong_answers(rows, task.comparison)
    if "label" not in rows[0] or not isinstance(rows[0]["gold"], (str, int, float)):
        return {}
    if "probabilities" not in rows[0]:
        return _wrong_numbers(rows)
    if not isinstance(rows[0]["probabilities"], dict):
        return {}
    return _wrong_classes(rows)


def _wrong_numbers(rows: list[dict[str, Any]]) -> dict[str, Any]:
    wrong = [row for row in rows if f"{row['gold']:.2f}" != f"{row['label']:.2f}"]
    wrong.sort(key=lambda row: -abs(float(row["gold"]) - row["label"]))
    return {"mistakes": _first_of_each(wrong)}


def _first_of_each(mistakes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first mistakes, each text once: data may hold it several times, and a sentence several wrong spans."""
    seen = set()
    first: list[dict[str, Any]] = []
    for mistake in mistakes:
        text = _text_of(mistake)
        if len(first) == _MISTAKES:
            break
        # Without a text there is nothing that could stand in the report twice.
        if text and text in seen:
            continue
        seen.add(text)
        first.append(mistake)
    return first


def _text_of(mistake: Mapping[str, Any]) -> tuple[str, ...]:
    """The text of a mistake: a sentence, a text or a pair; a question with both answers, as forms repeat questions."""
    if "sentence" in mistake:
        return (mistake["sentence"],)
    if "question" in mistake:
        return mistake["question"], mistake["gold"], mistake["label"]
    return tuple(str(value) for key, value in mistake.items() if key.startswith("text"))


def _wrong_classes(rows: list[dict[str, Any]]) -> dict[str, Any]:
    labels = list(rows[0]["probabilities"])
    pairs = []
    wrong = []
    for row in rows:
        pairs.append((str(row["gold"]), row["label"]))
        if row["label"] != row["gold"]:
            wrong.append(row)
    wrong.sort(key=lambda row: -row["probabilities"][row["label"]])
    return _confusion(labels, pairs) | {"mistakes": _first_of_each(wrong)}


def _wrong_tags(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Finds wrong tags of single words."""
    pairs = []
    wrong = []
    for row in rows:
        words = zip(row["words"], row["gold"], row["tags"], row["probabilities"], strict=True)
        for word, gold, tag, probability in words:
            pairs.append((gold, tag))
            if tag != gold:
                mistake = {"word": word, "label": tag, "probability": probability, "gold": gold}
                wrong.append(mistake | {"sentence": " ".join(row["words"])})
    wrong.sort(key=lambda mistake: (-mistake["probability"], mistake["sentence"], mistake["word"]))
    labels: set[str] = set()
    for pair in pairs:
        labels.update(pair)
    return _confusion(sorted(labels), pairs) | {"mistakes": _first_of_each(wrong)}


def _confusion(labels: list[str], pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Counts pairs of a right and a predicted label.

    Returns:
      {"labels", "confusion", "by_label"}, as `errors_of` has them.
    """
    index_of = {label: index for index, label in enumerate(labels)}
    confusion = np.zeros([len(labels), len(labels)], int)
    for gold, predicted in pairs:
        confusion[index_of[gold], index_of[predicted]] += 1
    right = np.diag(confusion)
    by_label = _by_label(labels, right, confusion.sum(1), confusion.sum(0))
    return {"labels": labels, "confusion": confusion.tolist(), "by_label": by_label}


def _wrong_spans(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Finds wrong spans. As in the scores, a span is right if type, start and end are."""
    counts: dict[str, np.ndarray] = {}  # type -> right, gold, predicted
    wrong = []
    for row in rows:
        gold = _by_place(row["gold_entities"])
        predicted = _by_place(row["entities"])
        for column, places in enumerate((gold.keys() & predicted.keys(), gold, predicted)):
            for _, _, kind in places:
                counts.setdefault(kind, np.zeros(3, int))[column] += 1
        for start, end, kind in predicted.keys() - gold.keys():
            found = predicted[start, end, kind]
            overlapping = [f"{one['text']} ({one['type']})" for one in gold.values() if _overlap(one, found)]
            wrong.append(
                {
                    "text": found["text"],
                    "label": kind,
                    "probability": found["probability"],
                    "gold": ", ".join(overlapping) or "no span",
                    "sentence": row["text"],
                }
            )
    wrong.sort(key=lambda mistake: (-mistake["probability"], mistake["sentence"], mistake["text"]))
    types = sorted(counts)
    right, gold_counts, predicted_counts = np.array([counts[name] for name in types]).reshape(-1, 3).T
    by_label = _by_label(types, right, gold_counts, predicted_counts)
    return {"by_label": by_label, "mistakes": _first_of_each(wrong)}


def _by_place(entities: Sequence[dict[str, Any]]) -> dict[tuple[int, int, str], dict[str, Any]]:
    return {(entity["start"], entity["end"], entity["type"]): entity for entity in entities}


def _overlap(entity: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return entity["start"] < other["end"] and other["start"] < entity["end"]


def _wrong_answers(rows: list[dict[str, Any]], comparison: Comparison) -> dict[str, Any]:
    """Finds wrong answers. As in the scores, an answer is right if it equals an acceptable one."""
    wrong = []
    for row in rows:
        may_be_impossible = "null_odds" in row
        golds = row["gold"]
        if not golds and not may_be_impossible:
            # Nobody knows what is right, so it is not scored either.
            continue
        predicted = row["prediction_text"]
        if any(comparison.exact(gold, predicted) for gold in golds or [""]):
            continue
        if predicted:
            probability = next(one["probability"] for one in row["nbest"] if one["text"] == predicted)
        elif may_be_impossible:
            probability = float(1 / (1 + np.exp(-row["null_odds"])))
        else:
            probability = 0.0
        gold = golds[0] if golds else _NO_ANSWER
        answer = predicted or _NO_ANSWER
        wrong.append({"question": row["question"], "label": answer, "probability": probability, "gold": gold})
    wrong.sort(key=lambda mistake: -mistake["probability"])
    return {"mistakes": _first_of_each(wrong)}


def _by_label(labels: list[str], right: Any, gold: Any, predicted: Any) -> dict[str, dict[str, float]]:
    """Computes precision, recall and F1 of each label from its counts, in percent; 0 if the divisor is 0."""
    by_label = {}
    for name, hits, of_gold, of_predicted in zip(labels, right, gold, predicted, strict=True):
        by_label[name] = {
            "count": int(of_gold),
            "precision": 100.0 * float(hits) / max(int(of_predicted), 1),
            "recall": 100.0 * float(hits) / max(int(of_gold), 1),
            "f1": 200.0 * float(hits) / max(int(of_gold) + int(of_predicted), 1),
        }
    return by_label


def shown_errors(name: str, errors: Mapping[str, Any]) -> str:
    """Shows a result of `errors_of` in lines of 80 columns.

    Args:
      name: name of task and split, for the headings.
    """
    lines: list[str] = []
    labels = errors.get("labels", [])
    if 0 < len(labels) <= MOST_LABELS:
        lines += ["", *_confusion_lines(name, labels, errors["confusion"])]
    elif labels:
        confusions = _commonest_confusions(labels, errors["confusion"])
        if confusions:
            lines += ["", f"{name}: most often", *confusions]
    if errors.get("by_label"):
        lines += ["", *_by_label_lines(name, errors["by_label"])]
    if errors.get("mistakes"):
        lines += ["", f"{name}: the worst mistakes"]
        for mistake in errors["mistakes"]:
            line = f"  {_mistake(mistake)}"
            lines += textwrap.wrap(line, 80, subsequent_indent="      ", max_lines=3, placeholder=" …")
    return "".join(f"{line}\n" for line in lines)


def _confusion_lines(name: str, labels: list[str], confusion: list[list[int]]) -> list[str]:
    width = max(4, 60 // len(labels))
    short_labels = [short(label, width) for label in labels]
    rows = [[name, *short_labels]]
    for label, counts in zip(short_labels, confusion, strict=True):
        rows.append([label, *map(str, counts)])
    return [*aligned(rows, 1).splitlines(), "rows: the right label, columns: the predicted one"]


def _commonest_confusions(labels: list[str], confusion: list[list[int]]) -> list[str]:
    confused = []
    for i, right in enumerate(labels):
        for j, predicted in enumerate(labels):
            if i != j and confusion[i][j]:
                confused.append((confusion[i][j], f"{right} taken for {predicted}"))
    confused.sort(reverse=True)
    return [f"  {what}: {count}" for count, what in confused[:MOST_LABELS]]


def _by_label_lines(name: str, by_label: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Shows precision, recall, F1 and count of each label, the commonest first."""
    rows = [[name, "precision", "recall", "f1", "count"]]
    commonest_first = sorted(by_label.items(), key=lambda item: -item[1]["count"])
    for label, values in commonest_first[:MOST_LABELS]:
        percentages = [f"{values[metric]:.1f}" for metric in ("precision", "recall", "f1")]
        rows.append([short(label), *percentages, f"{values['count']:,}"])
    lines = aligned(rows, 1).splitlines()
    if len(by_label) > MOST_LABELS:
        lines.append(f"and {counted(len(by_label) - MOST_LABELS, 'rarer label')}")
    return lines


def _mistake(mistake: Mapping[str, Any]) -> str:
    """Shows a mistake in a line: what is right, what was predicted, and the text."""
    if "word" in mistake:
        predicted = f"{short(mistake['label'])} {mistake['probability']:.2f}"
        return f"{mistake['word']}: {short(mistake['gold'])}, predicted {predicted}: {mistake['sentence']}"
    if "sentence" in mistake:
        predicted = f"{mistake['text']} ({short(mistake['label'])}) {mistake['probability']:.2f}"
        return f"{mistake['gold']}, predicted {predicted}: {mistake['sentence']}"
    if "question" in mistake:
        predicted = short(mistake["label"])
        if predicted != _NO_ANSWER:  # which a threshold of odds decides, not a probability
            predicted += f" {mistake['probability']:.2f}"
        return f"{short(mistake['gold'])}, predicted {predicted}: {mistake['question']}"
    if "probabilities" in mistake:
        predicted = f"{short(mistake['label'])} {mistake['probabilities'][mistake['label']]:.2f}"
    else:
        predicted = f"{mistake['label']:.2f}"
    texts = _text_of(mistake)
    if len(texts) > 1:  # a long first one must not push the others out of the line
        texts = tuple(textwrap.shorten(text, _PART_OF_PAIR, placeholder=" …") for text in texts)
    text = " ".join(" | ".join(texts).split())
    return f"{short(str(mistake['gold']))}, predicted {predicted}: {text}"
