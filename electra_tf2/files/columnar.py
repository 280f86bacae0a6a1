"""Reads parquet and Arrow files, as Hugging Face's `datasets`, Spark and pandas write them (with pyarrow)."""

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from electra_tf2.files.content import is_compressed, opened_raw
from electra_tf2.util.errors import UserError, reason

_BATCH = 1000  # rows that are converted to Python objects at a time


def read_columnar(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yields the rows of a file. Class ids of `datasets` become the names of the classes, -1 becomes None.

    Args:
      columns: the columns to read; None: all. A column that the file lacks is missing in the rows.

    Raises:
      UserError: pyarrow is not installed, or the file cannot be read.
    """
    try:
        import pyarrow as arrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        raise UserError(f"{path}: parquet and Arrow files need pyarrow: pip install pyarrow") from None
    if is_compressed(path):
        raise UserError(f"{path}: unpack it: parquet and Arrow files are compressed within and read as they are")
    try:
        with opened_raw(path) as file:
            start = file.read(6)
        if start.startswith(b"PAR1") or os.fspath(path).lower().endswith(".parquet"):
            with arrow.parquet.ParquetFile(path) as table:
                names = _column_names(table.schema_arrow, columns, path)
                class_names = _names_of_classes(table.schema_arrow, path)
                for batch in table.iter_batches(_BATCH, columns=names):
                    yield from _with_class_names(batch.to_pylist(), class_names)
            return
        with arrow.memory_map(os.fspath(path)) as source:
            if start == b"ARROW1":
                reader = arrow.ipc.open_file(source)
                batches = map(reader.get_batch, range(reader.num_record_batches))
            else:  # a stream, which `datasets` writes
                reader = arrow.ipc.open_stream(source)
                batches = iter(reader)
            names = _column_names(reader.schema, columns, path)
            class_names = _names_of_classes(reader.schema, path)
            for batch in batches:  # their size was chosen by whoever wrote the file, and may be huge
                for first in range(0, batch.num_rows, _BATCH):
                    rows = batch.select(names).slice(first, _BATCH).to_pylist()
                    yield from _with_class_names(rows, class_names)
    except UserError:  # a ValueError, too
        raise
    # OverflowError: a date beyond Python's years. ValueError: text that is no UTF-8.
    except (arrow.ArrowException, OSError, OverflowError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) and error.errno else error
        raise UserError(f"{path} cannot be read: {why}") from None


def _column_names(schema: Any, columns: Sequence[str] | None, path: str | os.PathLike[str]) -> list[str]:
    """Lists the columns to read. Raises UserError: one is there twice."""
    names = schema.names
    if columns is not None:
        names = [name for name in names if name in columns]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{path}: the column {name!r} is there twice: give the two different names")
    return names


def _names_of_classes(schema: Any, path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Reads what `datasets` stores in a schema: the names of the classes of each column that holds their ids.

    Raises:
      UserError: it is no JSON.
    """
    stored = (schema.metadata or {}).get(b"huggingface", b"{}")
    try:
        features = json.loads(stored)["info"]["features"]
        columns = list(features.items())
    except ValueError:
        raise UserError(f"{path}: its metadata `huggingface` is no JSON: write the file anew") from None
    except (AttributeError, KeyError, TypeError):
        return {}  # another program's
    result = {}
    for column, feature in columns:
        names = _class_names(feature)
        if names:
            result[column] = names
    return result


def _with_class_names(rows: list[dict[str, Any]], class_names: dict[str, list[str]]) -> list[dict[str, Any]]:
    """Replaces ids of classes, also those in lists, by their names.

    Args:
      class_names: column -> names of the classes in the order of their ids.
    """
    for column, names in class_names.items():
        for row in rows:
            if isinstance(row.get(column), list):
                row[column] = [_class_name(value, names) for value in row[column]]
            elif column in row:
                row[column] = _class_name(row[column], names)
    return rows


def _class_names(feature: Any) -> list[str]:
    """Names of the classes of a column, or of a list in it; [] if it holds no ids of classes."""
    if isinstance(feature, list) and feature:
        return _class_names(feature[0])
    if not isinstance(feature, dict):
        return []
    if feature.get("_type") == "ClassLabel":
        return feature.get("names") or []
    return _class_names(feature.get("feature"))


def _class_name(value: Any, names: list[str]) -> Any:
    if type(value) is not int:
        return value
    if 0 <= value < len(names):
        return names[value]
    return None  # -1: no class
