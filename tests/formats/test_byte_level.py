"""Encoders of strangers with a byte-level BPE tokenizer, made and saved by transformers, read here.

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

import electra_tf2 as electra

PYTHON = os.environ.get("ORACLE_PYTHON", sys.executable)
ORACLE = Path(__file__).with_name("byte_level_oracle.py")
TEXTS = ["the man went to the house", "Some OTHER text, with Café: 北京!", "house", "a [MASK] of  two blanks" * 2]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders that transformers saved, and what it computes with them."""
    if subprocess.run([PYTHON, "-c", "import transformers, torch"], capture_output=True).returncode:
        pytest.skip(f"{PYTHON} has no transformers and PyTorch (extra `oracle`)")
    folder = tmp_path_factory.mktemp("made")
    command = [PYTHON, str(ORACLE), str(folder), json.dumps(TEXTS)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
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
