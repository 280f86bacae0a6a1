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
_UNASSIGNED = "\uffff"  # stands for all of them
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
    before_surrogates = np.arange(0xD800)
    after_surrogates = np.arange(0xE000, sys.maxunicode + 1)
    codes = np.concatenate([before_surrogates, after_surrogates]).astype(np.int32)
    known = np.array([unicodedata.category(chr(code)) not in _UNKNOWN for code in codes])
    texts = [chr(code) for code in codes[known]]
    texts.append(_UNASSIGNED)
    # The normaliser reads lines: one for each character, with a letter after it, since it strips a blank at the end.
    lines = []
    for text in texts:
        same_effect = " " if text == "\n" else text  # "\n" would end the line
        lines.append(f"{same_effect}x".encode())
    normalized = [line[:-1].decode() for line in normalize(lines)]
    kinds, cased, ignorable = np.zeros([3, len(texts)], np.int32)  # kind 0 is _KEEP
    listed = {}
    for place, (text, result) in enumerate(zip(texts, normalized, strict=True)):
        if result == text:
            continue
        if result == "":
            kinds[place] = _DROP
        elif result == f" {text} ":
            kinds[place] = _SPACED
        else:
            kinds[place] = _LISTED
            listed[ord(text)] = result.encode()
    if normalize.do_lower_case:
        cased[:] = [f"{text}{_SIGMA}".lower().endswith(_FINAL_SIGMA) for text in texts]
        # A sigma is final after "a" and this character, though not after the character alone: it is passed over.
        final_after_letter = [f"a{text}{_SIGMA}".lower().endswith(_FINAL_SIGMA) for text in texts]
        ignorable[:] = np.array(final_after_letter) & ~cased.astype(bool)
        ignorable |= kinds == _DROP
    # From one column for each of `texts` to one for each code point, and from those to the first of each range.
    unassigned = len(texts) - 1
    columns = np.where(known, np.cumsum(known) - 1, unassigned)
    effects = np.stack([kinds, cased, ignorable])[:, columns]
    differs_from_last = (effects[:, 1:] != effects[:, :-1]).any(0)
    starts = np.concatenate([[0], np.flatnonzero(differs_from_last) + 1])
    return codes[starts], effects[:, starts], listed


