"""The vocabulary of PMI-masking: counts, scores and choice against plain Python."""

import collections
import itertools
import math
import weakref

import numpy as np
import pytest

from electra_tf2.papers import counts as tables
from electra_tf2.papers.pmi import tables as pmi_tables
from electra_tf2.papers.pmi.tables import KIND, SHARES, count_ngrams, ngrams_in
from electra_tf2.util.errors import UserError
from tests.support.collocations import (
    FORMAT,
    LENGTH,
    PAIR,
    PIECES,
    SPECIAL,
    TOKENS,
    VOCAB,
    WORDS,
    corpus,
    write_corpus,
)
from tests.support.programs import run_program

Ngram = tuple[tuple[int, ...], ...]


def inputs_of(pattern):
    return tables.record_inputs(pattern, VOCAB)._replace(num_processes=1)


def plain_counts(ids):
    """words -> Counter of n-grams as tuples of words, which are tuples of pieces."""
    counts: dict[int, collections.Counter[Ngram]] = {words: collections.Counter() for words in range(1, 6)}
    special = set(SPECIAL)
    for row in ids.tolist():
        words: list[tuple[int, ...]] = []
        for token in row:
            if token in PIECES and words:
                words[-1] += (token,)
            else:
                words.append((token,))
        for n in counts:
            for start in range(len(words) - n + 1):
                ngram = tuple(words[start : start + n])
                if not any(word[0] in special for word in ngram):
                    counts[n][ngram] += 1
    return counts


def plain_pmi(ngram, counts, squared=False):
    """The minimum over all 2^(n-1) - 1 ways to cut."""

    def log_p(part):
        return math.log(counts[len(part)][part] / counts[len(part)].total())

    n = len(ngram)
    scores = []
    for cuts in itertools.product([False, True], repeat=n - 1):
        if any(cuts):
            bounds = [0, *(place for place, cut in enumerate(cuts, start=1) if cut), n]
            parts = [ngram[a:b] for a, b in itertools.pairwise(bounds)]
            scores.append((2 if squared else 1) * log_p(ngram) - sum(map(log_p, parts)))
    assert len(scores) == 2 ** (n - 1) - 1
    return min(scores)


def as_words(ids):
    words: list[tuple[int, ...]] = []
    for token in ids:
        if token in PIECES:
            words[-1] += (int(token),)
        else:
            words.append((int(token),))
    return tuple(words)


@pytest.fixture(scope="module")
def ids():
    return corpus()


@pytest.fixture(scope="module")
def counts(ids):
    return plain_counts(ids)


@pytest.mark.parametrize("score", ["pmi", "pmi_freq"])
def test_counts_scores_and_choice_are_those_of_plain_python(ids, counts, score, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "HELD_KEYS", 5000)  # several writes to each part
    pattern = write_corpus(tmp_path / "records", ids)
    inputs = inputs_of(pattern)._replace(work_dir=str(tmp_path))
    found = pmi_tables.make_vocabulary(inputs, size=200, min_count=4, score=score)
    assert not list(tmp_path.glob("counts*"))
    starts = [0, *found.ends[:-1]]
    ngrams = [as_words(found.ids[a:b]) for a, b in zip(starts, found.ends, strict=True)]
    assert found.words.tolist() == [len(ngram) for ngram in ngrams]
    for number, ngram in enumerate(ngrams):
        assert found.counts[number] == counts[len(ngram)][ngram] >= 4
        assert found.scores[number] == pytest.approx(plain_pmi(ngram, counts, score == "pmi_freq"), abs=1e-4)
    for words, share in SHARES.items():
        scores = sorted(
            (plain_pmi(g, counts, score == "pmi_freq") for g, n in counts[words].items() if n >= 4), reverse=True
        )
        np.testing.assert_allclose(
            found.scores[found.words == words], scores[: round(200 * share)], atol=1e-4, err_msg=str(words)
        )


