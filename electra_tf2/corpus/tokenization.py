"""Texts to ids in batches: WordPiece in tensorflow_text's kernel, other tokenizers by the package `tokenizers`.

The data builder turns a corpus into ids here, and fine-tuning its sentences. The wordpieces are those of the original's
FullTokenizer. Lines are normalised by corpus.normalization; tensorflow_text's FastWordpieceTokenizer then splits them
at blanks, punctuation and Chinese characters and looks up the pieces. tensorflow_text's own normalisers are not used:
FastBertTokenizer is as fast, but lower-cases thousands of characters differently (it folds compatibility forms, "ﬁ"
becomes "fi") and keeps private and unassigned ones; BertTokenizer does so too at a tenth of the speed.

Unicode properties (category, case, decomposition) are the running Python's, as they were the original's. A character
that Unicode added later was unassigned, and so dropped, under an older Python: records built with Python 3.10, 3.11,
3.12 and 3.13 (Unicode 13, 14, 15, 15.1) can differ in such characters, and in nothing else.

Where tags and answers need to know which characters a piece stands for, `located` says it. The kernel does not: places
follow from the sizes of pieces, and of what normalisation makes of each character.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.corpus.normalization import MAX_CHARS_PER_WORD, TextNormalizer, basic_tokens, replace_long_words
from electra_tf2.corpus.vocabulary import SpecialIds, is_wordpiece, load_tokens, load_vocab, special_ids
from electra_tf2.util.errors import UserError

MANY_UNKNOWN = 0.01  # share of [UNK] that is worth a warning
_TEXTS_LOOKED_AT = 10_000  # for characters without a token
# Words beyond the limit become [UNK]. The kernel's limit is in bytes; a character has at most four.
_MAX_BYTES_PER_WORD = 4 * MAX_CHARS_PER_WORD
TOO_LONG = "x" * (_MAX_BYTES_PER_WORD + 1)  # a word that no piece matches
_TOGETHER = 1000  # texts whose pieces are looked up at a time
_NAMES = {"pad": ("[PAD]", "<pad>"), "mask": ("[MASK]", "<mask>"), "unk": ("[UNK]", "<unk>")}  # in tokenizer.json


class Words(NamedTuple):
    """A text, its words, and int32 [words] the character that each begins with."""

    text: str
    words: Sequence[str]
    starts: np.ndarray

    def word_at(self, character: int) -> int:
        """The number of the word that a character is in or, if it is a blank, behind; -1 before the first word."""
        return int(np.searchsorted(self.starts, character, side="right")) - 1


def divided(text: str, word: re.Pattern[str]) -> Words:
    """A text with what a pattern finds in it as its words; one that occurs again is the same object."""
    found = list(word.finditer(text))
    return Words(text, [sys.intern(one[0]) for one in found], np.array([one.start() for one in found], np.int32))


def joined(words: Sequence[str]) -> Words:
    """Words as a text, a blank between them."""
    return Words(" ".join(words), words, starts_of(np.array([len(word) + 1 for word in words], np.int32)))


def undivided(text: str) -> Words:
    """A text as a single word, for `located`."""
    return Words(text, [text], np.zeros(1, np.int32))


class Located(NamedTuple):
    """Pieces of a text's words.

    ids, word_of_piece: int32 [pieces], the number of each piece's word. first_piece: int32 [words]; of a word without
    pieces the next one's. spans: int32 [pieces, 2], a piece's first character in the text and the one behind its last.
    """

    ids: np.ndarray
    word_of_piece: np.ndarray
    first_piece: np.ndarray
    spans: np.ndarray


def starts_of(lengths: np.ndarray) -> np.ndarray:
    """int32 [parts], where each of several parts one after the other begins, by their lengths."""
    return (np.cumsum(lengths) - lengths).astype(np.int32)


class WordpieceTokenizer:
    """Text to ids of a BERT vocabulary and back.

    vocab_file: the vocabulary, or the list of its tokens.
    do_lower_case, strip_accents: as in the original; accents are only stripped when lower-casing, and None means yes.
    """

    is_wordpiece = True
    mask_takes_blank = True  # the one before it; wordpieces have no blanks

    def __init__(
        self,
        vocab_file: str | os.PathLike[str] | list[str],
        do_lower_case: bool = True,
        strip_accents: bool | None = None,
    ):
        self.vocab = vocab_file if isinstance(vocab_file, list) else load_vocab(vocab_file)
        self.special = special_ids(self.vocab)
        self.normalize = TextNormalizer(do_lower_case, strip_accents)

    @functools.cached_property
    def _kernel(self) -> Any:  # importing TensorFlow takes seconds
        return wordpiece_kernel(self.vocab)

    def __len__(self) -> int:
        return len(self.vocab)

    def tokenize(self, lines: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Ids of all lines one after the other [sum of lengths] and the number of ids of each line [lines], int32.

        Lines are UTF-8; a line end within a line counts as a blank. No special tokens are added. Large batches
        (thousands of lines) are fastest.
        """
        if not lines:
            return np.zeros([0], np.int32), np.zeros([0], np.int32)
        import tensorflow as tf

        text = replace_long_words(self.normalize.joined(lines), TOO_LONG.encode())
        with tf.device("CPU:0"):
            ragged = self._kernel.tokenize(tf.constant(text.split(b"\n"), tf.string))
        return ragged.values.numpy(), np.diff(ragged.row_splits.numpy()).astype(np.int32)

    def pieces(self, texts: Sequence[str]) -> list[np.ndarray]:
        """int32 [pieces] ids of each text."""
        ids, lengths = self.tokenize([text.encode("utf-8", "ignore") for text in texts])
        return np.split(ids, np.cumsum(lengths))[:-1]

    def located(self, texts: Sequence[Words]) -> list[Located]:
        """The pieces of texts that are divided into words; every distinct word is tokenised once."""
        words = list(dict.fromkeys(word for text in texts for word in text.words))
        number_of = {word: number for number, word in enumerate(words)}
        ids, lengths = self.tokenize([word.encode("utf-8", "ignore") for word in words])
        spans, first = self._spans(words, ids, lengths), starts_of(lengths)
        found: list[Located] = []
        for part in (texts[start : start + _TOGETHER] for start in range(0, len(texts), _TOGETHER)):
            numbers = np.array([number_of[word] for text in part for word in text.words], np.int32)
            first_piece = starts_of(lengths[numbers])
            word = np.repeat(np.arange(len(numbers), dtype=np.int32), lengths[numbers])
            pieces = np.arange(len(word)) + (first[numbers] - first_piece)[word]
            placed = spans[pieces] + np.concatenate([text.starts for text in part])[word, np.newaxis]
            # Each text counts its own words and pieces.
            sizes = np.array([len(text.words) for text in part])
            word_starts, text_of = starts_of(sizes), np.repeat(np.arange(len(part)), sizes)
            piece_starts = np.append(first_piece, len(word))[word_starts].astype(np.int32)
            at_words, at_pieces = word_starts[1:], piece_starts[1:]
            found += map(
                Located,
                np.split(ids[pieces], at_pieces),
                np.split(word - word_starts[text_of][word], at_pieces),
                np.split(first_piece - piece_starts[text_of], at_words),
                np.split(placed, at_pieces),
            )
        return found

    def _spans(self, words: Sequence[str], ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """int32 [pieces, 2]: of each piece of the words its first character in its word and the one behind its last.

        A character that normalisation drops belongs to the piece around it; a mark that it strips to the letter before.
        """
        characters = np.frombuffer("".join(words).encode("utf-32-le", "surrogatepass"), np.uint32)
        sizes, stripped = self._normal_sizes(characters)
        origin = np.repeat(np.arange(len(characters)), sizes)  # of every normalised character, blanks apart
        letters = np.append(np.flatnonzero(~stripped), len(characters))
        word = np.repeat(np.arange(len(words)), lengths)
        of_words = np.array([len(of_word) for of_word in words], np.int32)
        behind = np.cumsum(self._piece_sizes(words, ids, word))
        starts, lasts = origin[np.append(0, behind[:-1])[: len(ids)]], origin[behind - 1]
        ends = np.minimum(letters[np.searchsorted(letters, lasts, "right")], np.cumsum(of_words)[word])
        return (np.stack([starts, ends], -1) - starts_of(of_words)[word, np.newaxis]).astype(np.int32)

    def _normal_sizes(self, characters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """int8, characters without blanks that normalisation makes of each code point; bool, marks that it strips."""
        distinct = np.flatnonzero(np.bincount(characters))  # faster than sorting them
        texts = list(map(chr, distinct))
        normal = self.normalize([text.encode("utf-8", "ignore") for text in texts])
        sizes, marks = np.zeros([2, characters.max(initial=0) + 1], np.int8)
        sizes[distinct] = [len(line.decode().replace(" ", "")) for line in normal]
        marks[distinct] = [unicodedata.category(text) == "Mn" for text in texts]
        return sizes[characters], (marks > sizes)[characters]

    def _piece_sizes(self, words: Sequence[str], ids: np.ndarray, word: np.ndarray) -> np.ndarray:
        """int64 [pieces]: the number of normalised characters, blanks apart, that each piece of words stands for."""
        lengths, continues = self._shapes
        sizes, unknown = lengths[ids], ids == self.special.unk
        if unknown.any():  # which stands for all that is between blanks, punctuation and Chinese characters
            odd = np.zeros(len(words), bool)
            odd[word[unknown]] = True
            of_words = [basic_tokens(words[number], self.normalize) for number in np.flatnonzero(odd).tolist()]
            part_of = np.cumsum(odd[word] & ~continues[ids]) - 1
            sizes[unknown] = np.array([len(part) for parts in of_words for part in parts])[part_of[unknown]]
        return sizes

    @functools.cached_property
    def _shapes(self) -> tuple[np.ndarray, np.ndarray]:
        """int64 [V], the characters of each token, and bool [V], whether it continues a word."""
        lengths = np.array([len(token.removeprefix("##")) for token in self.vocab])
        return lengths, np.array([token.startswith("##") for token in self.vocab])

    def without_token(self, characters: Counter[str]) -> list[tuple[str, int]]:
        """Those of the characters of normalised texts that are no token, the commonest first, and their numbers."""
        known = {token.removeprefix("##") for token in self.vocab}
        unknown = [one for one in characters.items() if one[0] not in known and not one[0].isspace()]
        return sorted(unknown, key=lambda one: (-one[1], one[0]))

    def unknown_report(self, ids: Iterable[np.ndarray], texts: Iterable[str]) -> str:
        """Reports how many of the tokens of a task's texts are [UNK] (`unread_report`); "" if they are few."""
        all_ids = np.concatenate([np.zeros(0, np.int32), *ids])
        unknown = np.count_nonzero(all_ids == self.special.unk)
        share = unknown / max(len(all_ids), 1)
        if share < MANY_UNKNOWN or not self.is_wordpiece:
            return ""
        lines = [text.encode("utf-8", "ignore") for text in itertools.islice(texts, _TEXTS_LOOKED_AT)]
        characters = self.without_token(Counter(self.normalize.joined(lines).decode()))
        return unread_report(share, [character for character, _ in characters])

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """The tokens of ids; raises IndexError for an id beyond the vocabulary."""
        return [self.vocab[index] for index in ids]

    def readable(self, ids: Iterable[int]) -> str:
        """Text for people to look at: wordpieces joined to words, padding left out."""
        tokens = (self.vocab[index] for index in ids if index != self.special.pad)
        return " ".join(tokens).replace(" ##", "")


class FileTokenizer(WordpieceTokenizer):
    """Text to ids and back by a tokenizer.json of another kind than WordPiece, such as byte-level BPE or Unigram.

    How text is normalised and divided, and which special tokens stand around it, is what the file says; the package
    `tokenizers` runs it.

    Raises:
      UserError: the file is damaged, or its special tokens are not [CLS] A [SEP] B [SEP] under any name.
    """

    is_wordpiece = False

    def __init__(self, path: str | os.PathLike[str]) -> None:
        from tokenizers import Tokenizer

        self.path = os.fspath(path)
        self.vocab = load_tokens(path)
        try:
            self._tokenizer = Tokenizer.from_file(self.path)
        except Exception as error:  # of no narrower type
            raise UserError(f"{self.path} is no tokenizer: {error}") from None
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.special = self._special_ids()
        added = self._tokenizer.get_added_tokens_decoder().get(self.special.mask)
        self.mask_takes_blank = added is not None and added.lstrip
        self._tokenizer.encode_special_tokens = True  # what is written like a special token is text

    def _special_ids(self) -> SpecialIds:
        around, of_pair = self._tokenizer.encode("").ids, self._tokenizer.encode("", "").ids
        if len(around) != 2 or of_pair != [*around, around[1]]:
            tokens = " ".join(self.convert_ids_to_tokens(of_pair)) or "nothing"
            raise UserError(f"{self.path} puts {tokens} around two texts: [CLS] A [SEP] B [SEP] is needed")
        found = {
            name: [number for token in names if (number := self._tokenizer.token_to_id(token)) is not None]
            for name, names in _NAMES.items()
        }
        lacking = [" or ".join(_NAMES[name]) for name in ("pad", "mask") if not found[name]]
        if lacking:
            raise UserError(f"{self.path} has no {' and no '.join(lacking)}")
        pad, mask = found["pad"][0], found["mask"][0]
        unknown = found["unk"][0] if found["unk"] else pad  # bytes know no unknown text
        return SpecialIds(pad, unknown, around[0], around[1], mask)

    def tokenize(self, lines: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Ids of all lines one after the other [sum of lengths] and their number for each line [lines], int32."""
        texts = [line.decode("utf-8", "ignore") for line in lines]
        found = [one.ids for one in self._tokenizer.encode_batch(texts, add_special_tokens=False)]
        lengths = np.array([len(ids) for ids in found], np.int32)
        return np.array([number for ids in found for number in ids], np.int32), lengths

    def located(self, texts: Sequence[Words]) -> list[Located]:
        """The pieces of texts that are divided into words.

        A text is tokenised as a whole, blanks included, as the model has seen text. A piece belongs to the word of its
        first character that is no blank; one of blanks alone to the word before it.
        """
        found = []
        # What is no Unicode (halves of surrogate pairs) becomes "?", so that places stay as they are.
        strings = [text.text.encode("utf-8", "replace").decode() for text in texts]
        encoded = self._tokenizer.encode_batch(strings, add_special_tokens=False)
        for text, one in zip(texts, encoded, strict=True):
            spans = np.array(one.offsets, np.int32).reshape([-1, 2])
            letters = np.flatnonzero([not character.isspace() for character in text.text])
            low, high = np.searchsorted(letters, spans[:, 0]), np.searchsorted(letters, spans[:, 1])
            inside = low < high
            spans[inside] = np.stack([letters[low[inside]], letters[high[inside] - 1] + 1], -1)
            words = np.maximum(np.searchsorted(text.starts, spans[:, 0], side="right") - 1, 0)
            words = np.maximum.accumulate(words).astype(np.int32)
            first = starts_of(np.bincount(words, minlength=len(text.words)))
            found.append(Located(np.array(one.ids, np.int32), words, first, spans))
        return found

    def readable(self, ids: Iterable[int]) -> str:
        """Text for people to look at, padding left out."""
        kept = [number for number in ids if number != self.special.pad]
        return self._tokenizer.decode(kept, skip_special_tokens=False)


def tokenizer_for(
    vocab_file: str | os.PathLike[str] | list[str], do_lower_case: bool = True, strip_accents: bool | None = None
) -> WordpieceTokenizer:
    """The tokenizer of a vocabulary: WordPiece's of a vocab.txt, a list of tokens or its tokenizer.json, or any other
    tokenizer.json's, which itself says how text is normalised."""
    if not isinstance(vocab_file, list) and not is_wordpiece(vocab_file):
        return FileTokenizer(vocab_file)
    return WordpieceTokenizer(vocab_file, do_lower_case, strip_accents)


def unknown_report(share: float, characters: Sequence[str]) -> str:
    """Reports to whoever builds records how many of their tokens are [UNK], and what to do; "" if they are few.

    Args:
      share: of the tokens.
      characters: without a token, the commonest first.
    """
    if share < MANY_UNKNOWN:
        return ""
    return (
        f"{_unknown(share, characters, 'which teach nothing')}. Use a vocabulary of this language and casing, or make "
        "one with a larger --limit-alphabet (electra build-vocab)"
    )


def unread_report(share: float, characters: Sequence[str]) -> str:
    """Reports to whoever trains a task or predicts, whose vocabulary is the model's. Arguments as `unknown_report`."""
    if share < MANY_UNKNOWN:
        return ""
    return (
        f"{_unknown(share, characters, 'words that look all alike to the model')}. Use a model of this language and "
        "casing"
    )


def _unknown(share: float, characters: Sequence[str], meaning: str) -> str:
    commonest = " ".join(characters[:10]) or "none, words are too long or their pieces missing"
    return (
        f"{100 * share:.1f} % of the tokens are [UNK], {meaning}. The commonest characters without a token: {commonest}"
    )


def wordpiece_kernel(vocab: Sequence[str]) -> Any:
    """tensorflow_text's tokenizer of normalised text.

    It wants different tokens, and would find those with blanks. In the place of blank lines, tokens with blanks and all
    but the last of equal ones stand private characters, which no normalised text holds.

    Raises:
      UserError: it cannot use the vocabulary, for reasons that corpus.vocabulary does not look for.
    """
    import tensorflow as tf
    import tensorflow_text

    last = {token: number for number, token in enumerate(vocab)}
    tokens = [
        token if last[token] == number and token and " " not in token else f"\ue000{number}"
        for number, token in enumerate(vocab)
    ]
    try:
        return tensorflow_text.FastWordpieceTokenizer(
            vocab=tokens,
            max_bytes_per_word=_MAX_BYTES_PER_WORD,
            token_out_type=tf.int32,
            unknown_token="[UNK]",
        )
    except RuntimeError as error:
        raise UserError(f"tensorflow_text cannot use this vocabulary of {len(vocab)} tokens: {error}") from None
