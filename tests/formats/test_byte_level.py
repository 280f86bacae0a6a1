"""A stranger's encoder with a byte-level BPE tokenizer, made and saved by transformers: read and fine-tuned here,
written for others, and computed by them. transformers runs in a process of its own, where it is installed (the extra
`oracle`, or ORACLE_PYTHON: the interpreter of an environment that has it)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import electra_tf2 as electra
from tests.support.programs import run_program

PYTHON = os.environ.get("ORACLE_PYTHON", sys.executable)
ORACLE = Path(__file__).with_name("byte_level_oracle.py")
TEXTS = ["the man went to the house", "Some OTHER text, with Café: 北京!", "house", "a [MASK] of  two blanks" * 2]
TASKS = {"cola": "classes", "chunk": "tags"}  # task -> name of its folder


def _oracle(what: str, folder: Path) -> dict[str, np.ndarray]:
    command = [PYTHON, str(ORACLE), what, str(folder), json.dumps(TEXTS)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return {path.stem: np.load(path) for path in folder.glob("*.npz")}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders that transformers saved, and what it computes with them."""
    modules = "import transformers, torch, sentence_transformers"
    if subprocess.run([PYTHON, "-c", modules], capture_output=True).returncode:
        pytest.skip(f"{PYTHON} has no transformers, PyTorch and sentence-transformers (extra `oracle`)")
    folder = tmp_path_factory.mktemp("made")
    _oracle("made", folder)
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


@pytest.fixture(scope="module")
def tuned(made: Path) -> dict[str, Path]:
    """Folders of models that were fine-tuned from theirs."""
    data, folders = made / "data" / "finetuning_data", {}
    rows = "".join(f'{{"sentence": "{TEXTS[0]} {number}", "label": "{number % 2}"}}\n' for number in range(8))
    for task, content in {"cola": rows, "chunk": "the B-NP\nCafé:man I-NP\n北京 O\n\n" * 4}.items():
        (data / task).mkdir(parents=True)
        for split in ("train", "dev"):
            (data / task / f"{split}.{'jsonl' if task == 'cola' else 'txt'}").write_text(content)
        words = ["--data-dir", str(made / "data"), "--task-names", task, "--init-checkpoint", f"{made}/modernbert"]
        words += ["--model-dir", f"{made}/{task}", "--train-batch-size", "4", "--num-train-epochs", "1"]
        done = run_program("run_finetuning.py", *words, "--max-seq-length", "48", "--num-trials", "1")
        assert done.returncode == 0, done.stderr
        folders[task] = made / f"{task}_1"
    return folders


def test_what_was_fine_tuned_here_answers_there_as_here(made: Path, tuned: dict[str, Path]) -> None:
    written = [("cola", "huggingface", "classes"), ("chunk", "huggingface", "tags")]
    written += [("cola", "sentence_transformers", "sentences")]
    for task, kind, name in written:
        done = run_program("convert_model.py", "--from", str(tuned[task]), "--to", f"{made}/{name}", "--format", kind)
        assert done.returncode == 0 and "self-check" in done.stdout, done.stderr
    theirs = _oracle("loaded", made)["loaded"]
    classes, tags = (electra.load(tuned[task]) for task in TASKS)
    for number, answer in enumerate(classes.predict(TEXTS[:3])):
        np.testing.assert_allclose(list(answer["probabilities"].values()), theirs[f"classes/{number}"], atol=1e-5)
    text = " ".join(TEXTS[1].split())  # whose words have one blank between them, as tags are learned
    [answer] = tags.predict([text])
    starts = [text.index(word) for word in text.split()]
    offsets, shares = theirs["tags/offsets/1"], theirs["tags/1"].max(-1)
    places = [next(i for i, (first, end) in enumerate(offsets) if first <= start < end) for start in starts]
    np.testing.assert_allclose(answer["probabilities"], shares[places], atol=1e-5)
    vectors = [states.vectors.mean(0) for states in classes.states(TEXTS[:3])]
    for ours, other in zip(vectors, theirs["sentences"], strict=False):
        np.testing.assert_allclose(ours / np.linalg.norm(ours), other, atol=1e-5)
