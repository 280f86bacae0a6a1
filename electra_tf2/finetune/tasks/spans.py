"""The two parts of texts that SuperGLUE's files ask about: the word of WiC, the phrase and the pronoun of WSC."""

import re
from collections.abc import Callable
from typing import Any

from electra_tf2.finetune.tasks.text_files import TextPart
from electra_tf2.util.errors import UserError, shown


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
    """Characters of either mention, by `target`: the number of its first word (between blanks) and its text.

    The distributed files want some forbearance: numbers are off by a word or two, so the mention's occurrence that
    is nearest to the word is taken; mentions have other blanks than the text, or the full stop behind them; and of
    one that does not occur at all ("Kamenev and Zinoviev", of a text with more between the two), as many words as
    it has are taken from the numbered one on.
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


READERS: dict[str, Callable[[dict[str, Any], str], tuple[TextPart, ...]]] = {"wic": wic_spans, "wsc": wsc_spans}
