"""Pairs of a text and a statement that are made of plain text, in RTE's columns."""

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from benchmarks.entailment_pairs import Statements, mnli_pairs, pairs_of
from electra_tf2.corpus.text_files import Corpus
from electra_tf2.util.errors import UserError
from tests.support.programs import ROOT

PARAGRAPH = [
    "In the spring of 1912, Anna Holm (a painter) moved to Oslo with her brother Peter.",
    "The house that they rented was close to the harbour of Oslo and had 14 rooms.",
    "Peter Holm could sell most of the pictures to people who lived in Bergen.",
    "Nobody knows where the last of the pictures of the house by the harbour is now.",
]


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    lines = [" ".join(PARAGRAPH), "A heading", '"He said that" and then he went away to the sea. ' * 4]
    (folder / "text.txt").write_text("\n\n".join(lines), encoding="utf-8")
    return Corpus(str(folder))


def statements(seed):
    return Statements(["Rome"], Random(seed))


def test_a_shortened_sentence_says_less_in_the_same_words():
    made = {statements(seed).shortened(PARAGRAPH[0]) for seed in range(100)}
    whole = "In the spring of 1912, Anna Holm moved to Oslo with her brother Peter."
    assert whole in made and "Anna Holm moved to Oslo with her brother Peter." in made
    assert "Anna Holm moved to Oslo." in made and all(one[:-1].lower() in whole.lower() for one in made)


@pytest.mark.parametrize("seed", range(20))
def test_each_change_makes_another_statement_or_none(seed):
    made = statements(seed)
    swapped = made.with_names_swapped("Anna Holm moved to Oslo.")
    assert swapped == "Oslo moved to Anna Holm."
    assert made.with_names_swapped("Oslo and Oslo.") is None and made.with_names_swapped("the house in Oslo.") is None
    assert made.with_another_name("They live in Oslo.", ["Oslo", "Bergen"]) == "They live in Bergen."
    assert made.with_another_name("They live in Oslo.", ["Oslo"]) == "They live in Rome."
    assert made.with_another_name("They live there.", ["Oslo"]) is None
    number = made.with_another_number("It had 14 rooms.")
    before, after = "It had 14 rooms.", number
    assert len(after) == len(before) and sum(x != y for x, y in zip(before, after, strict=True)) == 1
    assert after[7:9].isdigit() and made.with_another_number("It had rooms.") is None
    assert made.negated("Peter could sell them.") == "Peter could not sell them."
    assert made.negated("Peter could not sell them.") == "Peter could sell them."
    assert made.negated("Peter sold them.") is None


def test_pairs_are_of_one_paragraph_and_what_follows_is_told_in_the_text():
    labels = []
    for seed in range(300):
        pair = statements(seed).pair_of(PARAGRAPH)
        if pair is None:
            continue
        text, statement, label = pair
        labels.append(label)
        assert text in " ".join(PARAGRAPH) and statement.endswith(".") and statement != text
        told = text.replace(" (a painter)", "").lower()
        assert (statement[:-1].lower() in told) == (label == "entailment"), pair
    assert 0.4 < labels.count("entailment") / len(labels) < 0.6
    assert statements(0).pair_of([" ".join(["word"] * 91)] * 3) is None
    repeated = [statements(seed).pair_of(["It went on and on."] * 3) for seed in range(50)]
    assert {pair[2] for pair in repeated if pair} == {"entailment"}


def test_the_same_seed_makes_the_same_pairs_and_speech_and_headings_make_none(corpus):
    drawn = [pairs_of(corpus, 10, Random(seed)) for seed in (3, 3)]
    assert drawn[0] == drawn[1] and len(drawn[0]) == 1
    assert pairs_of(corpus, 0, Random(0)) == []


def test_the_program_writes_rte_columns_with_mnli_twice_and_names_what_is_wrong(corpus, tmp_path):
    mnli = tmp_path / "mnli.tsv"
    mnli.write_text(
        "index\tsentence1\tsentence2\tgold_label\n0\tA dog\u2028runs.\tIt runs.\tneutral\n", encoding="utf-8"
    )

    def run(*flags):
        words = ["-m", "benchmarks.entailment_pairs", "--corpus", corpus.directory, *map(str, flags)]
        return subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)

    output = tmp_path / "made" / "rte" / "train.tsv"
    done = run("--output", output, "--mnli", mnli)
    assert done.returncode == 0 and "1 pairs and 2 of MNLI" in done.stdout, done.stderr
    header, *rows = output.read_text(encoding="utf-8").split("\n")[:-1]
    assert header == "index\tsentence1\tsentence2\tlabel" and [row[0] for row in rows] == ["0", "1", "2"]
    assert sum(row[2:] == "A dog runs.\tIt runs.\tnot_entailment" for row in rows) == 2
    for wrong in (corpus.directory, tmp_path / "none.tsv", f"{corpus.directory}/text.txt"):
        with pytest.raises(UserError, match=str(wrong)):
            mnli_pairs(Path(wrong))
    refused = run("--output", tmp_path / "none.tsv", "--mnli", tmp_path / "none.tsv")
    assert refused.returncode == 1 and refused.stderr.startswith("error:") and not (tmp_path / "none.tsv").exists()
