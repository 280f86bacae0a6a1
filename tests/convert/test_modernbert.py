"""Hugging Face's ModernBERT, both ways: equal to transformers, which runs in a process of its own, where it is
installed (the extra `oracle`, or ORACLE_PYTHON: the interpreter of an environment that has it); refusals."""

import contextlib
import dataclasses
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.convert import self_check as check
from electra_tf2.convert.huggingface import difference, to_huggingface, write_huggingface
from electra_tf2.corpus.encoding import Encoded
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.finetune.model import FinetuningModel
from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.finetune.weights import adopt_states
from electra_tf2.formats import huggingface as names
from electra_tf2.formats.huggingface_config import network_of
from electra_tf2.formats.readers import read_model
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.inference.configured import config_of, make_network
from electra_tf2.model import kernels
from electra_tf2.util.errors import UserError
from tests.support import golden
from tests.support import stored_models as support

PYTHON = os.environ.get("ORACLE_PYTHON", sys.executable)
ORACLE = Path(__file__).with_name("modernbert_oracle.py")
LENGTH = 40
SIZES: dict[str, Any] = {
    "vocab_size": 600,
    "hidden_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
    "local_attention": 12,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "cls_token_id": 2,
    "eos_token_id": 3,
    "sep_token_id": 3,
    "initializer_range": 0.1,
}
BIASES = dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), True)
LABELS = {"id2label": {0: "original", 1: "replaced"}, "label2id": {"original": 0, "replaced": 1}}
# Name -> class, and what differs from SIZES.
MADE: dict[str, tuple[str, dict[str, Any]]] = {
    "encoder": ("ModernBertModel", {}),
    "all_see_all": ("ModernBertModel", {"global_attn_every_n_layers": 1, "attention_bias": True}),
    "language_model": ("ModernBertForMaskedLM", BIASES | {"global_attn_every_n_layers": 2, "norm_eps": 1e-3}),
    "untied": ("ModernBertForMaskedLM", {"tie_word_embeddings": False, "decoder_bias": False, "mlp_bias": True}),
    "detector": ("ModernBertForTokenClassification", LABELS | {"global_rope_theta": 500.0, "local_rope_theta": 20.0}),
    "classes": ("ModernBertForSequenceClassification", {"num_labels": 3, "classifier_bias": True}),
    "mean": ("ModernBertForSequenceClassification", {"num_labels": 2, "classifier_pooling": "mean"}),
    "tags": ("ModernBertForTokenClassification", {"num_labels": 5}),
    "answers": ("ModernBertForQuestionAnswering", {}),
}
SWITCHES = {"architecture": "modernbert", "local_attention": 12, "num_hidden_layers": 4, "max_position_embeddings": 64}
SWITCHES |= {"hidden_size": 24, "num_attention_heads": 2}


def ours(**hparams: Any) -> StoredModel:
    """A model of ours in this architecture."""
    sizes = SWITCHES | hparams.pop("sizes", {})
    model = support.with_crc_weights(sizes, **hparams)
    # Small enough that float32 has 1e-5 in logits.
    halves = {name: value if name.endswith("gamma") else 0.5 * value for name, value in model.weights.items()}
    return model.changed(weights=halves)


def tuned(task: str, state: dict[str, Any], **hparams: Any) -> StoredModel:
    """A fine-tuned model of ours, with its own variables."""
    given = {"task_names": [task], "vocab_file": str(golden.CHECKPOINT / "vocab.txt"), "vocab_size": 600}
    given |= {"embedding_size": 24, "model_hparam_overrides": SWITCHES, "max_seq_length": 64}
    given |= {"do_train": False}
    config, random = FinetuningConfig.from_dict(given | hparams), np.random.RandomState(3)
    tasks = make_tasks(config, WordpieceTokenizer(config.vocab_file, config.do_lower_case))
    adopt_states(tasks, {task: state}, "a test")
    with kernels.off():
        variables = FinetuningModel(config, tasks, seed=1).trainable_variables
    weights = {one.name.split(":")[0]: one.numpy() + 0.1 * random.standard_normal(one.shape) for one in variables}
    weights = {name: value.astype(np.float32) for name, value in weights.items()}
    return support.tiny().changed(
        path="nowhere", hparams=dataclasses.asdict(config), weights=weights, task_states={task: state}
    )


