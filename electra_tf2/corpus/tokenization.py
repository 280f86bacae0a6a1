"""Turns batches of texts into ids: WordPiece in tensorflow_text's kernel, other tokenizers by the package `tokenizers`.

The wordpieces are those of the original's FullTokenizer. corpus.normalization normalises lines; tensorflow_text's
FastWordpieceTokenizer then splits them at blanks, punctuation and Chinese characters and looks up the pieces.
tensorflow_text has normalisers, too, but FastBertTokenizer lower-cases thousands of characters differently (it folds
compatibility forms: "ﬁ" becomes "fi") and keeps private and unassigned ones; BertTokenizer also does, at a tenth of the
speed.

Unicode properties (category, case, decomposition) are the running Python's, as they were the original's. Characters
that Unicode added later are unassigned, and so dropped, under an older Python: records built with Python 3.10, 3.11,
3.12 and 3.13 (Unicode 13, 14, 15, 15.1) can differ in such characters, and in nothing else.

`located` also gives the characters of each piece, for tags and answers. The kernel does not tell them, so they are
computed from the sizes of pieces and from what normalisation makes of each character.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.corpus.normalization import MAX_CHARS_PER_WORD, TextNormalizer, basic_tokens, replace_long_words
from electra_tf2.corpus.vocabulary import SpecialIds, is_wordpiece, load_tokens, load_vocab, special_ids
from electra_tf2.util.errors import UserError

# Longer words become [UNK]. The kernel counts bytes, and a character has at most four.
_MAX_BYTES_PER_WORD = 4 * MAX_CHARS_PER_WORD
TOO_LONG = "x" * (_MAX_BYTES_PER_WORD + 1)  # stands for a longer word: the kernel makes it [UNK]
_GROUP = 1000  # texts whose pieces are looked up at a time
# Names of special tokens in a tokenizer.json.
_NAMES = {"pad": ("[PAD]", "<pad>"), "mask": ("[MASK]", "<mask>"), "unk": ("[UNK]", "<unk>")}


class Words(NamedTuple):
    """A text that is divided into words. starts: int32 [words], position of each word's first character in the text."""

    text: str
    words: Sequence[str]
    starts: np.ndarray

    @property
    def ends(self) -> np.ndarray:
        """int32 [words], position behind each word's last character."""
        return self.starts + np.array([len(word) for word in self.words], np.int32)

    def word_at(self, character: int) -> int:
        """Index of the word that a character is in, or of the last word before a blank; -1 before the first word."""
        return int(np.searchsorted(self.starts, character, side="right")) - 1


def divided(text: str, word: re.Pattern[str]) -> Words:
    """Divides a text into the words that a pattern finds. Equal words are the same object, to save memory."""
    words = []
    starts = []
    for match in word.finditer(text):
        words.append(sys.intern(match[0]))
        starts.append(match.start())
    return Words(text, words, np.array(starts, np.int32))


def joined(words: Sequence[str]) -> Words:
    """Joins words to a text, with blanks between them."""
    return Words(" ".join(words), words, starts_of(np.array([len(word) + 1 for word in words], np.int32)))


def undivided(text: str) -> Words:
    """A text as one single word, for `located`."""
    return Words(text, [text], np.zeros(1, np.int32))


class Located(NamedTuple):
    """The pieces of a text's words.

    ids: int32 [pieces]. word_of_piece: int32 [pieces], index of each piece's word. first_piece: int32 [words], index of
    each word's first piece, or of the next word's if it has no pieces. spans: int32 [pieces, 2], start and end of each
    piece in the text, in characters.
    """

    ids: np.ndarray
    word_of_piece: np.ndarray
    first_piece: np.ndarray
    spans: np.ndarray


def starts_of(lengths: np.ndarray) -> np.ndarray:
    """Start positions, int32 [N], of consecutive parts with these lengths [N]."""
    return (np.cumsum(lengths) - lengths).astype(np.int32)


