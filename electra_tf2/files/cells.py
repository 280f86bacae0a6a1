"""Converts cells of tables to the type of their field: true or false, whole numbers, lists."""

import ast
import datetime
import decimal
import io
import math
import re
import tokenize
import unicodedata
from typing import Any, Literal

from electra_tf2.files.reading import parse_json
from electra_tf2.util.errors import UserError, shown

_ARRAY = re.compile(r"\barray\((\[.*?\])(?:, dtype=[\w.'<>|]+)?\)", re.DOTALL)  # as numpy prints one
_FAILED_LOOKUP = "#n/a"  # of a spreadsheet
_NO_LABELS = ("", "-", "nan", "<na>", "nat", "\\n", _FAILED_LOOKUP)  # in lower case; "\\n" is the \N of MySQL and Hive
_NO_NUMBERS = ("na", "n/a", "null", "none", "?")  # in lower case
_WHOLE_FLOAT = re.compile(r"-?\d+\.0")
_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def cell(row: dict[str, Any], name: str, kind: Literal["truth", "list", "whole"], where: str) -> Any:
    """The value of a field, converted to the field's type; None if it is missing or empty.

    In a delimited table every cell is text, and in JSON many values are: "False", "[1, 2]". All fields that are not
    texts are read through this function.

    Args:
      kind: "truth" gives a bool, "whole" an integer, "list" a list or an object (also as Python prints one).
      where: file and line, for messages.

    Raises:
      UserError: the value is of another type.
    """
    value = row.get(name)
    if isinstance(value, str):
        value = value.strip()
    if value is None or value == "" or value != value:  # NaN is unequal to itself: pandas' missing value
        return None
    if kind == "truth":
        truth = _TRUTHS.get(str(value).lower().removesuffix(".0"))
        if truth is None:
            raise UserError(f"{where}: {name} must be true or false, got {shown(value)}")
        return truth
    if kind == "whole":
        try:
            number = float(value)
            if number != int(number) or isinstance(value, bool):
                raise ValueError
        except (OverflowError, TypeError, ValueError):
            raise UserError(f"{where}: {name} must be a whole number, got {shown(value)}") from None
        return int(number)
    if isinstance(value, str) and value.startswith(("[", "{")):
        return _literal(value, f"{where}: {name}")
    return value


def _literal(text: str, what: str) -> Any:
    """Parses a list or object from JSON, or as Python or numpy prints one, since pandas writes such cells."""
    try:
        return parse_json(text, what, object)
    except UserError as error:
        try:
            return ast.literal_eval(_with_commas(_ARRAY.sub(r"\1", text)))
        except (ValueError, SyntaxError, tokenize.TokenError, MemoryError, RecursionError):
            raise error from None


def _with_commas(text: str) -> str:
    """Puts commas between the elements of numpy's arrays, which prints ['B-PER' 'O']: Python would join such texts."""
    pieces: list[str] = []
    ends_element = False
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_element = token.type in (tokenize.STRING, tokenize.NUMBER)
        if is_element and ends_element:
            pieces.append(",")
        pieces.append(token.string)
        if token.type != tokenize.NL:  # an array may go on in the next line
            ends_element = is_element
    return " ".join(pieces)


def is_null(value: Any) -> bool:
    """Tells whether a value is None or NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def is_no_label(value: Any) -> bool:
    """Tells whether a value marks a missing label: None, empty text, a dash, NaN, or what databases and spreadsheets
    write for it. Not -1, nor the texts "NA" and "None", which may be classes."""
    if is_null(value) or value == []:
        return True
    return isinstance(value, str) and value.strip().lower() in _NO_LABELS


def is_no_number(value: Any) -> bool:
    """Tells whether a value marks a missing number: a missing label, or a text that may be a class, but no number."""
    return is_no_label(value) or (isinstance(value, str) and value.strip().lower() in _NO_NUMBERS)


def label_text(value: Any) -> str | None:
    """Makes a class's name of a label in a file; None of a value of another type.

    A label is a text, a number, a bool, a date, or a list of one of these, as doccano writes it. Different spellings
    give one name: with white space around it, with composed or decomposed accents (Unicode's NFC and NFD), 1.0 for 1,
    since pandas writes the whole numbers of a column with gaps so, and True, TRUE and true.
    """
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    if isinstance(value, (bool, datetime.date)):
        value = str(value)
    if isinstance(value, decimal.Decimal):
        value = float(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, (str, int, float)):
        return None
    text = unicodedata.normalize("NFC", str(value).strip())
    if text.lower() in ("true", "false"):
        return text.lower()
    if _WHOLE_FLOAT.fullmatch(text):  # a cell of a csv, which is text
        return text.removesuffix(".0")
    return text


def is_failed_lookup(value: Any) -> bool:
    """True for what a spreadsheet writes where a lookup found nothing."""
    return isinstance(value, str) and value.strip().lower() == _FAILED_LOOKUP
