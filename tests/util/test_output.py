"""Standard output that is closed or full: the program works, or one line says what cannot be written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(words: str, redirection: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text("some words and some more words\n" * 50)
    command = f"{sys.executable} {words} {redirection}"
    environment = os.environ | {"F": str(tmp_path)}
    return subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True, check=False
    )


BUILD = "build_vocab.py --corpus-dir $F/corpus --vocab-file $F/vocab.txt --vocab-size 64"


@pytest.mark.parametrize("closed", [">&-", "<&- >&-", ">&- 2>&-"])
def test_work_is_done_without_standard_output(closed: str, tmp_path: Path) -> None:
    done = run(BUILD, closed, tmp_path)
    assert done.returncode == 0, done.stderr
    vocab = (tmp_path / "vocab.txt").read_text().split("\n")
    assert vocab[0] == "[PAD]" and "words" in vocab and not any(word.startswith("wrote") for word in vocab)


def test_a_full_disk_behind_standard_output_is_named(tmp_path: Path) -> None:
    done = run(BUILD, ">/dev/full", tmp_path)
    assert (done.returncode, done.stderr) == (2, "error: standard output: the disk is full\n")
