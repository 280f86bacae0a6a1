"""One or two texts to an input of the encoder: [CLS] a [SEP], or [CLS] a [SEP] b [SEP]."""

from collections.abc import Sequence

import numpy as np

from corpus.vocabulary import SpecialIds


def pack(texts: Sequence[np.ndarray], special: SpecialIds, length: int) -> tuple[np.ndarray, np.ndarray]:
    """int32 input_ids and segment_ids of at most `length`; of a pair the longer text gives way.

    Args:
      texts: int32 [pieces] each.
    """
    input_ids, segment_ids = [np.array([special.cls], np.int32)], [np.zeros(1, np.int32)]
    kept = truncated_lengths([len(text) for text in texts], length - 1 - len(texts))
    for segment, (text, room) in enumerate(zip(texts, kept, strict=True)):
        if segment and not len(text):  # an empty second text has no [SEP] of its own
            continue
        input_ids += [text[:room], np.array([special.sep], np.int32)]
        segment_ids.append(np.full(room + 1, segment, np.int32))
    return np.concatenate(input_ids), np.concatenate(segment_ids)


def truncated_lengths(lengths: Sequence[int], room: int) -> list[int]:
    """How much of one or two texts is kept: tokens go one by one from the longer, the second if they are equal."""
    if len(lengths) == 1:
        return [min(lengths[0], room)]
    first, second = lengths
    while first + second > room:
        if first > second:
            first -= 1
        else:
            second -= 1
    return [first, second]