_pair = functools.cache(lambda: ours(embedding_size=16, generator_hidden_size=0.5))
_BERT = {"electra_objective": False}
# Name -> what makes a model, and the part of it that goes out.
WRITTEN: dict[str, tuple[Callable[[], StoredModel], str]] = {
    "factorised_detector": (_pair, "main"),
    "factorised_generator": (_pair, "generator"),
    "body": (lambda: ours(embedding_size=24), "body"),
    "masked_lm": (lambda: ours(**_BERT, embedding_size=24, sizes={"norm_bias": True}), "main"),
    "sentences": (lambda: tuned("cola", {"labels": ["0", "1"]}, classifier_pooling="mean"), "main"),
    "numbers": (lambda: tuned("sts", {}), "main"),
    "words": (lambda: tuned("ner", {"labels": list("abcdefghi")}), "main"),
    "spans": (lambda: tuned("squadv1", {}, joint_prediction=False), "main"),
    "factorised_masked_lm": (lambda: ours(**_BERT, embedding_size=16), "main"),
    "untied_masked_lm": (lambda: ours(**_BERT, embedding_size=16, sizes={"tie_word_embeddings": False}), "main"),
}


@functools.cache
def written(name: str) -> tuple[StoredModel, str]:
    make, part = WRITTEN[name]
    return make(), part


