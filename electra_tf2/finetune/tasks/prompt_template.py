"""Template and label words of a prompt: "{0:trim} ? [MASK] , {1:lower}" with Yes, Maybe and No (LM-BFF, Table 1)."""

import re
import string
from collections.abc import Mapping
from typing import Any, NamedTuple

from electra_tf2.settings.built_in import Prompt
from electra_tf2.util.errors import UserError, shown

MASK = "[MASK]"
_MODIFIERS = ("", "trim", "lower")


class Field(NamedTuple):
    """A place in the template for one of the example's texts.

    modifier: "trim" drops the text's last character, "lower" writes its first letter in lower case, "" changes nothing.
    """

    text_index: int
    modifier: str

    def filled(self, texts: tuple[str, ...]) -> str:
        """Makes the text that stands there."""
        text = texts[self.text_index].strip()
        if self.modifier == "trim":
            return text[:-1]
        if self.modifier == "lower":
            return text[:1].lower() + text[1:]
        return text


Part = str | Field  # [MASK] or other words that all prompts of a task share, or a text of the example


def parse_template(template: str) -> list[Part]:
    """Splits a template such as "{0:trim} ? [MASK] , {1:lower}" into its words, [MASK] and fields.

    Raises:
      UserError: no or several [MASK], an unknown field or modifier, a field twice, unbalanced braces.
    """
    where = f"prompt_template: {template!r}"
    try:
        # Each is the words before a field, the field's name and its modifier; the name is None behind the last field.
        parsed = list(string.Formatter().parse(template))
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None
    parts: list[Part] = []
    for text, name, modifier, _ in parsed:
        for words in re.split(f"({re.escape(MASK)})", text):
            if words.strip():
                parts.append(words.strip())
        if name is None:
            continue
        if name not in ("0", "1") or modifier not in _MODIFIERS:
            raise UserError(f"{where}: fields are {{0}} and {{1}}, {{0:trim}}, {{0:lower}}, ...; got {{{name}}}")
        if any(isinstance(part, Field) and part.text_index == int(name) for part in parts):
            raise UserError(f"{where}: {{{name}}} may occur once")
        parts.append(Field(int(name), modifier or ""))
    if parts.count(MASK) != 1:
        raise UserError(f"{where}: {MASK} must occur once")
    if not any(isinstance(part, Field) for part in parts):
        raise UserError(f"{where}: it has no field for a text: {{0}}")
    return parts


def prompt_of(task: str, known: Prompt | None, template: str, words: Mapping[str, Any]) -> Prompt:
    """Takes template and label words from the hparams, or those known for the task.

    Raises:
      UserError: neither the hparams nor the task have one of them; a word is not text.
    """
    for label, word in words.items():
        if not isinstance(word, str):
            raise UserError(f"prompt_words: {task}: the word of {label} must be text, got {shown(word)}")
    if not (template or known) or not (words or known):
        raise UserError(
            f"prompt: there is no known prompt for {task}: give prompt_template, such as '{{0}} It was [MASK] .', and "
            'prompt_words, such as {"negative": "terrible", "positive": "great"}'
        )
    if known is None:
        return Prompt(template, dict(words))
    return Prompt(template or known.template, dict(words) or known.words)
