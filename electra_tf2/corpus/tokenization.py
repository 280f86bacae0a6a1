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
    """A text with what a pattern finds in it as its words. Equal words are the same object, to save memory."""
    words = []
    starts = []
    for match in word.finditer(text):
        words.append(sys.intern(match[0]))
        starts.append(match.start())
    return Words(text, words, np.array(starts, np.int32))


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
        words = list(dict.fromkeys(itertools.chain.from_iterable(text.words for text in texts)))
        ids, lengths = self.tokenize([word.encode("utf-8", "ignore") for word in words])
        spans = self._spans(words, ids, lengths)
        number_of = {word: number for number, word in enumerate(words)}
        located: list[Located] = []
        for start in range(0, len(texts), _TOGETHER):
            group = texts[start : start + _TOGETHER]
            words_of_group = itertools.chain.from_iterable(text.words for text in group)
            numbers = np.array([number_of[word] for word in words_of_group], np.int32)
            located += _looked_up(group, numbers, ids, spans, lengths)
        return located

    def _spans(self, words: Sequence[str], ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """int32 [pieces, 2]: of each piece of the words its first character in its word and the one behind its last.

        A character that normalisation drops belongs to the piece around it; a mark that it strips to the letter before.
        """
        characters = np.frombuffer("".join(words).encode("utf-32-le", "surrogatepass"), np.uint32)
        sizes, stripped = self._normal_sizes(characters)
        origin = np.repeat(np.arange(len(characters)), sizes)  # of every normalised character, blanks apart
        letters = np.append(np.flatnonzero(~stripped), len(characters))
        word = np.repeat(np.arange(len(words)), lengths)  # of each piece
        word_lengths = np.array([len(characters_of_word) for characters_of_word in words], np.int32)
        # Pieces stand for all normalised characters in their order, so their sizes say where each begins and ends.
        behind = np.cumsum(self._piece_sizes(words, ids, word))
        starts = origin[np.append(0, behind[:-1])[: len(ids)]]
        lasts = origin[behind - 1]
        # A piece goes on to the next letter, over the marks behind its last one, but not beyond its word.
        ends = np.minimum(letters[np.searchsorted(letters, lasts, "right")], np.cumsum(word_lengths)[word])
        return (np.stack([starts, ends], -1) - starts_of(word_lengths)[word, np.newaxis]).astype(np.int32)

    def _normal_sizes(self, characters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """int8, characters without blanks that normalisation makes of each code point; bool, marks that it strips."""
        distinct = np.flatnonzero(np.bincount(characters))  # faster than sorting them
        texts = list(map(chr, distinct))
        normal = self.normalize([text.encode("utf-8", "ignore") for text in texts])
        sizes = np.zeros([characters.max(initial=0) + 1], np.int8)
        marks = np.zeros_like(sizes)
        sizes[distinct] = [len(line.decode().replace(" ", "")) for line in normal]
        marks[distinct] = [unicodedata.category(text) == "Mn" for text in texts]
        is_stripped = marks > sizes  # a mark of which nothing is left
        return sizes[characters], is_stripped[characters]

    def _piece_sizes(self, words: Sequence[str], ids: np.ndarray, word: np.ndarray) -> np.ndarray:
        """int64 [pieces]: the number of normalised characters, blanks apart, that each piece of words stands for."""
        lengths, continues = self._shapes
        sizes = lengths[ids]
        unknown = ids == self.special.unk
        if not unknown.any():
            return sizes
        # [UNK] stands for all that is between two blanks, punctuation or Chinese characters: for a basic token of its
        # word. Each piece that continues none begins the next basic token.
        has_unknown = np.zeros(len(words), bool)
        has_unknown[word[unknown]] = True
        sizes_of_basic_tokens = []
        for number in np.flatnonzero(has_unknown).tolist():
            sizes_of_basic_tokens += [len(token) for token in basic_tokens(words[number], self.normalize)]
        basic_token = np.cumsum(has_unknown[word] & ~continues[ids]) - 1  # of each piece of these words
        sizes[unknown] = np.array(sizes_of_basic_tokens)[basic_token[unknown]]
        return sizes

    @functools.cached_property
    def _shapes(self) -> tuple[np.ndarray, np.ndarray]:
        """int64 [V], the characters of each token, and bool [V], whether it continues a word."""
        lengths = np.array([len(token.removeprefix("##")) for token in self.vocab])
        return lengths, np.array([token.startswith("##") for token in self.vocab])

    def without_token(self, characters: Counter[str]) -> list[tuple[str, int]]:
        """Those of the characters of normalised texts that are no token, the commonest first, and their numbers."""
        known = {token.removeprefix("##") for token in self.vocab}
        unknown = []
        for character, number in characters.items():
            if character not in known and not character.isspace():
                unknown.append((character, number))
        return sorted(unknown, key=lambda item: (-item[1], item[0]))

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


def _looked_up(
    texts: Sequence[Words], numbers: np.ndarray, ids: np.ndarray, spans: np.ndarray, lengths: np.ndarray
) -> list[Located]:
    """Takes the pieces of texts from those of their distinct words, without a loop over words.

    Args:
      numbers: int32 [words of all texts], which distinct word each is.
      ids, spans: of the pieces of all distinct words, one word after the other; spans count from a word's beginning.
      lengths: int32 [distinct words], the number of pieces of each.
    """
    # First as if the texts were one: the words one after the other, and all their pieces.
    lengths_here = lengths[numbers]
    first_piece = starts_of(lengths_here)
    word_of_piece = np.repeat(np.arange(len(numbers), dtype=np.int32), lengths_here)
    place_in_word = np.arange(len(word_of_piece)) - first_piece[word_of_piece]
    source = starts_of(lengths)[numbers][word_of_piece] + place_in_word  # where `ids` and `spans` have each piece
    word_starts = np.concatenate([text.starts for text in texts])
    spans_in_text = spans[source] + word_starts[word_of_piece, np.newaxis]

    # Then each text by itself, which counts its own words and pieces.
    words_of_text = np.array([len(text.words) for text in texts])
    first_word_of_text = starts_of(words_of_text)
    first_piece_of_text = np.append(first_piece, len(word_of_piece))[first_word_of_text].astype(np.int32)
    text_of_word = np.repeat(np.arange(len(texts)), words_of_text)
    text_of_piece = text_of_word[word_of_piece]
    word_cuts = first_word_of_text[1:]
    piece_cuts = first_piece_of_text[1:]
    ids_by_text = np.split(ids[source], piece_cuts)
    words_by_text = np.split(word_of_piece - first_word_of_text[text_of_piece], piece_cuts)
    firsts_by_text = np.split(first_piece - first_piece_of_text[text_of_word], word_cuts)
    spans_by_text = np.split(spans_in_text, piece_cuts)
    columns = zip(ids_by_text, words_by_text, firsts_by_text, spans_by_text, strict=True)
    return [Located(*arrays) for arrays in columns]


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
        around_text = self._tokenizer.encode("").ids
        around_pair = self._tokenizer.encode("", "").ids
        if len(around_text) != 2 or around_pair != [*around_text, around_text[1]]:
            tokens = " ".join(self.convert_ids_to_tokens(around_pair)) or "nothing"
            raise UserError(f"{self.path} puts {tokens} around two texts: [CLS] A [SEP] B [SEP] is needed")
        pad = self._first_id(_NAMES["pad"])
        mask = self._first_id(_NAMES["mask"])
        unknown = self._first_id(_NAMES["unk"])
        lacking = []
        if pad is None:
            lacking.append(" or ".join(_NAMES["pad"]))
        if mask is None:
            lacking.append(" or ".join(_NAMES["mask"]))
        if pad is None or mask is None:
            raise UserError(f"{self.path} has no {' and no '.join(lacking)}")
        if unknown is None:  # bytes know no unknown text
            unknown = pad
        return SpecialIds(pad, unknown, around_text[0], around_text[1], mask)

    def _first_id(self, names: Sequence[str]) -> int | None:
        """Id of the first of some tokens that the tokenizer knows."""
        for name in names:
            number = self._tokenizer.token_to_id(name)
            if number is not None:
                return number
        return None

    def tokenize(self, lines: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Ids of all lines one after the other [sum of lengths] and their number for each line [lines], int32."""
        texts = [line.decode("utf-8", "ignore") for line in lines]
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch(texts, add_special_tokens=False)]
        lengths = np.array([len(ids_of_line) for ids_of_line in ids], np.int32)
        return np.array(list(itertools.chain.from_iterable(ids)), np.int32), lengths

    def located(self, texts: Sequence[Words]) -> list[Located]:
        """The pieces of texts that are divided into words.

        A text is tokenised as a whole, blanks included, as the model has seen text. A piece belongs to the word of its
        first character that is no blank; one of blanks alone to the word before it.
        """
        located = []
        # What is no Unicode (halves of surrogate pairs) becomes "?", so that places stay as they are.
        strings = [text.text.encode("utf-8", "replace").decode() for text in texts]
        encodings = self._tokenizer.encode_batch(strings, add_special_tokens=False)
        for text, encoding in zip(texts, encodings, strict=True):
            spans = np.array(encoding.offsets, np.int32).reshape([-1, 2])
            # Blanks at either end of a piece are none of its span, unless it has nothing else.
            letters = np.flatnonzero([not character.isspace() for character in text.text])
            low = np.searchsorted(letters, spans[:, 0])
            high = np.searchsorted(letters, spans[:, 1])
            has_letters = low < high
            spans[has_letters] = np.stack([letters[low[has_letters]], letters[high[has_letters] - 1] + 1], -1)
            words = np.maximum(np.searchsorted(text.starts, spans[:, 0], side="right") - 1, 0)
            words = np.maximum.accumulate(words).astype(np.int32)  # in order, as `first` needs them
            first = starts_of(np.bincount(words, minlength=len(text.words)))
            located.append(Located(np.array(encoding.ids, np.int32), words, first, spans))
        return located

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
    tokens = []
    for number, token in enumerate(vocab):
        can_stay = token and " " not in token and last[token] == number
        tokens.append(token if can_stay else f"\ue000{number}")
    try:
        return tensorflow_text.FastWordpieceTokenizer(
            vocab=tokens,
            max_bytes_per_word=_MAX_BYTES_PER_WORD,
            token_out_type=tf.int32,
            unknown_token="[UNK]",
        )
    except RuntimeError as error:
        raise UserError(f"tensorflow_text cannot use this vocabulary of {len(vocab)} tokens: {error}") from None