class GraphTokenizer(tf.Module):
    """Strings to rows of ids, at most max_length with special ones, as tensors; part of a SavedModel."""

    def __init__(self, tokens: Sequence[str], do_lower_case: bool, strip_accents: bool | None, max_length: int) -> None:
        super().__init__(name="tokenizer")
        self.do_lower_case = do_lower_case
        starts, effects, listed = _characters(do_lower_case, strip_accents)
        self._starts = tf.constant(starts)
        kinds, cased, ignorable = effects
        self._kinds = tf.constant(kinds)
        self._cased = tf.constant(cased)
        self._ignorable = tf.constant(ignorable)
        codes = tf.constant(list(listed), tf.int64)
        results = tf.constant(list(listed.values()))
        entries = tf.lookup.KeyValueTensorInitializer(codes, results)
        self._listed = tf.lookup.StaticHashTable(entries, b"")
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
        characters = codes.flat_values
        rows = tf.cast(codes.value_rowids(), tf.int32)
        ranges = tf.searchsorted(self._starts, characters, side="right") - 1
        kinds = tf.gather(self._kinds, ranges)
        unchanged = tf.strings.unicode_encode(characters[:, tf.newaxis], "UTF-8")
        spaced = tf.strings.join([" ", unchanged, " "])
        listed = self._listed.lookup(tf.cast(characters, tf.int64))
        result = tf.where(kinds == _DROP, "", unchanged)
        result = tf.where(kinds == _SPACED, spaced, result)
        result = tf.where(kinds == _LISTED, listed, result)
        if self.do_lower_case:
            is_final = (characters == ord(_SIGMA)) & self._ends_word(ranges, rows)
            result = tf.where(is_final, _FINAL_SIGMA, result)
        return codes.with_flat_values(result)

    def _ends_word(self, ranges: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """bool [characters], true where a sigma would be final (Unicode, section 3.13).

        A cased letter stands before it and none after it, not counting characters that are passed over.

        Args:
          ranges: int32 [characters], the range of `_starts` that each is in.
          rows: int32 [characters], the text that each is of.
        """
        is_ignorable = tf.gather(self._ignorable, ranges)
        counted = tf.cast(tf.where(is_ignorable == 0)[:, 0], tf.int32)  # places of characters not passed over
        every_place = tf.range(tf.size(ranges))
        # For each character, the numbers in `counted` of the last one before it and of the first one after it.
        before = tf.searchsorted(counted, every_place, side="left") - 1
        after = tf.searchsorted(counted, every_place, side="right")

        def is_letter(number: tf.Tensor) -> tf.Tensor:
            """True where there is such a character, cased, and in the same text."""
            exists = (number >= 0) & (number < tf.size(counted))
            # Where there is none, some place that can be gathered, even out of no characters at all.
            number = tf.clip_by_value(number, 0, tf.size(counted))
            place = tf.gather(tf.concat([counted, [0]], 0), number)
            place = tf.minimum(place, tf.maximum(tf.size(ranges) - 1, 0))
            is_cased = tf.gather(self._cased, tf.gather(ranges, place)) == 1
            is_in_same_text = tf.gather(rows, place) == rows
            return exists & is_cased & is_in_same_text

        return is_letter(before) & ~is_letter(after)

    def pieces(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """string [N] -> int32 [N, (pieces)], without special tokens."""
        with tf.device("CPU:0"):
            return self._pieces.tokenize(self.normalize(texts))

    def rows(self, texts: tf.Tensor, second: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """string [B] (twice for pairs) -> int32 [B, L] input_ids, input_mask, segment_ids."""
        segments = [self.pieces(texts)]
        if second is not None:
            segments.append(self.pieces(second))
        return self.packed(segments)

    def packed(self, segments: Sequence[tf.RaggedTensor]) -> dict[str, tf.Tensor]:
        """One or two texts of pieces -> int32 [B, L] input_ids, input_mask, segment_ids.

        "[CLS] text [SEP]" or "[CLS] text [SEP] text [SEP]"; tokens that do not fit go one by one from the longer text,
        the second if they are equal. As in corpus.encoding, an empty second text has no [SEP] of its own.
        """
        if len(segments) == 1:
            return self.padded([segments[0][:, : self.max_length - 2]])
        first, second = segments
        room = self.max_length - 3
        first_lengths = first.row_lengths()
        second_lengths = second.row_lengths()
        # The first text has what the second leaves, and at least half, rounded up; the second has the rest.
        first_share = tf.maximum(room - second_lengths, (room + 1) // 2)
        first_kept = tf.minimum(first_lengths, first_share)
        second_kept = tf.minimum(second_lengths, room - first_kept)
        cut = [self.head_of(first, first_kept), self.head_of(second, second_kept)]
        return self.padded(cut, second_lengths > 0)

    @staticmethod
    def head_of(ragged: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
        """The first `lengths` [B] entries of each row."""
        places = tf.ragged.range(ragged.row_lengths()).flat_values  # of each entry in its row
        ends = tf.gather(tf.cast(lengths, places.dtype), ragged.value_rowids())
        return tf.ragged.boolean_mask(ragged, ragged.with_flat_values(places < ends))

    def padded(self, segments: Sequence[tf.RaggedTensor], has_second: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """Rows of one or two segments with special tokens around them, as tensors of one length.

        has_second: bool [B], true for rows that have a second segment; None: all.
        """
        rows = segments[0].nrows()
        one_each = tf.ones([rows, 1], tf.int32)
        ids = [self.special.cls * one_each]
        segment_ids = [0 * one_each]
        for number, segment in enumerate(segments):
            ends = one_each
            if number == 1 and has_second is not None:
                ends = tf.ragged.boolean_mask(one_each, has_second[:, tf.newaxis])
            ids += [segment, self.special.sep * ends]
            segment_ids += [tf.ones_like(segment) * number, number * ends]
        all_ids = tf.concat(ids, 1)
        return {
            "input_ids": _to_tensor(all_ids, self.special.pad),
            "input_mask": _to_tensor(tf.ones_like(all_ids), 0),
            "segment_ids": _to_tensor(tf.concat(segment_ids, 1), 0),
        }

    def tokens(self, ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """string [B, L]; "" for padding."""
        return tf.where(mask == 1, tf.gather(self.vocabulary, ids), "")


def _to_tensor(ragged: tf.RaggedTensor, padding: int) -> tf.Tensor:
    """int32 [B, L]; [0, 1] of no rows, since networks read the first token of each row."""
    padded = ragged.to_tensor(padding)
    missing = tf.maximum(0, 1 - tf.shape(padded)[1])
    return tf.pad(padded, [[0, 0], [0, missing]], constant_values=padding)
