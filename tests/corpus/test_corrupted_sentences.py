"""Sentences and corrupted ones, in CoLA's columns."""

import subprocess
import sys
from unittest import mock

import numpy as np
import pytest

from benchmarks.corrupted_sentences import Corruption, main, rows_of
from electra_tf2.corpus.text_files import Corpus
from tests.support.finetuning import write_lines
from tests.support.programs import ROOT

TEXT = [
    f"The {thing} {verb} in the {place} before they were found."
    for thing in ("letter", "letters", "painter", "painting")
    for verb in ("stays", "stayed", "is staying")
    for place in ("house", "garden", "houses")
]


@pytest.mark.parametrize(
    ("change", "longer", "same_words"),
    [
        ("_swapped", 0, True),
        ("_moved", 0, True),
        ("_without_one", -1, False),
        ("_with_one_more", 1, False),
        ("_of_another_kind", 0, False),
        ("_in_another_form", 0, False),
    ],
)
def test_a_sentence_is_changed_once(change, longer, same_words):
    corruption = Corruption(TEXT, np.random.default_rng(0))
    changes = {found.__name__: found for found in corruption.changes}
    assert sum(corruption.changes.values()) == pytest.approx(1)
    corruption.changes = {changes[change]: 1.0}
    for sentence in TEXT:
        changed = corruption(sentence)
        before, after = sentence[:-1].lower().split(), changed[:-1].lower().split()
        assert changed[0].isupper() and changed[-1] == "." and before != after
        assert len(after) - len(before) == longer and (sorted(after) == sorted(before)) == same_words


def test_words_become_others_of_their_kind_and_stem_with_their_capital():
    corruption = Corruption(TEXT, np.random.default_rng(0))
    assert set(corruption.forms["stays"]) == {"stayed", "staying"}  # those of the text alone
    assert set(corruption.kinds["were"]) == {"is", "are", "be", "been", "being", "was"}
    assert corruption._with_another(["(Stays,", "here"], {"stays": ["stayed"]}) == ["(Stayed,", "here"]
    assert corruption._with_another(["nothing"], {"stays": ["stayed"]}) == ["nothing"]


@pytest.mark.parametrize("count", [6, 100])
def test_rows_are_of_clean_sentences_of_the_wanted_length(tmp_path, count):
    fine = ["They went to the old house.", "Was it there all the time?", "Nobody saw the two of them."]
    refused = [
        "Too short here.",
        'He said "come" to all of us.',
        "It was in 1912 that it ended.",
        "it begins small here.",
    ]
    write_lines(
        tmp_path / "text.txt", *[line for pair in zip(fine, refused, strict=False) for line in pair], *fine, TEXT[0]
    )
    rows = rows_of(Corpus(str(tmp_path)), count, 5, 7, seed=1)
    assert len(rows) == 6 and [label for label, _ in rows] == [0, 1] * 3
    assert all((sentence in fine) == bool(label) for label, sentence in rows)
    assert rows == rows_of(Corpus(str(tmp_path)), count, 5, 7, seed=1)


def test_the_program_writes_colas_columns_and_names_what_is_missing(tmp_path):
    write_lines(tmp_path / "corpus" / "text.txt", *TEXT)
    program = [sys.executable, "-m", "benchmarks.corrupted_sentences", "--corpus"]
    output = tmp_path / "cola" / "train.tsv"
    done = subprocess.run(
        [*program, tmp_path / "corpus", "--output", output], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "36 sentences in" in done.stdout, done.stderr
    columns = [line.split("\t") for line in output.read_text(encoding="utf-8").splitlines()]
    assert {len(row) for row in columns} == {4} and [row[1] for row in columns] == ["0", "1"] * 18
    missing = subprocess.run(
        [*program, tmp_path / "gone", "--output", output], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert missing.returncode == 1 and "gone' does not exist" in missing.stderr
    words = ["", "--corpus", str(tmp_path / "corpus"), "--output", "x", "--count", "0"]
    refusal = pytest.raises(SystemExit, match=r"no sentence of .* was taken: --count, --min-words")
    with mock.patch.object(sys, "argv", words), refusal:
        main()
