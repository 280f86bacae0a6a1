"""Cells of tables in the type of their field: truths, whole numbers, lists."""

import ast
import re
from typing import Any, Literal

from electra_tf2.files.reading import parse_json
from electra_tf2.util.errors import UserError, shown

_ARRAY = re.compile(r"\barray\((\[.*?\])(?:, dtype=[\w.'<>|]+)?\)", re.DOTALL)  # as numpy prints one
_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def cell(row: dict[str, Any], name: str, kind: Literal["truth", "list", "whole"], where: str) -> Any:
    """The value of a field in the type that the field has; None where it is missing or empty.

    Every cell of a delimited table is text, and so are many values in JSON: "False" is no truth, "[1, 2]" no list.
    Fields that are anything else than text are read through here, whatever the format.

    Args:
      kind: "truth" gives a bool, "list" a list or an object (also as Python prints one), "whole" an integer.

    Raises:
      UserError: a value of another type.
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
    """The list or object that a text spells, in JSON or as Python prints one (pandas writes such cells), arrays of
    numpy among them."""
    try:
        return parse_json(text, what, object)
    except UserError as error:
        if "'" not in text:
            raise
        try:
            return ast.literal_eval(_ARRAY.sub(r"\1", text))
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise error from None
