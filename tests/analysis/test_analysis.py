"""Analyses: their numbers against definitions, and the command on a model of ours."""

import json
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from electra_tf2.analysis import catalogue, vectors
from electra_tf2.analysis.curves import _scale, read_results
from electra_tf2.analysis.pretrained import PretrainedModel, pretrained, similar_sentences
from electra_tf2.analysis.request import Request
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from electra_tf2.util.errors import UserError
from tests.support import training as support
from tests.support.finetuning import write_lines
from tests.support.programs import ROOT, run_program


def states(seed, count=12, hidden=5):
    return np.random.default_rng(seed).normal(size=(count, hidden))


@given(st.integers(0, 1000))
def test_alignment_and_uniformity_follow_their_definitions(seed):
    first, second = states(seed), states(seed + 1)
    units = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (first, second)]
    squares = [sum((a - b) ** 2) for a, b in zip(*units, strict=True)]
    assert vectors.alignment_loss(first, second) == pytest.approx(np.mean(squares))
    assert vectors.uniformity_loss(first, second) == pytest.approx(np.log(np.mean([np.exp(-2 * s) for s in squares])))
    assert vectors.alignment_loss(first, 3 * first) == pytest.approx(0)
    assert vectors.uniformity_loss(first, first) == pytest.approx(0)


def test_equal_states_have_cosine_one_and_opposite_ones_minus_one():
    x = states(0)
    np.testing.assert_allclose(vectors.cosines(x, 2 * x), 1)
    np.testing.assert_allclose(vectors.cosines(x, -x), -1)
    report = vectors.distribution(vectors.cosines(x, x))
    assert report["mean"] == pytest.approx(1) and sum(report["histogram"]) == len(x) and report["histogram"][-1] == 12


@given(st.integers(2, 30), st.integers(0, 100))
def test_random_pairs_are_of_different_sentences(count, seed):
    rows = np.arange(count)[:, np.newaxis]
    first, second = vectors.random_pairs(rows, rows + 100, 50, seed)
    with pytest.raises(UserError, match="two texts or records at least"):
        vectors.random_pairs(rows[:1], rows[:1], 1, seed)
    assert len(first) == 50 and (first + 100 != second).all()
    assert set(first.flat) <= set(range(count)) and set(second.flat) <= set(range(100, 100 + count))


def test_separation_is_the_chance_that_similar_beats_random():
    similar, random = np.array([0.9, 0.5, 0.3]), np.array([0.4, 0.3])
    wins = [(s > r) + 0.5 * (s == r) for s in similar for r in random]
    assert vectors.separation(similar, random) == pytest.approx(np.mean(wins))


def analyse(data_dir, *words):
    return run_program("run_analysis.py", "--data-dir", str(data_dir), *words)


def test_a_vocabulary_or_checkpoint_of_another_model_is_refused(tmp_path):
    config = PretrainingConfig.from_dict(support.hparams(tmp_path))
    folder = tmp_path / "models" / "test"
    model = PretrainingModel(config)
    tf.train.Checkpoint(model=model.encoder).write(str(folder / "model.ckpt-7"))
    write_lines(folder / "checkpoint", 'model_checkpoint_path: "model.ckpt-7"')
    (folder / "config.json").write_text(config.to_json())
    with pytest.raises(UserError, match="the checkpoint lacks discriminator_predictions"):
        PretrainedModel(str(folder))
    other = write_lines(tmp_path / "vocab.txt", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "word")
    with pytest.raises(UserError, match=r"was trained with 600 tokens, but .*vocab\.txt has 6"):
        PretrainedModel(str(folder), str(other))
    (folder / "config.json").write_text("{")
    with pytest.raises(UserError, match="not valid JSON"):
        PretrainedModel(str(folder))


def test_a_model_without_its_generator_is_looked_at_as_far_as_that_goes():
    model = PretrainedModel(str(ROOT / "electra_tf2" / "pretrained" / "electra_deep"))
    assert model.sentence_states(["The chef eats.", "A meal"]).shape == (2, 192)
    with pytest.raises(UserError, match="electra_deep holds no generator"):
        model.view_states(2)