class WordpieceTokenizer:
    """Text to ids of a BERT vocabulary and back.

    Args:
      vocab_file: path of the vocabulary, or the list of its tokens.
      do_lower_case, strip_accents: as in the original. Accents are stripped only from lower-cased text; None means yes.
    """

    is_wordpiece = True
    mask_takes_blank = True  # True if [MASK] includes a blank before it; for wordpieces blanks do not matter

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
        """Tokenises lines of UTF-8. Large batches (thousands of lines) are fastest.

        A line end within a line counts as a blank. No special tokens are added.

        Returns:
          The ids of all lines, int32 [sum of lengths], and the number of ids of each line, int32 [lines].
        """
        if not lines:
            return np.zeros([0], np.int32), np.zeros([0], np.int32)
        import tensorflow as tf

        text = replace_long_words(self.normalize.joined(lines), TOO_LONG.encode())
        with tf.device("CPU:0"):
            ragged = self._kernel.tokenize(tf.constant(text.split(b"\n"), tf.string))
        return ragged.values.numpy(), np.diff(ragged.row_splits.numpy()).astype(np.int32)

    def pieces(self, texts: Sequence[str]) -> list[np.ndarray]:
        """For each text int32 [pieces], its ids."""
        ids, lengths = self.tokenize([text.encode("utf-8", "ignore") for text in texts])
        return np.split(ids, np.cumsum(lengths))[:-1]

    def located(self, texts: Sequence[Words]) -> list[Located]:
        """Tokenises texts that are divided into words. Every distinct word is tokenised once."""
        distinct_words = list(dict.fromkeys(itertools.chain.from_iterable(text.words for text in texts)))
        ids, lengths = self.tokenize([word.encode("utf-8", "ignore") for word in distinct_words])
        spans = self._spans(distinct_words, ids, lengths)
        index_by_word = {word: index for index, word in enumerate(distinct_words)}
        located: list[Located] = []
        for start in range(0, len(texts), _GROUP):
            group = texts[start : start + _GROUP]
            group_words = itertools.chain.from_iterable(text.words for text in group)
            word_indices = np.array([index_by_word[word] for word in group_words], np.int32)
            located += _gathered(group, word_indices, ids, spans, lengths)
        return located

    def _spans(self, words: Sequence[str], ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """int32 [pieces, 2], start and end of each piece in its word, in characters.

        A character that normalisation drops belongs to the piece around it, a mark that it strips to the letter before.
        Of "naïves" in pieces naive ##s the spans are [0, 5] and [5, 6], and [0, 6] and [6, 7] where the two points of ï
        are a character of their own.

        Args:
          ids, lengths: of the words, as from `tokenize`.
        """
        characters = np.frombuffer("".join(words).encode("utf-32-le", "surrogatepass"), np.uint32)
        sizes, is_stripped = self._normal_sizes(characters)
        origin = np.repeat(np.arange(len(characters)), sizes)  # of each normalised character, without blanks
        letters = np.append(np.flatnonzero(~is_stripped), len(characters))
        word_of_piece = np.repeat(np.arange(len(words)), lengths)
        word_lengths = np.array([len(word) for word in words], np.int32)
        # Pieces cover all normalised characters in order, so that their sizes tell where each begins and ends.
        normal_ends = np.cumsum(self._piece_sizes(words, ids, word_of_piece))
        starts = origin[np.append(0, normal_ends[:-1])[: len(ids)]]
        last_characters = origin[normal_ends - 1]
        # A piece ends before the next letter, after the marks behind its last one, but not beyond its word.
        next_letters = letters[np.searchsorted(letters, last_characters, "right")]
        word_ends = np.cumsum(word_lengths)
        ends = np.minimum(next_letters, word_ends[word_of_piece])
        word_starts = starts_of(word_lengths)[word_of_piece, np.newaxis]
        return (np.stack([starts, ends], -1) - word_starts).astype(np.int32)

    def _normal_sizes(self, characters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Finds how normalisation changes each character.

        Returns:
          int8, the number of characters, without blanks, that it becomes; bool, true for marks that are stripped.
        """
        distinct = np.flatnonzero(np.bincount(characters))  # faster than sorting them
        texts = list(map(chr, distinct))
        normal = self.normalize([text.encode("utf-8", "ignore") for text in texts])
        sizes = np.zeros([characters.max(initial=0) + 1], np.int8)
        marks = np.zeros_like(sizes)
        sizes[distinct] = [len(line.decode().replace(" ", "")) for line in normal]
        marks[distinct] = [unicodedata.category(text) == "Mn" for text in texts]
        is_stripped = marks > sizes  # a mark of which nothing is left
        return sizes[characters], is_stripped[characters]

    def _piece_sizes(self, words: Sequence[str], ids: np.ndarray, word_of_piece: np.ndarray) -> np.ndarray:
        """int64 [pieces], the number of normalised characters, without blanks, in each piece."""
        lengths, continues_word = self._lengths_of_pieces
        sizes = lengths[ids]
        is_unknown = ids == self.special.unk
        if not is_unknown.any():
            return sizes
        # [UNK] stands for a whole basic token of its word: for everything between two blanks, punctuation or Chinese
        # characters. Each piece without ## begins the next basic token.
        has_unknown = np.zeros(len(words), bool)
        has_unknown[word_of_piece[is_unknown]] = True
        basic_token_sizes = []
        for index in np.flatnonzero(has_unknown).tolist():
            basic_token_sizes += [len(token) for token in basic_tokens(words[index], self.normalize)]
        # Index of each piece's basic token. It counts only in words with [UNK].
        basic_token = np.cumsum(has_unknown[word_of_piece] & ~continues_word[ids]) - 1
        sizes[is_unknown] = np.array(basic_token_sizes)[basic_token[is_unknown]]
        return sizes

    @functools.cached_property
    def _lengths_of_pieces(self) -> tuple[np.ndarray, np.ndarray]:
        """int64 [V], number of characters of each token; bool [V], true for tokens that continue a word."""
        lengths = np.array([len(token.removeprefix("##")) for token in self.vocab])
        continues_word = np.array([token.startswith("##") for token in self.vocab])
        return lengths, continues_word

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """The tokens of ids. Raises IndexError for an id beyond the vocabulary."""
        return [self.vocab[token_id] for token_id in ids]

    def readable(self, ids: Iterable[int]) -> str:
        """Text for people: wordpieces joined to words, without padding."""
        tokens = [self.vocab[token_id] for token_id in ids if token_id != self.special.pad]
        return " ".join(tokens).replace(" ##", "")


def _gathered(
    texts: Sequence[Words], word_indices: np.ndarray, ids: np.ndarray, spans: np.ndarray, lengths: np.ndarray
) -> list[Located]:
    """Gathers the pieces of texts from those of distinct words, without a loop over words.

    Args:
      word_indices: int32 [words of all texts], index of each word among the distinct ones.
      ids, spans: [pieces of all distinct words]. Spans count from the word's beginning.
      lengths: int32 [distinct words], number of pieces.
    """
    # First as if all texts were one: their words, and the pieces of these.
    piece_counts = lengths[word_indices]
    first_piece = starts_of(piece_counts)
    word_of_piece = np.repeat(np.arange(len(word_indices), dtype=np.int32), piece_counts)
    index_in_word = np.arange(len(word_of_piece)) - first_piece[word_of_piece]
    source = starts_of(lengths)[word_indices][word_of_piece] + index_in_word  # index of each piece in `ids` and `spans`
    word_starts = np.concatenate([text.starts for text in texts])
    spans_in_text = spans[source] + word_starts[word_of_piece, np.newaxis]

    # Then cut into texts. Each text counts its words and pieces from 0.
    word_counts = np.array([len(text.words) for text in texts])
    first_word_of_text = starts_of(word_counts)
    first_piece_of_text = np.append(first_piece, len(word_of_piece))[first_word_of_text].astype(np.int32)
    text_of_word = np.repeat(np.arange(len(texts)), word_counts)
    text_of_piece = text_of_word[word_of_piece]
    word_cuts = first_word_of_text[1:]
    piece_cuts = first_piece_of_text[1:]
    ids_by_text = np.split(ids[source], piece_cuts)
    words_by_text = np.split(word_of_piece - first_word_of_text[text_of_piece], piece_cuts)
    first_pieces_by_text = np.split(first_piece - first_piece_of_text[text_of_word], word_cuts)
    spans_by_text = np.split(spans_in_text, piece_cuts)
    located = []
    for index in range(len(texts)):
        located.append(
            Located(ids_by_text[index], words_by_text[index], first_pieces_by_text[index], spans_by_text[index])
        )
    return located


class FileTokenizer(WordpieceTokenizer):
    """Text to ids and back by a tokenizer.json that is not WordPiece's, such as byte-level BPE or Unigram.

    The file defines how text is normalised and divided, and its special tokens. The package `tokenizers` runs it.

    Raises:
      UserError: the file is damaged, or it does not encode a pair as [CLS] A [SEP] B [SEP], whatever these are called.
    """

    is_wordpiece = False

    def __init__(self, path: str | os.PathLike[str]) -> None:
        from tokenizers import Tokenizer

        self.path = os.fspath(path)
        self.vocab = load_tokens(path)
        try:
            self._tokenizer = Tokenizer.from_file(self.path)
        except Exception as error:  # the package raises no narrower type
            raise UserError(f"{self.path} is no tokenizer: {error}") from None
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.special = self._special_ids()
        added = self._tokenizer.get_added_tokens_decoder().get(self.special.mask)
        self.mask_takes_blank = added is not None and added.lstrip
        self._tokenizer.encode_special_tokens = True  # "[SEP]" in a text is text

    def _special_ids(self) -> SpecialIds:
        around_text = self._tokenizer.encode("").ids
        around_pair = self._tokenizer.encode("", "").ids
        if len(around_text) != 2 or around_pair != [*around_text, around_text[1]]:
            tokens = " ".join(self.convert_ids_to_tokens(around_pair)) or "nothing"
            raise UserError(f"{self.path} puts {tokens} around two texts: [CLS] A [SEP] B [SEP] is needed")
        pad = self._first_id(_NAMES["pad"])
        mask = self._first_id(_NAMES["mask"])
        unknown = self._first_id(_NAMES["unk"])
        if pad is None:
            raise UserError(f"{self.path} has no {' or '.join(_NAMES['pad'])}")
        if mask is None:
            raise UserError(f"{self.path} has no {' or '.join(_NAMES['mask'])}")
        if unknown is None:  # a byte-level tokenizer knows every text
            unknown = pad
        return SpecialIds(pad, unknown, around_text[0], around_text[1], mask)

    def _first_id(self, names: Sequence[str]) -> int | None:
        """Id of the first of these tokens that the tokenizer has; None if it has none."""
        for name in names:
            token_id = self._tokenizer.token_to_id(name)
            if token_id is not None:
                return token_id
        return None

    def tokenize(self, lines: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        texts = [line.decode("utf-8", "ignore") for line in lines]
        ids: list[int] = []
        lengths = []
        for encoding in self._tokenizer.encode_batch(texts, add_special_tokens=False):
            ids += encoding.ids
            lengths.append(len(encoding.ids))
        return np.array(ids, np.int32), np.array(lengths, np.int32)

    def located(self, texts: Sequence[Words]) -> list[Located]:
        """Tokenises texts that are divided into words.

        A text is tokenised as a whole, blanks included, as in pre-training. A piece belongs to the word of its first
        character that is no blank. A piece of blanks belongs to the word before it.
        """
        located = []
        # A lone surrogate becomes "?", which keeps the positions of all other characters.
        strings = [text.text.encode("utf-8", "replace").decode() for text in texts]
        encodings = self._tokenizer.encode_batch(strings, add_special_tokens=False)
        for text, encoding in zip(texts, encodings, strict=True):
            spans = np.array(encoding.offsets, np.int32).reshape([-1, 2])
            # Spans leave out blanks at either end of a piece, unless it has nothing else.
            letters = np.flatnonzero([not character.isspace() for character in text.text])
            low = np.searchsorted(letters, spans[:, 0])
            high = np.searchsorted(letters, spans[:, 1])
            has_letters = low < high
            spans[has_letters] = np.stack([letters[low[has_letters]], letters[high[has_letters] - 1] + 1], -1)
            words = np.maximum(np.searchsorted(text.starts, spans[:, 0], side="right") - 1, 0)
            words = np.maximum.accumulate(words).astype(np.int32)  # ascending, as counting pieces by word needs
            first_piece = starts_of(np.bincount(words, minlength=len(text.words)))
            located.append(Located(np.array(encoding.ids, np.int32), words, first_piece, spans))
        return located

    def readable(self, ids: Iterable[int]) -> str:
        """Text for people, without padding."""
        kept = [token_id for token_id in ids if token_id != self.special.pad]
        return self._tokenizer.decode(kept, skip_special_tokens=False)


def tokenizer_for(
    vocab_file: str | os.PathLike[str] | list[str], do_lower_case: bool = True, strip_accents: bool | None = None
) -> WordpieceTokenizer:
    """Makes the tokenizer for a vocabulary: a vocab.txt, a list of tokens, or a tokenizer.json.

    A tokenizer.json that is not WordPiece's normalises text itself; the other arguments then do not count.
    """
    if not isinstance(vocab_file, list) and not is_wordpiece(vocab_file):
        return FileTokenizer(vocab_file)
    return WordpieceTokenizer(vocab_file, do_lower_case, strip_accents)


def wordpiece_kernel(vocab: Sequence[str]) -> Any:
    """Makes tensorflow_text's tokenizer for normalised text.

    It refuses equal tokens, and would match tokens with blanks. So empty tokens, tokens with blanks, and all but the
    last of equal ones are replaced by private characters, which normalised text never holds.

    Raises:
      UserError: it cannot use the vocabulary, for a reason that corpus.vocabulary does not check.
    """
    import tensorflow as tf
    import tensorflow_text

    last_id = {token: token_id for token_id, token in enumerate(vocab)}
    tokens = []
    for token_id, token in enumerate(vocab):
        is_usable = token and " " not in token and last_id[token] == token_id
        tokens.append(token if is_usable else f"\ue000{token_id}")
    try:
        return tensorflow_text.FastWordpieceTokenizer(
            vocab=tokens,
            max_bytes_per_word=_MAX_BYTES_PER_WORD,
            token_out_type=tf.int32,
            unknown_token="[UNK]",
        )
    except RuntimeError as error:
        raise UserError(f"tensorflow_text cannot use this vocabulary of {len(vocab)} tokens: {error}") from None
