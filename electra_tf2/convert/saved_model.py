"""SavedModels of tokenizer and network, strings in, for plain TensorFlow with tensorflow_text and for Serving.

    import tensorflow as tf, tensorflow_text
    model = tf.saved_model.load("exported/1")
    model.signatures["states"](text=tf.constant(["A sentence."]))

Signatures of a pre-trained model: `states` (text), `pair_states` (text, text_pair) and, where it detects replaced
tokens, `replaced` (text). Those of a fine-tuned one come from convert.serving. Batch and length are dynamic; nothing
of our code is needed to load it.

The tokenizer is corpus.normalization and WordPiece as TensorFlow operations. tensorflow_text has BERT normalisers of
its own, but they differ from the original's in thousands of characters (corpus.tokenization). Here every character is
looked up in a table made by corpus.normalization itself, so that the two agree on each of them, under the Unicode
version of the Python that exported the model. What a table of characters cannot know is computed beside it: the two
forms of a lower-case sigma, and words of more than 200 characters. One difference remains: combining marks that are no
accents (a few Indic and musical signs) and stand side by side are not put into canonical order.
"""

import functools
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text

from electra_tf2.corpus.normalization import MAX_CHARS_PER_WORD, TextNormalizer
from electra_tf2.corpus.tokenization import kernel_tokens
from electra_tf2.corpus.vocabulary import special_ids
from electra_tf2.formats.huggingface_config import Casing
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.inference.network import Network
from electra_tf2.model import kernels

_KEEP, _DROP, _SPACED, _LISTED = range(4)  # kinds of characters, by what normalisation does to them
_UNKNOWN = ("Cn", "Co")  # unassigned and private: seven characters of eight, all treated alike
_UNASSIGNED = "\uffff"
_SIGMA = "\N{GREEK CAPITAL LETTER SIGMA}"
_FINAL_SIGMA = "\N{GREEK SMALL LETTER FINAL SIGMA}"
# A word as WordPiece sees it: neither blanks nor ASCII punctuation. Longer ones become a word that no piece matches.
_LONG_WORD = rf"[^\x00-\x20!-/:-@\[-`{{-~]{{{MAX_CHARS_PER_WORD + 1},}}"
_TOO_LONG = "x" * (4 * MAX_CHARS_PER_WORD + 1)


class _Characters(NamedTuple):
    """Effect of the normaliser on every character, by itself.

    starts: int32 [ranges], the first code point of ranges that are treated alike, rising. kinds: int32 [ranges].
    listed: code points of kind _LISTED, and what becomes of them. cased, ignorable: int32 [ranges], 0 or 1: how a
    character beside a sigma counts in choosing its form (Unicode's Final_Sigma).
    """

    starts: np.ndarray
    kinds: np.ndarray
    listed: np.ndarray
    results: list[bytes]
    cased: np.ndarray
    ignorable: np.ndarray


@functools.cache
def _characters(casing: Casing) -> _Characters:
    normalize = TextNormalizer(*casing)
    codes = np.array([code for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF], np.int32)
    known = np.array([unicodedata.category(chr(code)) not in _UNKNOWN for code in codes])
    texts = [*map(chr, codes[known]), _UNASSIGNED]  # the last one stands for all that are not known
    # One line per character; in a line with a letter after it, for "\n" would end the line and a blank be lost.
    lines = [f"{text}x".encode() if text != "\n" else b" x" for text in texts]
    normalized = [line[:-1].decode() for line in normalize(lines)]
    kinds, listed, results = np.zeros(len(texts), np.int32), [], []
    for place, (text, result) in enumerate(zip(texts, normalized, strict=True)):
        if result == text:
            continue
        if result in ("", f" {text} "):
            kinds[place] = _SPACED if result else _DROP
        else:
            kinds[place] = _LISTED
            listed.append(ord(text))
            results.append(result.encode())
    cased = np.zeros(len(texts), np.int32)
    ignorable = np.zeros(len(texts), np.int32)
    if normalize.do_lower_case:
        cased[:] = [f"{text}{_SIGMA}".lower().endswith(_FINAL_SIGMA) for text in texts]
        # A character that changes nothing after a letter, but starts nothing either, is passed over.
        passed = [f"a{text}{_SIGMA}".lower().endswith(_FINAL_SIGMA) for text in texts]
        ignorable[:] = np.array(passed) & ~cased.astype(bool)
        ignorable |= kinds == _DROP
    together = np.stack([kinds, cased, ignorable])[:, np.where(known, np.cumsum(known) - 1, len(texts) - 1)]
    changes = np.flatnonzero((together[:, 1:] != together[:, :-1]).any(0)) + 1
    places = np.concatenate([[0], changes])
    kinds, cased, ignorable = together[:, places]
    return _Characters(codes[places], kinds, np.array(listed, np.int64), results, cased, ignorable)


