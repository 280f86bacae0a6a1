"""The task in Python of docs/own_tasks.md, from a folder of its own: trained, resumed, predicted with, exported."""

import json
from typing import Any

import pytest

from electra_tf2.exports import exportable, onnx
from electra_tf2.exports.self_check import fixed_inputs
from electra_tf2.formats.readers import read_model
from electra_tf2.inference.predictor import Predictor
from tests.support import exports
from tests.support.finetuning import write_lines
from tests.support.finetuning_runs import run
from tests.support.pages import blocks

TOPICS = {"sport": "file", "money": "list", "weather": "error"}  # and the word that tells each


@pytest.fixture
def news(tmp_path, monkeypatch):
    """The folder of the task's module, from which commands run, with data that are easy to learn."""
    (example,) = blocks("docs/own_tasks.md", "python")
    assert example.count("\n") <= 60
    (tmp_path / "topics.py").write_text(example)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    rows = []
    for number in range(160):
        right = [topic for bit, topic in enumerate(TOPICS) if number >> bit & 1]
        words = ["the", *(TOPICS[topic] for topic in right), "of", "names"]
        rows.append(json.dumps({"text": " ".join(words), "topics": right}))
    write_lines(tmp_path / "finetuning_data" / "news" / "train.jsonl", *rows[:120])
    write_lines(tmp_path / "finetuning_data" / "news" / "dev.jsonl", *rows[120:])
    return tmp_path


def test_a_task_from_outside_goes_every_way(news):
    settings: dict[str, Any] = {"task_names": ["news"], "tasks": {"news": {"type": "topics:Topics", "held_out": 0.1}}}
    settings |= {"num_train_epochs": 20.0, "learning_rate": 1e-3, "save_checkpoints_steps": 200}
    out = news / "out"
    run(news, out, "--no-do-eval", **settings)
    output = run(news, out, **settings)  # goes on with what was trained
    assert "resuming at step 300 of 300" in output
    folder = out / "finetuning_models" / "news_model_1"
    scores = json.loads((out / "results" / "news_results.json").read_text())["trials"][0]["scores"]["news"]["dev"]
    assert scores["f1"] > 90 and scores.keys() == {"f1", "loss"}

    write_lines(news / "new.jsonl", json.dumps({"text": "the error of names", "id": 7}), json.dumps({"text": " "}))
    run(news, out, "--predict", str(news / "new.jsonl"), **settings)
    answer, empty = map(json.loads, (news / "new.jsonl.predictions.jsonl").read_text().splitlines())
    assert answer["id"] == 7 and answer["topics"]["weather"] > 0.5 > answer["topics"]["sport"]
    assert empty["error"] == "an empty text"

    model = read_model(str(folder))
    predictor = Predictor(model, model.tokenizer())
    made = exportable.make_exportable_heads(predictor, fixed_inputs(model))
    rows = [{"text": "the error of names"}, {"text": "file " * 40}]
    ours = exports.answers_of(predictor, 0, rows, made)
    assert ours[0]["topics"]["weather"] == pytest.approx(answer["topics"]["weather"], abs=1e-5)
    assert exportable.write_network(news / "exported", model, made, onnx.RUNTIME).difference < 1e-5
    run_file, _ = onnx.RUNTIME.load(news / "exported" / onnx.RUNTIME.file)
    assert exports.largest_difference(ours, exports.answers_of(predictor, 0, rows, made, run_file)) < 1e-5
