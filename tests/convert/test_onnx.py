"""ONNX files: ONNX Runtime computes what our networks do, on any batch and length, in float32 and nearly so in int8."""

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

import electra_tf2 as electra
from electra_tf2.convert import network_file, onnx_graph, onnx_heads, onnx_network
from electra_tf2.convert import self_check as check
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.inference.predictor import Predictor
from electra_tf2.inference.stored_model import StoredModel
from electra_tf2.util.errors import UserError
from tests.support import golden
from tests.support import stored_models as support
from tests.support.programs import run_program

TEXTS = ("the man went to the house", "of", ("Some OTHER text, with Café.", "went of " * 40))


def _written(model: StoredModel, folder: Path, part: str = "main", int8: bool = False) -> tuple[str, float]:
    make = functools.partial(onnx_network.pretrained, model, part)
    return onnx_network.write_onnx(folder, model, make, network_file.comparison(model, part), int8)


def _on_other_texts(model: StoredModel, part: str) -> network_file.Comparison:
    """Rows of another batch and length than the self-check's."""
    compared = network_file.comparison(model, part)
    found = check.our_outputs(
        model, "generator" if part == "generator" else "main", inputs=check.check_inputs(model, TEXTS)
    )
    return compared._replace(rows=check.check_inputs(model, TEXTS), ours={"last_hidden_state": found["states"]})


NETWORKS: list[dict[str, Any]] = [
    {"norm_style": "pre"},
    {"type_vocab_size": 0, "hidden_act": "relu"},
    {"share_layers": "ffn", "norm_style": "pre"},
    {"architecture": "modernbert", "local_attention": 8, "hidden_act": "relu"},
    *({"relative_positions": scheme} for scheme in ("t5", "coco", "alibi", "rotary", "xl")),
]


@pytest.mark.parametrize("sizes", NETWORKS, ids=[" ".join(map(str, sizes.values())) for sizes in NETWORKS])
def test_every_network_computes_the_same(sizes: dict[str, Any], tmp_path: Path) -> None:
    model = support.with_crc_weights(model_hparam_overrides=support.tiny().config.model_hparam_overrides | sizes)
    said, difference = _written(model, tmp_path)
    assert difference < 1e-5, said
    compared = _on_other_texts(model, "main")
    packed = onnx_network.serialized(onnx_network.pretrained(model, "main", packed=True))  # what int8 is made of
    real = compared.rows.input_mask.astype(bool)
    for network in ((tmp_path / "model.onnx").read_bytes(), packed):
        states = onnx_network.run(network, compared)["last_hidden_state"]
        np.testing.assert_allclose(states[real], compared.ours["last_hidden_state"][real], atol=1e-5)


def test_a_channel_that_is_much_larger_than_all_others_costs_them_nothing() -> None:
    import onnxruntime

    random = np.random.default_rng(0)
    kernel, x = (random.normal(size=size).astype(np.float32) for size in ([128, 32], [64, 128]))
    x[:, 5] *= 40

    def error(peaks: np.ndarray) -> float:
        graph = onnx_graph.Graph({}, peaks={"a/kernel": peaks})
        read = graph.input("x", ["rows", 128], "float32")
        graph.output("y", graph.dense(read, "a", kernel), "rows", 32)
        session = onnxruntime.InferenceSession(graph.serialized({}), providers=["CPUExecutionProvider"])
        return float(np.abs(session.run(None, {"x": x})[0] - x @ kernel).mean())

    assert error(np.abs(x).max(0)) < error(np.ones(128)) / 4


_COCO = {"electra_objective": False, "corrective_lm_objective": True}
PARTS: list[tuple[str, dict[str, Any], set[str]]] = [
    ("main", {}, {"last_hidden_state", "logits"}),
    ("body", {}, {"last_hidden_state", "sentence_embedding"}),
    ("generator", {}, {"logits"}),
    ("generator", {"generator_sample_mode": "zero_dropout"}, {"logits"}),
    ("main", {"electra_objective": False}, {"last_hidden_state", "logits"}),
    ("main", {"electra_objective": False, "electric_objective": True}, {"last_hidden_state", "logits"}),
    ("main", _COCO, {"last_hidden_state", "sentence_embedding"}),
]