class GraphTokenizer(tf.Module):
    """Strings to rows of ids, as tensors; part of a SavedModel.

    Args:
      tokens: the vocabulary.
      casing: normalisation of text.
      max_length: tokens of a row, at most, special ones included.
    """

    def __init__(self, tokens: Sequence[str], casing: Casing, max_length: int) -> None:
        super().__init__(name="tokenizer")
        self.do_lower_case = casing.do_lower_case
        characters = _characters(casing)
        self._starts = tf.constant(characters.starts)
        self._kinds = tf.constant(characters.kinds)
        self._cased, self._ignorable = tf.constant(characters.cased), tf.constant(characters.ignorable)
        listed = tf.lookup.KeyValueTensorInitializer(tf.constant(characters.listed), tf.constant(characters.results))
        self._listed = tf.lookup.StaticHashTable(listed, b"")
        self._pieces = tensorflow_text.FastWordpieceTokenizer(
            vocab=kernel_tokens(tokens),
            max_bytes_per_word=4 * MAX_CHARS_PER_WORD,
            token_out_type=tf.int32,
            unknown_token="[UNK]",
        )
        self.vocabulary = tf.constant(list(tokens))
        self.special = special_ids(tokens)
        self.max_length = max_length

    def normalize(self, texts: tf.Tensor) -> tf.Tensor:
        """string [N] -> string [N], normalised as corpus.normalization does it; bytes beyond UTF-8 are left out."""
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
        joined = tf.strings.reduce_join(codes.with_flat_values(result), axis=-1)
        return tf.strings.regex_replace(joined, _LONG_WORD, _TOO_LONG)

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
        """string [B] (twice for pairs) -> int32 [B, L] input_ids, input_mask, segment_ids.

        "[CLS] text [SEP]" or "[CLS] text [SEP] text [SEP]"; tokens that do not fit go one by one from the longer text,
        the second if they are equal. As in corpus.encoding, an empty second text has no [SEP] of its own.
        """
        first = self.pieces(texts)
        if second is None:
            return self.padded([first[:, : self.max_length - 2]])
        other, room = self.pieces(second), self.max_length - 3
        lengths, others = first.row_lengths(), other.row_lengths()
        kept = tf.minimum(lengths, tf.maximum(room - others, (room + 1) // 2))
        rest = tf.minimum(others, room - kept)
        return self.padded([_head(first, kept), _head(other, rest)], others > 0)

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
            "input_ids": joined.to_tensor(self.special.pad),
            "input_mask": tf.ones_like(joined).to_tensor(0),
            "segment_ids": tf.concat(segments, 1).to_tensor(0),
        }

    def tokens(self, ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """string [B, L]; "" for padding."""
        return tf.where(mask == 1, tf.gather(self.vocabulary, ids), "")


def _head(ragged: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """The first `lengths` [B] entries of each row."""
    places = tf.ragged.range(ragged.row_lengths())
    return tf.ragged.boolean_mask(ragged, places < tf.expand_dims(lengths, 1))


# Inputs and outputs of a signature by name.
Signature = tuple[tuple[str, ...], Callable[..., dict[str, tf.Tensor]]]


def pretrained_signatures(network: Network, tokenizer: GraphTokenizer) -> dict[str, Signature]:
    """Makes `states`, `pair_states` and, with a detector, `replaced`; the first is the default."""

    def described(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        states = network.states(**inputs)
        mask = inputs["input_mask"]
        tokens = tokenizer.tokens(inputs["input_ids"], mask)
        return {"tokens": tokens, "mask": mask, "states": states, "sentence": states[:, 0]}

    def replaced(text: tf.Tensor) -> dict[str, tf.Tensor]:
        inputs = tokenizer.rows(text)
        mask = inputs["input_mask"]
        probabilities = tf.nn.sigmoid(network.replaced_logits(**inputs)) * tf.cast(mask, tf.float32)
        return {"tokens": tokenizer.tokens(inputs["input_ids"], mask), "mask": mask, "probabilities": probabilities}

    signatures: dict[str, Signature] = {
        "states": (("text",), lambda text: described(tokenizer.rows(text))),
        "pair_states": (("text", "text_pair"), lambda text, text_pair: described(tokenizer.rows(text, text_pair))),
    }
    if network.detector is not None:
        signatures["replaced"] = (("text",), replaced)
    return signatures


def tokenizer_of(model: StoredModel, max_length: int = 512) -> GraphTokenizer:
    longest = min(max_length, model.architecture.max_position_embeddings)
    return GraphTokenizer(model.tokens, model.casing, longest)


def write_saved_model(
    folder: str | Path,
    signatures: Mapping[str, Signature],
    variables: Sequence[tf.Variable],
    tokenizer: GraphTokenizer,
) -> Path:
    """Writes version 1 into a folder, as TensorFlow Serving wants it.

    Args:
      signatures: by name, the names of inputs, each a string [B], and the function; the first is `serving_default`.
      variables, tokenizer: those that the functions use.

    Returns:
      The SavedModel's folder, `folder`/1.
    """
    served = tf.Module()  # no Keras layers, which would be described, with warnings, for a Keras that cannot build them
    served.weights, served.tokenizer = list(variables), tokenizer
    functions: dict[str, Any] = {}
    with kernels.off():
        for name, (inputs, function) in signatures.items():
            specs = {argument: tf.TensorSpec([None], tf.string, name=argument) for argument in inputs}
            functions[name] = tf.function(function, autograph=False).get_concrete_function(**specs)
    functions["serving_default"] = next(iter(functions.values()))
    target = Path(folder) / "1"
    tf.saved_model.save(served, str(target), signatures=functions)
    return target
