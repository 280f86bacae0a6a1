"""Pairs of sentences from plain text and labelled tasks, and negatives by a generator."""

import json

import numpy as np
import pytest

from electra_tf2.corpus.corpus_reader import Corpus
from electra_tf2.programs.build_sentence_pairs import cropped, pairs_of, paragraphs, sample_rows
from tests.support import golden
from tests.support.finetuning import write_lines
from tests.support.programs import run_program

TEXT = 'The first line of names is open. "All of it is read?" A list. Then comes no. 4 of the type of value.'


def test_lines_become_sentences_of_the_lengths_that_are_wanted(tmp_path):
    write_lines(tmp_path / "corpus" / "text.txt", TEXT, "", "One more line of the file. And the end of it all.")
    found = list(paragraphs(Corpus(str(tmp_path / "corpus")), 4, 9))
    assert found == [
        ["The first line of names is open.", '"All of it is read?"'],
        ["Then comes no. 4 of the type of value."],
        ["One more line of the file.", "And the end of it all."],
    ]


def test_a_kind_says_what_a_sentence_is_paired_with():
    random = np.random.default_rng(0)
    assert pairs_of(["a b", "c", "d"], "adjacent", random) == [
        {"text": "a b", "positive": "c"},
        {"text": "c", "positive": "d"},
    ]
    assert pairs_of(["a b"], "single", random) == [{"text": "a b"}]
    words = [str(number) for number in range(20)]
    lengths = []
    for _ in range(200):
        kept = cropped(" ".join(words), random).split()
        assert kept and kept == sorted(kept, key=int)
        lengths.append(len(kept))
    assert 0.72 < np.mean(lengths) / 20 < 0.83 and max(lengths) == 20  # the mean share of 0.6 to 0.95 is 0.775
    assert cropped("one", random) == "one"


def test_the_program_writes_pairs_of_corpus_and_tasks_with_negatives(tmp_path):
    write_lines(tmp_path / "corpus" / "text.txt", TEXT)
    rte = [
        "index\tsentence1\tsentence2\tlabel",
        "0\tthe file is open\tit is open\tentailment",
        "1\ta\tb\tnot_entailment",
    ]
    write_lines(tmp_path / "finetuning_data" / "rte" / "train.tsv", *rte)
    words = ["--data-dir", str(tmp_path), "--min-words", "4"]
    corpus = ["--corpus-dir", str(tmp_path / "corpus"), "--kinds", "adjacent,cropped"]
    done = run_program(
        "build_sentence_pairs.py", *words, *corpus, "--tasks", "rte", "--negatives", str(golden.CHECKPOINT)
    )
    assert done.returncode == 0, done.stderr
    path = tmp_path / "finetuning_data" / "sentence_embedding" / "train.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == 1 + 1 + 3 and all(row.keys() == {"text", "positive", "negative"} for row in rows)
    [labelled] = [row for row in rows if row["text"] == "the file is open"]
    assert labelled["positive"] == "it is open"
    assert labelled["negative"] != labelled["text"] and len(labelled["negative"]) > 0
    again = tmp_path / "again.jsonl"
    same = [*words, *corpus, "--tasks", "rte", "--negatives", str(golden.CHECKPOINT), "--output", str(again)]
    assert run_program("build_sentence_pairs.py", *same).returncode == 0 and again.read_text() == path.read_text()
    refused = run_program("build_sentence_pairs.py", *same)
    assert refused.returncode == 2 and "again.jsonl' exists; pass --overwrite" in refused.stderr
    assert run_program("build_sentence_pairs.py", *same[:-4], *same[-2:], "--overwrite").returncode == 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "--corpus-dir or --tasks is needed"),
        (["--tasks", "sts"], "sts has no pairs of texts with labels"),
        (["--corpus-dir", "nowhere"], "nowhere"),
        (["--corpus-dir", ".", "--kinds", "next"], "'next' is none of cropped, adjacent, single"),
    ],
)
def test_wrong_flags_are_one_line(tmp_path, flags, said):
    done = run_program("build_sentence_pairs.py", "--data-dir", str(tmp_path), *flags)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


def test_all_rows_are_equally_likely():
    counts = np.zeros(4)
    for seed in range(2000):
        counts[sample_rows(iter(range(4)), 2, np.random.default_rng(seed))] += 1
    assert counts.sum() == 4000 and counts / 2000 == pytest.approx([0.5] * 4, abs=0.045)  # four standard errors
