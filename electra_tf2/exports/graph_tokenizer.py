"""WordPiece's tokenizer as TensorFlow operations, for SavedModels. It gives the same ids as corpus.tokenization.

tensorflow_text has a BERT normaliser, but that differs from the original's in thousands of characters
(corpus.tokenization). Instead, every character is looked up in a table that corpus.normalization itself makes, with the
Unicode version of the Python that exports the model.

Two effects depend on a character's neighbours and are computed without the table: the two forms of a lower-case sigma,
and words of more than 200 characters. One difference remains: combining marks that are no accents (a few Indic and
musical signs) are not put into canonical order when they stand side by side.
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

# What normalisation does to a character: nothing, drops it, puts spaces around it, or replaces it by a listed text.
_KEEP, _DROP, _SPACED, _LISTED = range(4)
_UNKNOWN = ("Cn", "Co")  # categories of unassigned and private characters, seven of eight. All are treated alike
_UNASSIGNED = "\uffff"  # one of them, which is tried for all
_SIGMA = "\N{GREEK CAPITAL LETTER SIGMA}"
_FINAL_SIGMA = "\N{GREEK SMALL LETTER FINAL SIGMA}"
# A word that is too long for WordPiece, which becomes [UNK]. Words hold neither blanks nor ASCII punctuation.
_LONG_WORD = rf"[^\x00-\x20!-/:-@\[-`{{-~]{{{MAX_CHARS_PER_WORD + 1},}}"


@functools.cache
def _characters(do_lower_case: bool, strip_accents: bool | None) -> tuple[np.ndarray, np.ndarray, dict[int, bytes]]:
    """Tries the normaliser on every single character.

    Consecutive characters with the same effect form a range.

    Returns:
      starts: int32 [ranges], each range's first code point, ascending.
      effects: int32 [3, ranges], the kind (_KEEP, ...), and 1 for cased and 1 for case-ignorable characters, which
        decide on a sigma beside them (Unicode's Final_Sigma).
      listed: code point of kind _LISTED -> what replaces it.
    """
    normalize = TextNormalizer(do_lower_case, strip_accents)
    before_surrogates = np.arange(0xD800)
    after_surrogates = np.arange(0xE000, sys.maxunicode + 1)
    codes = np.concatenate([before_surrogates, after_surrogates]).astype(np.int32)
    known = np.array([unicodedata.category(chr(code)) not in _UNKNOWN for code in codes])
    texts = [chr(code) for code in codes[known]]
    texts.append(_UNASSIGNED)
    # The normaliser reads lines. The letter after the character keeps a blank from being stripped.
    lines = []
    for text in texts:
        character = " " if text == "\n" else text  # "\n" would end the line; it has the effect of " "
        lines.append(f"{character}x".encode())
    normalized = [line[:-1].decode() for line in normalize(lines)]
    kinds, cased, ignorable = np.zeros([3, len(texts)], np.int32)  # kind 0 is _KEEP
    listed = {}
    for index, (text, result) in enumerate(zip(texts, normalized, strict=True)):
        if result == text:
            continue
        if result == "":
            kinds[index] = _DROP
        elif result == f" {text} ":
            kinds[index] = _SPACED
        else:
            kinds[index] = _LISTED
            listed[ord(text)] = result.encode()
    if normalize.do_lower_case:
        cased[:] = [f"{text}{_SIGMA}".lower().endswith(_FINAL_SIGMA) for text in texts]
        # If a sigma is final after "a" and the character, but not after the character alone, the character is ignored.
        final_after_letter = [f"a{text}{_SIGMA}".lower().endswith(_FINAL_SIGMA) for text in texts]
        ignorable[:] = np.array(final_after_letter) & ~cased.astype(bool)
        ignorable |= kinds == _DROP
    # From a column for each of `texts` to a column for each code point.
    unassigned = len(texts) - 1
    columns = np.where(known, np.cumsum(known) - 1, unassigned)
    effects = np.stack([kinds, cased, ignorable])[:, columns]
    # Of these, keep the first of each range.
    differs_from_previous = (effects[:, 1:] != effects[:, :-1]).any(0)
    starts = np.concatenate([[0], np.flatnonzero(differs_from_previous) + 1])
    return codes[starts], effects[:, starts], listed


class GraphTokenizer(tf.Module):
    """Turns strings into rows of ids, as a part of a SavedModel.

    Args:
      max_length: most tokens of a row, special ones included.
    """

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
        """string [N] -> string [N], as corpus.normalization does it. Bytes that are no UTF-8 are dropped."""
        joined = tf.strings.reduce_join(self._normalized(texts), axis=-1)
        return tf.strings.regex_replace(joined, _LONG_WORD, TOO_LONG)

    def _normalized(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """string [N] -> string [N, (characters)], what replaces each character."""
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
        """bool [characters], true where a sigma would be final (Unicode, section 3.13, Final_Sigma).

        It is final if a cased letter stands before it and none after it. Case-ignorable characters do not count.

        Args:
          ranges: int32 [characters], index of each character's range.
          rows: int32 [characters], index of each character's text.
        """
        is_ignorable = tf.gather(self._ignorable, ranges)
        counted = tf.cast(tf.where(is_ignorable == 0)[:, 0], tf.int32)  # positions of characters that count
        all_positions = tf.range(tf.size(ranges))
        # For each character, the indices in `counted` of the last character before it and of the first one after it.
        before = tf.searchsorted(counted, all_positions, side="left") - 1
        after = tf.searchsorted(counted, all_positions, side="right")

        def is_letter(index: tf.Tensor) -> tf.Tensor:
            """True if there is a character with this index, it is cased, and it is in the same text."""
            exists = (index >= 0) & (index < tf.size(counted))
            # If it does not exist, gather some position that does, even if there are no characters at all.
            index = tf.clip_by_value(index, 0, tf.size(counted))
            position = tf.gather(tf.concat([counted, [0]], 0), index)
            position = tf.minimum(position, tf.maximum(tf.size(ranges) - 1, 0))
            is_cased = tf.gather(self._cased, tf.gather(ranges, position)) == 1
            is_in_same_text = tf.gather(rows, position) == rows
            return exists & is_cased & is_in_same_text

        return is_letter(before) & ~is_letter(after)

    def pieces(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """string [N] -> int32 [N, (pieces)], without special tokens."""
        with tf.device("CPU:0"):
            return self._pieces.tokenize(self.normalize(texts))

    def rows(self, texts: tf.Tensor, second: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """string [B], twice for pairs -> int32 [B, L] input_ids, input_mask, segment_ids."""
        segments = [self.pieces(texts)]
        if second is not None:
            segments.append(self.pieces(second))
        return self.packed(segments)

    def packed(self, segments: Sequence[tf.RaggedTensor]) -> dict[str, tf.Tensor]:
        """Rows of pieces of one or two texts -> int32 [B, L] input_ids, input_mask, segment_ids.

        "[CLS] text [SEP]" or "[CLS] text [SEP] text [SEP]". As in corpus.encoding, pieces that do not fit are taken
        from the longer text, one by one, and from the second if they are equally long; an empty second text has no
        [SEP].
        """
        if len(segments) == 1:
            return self.padded([segments[0][:, : self.max_length - 2]])
        first, second = segments
        room = self.max_length - 3  # beside [CLS] and two [SEP]
        first_lengths = first.row_lengths()
        second_lengths = second.row_lengths()
        # The first text gets what the second does not need, and at least half, rounded up. The second gets the rest.
        first_share = tf.maximum(room - second_lengths, (room + 1) // 2)
        first_kept = tf.minimum(first_lengths, first_share)
        second_kept = tf.minimum(second_lengths, room - first_kept)
        truncated = [self.truncated(first, first_kept), self.truncated(second, second_kept)]
        return self.padded(truncated, second_lengths > 0)

    @staticmethod
    def truncated(rows: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
        """The first `lengths` [B] entries of each row."""
        positions = tf.ragged.range(rows.row_lengths()).flat_values  # of each entry in its row
        ends = tf.gather(tf.cast(lengths, positions.dtype), rows.value_rowids())
        return tf.ragged.boolean_mask(rows, rows.with_flat_values(positions < ends))

    def padded(self, segments: Sequence[tf.RaggedTensor], has_second: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """Adds special tokens to rows of one or two segments, and pads them to the length of the longest.

        Args:
          has_second: bool [B], true for rows that have a second segment; None: all.
        """
        rows = segments[0].nrows()
        ones = tf.ones([rows, 1], tf.int32)
        ids = [self.special.cls * ones]
        segment_ids = [0 * ones]
        for index, segment in enumerate(segments):
            separators = ones  # one [SEP] in each row
            if index == 1 and has_second is not None:
                separators = tf.ragged.boolean_mask(ones, has_second[:, tf.newaxis])
            ids += [segment, self.special.sep * separators]
            segment_ids += [tf.ones_like(segment) * index, index * separators]
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
    """int32 [B, L], with L at least 1, since networks read the first token even of an empty batch."""
    padded = ragged.to_tensor(padding)
    missing = tf.maximum(0, 1 - tf.shape(padded)[1])
    return tf.pad(padded, [[0, 0], [0, missing]], constant_values=padding)