@pytest.mark.parametrize(("part", "hparams", "outputs"), PARTS)
def test_every_part_has_the_outputs_of_its_head(part, hparams, outputs: set[str], tmp_path: Path) -> None:
    model = support.with_crc_weights(**hparams)
    said, difference = _written(model, tmp_path, part)
    assert difference < 1e-5, said
    assert set(json.loads((tmp_path / "model.json").read_text())["outputs"]) == outputs


def test_a_part_that_is_not_there_is_refused() -> None:
    for hparams, reason in (
        ({"electra_objective": False}, "no generator of its own"),
        ({"electra_objective": False, "electric_objective": True}, "two towers"),
    ):
        with pytest.raises(UserError, match=reason):
            onnx_network.pretrained(support.with_crc_weights(**hparams), "generator")


_CLASSES = {"dense/kernel": [128, 3], "dense/bias": [3]}
_INNER = _CLASSES | {"inner/kernel": [128, 128], "inner/bias": [128]}
_ONE = {"dense/kernel": [128, 1], "dense/bias": [1]}
_SPANS = {"start/kernel": [128, 1], "start/bias": [1], "end/kernel": [128, 1], "end/bias": [1],
          "answerable/kernel": [128, 1], "answerable/bias": [1]}  # fmt: skip
_JOINT = _SPANS | {"end_hidden/kernel": [256, 512], "end_hidden/bias": [512], "end/kernel": [512, 1],
                   "answerable_hidden/kernel": [256, 512], "answerable_hidden/bias": [512],
                   "answerable/kernel": [512, 1]}  # fmt: skip
_LABELS = {"labels": ["contradiction", "entailment", "neutral"]}
HEADS: list[tuple[str, dict[str, list[int]], dict[str, Any], dict[str, Any]]] = [
    ("mnli", _CLASSES, _LABELS, {}),
    ("mnli", _INNER, _LABELS, {"classifier": "gelu"}),
    ("mnli", _INNER, _LABELS, {"classifier": "tanh", "classifier_pooling": "mean"}),
    ("sts", _ONE, {}, {}),
    ("pos", _CLASSES, {"labels": ["DT", "NN", "VB"]}, {"max_seq_length": 16}),
    ("squad", _JOINT, {}, {"joint_prediction": True, "beam_size": 4}),
    ("squad", _SPANS, {}, {"joint_prediction": False, "answerable_uses_start_logits": False}),
    ("race", {"choice/kernel": [128, 1], "choice/bias": [1]}, {}, {}),
    ("multirc", {"dense/kernel": [128, 2], "dense/bias": [2]}, {}, {}),
    ("wic", {"spans/kernel": [384, 2], "spans/bias": [2]}, {"labels": ["false", "true"]}, {}),
]


@pytest.mark.parametrize(("task", "heads", "state", "hparams"), HEADS)
def test_every_fine_tuned_head_computes_what_predict_reads(task, heads, state, hparams, tmp_path: Path) -> None:
    model = support.fine_tuned(task, heads, state, **hparams)
    predictor = Predictor(model, WordpieceTokenizer(model.tokens, *model.casing))
    compared = onnx_heads.comparison(predictor, model)
    make = functools.partial(onnx_heads.fine_tuned, predictor, model)
    said, difference = onnx_network.write_onnx(tmp_path, model, make, compared, int8=False)
    assert difference < 1e-5, said
    # A check that compares nothing would pass, too.
    assert len(compared.read(onnx_network.run((tmp_path / "model.onnx").read_bytes(), compared))) >= 1 + 2 * (
        task == "squad"
    )
    (name, *_) = (name for name in model.weights if name.startswith("task_specific/") and name.endswith("kernel"))
    wrong = model.weights[name] + np.eye(*model.weights[name].shape, dtype=np.float32)
    other = onnx_heads.fine_tuned(predictor, model._replace(weights=model.weights | {name: wrong}))
    assert compared.difference(onnx_network.run(onnx_network.serialized(other), compared)) > 1e-3