def test_every_analysis_writes_numbers_and_a_figure(tmp_path):
    support.write_records(tmp_path / "pretrain_tfrecords", "dev_data")
    rows = [f"0\tx\tx\tx\tx\tx\tx\tthe file {i} is open\tfile {i} is open\t{5.0 if i % 2 else 1.0}" for i in range(40)]
    for split in ("train", "dev"):
        write_lines(tmp_path / "finetuning_data" / "sts" / f"{split}.tsv", "\t".join(["header"] * 10), *rows)
    objectives: dict[str, dict[str, Any]] = {
        "detection": {},
        "coco": {"electra_objective": False, "corrective_lm_objective": True, "sequence_contrast_objective": True},
        "bert": {"electra_objective": False},
    }
    for name, overrides in objectives.items():
        folder = tmp_path / "models" / name
        config = PretrainingConfig.from_dict(support.hparams(tmp_path, model_name=name, **overrides))
        tf.train.Checkpoint(model=PretrainingModel(config)).write(str(folder / "model.ckpt-7"))
        write_lines(folder / "checkpoint", 'model_checkpoint_path: "model.ckpt-7"')
        (folder / "config.json").write_text(config.to_json())
    logged = {"positive_cosine": 0.75, "negative_cosine": 0.25, "copy_accuracy_replaced": 0.5}
    detection = {"disc_recall": 0.25, "disc_accuracy": 0.85, "replaced_rate": 0.2}
    for name in objectives:
        values = {"coco": logged, "detection": detection}.get(name, {})
        lines = [{"step": step, "loss": 9 - step} | {f"train_{key}": values[key] for key in values} for step in (5, 7)]
        write_lines(tmp_path / "models" / name / "train_metrics.jsonl", *map(json.dumps, lines))
    held_out = tmp_path / "models" / "coco" / "eval" / "step-7.json"
    held_out.parent.mkdir()
    held_out.write_text(json.dumps(logged | {"negative_cosine": 0.125, "clm_accuracy_replaced": 0.0625}))
    found = [{"hparams": {"train_share": share}, "score": 50 + share, "std": 0.5} for share in (1.0, 0.01)]
    searched = {"tasks": ["rte"], "searched": ["train_share"], "combinations": 2, "found": found}
    write_lines(tmp_path / "models" / "bert" / "results" / "rte_search_train_share.json", json.dumps(searched))
    found = [{"hparams": {"learning_rate": 0.1}, "score": score, "std": 0.0} for score in (50.0, None)]
    rates = {"tasks": ["rte"], "searched": ["learning_rate"], "combinations": 1, "found": found}
    write_lines(tmp_path / "models" / "coco" / "results" / "rte_search_learning_rate.json", json.dumps(rates))

    result = analyse(
        tmp_path, "--model-names", ",".join(objectives), "--analysis", ",".join(catalogue.ANALYSES), "--seed", "3"
    )
    assert result.returncode == 0, result.stderr
    assert "bert: left out, it has logged neither copying nor detection" in result.stdout
    report = {}
    for name in catalogue.ANALYSES:
        for figure in ("search_train_share", "search_learning_rate") if name == "search" else (name,):
            assert (tmp_path / "analysis" / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
            assert (tmp_path / "analysis" / f"{figure}.pdf").read_bytes().startswith(b"%PDF")
        report[name] = json.loads((tmp_path / "analysis" / f"{name}.json").read_text())
    for model in objectives:
        assert report["cosine"][model]["similar"]["pairs"] == 40 and 0 <= report["cosine"][model]["auc"] <= 1
        assert np.shape(report["tsne"][model]["first"]) == (40, 2)
        alignment = 2 - 2 * report["tsne"][model]["mean_cosine"]
        assert report["uniformity"][model]["alignment"] == pytest.approx(alignment, abs=1e-6)
    history = report["contrast"]["coco"]["history"]
    assert history["positive_cosine"] == {"steps": [7], "values": [0.75]}  # of held-out records, where there are any
    assert history["negative_cosine"]["values"] == [0.125]
    trained = report["contrast"]["detection"]["trained"]
    assert report["contrast"]["detection"]["history"] == {}
    assert trained["positive_cosine"] > trained["negative_cosine"]  # even untrained: a crop shares its tokens
    assert report["copying"]["coco"]["history"]["clm_accuracy_replaced"]["values"] == [0.0625]
    as_copying = report["copying"]["detection"]["history"]  # 0.2 x 0.25 + 0.8 x 1 = 0.85
    assert as_copying["copy_accuracy_replaced"] == {"steps": [5, 7], "values": [0.25, 0.25]}
    assert as_copying["copy_accuracy_original"]["values"] == pytest.approx([1, 1])
    shares = {"rte": {"bert": [[0.01, 50.01, 0.5], [1.0, 51.0, 0.5]]}}
    assert report["search"] == {"train_share": shares, "learning_rate": {"rte": {"coco": [[0.1, 50.0, 0.0]]}}}
    curves = report["curves"]["coco"]
    assert curves["training"]["loss"] == {"steps": [5, 7], "values": [4, 2]}
    assert curves["held_out"]["negative_cosine"] == {"steps": [7], "values": [0.125]}


@pytest.mark.parametrize("content", ["{}", '{"tasks": ["a"], "searched": ["x"], "found": [{"score": 1}]}', "[]"])
def test_what_is_no_search_is_named(tmp_path, content):
    path = write_lines(tmp_path / "rte_search_x.json", content)
    with pytest.raises(UserError, match=r"rte_search_x\.json"):
        read_results(path)


def test_steps_of_phases_are_not_compared_by_examples(tmp_path):
    write_lines(tmp_path / "config.json", '{"train_batch_size": 8, "phases": [{"from": 0.5, "train_batch_size": 4}]}')
    assert _scale("steps", tmp_path) == 1
    with pytest.raises(UserError, match="use --over steps"):
        _scale("examples", tmp_path)


def test_a_bad_record_is_named(tmp_path):
    support.write_records(tmp_path / "pretrain_tfrecords", "dev_data")
    config = PretrainingConfig.from_dict(support.hparams(tmp_path))
    folder = tmp_path / "models" / "test"
    tf.train.Checkpoint(model=PretrainingModel(config)).write(str(folder / "model.ckpt-7"))
    write_lines(folder / "checkpoint", 'model_checkpoint_path: "model.ckpt-7"')
    (folder / "config.json").write_text(config.to_json())
    with tf.io.TFRecordWriter(str(tmp_path / "pretrain_tfrecords" / "dev_data.tfrecord-1-of-2")) as writer:
        writer.write(b"no example")
    with pytest.raises(UserError, match=r"dev_data\.tfrecord-1-of-2: record 1 is no tf\.train\.Example"):
        PretrainedModel(str(folder)).view_states(60)


def test_the_curve_of_a_model_that_comes_with_the_repository_is_found_by_name(tmp_path):
    own = tmp_path / "models" / "own"
    write_lines(own / "train_metrics.jsonl", '{"step": 50, "loss": 9.0, "masked_lm_loss": 9.0}')
    done = analyse(tmp_path, "--analysis", "curves", "--runs", "own,bert_mini")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "analysis" / "curves.json").read_text())
    assert report["bert_mini"]["training"]["masked_lm_loss"]["steps"][-1] == 3600


