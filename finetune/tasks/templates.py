"""Prompts: a template that turns one or two texts into a cloze sentence, and a word for each label. No TensorFlow."""

import string
from collections.abc import Mapping
from typing import Any, NamedTuple

from electra_tf2.util.errors import UserError, shown

MASK = "[MASK]"
_MODIFIERS = ("", "trim", "lower")


class Literal(NamedTuple):
    """Words that every prompt has."""

    text: str


class Field(NamedTuple):
    """A text of the example. modifier "trim": without its last character; "lower": its first letter in lower case."""

    number: int
    modifier: str

    def of(self, texts: tuple[str, ...]) -> str:
        text = texts[self.number].strip()
        if self.modifier == "trim":
            return text[:-1]
        if self.modifier == "lower":
            return text[:1].lower() + text[1:]
        return text


class Mask(NamedTuple):
    """Where the label's word belongs."""


Part = Literal | Field | Mask


def parse_template(template: str) -> list[Part]:
    """The parts of a template such as "{0:trim} ? [MASK] , {1:lower}".

    Raises:
      UserError: not one [MASK], an unknown field or modifier, a field twice, unbalanced braces.
    """
    where = f"prompt_template: {template!r}"
    try:
        pieces = list(string.Formatter().parse(template))
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None
    parts: list[Part] = []
    for text, name, modifier, _ in pieces:
        for i, literal in enumerate(text.split(MASK)):
            if i:
                parts.append(Mask())
            if literal.strip():
                parts.append(Literal(literal.strip()))
        if name is None:
            continue
        if name not in ("0", "1") or modifier not in _MODIFIERS:
            raise UserError(f"{where}: fields are {{0}} and {{1}}, {{0:trim}}, {{0:lower}}, ...; got {{{name}}}")
        if any(isinstance(part, Field) and part.number == int(name) for part in parts):
            raise UserError(f"{where}: {{{name}}} may occur once")
        parts.append(Field(int(name), modifier or ""))
    if sum(isinstance(part, Mask) for part in parts) != 1:
        raise UserError(f"{where}: {MASK} must occur once")
    if not any(isinstance(part, Field) for part in parts):
        raise UserError(f"{where}: it has no field for a text: {{0}}")
    return parts


class Prompt(NamedTuple):
    """A template, and label name -> word; the words of a regression's ends are under "low" and "high"."""

    template: str
    words: Mapping[str, str]


PAIR, EQUAL = "{0:trim} ? [MASK] , {1:lower}", "{0} [MASK] , {1:lower}"


def prompt_of(task: str, known: Prompt | None, template: str, words: Mapping[str, Any]) -> Prompt:
    """The prompt that hparams give, or the one known for the task.

    Raises:
      UserError: neither; a word that is no text.
    """
    for label, word in words.items():
        if not isinstance(word, str):
            raise UserError(f"prompt_words: {task}: the word of {label} must be text, got {shown(word)}")
    if not (template or known) or not (words or known):
        raise UserError(
            f"prompt: there is no known prompt for {task}: give prompt_template, such as '{{0}} It was [MASK] .', and "
            'prompt_words, such as {"negative": "terrible", "positive": "great"}'
        )
    default = known or Prompt("", {})
    return Prompt(template or default.template, dict(words) or default.words)
