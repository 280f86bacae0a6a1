"""The fast tokenizer against a plain implementation of BERT's rules, on random text, and its small helpers."""

import hashlib
import re
import unicodedata

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from electra_tf2.corpus.normalization import TextNormalizer
from electra_tf2.corpus.tokenization import WordpieceTokenizer, divided, undivided
from electra_tf2.corpus.vocabulary import SPECIAL_TOKENS, SpecialIds, check_vocab, load_vocab, special_ids, vocab_sha256
from electra_tf2.util.errors import UserError
from tests.support import bert_reference

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
PIECES = [
    *LETTERS, *(f"##{c}" for c in LETTERS if c not in "qz"), "the", "un", "##aff", "##able", "##ing", "##ed", "e\u0301",
    "A", "B", "##B", "Sigma", ".", ",", "'", "-", "[", "]", "$", "`", "don't", "##,", "中", "国", "##国", "é", "##é",
    "ß", "σ", "##ς", "##σ", "ο", "##ο", "Σ", "##\u0301", "«", "»", "…", "、", "i\u0307", "ı", "##\u0307",
    "ᄒ", "##ᅡ", "##ᆫ", "한", "Ω", "ω", "Ａ", "ﬁ", "🙂", "##🙂", "\u0e01", "##\u0e34", "\u093f", "##\u093f",
]  # fmt: skip

interesting = st.sampled_from(
    " \t\n\r\0\x01\x1c\x7f\x85\xa0\xad\u1680\u2009\u200b\u200d\u2028\u2029\u3000\ufeff\ufffd\ufffe\ue000"
    ".,'-[]$`~^<=>|+#@\\«»…、。？·\u037e\u1fef\u2260中国々\u3400\uf900\U00020000\U0002f800\U0002ceb0"
    "éÉe\u0301\u0323İıßẞΣσςΑοÅ\u212b\u212a\u2126ﬁＡ한각ᄒ\u1173กิन\u0940ि🙂🏽ǅ\u0345\U0001e922𝐀\u0660"
)
words = st.sampled_from(["the", "Unaffable", "DON'T", "[MASK]", "[UNK]", "##ing", "ΌΔΟΣ", "ΣΑΣ", "aΣ\u0301", "don't"])
texts = st.lists(st.one_of(interesting, words, st.sampled_from(LETTERS + " "), st.characters(codec="utf-8"))).map(
    "".join
)