def test_learning_curves_of_runs_by_path_over_flops(tmp_path):
    runs = {}
    for name, batch in (("one", 8), ("two", 16)):
        folder = runs[name] = tmp_path / name
        config = PretrainingConfig.from_dict(support.hparams(tmp_path, train_batch_size=batch))
        write_lines(folder / "config.json", config.to_json())
        lines = [json.dumps({"step": step, "loss": 50 / step, "examples_per_second": 3}) for step in (1, 3, 2)]
        (folder / "train_metrics.jsonl").write_text("\n".join([*lines, '{"step": 4, "lo']))  # as a kill leaves it
    words = ["--analysis", "curves", "--runs", ",".join(map(str, runs.values()))]
    for over, ratio in (("steps", 1), ("examples", 2), ("flops", 2)):
        result = analyse(tmp_path, *words, "--over", over)
        assert result.returncode == 0, result.stderr
        one, two = json.loads((tmp_path / "analysis" / "curves.json").read_text()).values()
        assert two["scale"] == ratio * one["scale"]
    assert one["training"] == {"loss": {"steps": [1, 2, 3], "values": [50, 25, 50 / 3]}}
    result = analyse(tmp_path, *words, "--metrics", "los")
    assert result.returncode == 2 and "has logged no 'los'; did you mean 'loss'?" in result.stderr