_STRANGER = """
import json, sys
import numpy as np, onnxruntime
from tokenizers import Tokenizer
folder, texts = sys.argv[1], json.loads(sys.argv[2])
tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
tokenizer.enable_padding(pad_id=tokenizer.token_to_id("[PAD]"))
encoded = tokenizer.encode_batch(texts)
session = onnxruntime.InferenceSession(f"{folder}/model.onnx", providers=["CPUExecutionProvider"])
inputs = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
given = {name: np.array([getattr(one, of) for one in encoded]) for name, of in inputs.items()}
states, logits = session.run(None, given)
np.savez(sys.argv[3], states=states, logits=logits)
assert "tensorflow" not in sys.modules and "electra_tf2" not in sys.modules
"""


def test_the_folder_is_all_that_is_needed_to_use_it(tmp_path: Path) -> None:
    words = ["--from", str(golden.CHECKPOINT), "--to", f"{tmp_path}/o", "--format", "onnx"]
    done = run_program("convert_model.py", *words)
    assert done.returncode == 0, done.stderr
    texts = ["the man went to the house", "Some OTHER text, with Café.", "of"]
    command = [sys.executable, "-c", _STRANGER, f"{tmp_path}/o", json.dumps(texts), f"{tmp_path}/found.npz"]
    subprocess.run(command, check=True, cwd=tmp_path)
    model = electra.load(str(golden.CHECKPOINT))
    with np.load(tmp_path / "found.npz") as found:
        for row, states in enumerate(model.states(texts)):
            length = len(states.tokens)
            np.testing.assert_allclose(found["states"][row, :length], states.vectors, atol=1e-5)
            expected = [one.probability for one in model.replaced(texts[row])]
            logits = found["logits"][row, 1 : length - 1]
            np.testing.assert_allclose(1 / (1 + np.exp(-logits)), expected, atol=1e-5)


def test_int8_is_a_quarter_of_the_size_and_nearly_the_same(tmp_path: Path) -> None:
    words = ["convert_model.py", "--from", str(golden.CHECKPOINT), "--format", "onnx"]
    small = run_program(*words, "--to", f"{tmp_path}/int8", "--quantize", "int8")
    assert small.returncode == 0, small.stderr
    assert "int8" in small.stdout and "cosine" in small.stdout
    run_program(*words, "--to", f"{tmp_path}/whole")
    sizes = [(tmp_path / name / "model.onnx").stat().st_size for name in ("int8", "whole")]
    assert sizes[0] < 0.35 * sizes[1]
    compared = network_file.comparison(support.tiny(), "main")
    for _, ours, theirs in compared.pairs(onnx_network.run((tmp_path / "int8" / "model.onnx").read_bytes(), compared)):
        assert np.corrcoef(ours.ravel(), theirs.ravel())[0, 1] > 0.99


def test_int8_that_makes_another_network_of_it_is_refused(tmp_path: Path) -> None:
    model, unit = support.tiny(), 3  # beside which all others are too small for 8 bits, and which is not read
    norm, project = "electra/embeddings/LayerNorm/gamma", "electra/embeddings_project/kernel"
    gamma, kernel = model.weights[norm].copy(), model.weights[project].copy()
    gamma[unit], kernel[unit] = 1e5, 0
    with pytest.raises(UserError, match="too far"):
        _written(model._replace(weights=model.weights | {norm: gamma, project: kernel}), tmp_path, int8=True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--format", "huggingface", "--quantize", "int8"], "--quantize int8: for --format onnx and tflite"),
        (["--format", "onnx", "--dtype", "bfloat16"], "onnx stores float32"),
        (["--format", "saved_model", "--part", "body"], "holds the whole model"),
    ],
)
def test_words_that_do_not_go_together_are_refused(words: list[str], message: str, tmp_path: Path) -> None:
    done = run_program("convert_model.py", "--from", str(golden.CHECKPOINT), "--to", f"{tmp_path}/x", *words)
    assert done.returncode and message in done.stderr
