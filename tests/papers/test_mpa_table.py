"""The table of co-occurrence against plain loops over a small corpus."""

import collections

import numpy as np
import pytest

from electra_tf2.papers.counts import read_table
from electra_tf2.papers.mpa.tables import KIND, NOBODY, CooccurrenceTable, count_pairs, make_table, pmi_scores
from electra_tf2.util.errors import UserError
from tests.support.collocations import SPECIAL, TOKENS, VOCAB, WORDS, corpus, write_corpus
from tests.support.papers.mpa import dense
from tests.support.programs import run_program


def plain_counts(ids, window):
    """Ordered pair of different tokens -> how often one is at most so many places from the other."""
    counts: collections.Counter[tuple[int, int]] = collections.Counter()
    for row in ids.tolist():
        for i, left in enumerate(row):
            for j, right in enumerate(row):
                if 0 < abs(i - j) <= window and left != right and not {left, right} & set(SPECIAL):
                    counts[left, right] += 1
    return counts


@pytest.fixture(scope="module")
def ids():
    return corpus(rows=6)


@pytest.mark.parametrize("window", [1, 3, 100])
def test_pairs_are_counted_as_by_plain_loops(ids, window):
    counted = count_pairs(ids, VOCAB, window)
    expected = plain_counts(ids, window)
    size = len(TOKENS)
    assert {(k // size, k % size): n for k, n in zip(counted.keys, counted.counts, strict=True)} == expected
    totals: collections.Counter[int] = collections.Counter()
    for (left, _), number in expected.items():
        totals[left] += number
    assert {token: n for token, n in enumerate(counted.totals.tolist()) if n} == totals


def test_scores_are_normalised_pmi(ids):
    keys, counts, totals = count_pairs(ids, VOCAB, 5)
    found = pmi_scores(keys, counts, totals)
    assert ((found >= 0) & (found <= 1)).all() and found.max() > 0.2
    size, whole = len(TOKENS), totals.sum()
    table = {(int(k // size), int(k % size)): value for k, value in zip(keys, found, strict=True)}
    pairs = plain_counts(ids, 5)
    for (left, right), number in list(pairs.items())[::7]:
        p, p_left, p_right = (count / whole for count in (number, totals[left], totals[right]))
        assert table[left, right] == pytest.approx(max(0.0, np.log(p / (p_left * p_right)) / -np.log(p)))
        assert table[left, right] == pytest.approx(table[right, left])


def test_the_highest_scores_of_each_token_are_kept(ids):
    keys, counts, totals = count_pairs(ids, VOCAB, 5)
    whole = dense(make_table([(keys, counts)], totals, top_k=600))
    parts = [(keys[keys // 600 % 2 == part], counts[keys // 600 % 2 == part]) for part in range(2)]
    table = make_table(parts, totals, top_k=4)
    np.testing.assert_allclose(whole, whole.T)
    assert (np.diag(whole) == 0).all() and (whole[list(SPECIAL[:5])] == 0).all()
    for token in range(600):
        best = np.sort(whole[token])[::-1][:4]
        np.testing.assert_array_equal(table.scores[token], best)
        near = table.neighbours[token][table.neighbours[token] != NOBODY]
        np.testing.assert_array_equal(whole[token, near], best[: len(near)])
    frequent = np.argsort(-totals, kind="stable")[:3]
    without = make_table([(keys, counts)], totals, top_k=4, drop_frequent=3)
    assert not np.isin(without.neighbours, frequent).any() and (without.neighbours[frequent] == NOBODY).all()


def test_the_program_writes_the_table_of_all_records(tmp_path):
    ids = corpus(rows=40)
    pattern = write_corpus(tmp_path / "records", ids)
    output = str(tmp_path / "table.npz")
    words = ["--pretrain-tfrecords", pattern, "--vocab-file", VOCAB, "--output-file", output, "--top-k", "5"]
    done = run_program(
        "build_table.py", "cooccurrence", *words, "--window", "4", "--min-count", "2", "--num-processes", "2"
    )
    assert done.returncode == 0, done.stderr
    assert "pairs of 600 tokens" in done.stdout
    keys, counts, totals = count_pairs(ids, VOCAB, 4)
    expected = make_table([(keys[counts >= 2], counts[counts >= 2])], totals, top_k=5)
    table = CooccurrenceTable(**read_table(output, "cooccurrence_file", KIND, VOCAB))
    np.testing.assert_array_equal(table.neighbours, expected.neighbours)
    np.testing.assert_array_equal(table.scores, expected.scores)
    assert WORDS[51] in table.neighbours[WORDS[50]]  # the planted pair
    other = tmp_path / "vocab.txt"
    other.write_text("\n".join([*TOKENS[:-1], "another"]))
    with pytest.raises(UserError, match=r"cooccurrence_file: .*another vocabulary.*electra build-table cooccurrence"):
        read_table(output, "cooccurrence_file", KIND, str(other))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the first argument is the kind of table: cooccurrence"),
        (["cooccurrence", "--size", "3"], "--size"),
        (["pmi_vocab", "--score", "npmi"], "--score is 'npmi'"),
        (["cooccurrence", "--top-k", "1" + "0" * 12], "--top-k must be"),
        (["cooccurence", "--min-count", "3"], "did you mean 'cooccurrence'"),
    ],
)
def test_what_does_not_fit_a_kind_of_table_is_refused(words, message):
    done = run_program("build_table.py", *words)
    assert done.returncode == 2 and message in done.errors[0]
