"""Turns tagged sentences into inputs of the network, and finds in each the words that it predicts."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from electra_tf2.corpus.encoding import Row, windows_of
from electra_tf2.corpus.tokenization import Located, Words
from electra_tf2.corpus.vocabulary import SpecialIds
from electra_tf2.finetune.tasks.tags import spans_of


class PredictedWords(NamedTuple):
    """Words that an input predicts: their indices in the text, and the positions of their first pieces."""

    words: np.ndarray
    positions: np.ndarray


class TaggedSentence(NamedTuple):
    """Words in their text.

    labels: those that are learned (BIOES for spans); None: the text has no tags.
    windows: the text's inputs, several of a long text.
    learned: the same text as it is learned, if some marked spans end inside words.
    marked: in this case, (start, end, type) of the characters of all its spans.
    """

    text: Words
    labels: list[str] | None
    windows: Sequence[PredictedWords] = ()
    learned: "TaggedSentence | None" = None
    marked: Sequence[tuple[int, int, str]] = ()

    @property
    def words(self) -> Sequence[str]:
        return self.text.words

    def places(self, labels: Sequence[str]) -> list[tuple[int, int, str]]:
        """Lists (start, end, type) of the spans in labels of its words, with the places of their characters."""
        ends = self.text.ends
        places = []
        for span in spans_of(labels):
            places.append((int(self.text.starts[span.start]), int(ends[span.end]), span.type))
        return places

    @property
    def gold_places(self) -> Sequence[tuple[int, int, str]]:
        """The same of its own spans."""
        return self.marked or self.places(self.labels or [])

    @property
    def texts(self) -> tuple[str]:
        return (" ".join(self.text.words),)


def overlapping_inputs(pieces: Located, special: SpecialIds, max_length: int) -> list[tuple[Row, PredictedWords]]:
    """Makes the inputs of a text: windows that overlap by half, if it is longer than one.

    Words without pieces, which are empty or of control characters, are in no window.
    """
    first_piece = pieces.first_piece
    has_pieces = np.diff(first_piece, append=len(pieces.ids)) > 0
    inputs = []
    for start, row, kept in windows_of(pieces.ids, special, max_length):
        word_indices = np.flatnonzero(has_pieces & (kept.start <= first_piece) & (first_piece < kept.stop))
        positions = 1 + first_piece[word_indices] - start  # behind [CLS]
        inputs.append((row, PredictedWords(word_indices, positions)))
    return inputs


def original_input(
    words: Sequence[str], pieces: Located, special: SpecialIds, max_length: int
) -> list[tuple[Row, PredictedWords]]:
    """Makes the one input of a text as the original does, with the words that fit by its way of counting."""
    input_ids = [special.cls]
    positions: list[int] = []
    cut = 0
    pieces_of_words = np.split(pieces.ids, pieces.first_piece[1:])
    for word, word_pieces in zip(words, pieces_of_words, strict=True):
        ids = list(word_pieces)
        # The original adds the number of the sentence's words here, not that of this word's pieces.
        counted_length = len(words) + 2 + len(input_ids) + 1
        if cut or counted_length > max_length:
            cut += len(ids)
            continue
        # As in the original, such a word has no position, so that those behind it have the labels of words before them.
        if word == "[CLS]":
            input_ids.append(special.cls)
            continue
        if word == "[SEP]":
            input_ids.append(special.sep)
            continue
        if len(ids) > 1 and all(token == special.unk for token in ids):
            # The original puts no blanks around Chinese characters, so several unknown ones are one [UNK].
            ids = [special.unk]
        positions.append(len(input_ids))
        input_ids += ids
    input_ids.append(special.sep)
    row = np.array(input_ids, np.int32)
    predicted = PredictedWords(np.arange(len(positions)), np.array(positions, np.int64))
    return [(Row(row, np.ones_like(row), cut), predicted)]


def label_values(
    example: TaggedSentence, window: PredictedWords, id_of_label: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """Makes the labels of a window by name. A word with a label that the training data lack has no loss."""
    labels = np.zeros(len(window.words), np.int32)
    mask = np.ones(len(window.words), np.float32)
    if example.labels:
        for place, word in enumerate(window.words):
            label = example.labels[word]
            labels[place] = id_of_label.get(label, 0)
            mask[place] = label in id_of_label
    positions = np.array(window.positions, np.int32)
    return {"labels": labels, "labels_mask": mask, "labeled_positions": positions}