@pytest.fixture(scope="module")
def vocab_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    path.write_text("\n".join([*SPECIAL_TOKENS, *PIECES]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tokenizers(vocab_file):
    return {
        (lower, strip): WordpieceTokenizer(vocab_file, lower, strip)
        for lower in (True, False)
        for strip in (True, False)
    }


def pieces_of(tokenizer, texts):
    ids, lengths = tokenizer.tokenize([text.encode("utf-8") for text in texts])
    assert ids.dtype == lengths.dtype == np.int32 and lengths.sum() == len(ids) and len(lengths) == len(texts)
    ends = np.cumsum(lengths)
    return [tokenizer.convert_ids_to_tokens(ids[end - size : end]) for end, size in zip(ends, lengths, strict=True)]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(texts=st.lists(texts, max_size=6), lower=st.booleans(), strip=st.booleans())
@example(texts=["ΌΔΟΣ ΣΑΣ. aΣ\u0001b Σ\u0001", "AΣ", "e\u0301\u0001\u0323"], lower=True, strip=False)
@example(texts=["", " ", "\n", "a\nb", ""], lower=True, strip=True)
@example(texts=["\u037e \u1fefa\u2260b İ 한 Å"], lower=True, strip=True)
def test_equals_the_plain_implementation(tokenizers, texts, lower, strip):
    tokenizer = tokenizers[lower, strip]
    expected = [bert_reference.tokens(text, set(tokenizer.vocab), lower, strip) for text in texts]
    assert pieces_of(tokenizer, texts) == expected


def normal_words(text, lower, strip):
    """Words as the original normalises them; a final sigma is like any other."""
    return [word.replace("ς", "σ") for word in bert_reference.basic_tokens(text, lower, strip)]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(texts=st.lists(texts, max_size=4), lower=st.booleans(), strip=st.booleans(), split=st.booleans())
@example(texts=["Cafe\u0301 ＡＢ　中国e\u0301\u0323", "\u0301a\u200b\u0301b"], lower=True, strip=True, split=True)
@example(texts=["İİ ßẞ ΌΔΟΣ. 🙂🏽x 한국 a\u200bb"], lower=True, strip=False, split=False)
@example(texts=["q" * 201 + "z.", "é" * 201 + ",the\n中" + "q" * 200], lower=True, strip=True, split=False)
@example(texts=["\ud800the\udfff un"], lower=False, strip=True, split=True)
def test_every_piece_says_which_characters_it_stands_for(tokenizers, texts, lower, strip, split):
    tokenizer = tokenizers[lower, strip]
    whole = [divided(text, re.compile(r"[^ \t\n]+")) if split else undivided(text) for text in texts]
    for text, found, ids in zip(texts, tokenizer.located(whole), tokenizer.pieces(texts), strict=True):
        assert found.ids.tolist() == ids.tolist() and found.spans.shape == (len(ids), 2)
        starts, ends = found.spans.T
        assert (starts < ends).all() and (np.diff(starts) >= 0).all() and (np.diff(ends) >= 0).all()
        assert not len(ids) or (starts[0] >= 0 and ends[-1] <= len(text))
        assert not any(unicodedata.category(text[end]) == "Mn" for end in ends if end < len(text) and lower and strip)
        text = text.encode("utf-8", "replace").decode()  # half a surrogate pair is no text
        heads = [n for n, token in enumerate(tokenizer.convert_ids_to_tokens(ids)) if not token.startswith("##")]
        of_words = np.split(found.spans, heads[1:]) if heads else []
        if "?" not in text:
            written = [text[spans[0, 0] : spans[-1, 1]] for spans in of_words]
            expected = [[word] for word in normal_words(text, lower, strip)]
            assert [normal_words(word, lower, strip) for word in written] == expected
        for number, (start, end) in zip(ids, found.spans, strict=True):
            piece = tokenizer.vocab[number].removeprefix("##").replace("ς", "σ")
            assert number == tokenizer.special.unk or piece in "".join(normal_words(text[start:end], lower, strip))


@settings(max_examples=60, deadline=None)
@given(
    character=st.sampled_from(["a", "é", "ก", "🙂", "\u0301", "q"]),
    length=st.integers(195, 206),
    around=st.sampled_from(["{}", " {}", "the {} un", "the,{}.", "x" * 90 + " {}", "{}\n{}", "«{}»{}"]),
    lower=st.booleans(),
)
def test_a_word_of_more_than_200_characters_is_unknown(tokenizers, character, length, around, lower):
    tokenizer = tokenizers[lower, True]
    text = around.replace("{}", character * length)
    assert pieces_of(tokenizer, [text]) == [bert_reference.tokens(text, set(tokenizer.vocab), lower, True)]


@settings(max_examples=100, deadline=None)
@given(data=st.lists(st.one_of(st.binary(max_size=3), st.sampled_from([b"\0", b"the ", "é".encode()]))).map(b"".join))
@example(data=b"\xe2\x00\x80\xb0")  # without the control character this would be a character
def test_bytes_that_are_not_utf8_are_left_out(tokenizers, data):
    tokenizer = tokenizers[True, True]
    ids, _ = tokenizer.tokenize([data])
    expected = bert_reference.tokens(data.decode("utf-8", "ignore"), set(tokenizer.vocab))
    assert tokenizer.convert_ids_to_tokens(ids) == expected


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(texts, min_size=1, max_size=6), lower=st.booleans(), strip=st.booleans())
def test_normalised_lines_hold_the_basic_tokens(texts, lower, strip):
    normalize = TextNormalizer(lower, strip)
    lines = normalize([text.encode("utf-8") for text in texts])
    assert len(lines) == len(texts)
    for text, line in zip(texts, lines, strict=True):
        spaced = "".join(f" {c} " if bert_reference.is_punctuation(c) else c for c in line.decode("utf-8"))
        assert spaced.split() == bert_reference.basic_tokens(text, lower, strip)


def test_ids_and_tokens(tokenizers):
    tokenizer = tokenizers[True, True]
    assert tokenizer.special == SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4)
    assert len(tokenizer) == len(tokenizer.vocab)
    ids = [2, *tokenizer.tokenize([b"unaffable"])[0], 3, 0, *tokenizer.tokenize([b"\xe2\x82\xac"])[0]]
    assert tokenizer.convert_ids_to_tokens(ids) == ["[CLS]", "un", "##aff", "##able", "[SEP]", "[PAD]", "[UNK]"]
    assert tokenizer.readable(ids) == "[CLS] unaffable [SEP] [UNK]"


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return path