def test_processes_count_together_what_one_counts_alone(ids, tmp_path):
    pattern = write_corpus(tmp_path / "records", ids)
    words = ["--pretrain-tfrecords", pattern, "--vocab-file", VOCAB, "--min-count", "4", "--size", "80"]
    for processes in ("1", "2"):
        output = str(tmp_path / f"{processes}.npz")
        done = run_program("build_table.py", "pmi_vocab", *words, "--num-processes", processes, "--output-file", output)
        assert done.returncode == 0, done.stderr
        assert "40 of 2 words" in done.stdout
    one, two = (tables.read_table(f"{tmp_path}/{number}.npz", "pmi_vocab_file", KIND, VOCAB) for number in (1, 2))
    np.testing.assert_equal(one, two)
    again = run_program("build_table.py", "pmi_vocab", *words, "--output-file", str(tmp_path / "1.npz"))
    assert again.returncode == 2 and "exists; pass --overwrite" in again.stderr


def test_what_cannot_be_counted_is_said(ids, tmp_path):
    with pytest.raises(UserError, match="no file matches"):
        tables.record_inputs(str(tmp_path / "none*"), VOCAB)
    pattern = write_corpus(tmp_path / "records", ids)
    other = tmp_path / "vocab.txt"
    other.write_text("\n".join([*TOKENS[:-1], "another"]))
    with pytest.raises(UserError, match="is not the vocabulary that"):
        tables.record_inputs(pattern, str(other))
    with pytest.raises(UserError, match="--min-count 1099511627776: no word of the records occurs so often"):
        pmi_tables.make_vocabulary(inputs_of(pattern), min_count=1 << 40)


def test_a_corpus_without_long_ngrams_has_a_vocabulary_of_short_ones(ids, counts, tmp_path):
    often = max(counts[5].values()) + 1
    wanted = {words: sum(n >= often for n in counts[words].values()) for words in SHARES}
    assert wanted[2] and not wanted[5]
    pattern = write_corpus(tmp_path / "records", ids)
    found = pmi_tables.make_vocabulary(inputs_of(pattern), size=1000, min_count=often)
    assert {words: int((found.words == words).sum()) for words in SHARES} == wanted


def test_collecting_holds_no_more_than_a_batch(ids, monkeypatch):
    batches: list[weakref.ref[np.ndarray]] = []

    def read(file, record_format):
        for rows in np.array_split(ids, 20):
            assert sum(batch() is not None for batch in batches) <= 1
            batch = rows.copy()
            batches.append(weakref.ref(batch))
            yield {"input_ids": batch}
            del batch

    monkeypatch.setattr(pmi_tables, "read_batches", read)
    inputs = tables.TableInputs(["of the records"], FORMAT, VOCAB, TOKENS)
    found = pmi_tables.collect(inputs, np.unique(count_ngrams(ids, VOCAB).keys))
    assert len(batches) == 20 and all(len(ngrams) for ngrams in found.values())


def test_records_with_many_keys_are_counted_few_at_a_time(ids, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BATCH_KEYS", LENGTH * 5 * 8)
    inputs = inputs_of(write_corpus(tmp_path / "records", ids))._replace(num_processes=1)
    found = []
    for keys, size in ((LENGTH * 5, 8), (1 << 30, 1)):
        sizes = list[int]()

        def count_in(rows, sizes=sizes):
            sizes.append(len(rows))
            return count_ngrams(rows, VOCAB)

        with tables.counted(inputs, count_in, 1, keys) as (_, parts_of):
            found.append([part for pair in parts_of(1) for part in pair])
        assert max(sizes) == size
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_hashes_do_not_depend_on_what_stands_before():
    row = np.array([SPECIAL.cls, *PAIR, *WORDS[:3], *PAIR, SPECIAL.sep], np.int32)
    hashes, starts, _ = ngrams_in(row, 2, VOCAB)
    of_pair = [hash_ for hash_, start in zip(hashes, starts, strict=True) if start in (1, 6)]
    assert len(of_pair) == 2 and of_pair[0] == of_pair[1]
    assert len(set(hashes.tolist())) == len(hashes) - 1
    counted = count_ngrams(row[np.newaxis], VOCAB)
    assert counted.totals.tolist() == [7, 6, 5, 4, 3] and counted.counts.sum() == 25
