"""Standard output that is closed, full or unread: the program works, or one line says what cannot be written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(words: str, redirection: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text("some words and some more words\n" * 50)
    command = f"set -o pipefail; {sys.executable} {words} {redirection}"
    environment = os.environ | {"F": str(tmp_path)}
    return subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True, check=False
    )


BUILD = "-m electra_tf2.programs.build_vocab --corpus-dir $F/corpus --vocab-file $F/vocab.txt --vocab-size 64"


@pytest.mark.parametrize("closed", [">&-", "<&- >&-", ">&- 2>&-"])
def test_work_is_done_without_standard_output(closed: str, tmp_path: Path) -> None:
    done = run(BUILD, closed, tmp_path)
    assert done.returncode == 0, done.stderr
    vocab = (tmp_path / "vocab.txt").read_text().split("\n")
    assert vocab[0] == "[PAD]" and "words" in vocab and not any(word.startswith("wrote") for word in vocab)


def test_a_full_disk_behind_standard_output_is_named(tmp_path: Path) -> None:
    done = run(BUILD, ">/dev/full", tmp_path)
    assert (done.returncode, done.stderr) == (2, "error: standard output: the disk is full\n")


def test_a_program_works_on_after_the_reader_of_its_output_has_ended(tmp_path: Path) -> None:
    done = run(BUILD, "| true", tmp_path)
    assert done.returncode == 0 and done.stderr.count("nobody reads the output any more") == 1, done.stderr
    assert "words" in (tmp_path / "vocab.txt").read_text()


def test_help_that_nobody_reads_to_its_end_says_nothing() -> None:
    command = f"{sys.executable} run_pretraining.py --help | head -1"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == "" and done.stdout.startswith("Pre-trains")