@pytest.mark.parametrize("text", ["\n".join, "\r\n".join, lambda lines: "\ufeff" + "\n".join(lines) + "\n\n"])
def test_load_vocab_reads_any_line_ends(tmp_path, text):
    expected = [*SPECIAL_TOKENS, "a", "中"]
    path = write(tmp_path / "vocab.txt", text(expected))
    assert load_vocab(path) == expected
    assert vocab_sha256(path) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_every_line_of_a_vocabulary_keeps_its_id(tmp_path):
    """Released vocabularies hold white space, blank lines, tokens twice; the last of equal ones counts, as in BERT."""
    odd = ["\u2028", "##\u2028", "", "the", "a b", "\x85", "cat", "the", " "]
    path = write(tmp_path / "vocab.txt", "\r\n".join([*SPECIAL_TOKENS, *odd]) + "\n")
    tokens = load_vocab(path)
    assert tokens == [*SPECIAL_TOKENS, *odd]
    ids, lengths = WordpieceTokenizer(path).tokenize([b"the cat", "cat\u2028a b the".encode()])
    assert lengths.tolist() == [2, 4] and ids.tolist() == [12, 11, 11, 1, 1, 12]
    doubled = [*SPECIAL_TOKENS, "the", "[MASK]"]
    assert special_ids(doubled).mask == 6


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"bad\.txt' does not exist"),
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("a\nb\n[UNK]\n", r"lacks \[PAD\], \[CLS\], \[SEP\], \[MASK\]; a WordPiece"),
        (b"\xff\xfea\n", "is not UTF-8"),
        ("\n".join(SPECIAL_TOKENS), "holds special tokens and no words"),
        ("\n".join(SPECIAL_TOKENS) + "\na\na\0b\n", "a NUL character in lines: 7"),
        ("\n".join(SPECIAL_TOKENS) + "\na\n##" + "é" * 129, "too long in lines: 7"),
    ],
)
def test_load_vocab_says_what_is_wrong(tmp_path, content, message):
    path = tmp_path / "bad.txt"
    if content is not None:
        write(path, content)
    with pytest.raises(UserError, match=message) as caught:
        load_vocab(path)
    assert str(path) in str(caught.value)


def test_a_vocabulary_of_millions_is_refused():
    with pytest.raises(UserError, match="has 2,000,005 tokens; at most 1,048,576"):
        check_vocab([*SPECIAL_TOKENS, *["a"] * 2_000_000], "huge.txt")


def test_a_vocabulary_that_only_the_kernel_refuses(tmp_path):
    with pytest.raises(UserError, match="cannot use this vocabulary of 6 tokens"):
        WordpieceTokenizer(write(tmp_path / "v.txt", "\n".join([*SPECIAL_TOKENS, "##"]))).tokenize([b"a"])
