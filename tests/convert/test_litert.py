"""LiteRT files: its interpreter computes what our networks do, on any batch and length."""

from pathlib import Path

import numpy as np
import pytest

from electra_tf2.convert import head_outputs, litert, network_file
from electra_tf2.convert import self_check as check
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.inference.predictor import Predictor
from electra_tf2.inference.stored_model import StoredModel
from electra_tf2.util.errors import UserError
from tests.support import golden
from tests.support import stored_models as support
from tests.support.programs import run_program

TEXTS = ("the man went to the house", "of", ("Some OTHER text, with Café.", "went of " * 40))


def _written(model: StoredModel, folder: Path, part: str) -> tuple[str, float]:
    made, compared = litert.pretrained(model, part), network_file.comparison(model, part)
    return litert.write_litert(folder, model, made, compared, int8=False)


@pytest.mark.parametrize("part", ["main", "body", "generator"])
def test_every_part_computes_the_same_at_any_length(part: str, tmp_path: Path) -> None:
    sizes = {"norm_style": "pre", "relative_positions": "t5"}
    model = support.with_crc_weights(model_hparam_overrides=support.tiny().config.model_hparam_overrides | sizes)
    said, difference = _written(model, tmp_path, part)
    assert difference < 1e-5, said
    if part == "body":
        rows = check.check_inputs(model, TEXTS)
        states = check.our_outputs(model, inputs=rows)["states"]
        other = network_file.comparison(model, part)._replace(rows=rows, ours={"last_hidden_state": states})
        found = litert.run((tmp_path / "model.tflite").read_bytes(), other)["last_hidden_state"]
        real = rows.input_mask.astype(bool)
        np.testing.assert_allclose(found[real], states[real], atol=1e-5)


_SPANS = {"start/kernel": [128, 1], "start/bias": [1], "end_hidden/kernel": [256, 512], "end_hidden/bias": [512],
          "end/kernel": [512, 1], "end/bias": [1], "answerable/kernel": [128, 1],
          "answerable/bias": [1]}  # fmt: skip
_CLASSES = {"dense/kernel": [128, 3], "dense/bias": [3]}


@pytest.mark.parametrize(
    ("task", "heads", "state", "hparams"),
    [
        ("mnli", _CLASSES, {"labels": ["contradiction", "entailment", "neutral"]}, {"classifier_pooling": "mean"}),
        ("sts", {"dense/kernel": [128, 1], "dense/bias": [1]}, {}, {}),
        ("pos", _CLASSES, {"labels": ["DT", "NN", "VB"]}, {}),
        ("squad", _SPANS, {}, {"joint_prediction": True, "answerable_uses_start_logits": False}),
    ],
)
def test_fine_tuned_models_say_what_predict_reads(task, heads, state, hparams, tmp_path: Path) -> None:
    model = support.fine_tuned(task, heads, state, **hparams)
    predictor = Predictor(model, WordpieceTokenizer(model.tokens, *model.casing))
    made, compared = head_outputs.for_litert(predictor), head_outputs.compared(predictor, model)
    said, difference = litert.write_litert(tmp_path, model, made, compared, int8=False)
    assert difference < 1e-5, said


def test_the_program_writes_int8_and_says_how_far_it_moves(tmp_path: Path) -> None:
    words = ["--from", str(golden.CHECKPOINT), "--to", f"{tmp_path}/o", "--format", "tflite", "--quantize", "int8"]
    done = run_program("convert_model.py", *words)
    assert done.returncode == 0, done.stderr
    assert "int8" in done.stdout and "cosine" in done.stdout and "that of LiteRT" in done.stdout
    assert (tmp_path / "o" / "tokenizer.json").is_file() and (tmp_path / "o" / "model.json").is_file()


def test_what_litert_has_no_operations_for_is_refused_with_a_format_that_has(tmp_path: Path) -> None:
    model = support.tiny()

    def strings(inputs):
        import tensorflow as tf

        return {"logits": tf.strings.to_number(tf.strings.as_string(inputs["input_ids"]))}

    compared = network_file.comparison(model, "body")
    with pytest.raises(UserError, match=r"LiteRT cannot hold this network \(.*\): --format onnx can"):
        litert.write_litert(tmp_path, model, (strings, [], {}), compared, int8=False)
