"""WordPiece's tokenizer as TensorFlow operations, for SavedModels: equal to corpus.tokenization.

tensorflow_text has BERT normalisers of its own, but they differ from the original's in thousands of characters
(corpus.tokenization). Here every character is looked up in a table made by corpus.normalization itself, so that the two
agree on each of them, under the Unicode version of the Python that exported the model. What a table of characters
cannot know is computed beside it: the two forms of a lower-case sigma, and words of more than 200 characters. One
difference remains: combining marks that are no accents (a few Indic and musical signs) and stand side by side are not
put into canonical order.
"""

import functools
import sys
import unicodedata
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from electra_tf2.corpus.normalization import MAX_CHARS_PER_WORD, TextNormalizer
from electra_tf2.corpus.tokenization import TOO_LONG, wordpiece_kernel
from electra_tf2.corpus.vocabulary import special_ids

_KEEP, _DROP, _SPACED, _LISTED = range(4)  # kinds of characters, by what normalisation does to them
_UNKNOWN = ("Cn", "Co")  # unassigned and private: seven characters of eight, all treated alike
_UNASSIGNED = "\uffff"
_SIGMA = "\N{GREEK CAPITAL LETTER SIGMA}"
_FINAL_SIGMA = "\N{GREEK SMALL LETTER FINAL SIGMA}"
# A word as WordPiece sees it: neither blanks nor ASCII punctuation. Longer ones become a word that no piece matches.
_LONG_WORD = rf"[^\x00-\x20!-/:-@\[-`{{-~]{{{MAX_CHARS_PER_WORD + 1},}}"


@functools.cache
def _characters(do_lower_case: bool, strip_accents: bool | None) -> tuple[np.ndarray, np.ndarray, dict[int, bytes]]:
    """Effect of the normaliser on every character, by itself.

    Returns:
      int32 [ranges], the first code point of ranges that are treated alike, rising; int32 [3, ranges], their kinds,
      and 1 where they are cased and where they are ignorable: how a character beside a sigma counts in choosing its
      form (Unicode's Final_Sigma); code points of kind _LISTED, and what becomes of them.
    """
    normalize = TextNormalizer(do_lower_case, strip_accents)
    codes = np.array([code for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF], np.int32)
    known = np.array([unicodedata.category(chr(code)) not in _UNKNOWN for code in codes])
    texts = [*map(chr, codes[known]), _UNASSIGNED]  # the last one stands for all that are not known
    # One line per character; in a line with a letter after it, for "\n" would end the line and a blank be lost.
    lines = [f"{text}x".encode() if text != "\n" else b" x" for text in texts]
    normalized = [line[:-1].decode() for line in normalize(lines)]
    kinds, cased, ignorable = np.zeros([3, len(texts)], np.int32)
    listed = {}
    for place, (text, result) in enumerate(zip(texts, normalized, strict=True)):
        if result in ("", f" {text} "):
            kinds[place] = _SPACED if result else _DROP
        elif result != text:
            kinds[place] = _LISTED
            listed[ord(text)] = result.encode()
    if normalize.do_lower_case:
        cased[:] = [f"{text}{_SIGMA}".lower().endswith(_FINAL_SIGMA) for text in texts]
        # A character that changes nothing after a letter, but starts nothing either, is passed over.
        passed = [f"a{text}{_SIGMA}".lower().endswith(_FINAL_SIGMA) for text in texts]
        ignorable[:] = np.array(passed) & ~cased.astype(bool)
        ignorable |= kinds == _DROP
    together = np.stack([kinds, cased, ignorable])[:, np.where(known, np.cumsum(known) - 1, len(texts) - 1)]
    changes = np.flatnonzero((together[:, 1:] != together[:, :-1]).any(0)) + 1
    places = np.concatenate([[0], changes])
    return codes[places], together[:, places], listed


