"""Encoders of strangers with a byte-level BPE tokenizer, made and saved by transformers: read and fine-tuned here, and
computed by transformers and ONNX's runtime again.

transformers runs in a process of its own, where it is installed (the extra `oracle`, or ORACLE_PYTHON: the interpreter
of an environment that has it).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

import electra_tf2 as electra
from electra_tf2.convert import network_file, onnx
from electra_tf2.convert.huggingface import to_huggingface, write_huggingface
from tests.support.programs import run_program

PYTHON = os.environ.get("ORACLE_PYTHON", sys.executable)
ORACLE = Path(__file__).with_name("byte_level_oracle.py")
TEXTS = ["the man went to the house", "Some OTHER text, with Café: 北京!", "house", "a [MASK] of  two blanks" * 2]


def _oracle(what: str, folder: Path) -> None:
    command = [PYTHON, str(ORACLE), what, str(folder), json.dumps(TEXTS)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders that transformers saved, and what it computes with them."""
    if subprocess.run([PYTHON, "-c", "import transformers, torch"], capture_output=True).returncode:
        pytest.skip(f"{PYTHON} has no transformers and PyTorch (extra `oracle`)")
    folder = tmp_path_factory.mktemp("made")
    _oracle("make", folder)
    return folder


@pytest.mark.parametrize("name", ["modernbert", "bert", "electra"])
def test_tokens_states_and_words_for_masks_are_theirs(name: str, made: Path) -> None:
    model, theirs = electra.load(made / name), np.load(made / f"{name}.npz")
    assert not (made / name / "vocab.txt").exists()
    for number, states in enumerate(model.states(TEXTS[:3])):
        ids = theirs[f"ids/{number}"]
        assert states.tokens == [model.source.tokens[token] for token in ids]
        np.testing.assert_allclose(states.vectors, theirs[f"states/{number}"], atol=1e-5)
    [[best], *_] = model.fill(TEXTS[3], top=1)
    mask = model.source.tokens.index("[MASK]")
    logits = theirs["logits/3"][theirs["ids/3"].tolist().index(mask)]
    assert best.token == model.source.tokens[logits.argmax()]
    assert best.probability == pytest.approx(np.exp(logits.max()) / np.exp(logits).sum(), rel=1e-4)


@pytest.mark.slow
def test_what_was_fine_tuned_here_answers_there_as_here(made: Path, tmp_path: Path) -> None:
    rows = "".join(f'{{"sentence": "{TEXTS[0]} {number}", "label": "{number % 2}"}}\n' for number in range(8))
    models = {}
    for task, kind, content in (("cola", "jsonl", rows), ("chunk", "txt", "the B-NP\nCafé:man I-NP\n北京 O\n\n" * 4)):
        data = tmp_path / "finetuning_data" / task
        data.mkdir(parents=True)
        for split in ("train", "dev"):
            (data / f"{split}.{kind}").write_text(content)
        words = ["--data-dir", str(tmp_path), "--task-names", task, "--init-checkpoint", f"{made}/modernbert"]
        words += ["--model-dir", f"{tmp_path}/{task}", "--train-batch-size", "4", "--num-train-epochs", "1"]
        done = run_program("run_finetuning.py", *words, "--max-seq-length", "48", "--num-trials", "1")
        assert done.returncode == 0, done.stderr
        models[task] = electra.load(f"{tmp_path}/{task}_1")
        write_huggingface(tmp_path / task, models[task].source, to_huggingface(models[task].source))
    _oracle("load", tmp_path)
    theirs, answers = np.load(tmp_path / "loaded.npz"), models["cola"].predict(TEXTS[:3])
    for number, answer in enumerate(answers):
        np.testing.assert_allclose(list(answer["probabilities"].values()), theirs[f"cola/{number}"], atol=1e-5)
    text = " ".join(TEXTS[1].split())  # whose words have one blank between them, as tags are learned
    [answer] = models["chunk"].predict([text])
    starts = [text.index(word) for word in text.split()]
    offsets, shares = theirs["chunk/offsets/1"], theirs["chunk/1"].max(-1)
    places = [next(i for i, (first, end) in enumerate(offsets) if first <= start < end) for start in starts]
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