def test_curves_show_what_some_of_the_runs_have(tmp_path, capsys):
    for name, metric in (("detection", "disc_auc"), ("coco", "copy_loss")):
        write_lines(
            tmp_path / "models" / name / "train_metrics.jsonl", json.dumps({"step": 1, "loss": 2.0, metric: 0.5})
        )
    request = Request(tmp_path, ("detection", "coco"), 2, 30.0, 0, ("loss", "copy_loss", "disc_auc"))
    report = catalogue.analyse("curves", request, tmp_path / "curves")
    assert set(report["coco"]["training"]) == {"loss", "copy_loss"}
    assert capsys.readouterr().out.splitlines() == ["detection: loss 2, disc_auc 0.5", "coco: loss 2, copy_loss 0.5"]


def test_a_score_that_is_none_is_named(tmp_path):
    for split, score in (("train", 5), ("dev", "high")):
        row = {"sentence1": "a", "sentence2": "b", "label": score}
        write_lines(tmp_path / "finetuning_data" / "sts" / f"{split}.jsonl", json.dumps(row))
    with pytest.raises(UserError, match=r"dev\.jsonl, line 1: the label must be a number, got 'high'"):
        similar_sentences(Request(tmp_path, (), 2, 30.0, 0))


def test_a_models_own_vocabulary_comes_before_that_of_the_data(tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(
        "electra_tf2.analysis.pretrained.PretrainedModel", lambda folder, vocab, records: given.append(vocab)
    )
    data = write_lines(tmp_path / "vocab.txt", "[PAD]")
    write_lines(tmp_path / "models" / "own" / "vocab.txt", "[PAD]")
    (tmp_path / "models" / "bare").mkdir()
    request = Request(tmp_path, ("own", "bare"), 2, 30.0, 0)
    for name in request.names:
        pretrained(request, name)
    assert given == [None, str(data)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model-names", "nobody"], "there is no"),
        (["--model-names", "empty"], "no pre-trained model of ours"),
        (["--model-names", "empty", "--analysis", "cosin"], "did you mean 'cosine'"),
        (["--model-names", "empty", "--analysis", "copying"], "none of empty has logged copy_accuracy_replaced"),
        (["--runs", "empty", "--analysis", "curves"], "empty has logged nothing"),
        (["--runs", "stray", "--analysis", "curves"], "stray/eval/step-x.json is no evaluation"),
        (["--runs", "stepless", "--analysis", "curves"], "train_metrics.jsonl, line 2: no step"),
        (["--runs", "listed", "--analysis", "curves"], "line 1: a JSON object is needed, got None"),
    ],
)
def test_what_cannot_be_analysed_is_refused(tmp_path, words, message):
    models = tmp_path / "models"
    (models / "empty").mkdir(parents=True)
    write_lines(models / "stray" / "eval" / "step-x.json", "{}")
    write_lines(models / "stepless" / "train_metrics.jsonl", '{"step": 1}', '{"loss": 1}')
    write_lines(models / "listed" / "train_metrics.jsonl", "null")
    write_lines(
        tmp_path / "finetuning_data" / "sts" / "train.jsonl", '{"sentence1": "a", "sentence2": "b", "label": 5}'
    )
    write_lines(tmp_path / "finetuning_data" / "sts" / "dev.jsonl", '{"sentence1": "a", "sentence2": "b", "label": 5}')
    result = analyse(tmp_path, *words)
    assert result.returncode == 2 and message in " ".join(result.stderr.split()), result.stderr
