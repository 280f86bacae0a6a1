"""The vocabulary trainer: what is in its file, that it is repeatable, and how it answers mistakes."""

import random
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_tf2.corpus.corpus_reader import Corpus
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.corpus.vocabulary import SPECIAL_TOKENS, load_vocab
from electra_tf2.programs.build_vocab import VocabularyOptions, build_vocab, choose_alphabet
from tests.support.programs import run_program

ROOT = Path(__file__).parents[2]
SENTENCES = [
    "The unaffable baker baked bread; the bakers' breads were baked.",
    "Été: les élèves étaient élevés à l'école, naïvement.",
    "中国的面包 and ΌΔΟΣ ΟΔΟΣ, ΣΑΣ",
    "Reading, writing and walking: she reads, writes and walks [MASK] [unused1].",
    "control\u200b\x01characters and\u00a0blanks",
]


@pytest.fixture
def corpus(tmp_path):
    directory = tmp_path / "corpus"
    directory.mkdir()
    (directory / "a.txt").write_text("\n".join(SENTENCES * 20), encoding="utf-8")
    (directory / "b.txt").write_text("x" * 300 + "\n" + "\n".join(reversed(SENTENCES)), encoding="utf-8")
    return directory


def train(corpus, **options):
    return build_vocab(Corpus(str(corpus)), VocabularyOptions(**{"vocab_size": 300, **options}))


def test_special_and_unused_tokens_come_first(corpus):
    vocab = train(corpus, num_unused=3)
    assert vocab[:8] == [*SPECIAL_TOKENS, "[unused0]", "[unused1]", "[unused2]"]
    assert len(set(vocab)) == len(vocab) <= 300
    assert "the" in vocab and "##s" in vocab


def test_the_text_is_normalised_as_the_tokenizer_does(corpus):
    plain = train(corpus)[5:]
    assert not [token for token in plain if token != token.lower() or "é" in token or "\u0301" in token]
    assert "中" in plain and "##国" not in plain and not [token for token in plain if "中国" in token]
    assert "controlcharacters" in train(corpus, vocab_size=400)
    assert not [token for token in plain if len(token) > 2 and not token.strip("#").isalnum()]
    assert any("é" in token for token in train(corpus, strip_accents=False))
    assert {"T", "É"} <= {*train(corpus, do_lower_case=False)}


def test_words_in_the_corpus_need_no_unknown_token(corpus, tmp_path):
    tokenizer = WordpieceTokenizer(train(corpus))
    ids, _ = tokenizer.tokenize([sentence.encode() for sentence in SENTENCES])
    assert tokenizer.special.unk not in ids


def test_rare_pairs_are_not_merged(corpus):
    assert "bread" in train(corpus, vocab_size=1000, min_frequency=2)
    assert "bread" not in train(corpus, vocab_size=1000, min_frequency=1000)


def run(*arguments):
    return run_program("build_vocab.py", *map(str, arguments))


def test_the_program_writes_the_same_file_each_time(corpus, tmp_path):
    # Separate processes, because what must not matter is the order of a hash table that differs between them.
    for name in ("one", "two"):
        words = ["--corpus-dir", corpus, f"--vocab-file={tmp_path / name}", "--vocab-size=150", "--no-lower-case"]
        command = [sys.executable, "-m", "electra_tf2.programs.build_vocab", *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "150 tokens" in done.stdout
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert "T" in load_vocab(tmp_path / "one")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "one", "two"]


