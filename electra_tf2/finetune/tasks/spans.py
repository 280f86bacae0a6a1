"""The two parts of texts that SuperGLUE's files ask about: the word of WiC, the phrase and the pronoun of WSC."""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from electra_tf2.util.errors import UserError, shown


class TextPart(NamedTuple):
    """The characters [start, end) of the text of this index."""

    text: int
    start: int
    end: int


def wic_spans(row: dict[str, Any], where: str) -> tuple[TextPart, ...]:
    """Characters of the word in either sentence: `start1`, `end1`, `start2`, `end2`. Raises UserError."""
    spans = []
    for number in (1, 2):
        start = _place(row, f"start{number}", where)
        end = _place(row, f"end{number}", where)
        if start >= end:
            raise UserError(f"{where}: start{number} {start} must be before end{number} {end}")
        spans.append(TextPart(number - 1, start, end))
    return tuple(spans)


def wsc_spans(row: dict[str, Any], where: str) -> tuple[TextPart, ...]:
    """Characters of either mention. The field `target` has the index of its first word (between blanks) and its text.

    The distributed files are not exact. An index is off by a word or two: the mention's nearest occurrence counts. A
    mention has other blanks than the text, or the full stop behind it. One does not occur at all ("Kamenev and
    Zinoviev" in a text with more between the two): as many words as it has count from the index on.

    Raises:
      UserError: a missing or wrong field.
    """
    target = row.get("target")
    text = row.get("text")
    if not isinstance(target, dict) or not isinstance(text, str):
        raise UserError(f"{where}: `text` and an object `target` are needed; it has {shown(', '.join(row))}")
    words = [match.span() for match in re.finditer(r"\S+", text)]
    spans = []
    for number in (1, 2):
        index = _place(target, f"span{number}_index", where)
        mention = target.get(f"span{number}_text")
        if index >= len(words):
            raise UserError(f"{where}: span{number}_index {index} is beyond the {len(words)} words of the text")
        mention_words = mention.rstrip(" \t\r\n.,").split() if isinstance(mention, str) else []
        if not mention_words:
            raise UserError(f"{where}: span{number}_text must be a mention, got {shown(mention)}")
        numbered_start = words[index][0]
        # At the border of a word, so that "he" is not found in "the".
        pattern = r"\s+".join(map(re.escape, mention_words))
        occurrences = [match.span() for match in re.finditer(rf"(?<!\w){pattern}(?!\w)", text, re.IGNORECASE)]
        if occurrences:
            start, end = min(occurrences, key=lambda span: abs(span[0] - numbered_start))
        else:
            last_word = min(index + len(mention_words), len(words)) - 1
            start = numbered_start
            end = words[last_word][1]
        spans.append(TextPart(0, start, end))
    return tuple(spans)


def _place(row: dict[str, Any], name: str, where: str) -> int:
    value = row.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UserError(f"{where}: {name} must be a number from 0 on, got {shown(value)}")
    return value


_READERS: dict[str, Callable[[dict[str, Any], str], tuple[TextPart, ...]]] = {"wic": wic_spans, "wsc": wsc_spans}


def marked_parts(form: str, texts: Sequence[str], row: dict[str, Any], where: str) -> tuple[TextPart, ...]:
    """Reads which parts of its texts a row marks, in a benchmark's form, "wic" or "wsc". Raises UserError."""
    parts = _READERS[form](row, where)
    for text, start, end in parts:
        size = len(texts[text])
        if end > size:
            raise UserError(f"{where}: characters {start} to {end} are beyond the text of {size} characters")
    return parts