def inputs() -> list[np.ndarray]:
    ids = np.random.RandomState(5).randint(5, 600, [3, LENGTH])
    mask = (np.arange(LENGTH) < [[LENGTH], [LENGTH - 11], [4]]).astype(int)
    return [ids * mask, mask, np.zeros_like(ids)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models that the oracle made and loaded."""
    if subprocess.run([PYTHON, "-c", "import transformers, torch"], capture_output=True).returncode:
        pytest.skip(f"{PYTHON} has no transformers and PyTorch (extra `oracle`)")
    path = tmp_path_factory.mktemp("modernbert")
    ids, mask, _ = inputs()
    weights = np.random.RandomState(1).standard_normal([3, LENGTH, 24]).astype(np.float32)
    np.savez(path / "inputs.npz", input_ids=ids, attention_mask=mask, weights=weights)
    (path / "made.json").write_text(json.dumps({name: (kind, SIZES | own) for name, (kind, own) in MADE.items()}))
    for name in WRITTEN:
        model, part = written(name)
        write_huggingface(path / name, model, to_huggingface(model, part))
    (path / "loaded.json").write_text(json.dumps([str(path / name) for name in WRITTEN]))
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": ""}
    done = subprocess.run([PYTHON, str(ORACLE), str(path)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    for name in MADE:
        (path / name / "vocab.txt").write_text((golden.CHECKPOINT / "vocab.txt").read_text())
    return path


def assert_same(found: dict[str, np.ndarray], theirs: Mapping[str, np.ndarray], real: np.ndarray) -> None:
    """Outputs of ours (self_check.outputs) are those of transformers."""
    assert np.abs(found["states"] - theirs["states"])[real].max() < 1e-5
    if "logits" in theirs:
        name = next(name for name in ("task", "replaced", "words") if name in found)
        logits = theirs["logits"]
        logits = logits[..., 1] - logits[..., 0] if name == "replaced" else logits
        kept = real if logits.shape[:2] == real.shape else slice(None)
        np.testing.assert_allclose(found[name][kept], logits[kept], atol=1e-5)


@pytest.mark.parametrize("name", MADE)
def test_what_transformers_makes_has_its_states_logits_and_gradients_here(name: str, folder: Path) -> None:
    model = read_model(str(folder / name))
    assert not model.left_out
    network, rows = make_network(model), Encoded(*inputs())
    batch = [tf.constant(value, tf.int32) for value in rows]
    expected, real = np.load(folder / f"{name}.npz"), rows.input_mask.astype(bool)
    assert_same(check.outputs(model, "main", rows), expected, real)
    weights = np.load(folder / "inputs.npz")["weights"] * real[..., np.newaxis]
    variables = network.encoder.trainable_variables
    for off in (True, False):
        with kernels.off() if off else contextlib.nullcontext(), tf.GradientTape() as tape:
            states = network.states(*batch)
            loss = tf.reduce_sum(states * weights)
        assert np.abs(states.numpy() - expected["states"])[real].max() < 1e-5
        gradients = tape.gradient(loss, variables)
    prefix = names.prefix_of(names.load_tensors(folder / name))
    assert prefix is not None
    pairs = names.encoder(model.architecture, prefix, modern=True)
    by_name = {v.name.split(":")[0]: g for v, g in zip(variables, gradients, strict=True)}
    assert by_name.keys() == {pair.ours for pair in pairs}
    for pair in pairs:
        for key, value in pair.to_theirs(tf.convert_to_tensor(by_name[pair.ours]).numpy()).items():
            exact = expected[f"gradient/{key}"]
            value = value[1:] if key.endswith(names.WORDS) else value  # theirs has no gradient of [PAD]
            exact = exact[1:] if key.endswith(names.WORDS) else exact
            np.testing.assert_allclose(value, exact, rtol=1e-4, atol=1e-5 * max(1.0, np.abs(exact).max()), err_msg=key)


@pytest.mark.parametrize("name", WRITTEN)
def test_what_goes_out_computes_the_same_in_transformers(name: str, folder: Path) -> None:
    model, part = written(name)
    rows, theirs = Encoded(*inputs()), np.load(folder / f"{name}.npz")
    assert_same(check.outputs(model, part, rows), theirs, rows.input_mask.astype(bool))
    tokens = [model.tokens[number] for number in theirs["ids"]]
    assert tokens[0] == "[CLS]" and tokens[-1] == "[SEP]" and "the" in tokens


@pytest.mark.parametrize("name", WRITTEN)
def test_what_goes_out_comes_back(name: str, tmp_path: Path) -> None:
    model, part = written(name)
    exported = to_huggingface(model, part)
    write_huggingface(tmp_path, model, exported)
    assert difference(model, exported, str(tmp_path), part) < 1e-5
    again = read_model(str(tmp_path))
    assert not again.left_out
    assert again.architecture.embedding_size == again.architecture.hidden_size
    if isinstance(config_of(model), FinetuningConfig):
        assert isinstance(config_of(again), FinetuningConfig)
        return
    exported_again = to_huggingface(again, "body" if part == "body" else "main")
    assert exported_again.tensors.keys() == exported.tensors.keys()
    for key, value in exported.tensors.items():
        np.testing.assert_array_equal(exported_again.tensors[key], value, err_msg=key)


def test_a_detector_of_any_width_is_read_without_a_generator(tmp_path: Path) -> None:
    """A quarter of 300 is no width of heads of an even size, which a generator would need."""
    sizes = {"hidden_size": 300, "num_attention_heads": 5, "num_hidden_layers": 2}
    model = ours(sizes=sizes, embedding_size=300, generator_hidden_size=1.0)
    write_huggingface(tmp_path, model, to_huggingface(model))
    again = read_model(str(tmp_path))
    assert again.architecture.head_size == 60 and "discriminator_predictions/dense/kernel" in again.weights


TYPES = ["full_attention", "sliding_attention", "full_attention", "sliding_attention"]


def test_both_spellings_mean_the_same(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text((golden.CHECKPOINT / "vocab.txt").read_text())
    plain = SIZES | {"model_type": "modernbert"}
    old = plain | {"global_attn_every_n_layers": 2, "global_rope_theta": 500.0, "local_rope_theta": 20.0}
    thetas = {"full_attention": 500.0, "sliding_attention": 20.0}
    parameters = {kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in thetas.items()}
    new = plain | {"layer_types": TYPES, "rope_parameters": parameters}
    found = network_of(old, tmp_path)
    assert found == network_of(new, tmp_path)
    overrides = found["model_hparam_overrides"]
    assert (overrides["rope_theta"], overrides["local_rope_theta"]) == (500.0, 20.0)
    overrides = network_of(plain | {"local_rope_theta": None}, tmp_path)["model_hparam_overrides"]
    assert (overrides["rope_theta"], overrides["local_rope_theta"]) == (160000.0, None)
    assert overrides["global_attn_every_n_layers"] == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer_types": [*TYPES[:3], "chunked_attention"]}, "layer_types .*chunked_attention"),
        ({"layer_types": TYPES[:3]}, "one for each of the 4 layers"),
        ({"layer_types": TYPES[::-1]}, "full_attention in layers 0, n, 2n"),
        ({"global_attn_every_n_layers": 0}, "global_attn_every_n_layers must be at least 1"),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 1e4}}},
            "rope_parameters of full_attention .*yarn",
        ),
        ({"global_rope_theta": -1}, "global_rope_theta must be above 1, got -1"),
        ({"hidden_activation": "silu"}, "hidden_activation is 'silu'"),
        ({"classifier_activation": "relu"}, "classifier_activation 'relu'"),
        ({"norm_bias": 1}, "norm_bias must be bool, got 1"),
        ({"norm_eps": "small"}, "norm_eps must be float, got 'small'"),
        ({"local_attention": 0}, "local_attention 0"),
        ({"attention_dropout": 2.0}, "attention_dropout must be below 1, got 2.0"),
        ({"num_hidden_layers": "4"}, "num_hidden_layers must be int, got '4'"),
    ],
)
def test_configurations_that_we_cannot_read_are_refused_with_the_field(change, message: str, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text((golden.CHECKPOINT / "vocab.txt").read_text())
    with pytest.raises(UserError, match=message) as raised:
        network_of(SIZES | {"model_type": "modernbert"} | change, tmp_path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("layers.1.mlp.Wi.weight", np.ones([80, 24], np.int8), "layers.1.mlp.Wi.weight is of type I8"),
        ("layers.1.attn.Wo.weight", np.full([24, 24], np.nan, np.float32), "layers.1.attn.Wo.weight holds numbers"),
        ("layers.2.attn.Wqkv.weight", np.ones([71, 24], np.float32), r"layers.2.attn.Wqkv.weight is \(71, 24\)"),
        ("final_norm.weight", None, "tensors are missing for electra/encoder/LayerNorm/gamma"),
    ],
)
def test_tensors_that_we_cannot_read_are_refused_with_their_name(name, value, message: str, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    model = ours(embedding_size=24)
    exported = to_huggingface(model, "body")
    write_huggingface(tmp_path, model, exported)
    tensors = {key: np.ascontiguousarray(one) for key, one in exported.tensors.items() if key != name}
    save_file(tensors | ({} if value is None else {name: value}), tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=message):
        read_model(str(tmp_path))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"embedding_norm": "before"}, "embedding_norm before"),
        ({"type_vocab_size": 2}, "type_vocab_size 2"),
        ({"relative_positions": "coco"}, "relative_positions coco"),
        ({"gated_mlp": False}, "gated_mlp False"),
    ],
)
def test_networks_that_it_does_not_have_are_refused_with_the_reason(sizes, message: str) -> None:
    with pytest.raises(UserError, match=message):
        to_huggingface(ours(sizes=sizes, embedding_size=24))