def test_nothing_is_replaced_without_overwrite(corpus, tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("precious")
    refused = run("--corpus-dir", corpus, "--output-file", path)
    assert refused.returncode != 0 and "--overwrite" in refused.stderr
    assert path.read_text() == "precious"
    # Of a run that was killed while writing.
    (tmp_path / f"vocab.txt.{socket.gethostname()}-4999999.tmp").write_text("[PAD]")
    assert run("--corpus-dir", corpus, "--output-file", path, "--overwrite", "--vocab-size=100").returncode == 0
    assert not list(tmp_path.glob("*.tmp"))
    assert len(load_vocab(path)) == 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--corpus-dir"),
        (["--corpus-dir=nowhere", "--vocab-file=v"], "corpus directory 'nowhere' does not exist"),
        (["--corpus-dir=a", "--vocab-file=v", "--vocab-size=100", "--num-unused=95"], "--num-unused 95"),
    ],
)
def test_mistakes_are_answered_in_a_line(arguments, message):
    done = run(*arguments)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_characters_that_get_no_token_are_counted_aloud(tmp_path):
    """A language of 3,500 characters, with default flags and with what the warning says."""
    source, characters = random.Random(1), [chr(0x4E00 + number) for number in range(3500)]
    weights = [1 / (number + 3) ** 0.9 for number in range(3500)]
    lines = ["".join(source.choices(characters, weights, k=60)) + "\u3002" for _ in range(1500)]
    (tmp_path / "zh").mkdir()
    (tmp_path / "zh" / "a.txt").write_text("\n\n".join(lines), encoding="utf-8")
    words = ["--corpus-dir", tmp_path / "zh", "--vocab-file", tmp_path / "vocab.txt", "--vocab-size=8000"]
    few = run(*words)
    assert few.returncode == 0 and "WARNING: 2,500 of 3,500 characters" in few.stderr
    assert "% of the text, get no token" in few.stderr and "Raise --limit-alphabet" in few.stderr
    assert "WARNING" not in run(*words, "--overwrite", "--limit-alphabet=4000").stderr
    assert len(load_vocab(tmp_path / "vocab.txt")) == 5 + 3500


def test_a_tilde_after_an_equals_sign_is_the_home_folder(corpus, monkeypatch):
    monkeypatch.setenv("HOME", str(corpus.parent))
    done = run("--corpus-dir=~/corpus", "--vocab-file=~/vocab.txt", "--vocab-size=100")
    assert done.returncode == 0 and len(load_vocab(corpus.parent / "vocab.txt")) == 100, done.stderr


def test_a_place_that_cannot_be_written_is_named(corpus, tmp_path):
    (tmp_path / "file").write_text("x")
    done = run("--corpus-dir", corpus, "--vocab-file", tmp_path / "file" / "vocab.txt", "--vocab-size=100")
    assert done.returncode != 0 and "cannot write" in done.stderr and "Traceback" not in done.stderr
    early = run("--corpus-dir", "nowhere", "--vocab-file", tmp_path / "file" / "vocab.txt")
    assert "cannot write" in early.stderr  # not after an hour


def test_a_corpus_of_blanks_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text(" \n\n")
    with pytest.raises(ValueError, match="no text"):
        train(tmp_path)


@settings(max_examples=40, deadline=None)
@given(
    text=st.lists(st.sampled_from("abcdefgé中🙂"), min_size=1),
    inside=st.sets(st.sampled_from("abcdefgé中🙂")),
    limit=st.integers(1, 12),
    room=st.integers(2, 20),
)
def test_the_alphabet_is_the_most_frequent_characters_that_fit(text, inside, limit, room):
    frequency = Counter(text)
    total, continuing = np.zeros(0x110000, np.int64), np.zeros(0x110000, np.int64)
    for character, count in frequency.items():
        total[ord(character)] = count
        continuing[ord(character)] = character in inside
    first, later = choose_alphabet(np.array([total, continuing]), limit, room)
    assert first == sorted(first) and later == [character for character in first if character in inside]
    assert 1 <= len(first) <= limit and len(first) + len(later) <= room
    left_out = set(frequency) - set(first)
    assert all(frequency[kept] >= frequency[other] for kept in first for other in left_out)
    if left_out and len(first) < limit:
        assert len(first) + len(later) >= room - 1  # there was no room for both forms of another one
