"""`electra analyze`: the numbers of each analysis, its figures, and what it refuses by name."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from electra_tf2.programs.analyses import learning_curves
from electra_tf2.programs.analyses.learning_curves import _scale, curves
from electra_tf2.programs.analyses.request import Request
from electra_tf2.programs.analyses.sentence_vectors import similar_vectors
from electra_tf2.util.errors import UserError
from tests.support import training as support
from tests.support.finetuning import write_lines
from tests.support.programs import Finished, run_program

ANALYSES = ("curves", "copying", "contrast", "cosine", "tsne")


def analyse(data_dir: Path, *words: str) -> Finished:
    return run_program("run_analysis.py", "--data-dir", str(data_dir), *words)


def log(folder: Path, *rows: dict[str, Any]) -> None:
    write_lines(folder / "train_metrics.jsonl", *map(json.dumps, rows))


def test_every_analysis_writes_numbers_and_a_figure(tmp_path: Path) -> None:
    rows = [f"0\tx\tx\tx\tx\tx\tx\tthe file {i} is open\tfile {i} is open\t{5.0 if i % 2 else 1.0}" for i in range(40)]
    for split in ("train", "dev"):
        write_lines(tmp_path / "finetuning_data" / "sts" / f"{split}.tsv", "\t".join(["header"] * 10), *rows)
    objectives: dict[str, dict[str, Any]] = {
        "coco": {"electra_objective": False, "corrective_lm_objective": True, "sequence_contrast_objective": True},
        "bert": {"electra_objective": False},
    }
    contrast = {"positive_cosine": 0.75, "negative_cosine": 0.25}
    logged: dict[str, dict[str, float]] = {"coco": contrast | {"copy_accuracy_replaced": 0.5}, "bert": {}}
    for name, overrides in objectives.items():
        folder = tmp_path / "models" / name
        config = PretrainingConfig.from_dict(support.hparams(tmp_path, model_name=name, **overrides))
        tf.train.Checkpoint(model=PretrainingModel(config)).write(str(folder / "model.ckpt-7"))
        write_lines(folder / "checkpoint", 'model_checkpoint_path: "model.ckpt-7"')
        (folder / "config.json").write_text(config.to_json())
        values = {f"train_{metric}": value for metric, value in logged[name].items()}
        log(folder, *({"step": step, "loss": 9 - step} | values for step in (5, 7)))
    held_out = {"negative_cosine": 0.125, "clm_accuracy_replaced": 0.0625}
    write_lines(tmp_path / "models" / "coco" / "eval" / "step-7.json", json.dumps(held_out))

    done = analyse(tmp_path, "--model-names", ",".join(objectives), "--analysis", ",".join(ANALYSES), "--seed", "3")
    assert done.returncode == 0, done.stderr
    assert "bert: left out, it has logged nothing of copy_accuracy_replaced" in done.stdout
    report = {}
    for name in ANALYSES:
        assert (tmp_path / "analysis" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / "analysis" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        report[name] = json.loads((tmp_path / "analysis" / f"{name}.json").read_text())
    for model in objectives:
        assert report["cosine"][model]["pairs"] == 40 and 0 <= report["cosine"][model]["auc"] <= 1
        assert np.shape(report["tsne"][model]["first"]) == (40, 2)
        assert report["tsne"][model]["mean_cosine"] == pytest.approx(report["cosine"][model]["similar"])
    assert set(report["contrast"]) == {"coco"}
    assert report["contrast"]["coco"]["training"]["positive_cosine"] == {"steps": [5, 7], "values": [0.75, 0.75]}
    assert report["contrast"]["coco"]["held_out"]["negative_cosine"] == {"steps": [7], "values": [0.125]}
    assert report["copying"]["coco"]["held_out"]["clm_accuracy_replaced"]["values"] == [0.0625]
    assert report["curves"]["coco"]["training"]["loss"] == {"steps": [5, 7], "values": [4, 2]}


def test_cosines_are_of_similar_sentences_and_of_others_than_the_partner(tmp_path: Path) -> None:
    """bert_mini, whose [CLS] tells these apart: equal sentences have cosine 1, others less."""
    texts = ["A man is playing a guitar.", "The stock fell.", "Two dogs run in the snow."]
    for split, score in (("train", 1), ("dev", 5)):
        pairs = [json.dumps({"sentence1": text, "sentence2": text, "label": score}) for text in texts]
        write_lines(tmp_path / "finetuning_data" / "sts" / f"{split}.jsonl", *pairs)
    request = Request(tmp_path, ("bert_mini",))
    first, second = similar_vectors(request, "bert_mini")
    np.testing.assert_allclose(first, second, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(first, axis=-1), 1, atol=1e-5)
    done = analyse(tmp_path, "--model-names", "bert_mini", "--analysis", "cosine")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "analysis" / "cosine.json").read_text())["bert_mini"]
    assert report["similar"] == pytest.approx(1, abs=1e-5) and report["random"] < 0.999 and report["auc"] == 1


def test_the_curve_of_a_model_that_comes_with_the_repository_is_found_by_name(tmp_path: Path) -> None:
    log(tmp_path / "models" / "own", {"step": 50, "loss": 9.0, "masked_lm_loss": 9.0})
    done = analyse(tmp_path, "--analysis", "curves", "--model", "own,bert_mini")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "analysis" / "curves.json").read_text())
    assert report["bert_mini"]["training"]["masked_lm_loss"]["steps"][-1] == 3600


def test_curves_end_with_the_final_evaluation_and_show_the_loss_of_token_frequencies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "models" / "own"
    log(run, {"step": 50, "masked_lm_loss": 7.0}, {"step": 110, "masked_lm_loss": 6.5})
    write_lines(run / "eval" / "step-50.json", json.dumps({"masked_lm_loss": 7.1, "unigram_entropy": 6.9}))
    final = {"step": 110, "masked_lm_loss": 6.6, "unigram_entropy": 6.9}
    write_lines(run / "results" / "unsup_results.json", json.dumps(final))
    drawn: list[Any] = []
    draw = learning_curves._draw_curves

    def draw_and_keep(axis: Any, *others: Any) -> None:
        draw(axis, *others)
        drawn.append(axis)

    monkeypatch.setattr(learning_curves, "_draw_curves", draw_and_keep)
    report = curves(Request(tmp_path, ("own",), metrics=("masked_lm_loss",)), tmp_path / "curves")
    assert report["own"]["held_out"]["masked_lm_loss"] == {"steps": [50, 110], "values": [7.1, 6.6]}
    lines = {str(line.get_label()): list(line.get_ydata()) for line in drawn[0].get_lines()}
    assert lines == {"own": [7.0, 6.5], "own, held out": [7.1, 6.6], "own, token frequencies": [6.9, 6.9]}


def test_learning_curves_of_runs_by_path_over_flops(tmp_path: Path) -> None:
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


def test_curves_show_what_some_of_the_runs_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, metric in (("detection", "disc_auc"), ("coco", "copy_loss")):
        log(tmp_path / "models" / name, {"step": 1, "loss": 2.0, metric: 0.5})
    request = Request(tmp_path, ("detection", "coco"), metrics=("loss", "copy_loss", "disc_auc"))
    report = curves(request, tmp_path / "curves")
    assert set(report["coco"]["training"]) == {"loss", "copy_loss"}
    assert capsys.readouterr().out.splitlines() == ["detection: loss 2, disc_auc 0.5", "coco: loss 2, copy_loss 0.5"]


def test_steps_of_phases_are_not_compared_by_examples(tmp_path: Path) -> None:
    write_lines(tmp_path / "config.json", '{"train_batch_size": 8, "phases": [{"from": 0.5, "train_batch_size": 4}]}')
    assert _scale("steps", tmp_path) == 1
    with pytest.raises(UserError, match="use --over steps"):
        _scale("examples", tmp_path)


def test_a_score_that_is_none_is_named(tmp_path: Path) -> None:
    for split, score in (("train", 5), ("dev", "high")):
        row = {"sentence1": "a", "sentence2": "b", "label": score}
        write_lines(tmp_path / "finetuning_data" / "sts" / f"{split}.jsonl", json.dumps(row))
    with pytest.raises(UserError, match=r"dev\.jsonl, line 1: the label must be a number, got 'high'"):
        similar_vectors(Request(tmp_path, ()), "bert_mini")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model-names", "nobody"], "no model at"),
        (["--model-names", "empty"], "models/empty"),
        (["--model-names", "empty", "--analysis", "cosin"], "did you mean 'cosine'"),
        (
            ["--model-names", "bert_mini", "--analysis", "copying"],
            "none of bert_mini has logged copy_accuracy_replaced",
        ),
        (["--runs", "empty", "--analysis", "curves"], "empty has logged nothing"),
        (["--runs", "stray", "--analysis", "curves"], "stray/eval/step-x.json is no evaluation"),
        (["--runs", "stepless", "--analysis", "curves"], "train_metrics.jsonl, line 2: no step"),
        (["--runs", "listed", "--analysis", "curves"], "line 1: a JSON object is needed, got None"),
    ],
)
def test_what_cannot_be_analysed_is_refused(tmp_path: Path, words: list[str], message: str) -> None:
    models = tmp_path / "models"
    (models / "empty").mkdir(parents=True)
    write_lines(models / "stray" / "eval" / "step-x.json", "{}")
    write_lines(models / "stepless" / "train_metrics.jsonl", '{"step": 1}', '{"loss": 1}')
    write_lines(models / "listed" / "train_metrics.jsonl", "null")
    for split in ("train", "dev"):
        row = '{"sentence1": "a", "sentence2": "b", "label": 5}'
        write_lines(tmp_path / "finetuning_data" / "sts" / f"{split}.jsonl", row)
    result = analyse(tmp_path, *words)
    assert result.returncode == 2 and message in " ".join(result.stderr.split()), result.stderr