class GraphTokenizer(tf.Module):
    """Strings to rows of ids, at most max_length with special ones, as tensors; part of a SavedModel."""

    def __init__(self, tokens: Sequence[str], do_lower_case: bool, strip_accents: bool | None, max_length: int) -> None:
        super().__init__(name="tokenizer")
        self.do_lower_case = do_lower_case
        starts, kinds, listed = _characters(do_lower_case, strip_accents)
        self._starts = tf.constant(starts)
        self._kinds, self._cased, self._ignorable = map(tf.constant, kinds)
        codes, results = tf.constant(list(listed), tf.int64), tf.constant(list(listed.values()))
        self._listed = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(codes, results), b"")
        self._pieces = wordpiece_kernel(tokens)
        self.vocabulary = tf.constant(list(tokens))
        self.special = special_ids(tokens)
        self.max_length = max_length

    def normalize(self, texts: tf.Tensor) -> tf.Tensor:
        """string [N] -> string [N], normalised as corpus.normalization does it; bytes beyond UTF-8 are left out."""
        joined = tf.strings.reduce_join(self._normalized(texts), axis=-1)
        return tf.strings.regex_replace(joined, _LONG_WORD, TOO_LONG)

    def _normalized(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """string [N] -> string [N, (characters)], what becomes of each."""
        codes = tf.strings.unicode_decode(texts, "UTF-8", errors="ignore")
        flat, rows = codes.flat_values, codes.value_rowids()
        places = tf.searchsorted(self._starts, flat, side="right") - 1
        kinds = tf.gather(self._kinds, places)
        same = tf.strings.unicode_encode(flat[:, tf.newaxis], "UTF-8")
        spaced = tf.strings.join([" ", same, " "])
        result = tf.where(kinds == _SPACED, spaced, tf.where(kinds == _DROP, "", same))
        result = tf.where(kinds == _LISTED, self._listed.lookup(tf.cast(flat, tf.int64)), result)
        if self.do_lower_case:
            final = (flat == ord(_SIGMA)) & self._ends_word(places, tf.cast(rows, tf.int32))
            result = tf.where(final, _FINAL_SIGMA, result)
        return codes.with_flat_values(result)

    def _ends_word(self, places: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """bool [characters], true where a sigma would be final (Unicode, section 3.13).

        A cased letter stands before it and none after it, not counting characters that are passed over.
        """
        counts = tf.cast(tf.where(tf.gather(self._ignorable, places) == 0)[:, 0], tf.int32)
        here = tf.range(tf.size(places))
        before = tf.searchsorted(counts, here, side="left") - 1
        after = tf.searchsorted(counts, here, side="right")

        def is_letter(index: tf.Tensor) -> tf.Tensor:
            inside = (index >= 0) & (index < tf.size(counts))
            place = tf.gather(tf.concat([counts, [0]], 0), tf.clip_by_value(index, 0, tf.size(counts)))
            place = tf.minimum(place, tf.maximum(tf.size(places) - 1, 0))
            cased = tf.gather(self._cased, tf.gather(places, place)) == 1
            return inside & cased & (tf.gather(rows, place) == rows)

        return is_letter(before) & ~is_letter(after)

    def pieces(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """string [N] -> int32 [N, (pieces)], without special tokens."""
        with tf.device("CPU:0"):
            return self._pieces.tokenize(self.normalize(texts))

    def rows(self, texts: tf.Tensor, second: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """string [B] (twice for pairs) -> int32 [B, L] input_ids, input_mask, segment_ids."""
        return self.packed([self.pieces(one) for one in (texts, second) if one is not None])

    def packed(self, parts: Sequence[tf.RaggedTensor]) -> dict[str, tf.Tensor]:
        """One or two texts of pieces -> int32 [B, L] input_ids, input_mask, segment_ids.

        "[CLS] text [SEP]" or "[CLS] text [SEP] text [SEP]"; tokens that do not fit go one by one from the longer text,
        the second if they are equal. As in corpus.encoding, an empty second text has no [SEP] of its own.
        """
        if len(parts) == 1:
            return self.padded([parts[0][:, : self.max_length - 2]])
        first, other, room = *parts, self.max_length - 3
        lengths, others = first.row_lengths(), other.row_lengths()
        kept = tf.minimum(lengths, tf.maximum(room - others, (room + 1) // 2))
        rest = tf.minimum(others, room - kept)
        return self.padded([self.head_of(first, kept), self.head_of(other, rest)], others > 0)

    @staticmethod
    def head_of(ragged: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
        """The first `lengths` [B] entries of each row."""
        places, rows = tf.ragged.range(ragged.row_lengths()).flat_values, ragged.value_rowids()
        return tf.ragged.boolean_mask(
            ragged, ragged.with_flat_values(places < tf.gather(tf.cast(lengths, places.dtype), rows))
        )

    def padded(self, parts: Sequence[tf.RaggedTensor], second: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """Rows of parts with special tokens around them, as tensors of one length.

        second: bool [B], true for rows that have a second part; None: all.
        """
        rows = parts[0].nrows()
        column = tf.ones([rows, 1], tf.int32)
        ids, segments = [self.special.cls * column], [0 * column]
        for number, part in enumerate(parts):
            end = column if not number or second is None else tf.ragged.boolean_mask(column, second[:, tf.newaxis])
            ids += [part, self.special.sep * end]
            segments += [tf.ones_like(part) * number, number * end]
        joined = tf.concat(ids, 1)
        return {
            "input_ids": _of_one_length(joined, self.special.pad),
            "input_mask": _of_one_length(tf.ones_like(joined), 0),
            "segment_ids": _of_one_length(tf.concat(segments, 1), 0),
        }

    def tokens(self, ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """string [B, L]; "" for padding."""
        return tf.where(mask == 1, tf.gather(self.vocabulary, ids), "")


def _of_one_length(ragged: tf.RaggedTensor, padding: int) -> tf.Tensor:
    """int32 [B, L]; [0, 1] of no rows, since networks read the first token of each row."""
    padded = ragged.to_tensor(padding)
    missing = tf.maximum(0, 1 - tf.shape(padded)[1])
    return tf.pad(padded, [[0, 0], [0, missing]], constant_values=padding)
