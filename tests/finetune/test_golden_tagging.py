"""Features of tagging equal the original's; scores agree with conlleval where the original does."""

import pytest

from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.finetune.tasks.tagging import TaggingTask
from electra_tf2.finetune.tasks.tags import bio, bioes, originals_spans, spans_of, tagging_scores
from tests.support import finetuning as support
from tests.support import golden

GOLDEN = golden.load_json("tagging_features")
SCORERS = golden.load_json("tagging_scorers")
CASES = [case for case in GOLDEN if "/" in case]


@pytest.mark.parametrize("case", CASES)
def test_features_are_the_originals(case):
    split, length = case.split("/L")
    config = support.config("chunk", compat="original", max_seq_length=int(length), model_hparam_overrides=LONGER)
    task = make_tasks(config, support.tokenizer())[0]
    loaded = task.load(split)
    assert isinstance(task, TaggingTask)
    assert {name: number for number, name in enumerate(task.label_names)} == GOLDEN["label_mapping"]
    assert len(loaded.features) == len(GOLDEN[case])
    for example, ours, (input_ids, segment_ids, words, labels, positions) in zip(
        loaded.examples, loaded.features, GOLDEN[case], strict=True
    ):
        assert example.words == words
        assert ours.input_ids.tolist() == input_ids and ours.segment_ids.tolist() == segment_ids
        assert ours.labels["labeled_positions"].tolist() == positions
        assert ours.labels["labels"].tolist() == labels
        assert ours.labels["labels_mask"].tolist() == [1.0] * len(positions)


LONGER = {"max_position_embeddings": 512}


@pytest.mark.parametrize("case", GOLDEN["span_labels"])
def test_spans_and_encodings_are_the_originals(case):
    spans = originals_spans(case["tags"])
    assert [list(span) for span in spans] == case["spans"]
    assert bioes(spans, len(case["tags"])) == case["BIOES"]
    assert bio(spans, len(case["tags"])) == case["BIO"]
    if case["tags"] in (["B-NP", "I-NP", "O"], ["O", "O"], ["S-NP", "S-NP", "B-VP", "E-VP"], ["O", "E-NP", "S-VP"]):
        assert spans_of(case["tags"]) == spans  # well-formed: conlleval agrees


def test_scores_are_the_originals_by_its_spans():
    case = SCORERS["entity_f1"]
    names = {number: name for name, number in case["label_mapping"].items()}
    gold: list[list[str]] = []
    predicted: list[list[str]] = []
    for update in case["updates"]:
        for labels, result in ((update["labels"], gold), (update["predictions"], predicted)):
            tags = [names[label] for label in labels]
            result.append(bioes(originals_spans(tags), len(tags)))
    scores = tagging_scores(gold, predicted, spans=True)
    for name in ("precision", "recall", "f1"):
        assert scores[name] == pytest.approx(case["results"][name])


def test_accuracy_is_the_originals():
    names = {number: name for name, number in SCORERS["entity_f1"]["label_mapping"].items()}
    updates = SCORERS["entity_f1"]["updates"]
    gold = [[names[label] for label in update["labels"]] for update in updates]
    predicted = [[names[label] for label in update["predictions"]] for update in updates]
    accuracy = tagging_scores(gold, predicted, spans=False)["accuracy"]
    assert accuracy == pytest.approx(SCORERS["tag_accuracy"]["results"]["accuracy"])
