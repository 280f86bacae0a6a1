"""Rows of parquet and Arrow files, as Hugging Face's `datasets`, Spark and pandas write them (with pyarrow)."""

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from electra_tf2.files.content import opened_raw
from electra_tf2.util.errors import UserError, reason

_BATCH = 1000  # rows that are Python objects at a time


def read_columnar(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """The rows of a file; numbers of `datasets`' classes as their names, -1 as None.

    Args:
      columns: those that are read; None: all. One that is not there is missing in the rows.

    Raises:
      UserError: no pyarrow; a file that cannot be read.
    """
    try:
        import pyarrow as arrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        raise UserError(f"{path}: parquet and Arrow files need pyarrow: pip install pyarrow") from None
    try:
        with opened_raw(path) as file:
            start = file.read(6)
        if start.startswith(b"PAR1") or os.fspath(path).lower().endswith(".parquet"):
            with arrow.parquet.ParquetFile(path) as table:
                kept = _kept(table.schema_arrow, columns)
                for batch in table.iter_batches(_BATCH, columns=kept):
                    yield from _named(batch.to_pylist(), table.schema_arrow)
            return
        with arrow.memory_map(os.fspath(path)) as source:
            if start == b"ARROW1":
                reader = arrow.ipc.open_file(source)
                batches = map(reader.get_batch, range(reader.num_record_batches))
            else:  # a stream, as `datasets` writes
                reader = arrow.ipc.open_stream(source)
                batches = iter(reader)
            kept = _kept(reader.schema, columns)
            for batch in batches:  # of any size, since whoever wrote the file chose it
                for first in range(0, batch.num_rows, _BATCH):
                    yield from _named(batch.select(kept).slice(first, _BATCH).to_pylist(), reader.schema)
    except (arrow.ArrowException, OSError) as error:
        why = reason(error) if isinstance(error, OSError) and error.errno else error
        raise UserError(f"{path} cannot be read: {why}") from None


def _kept(schema: Any, columns: Sequence[str] | None) -> list[str]:
    if columns is None:
        return schema.names
    return [name for name in schema.names if name in columns]


def _named(rows: list[dict[str, Any]], schema: Any) -> list[dict[str, Any]]:
    """The rows with the names of classes for their numbers, those in lists, too."""
    described = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    features = described.get("info", {}).get("features", {}) if isinstance(described, dict) else {}
    for column, feature in features.items():
        names = _class_names(feature)
        if not names:
            continue
        for row in rows:
            if isinstance(row.get(column), list):
                row[column] = [_class_name(value, names) for value in row[column]]
            elif column in row:
                row[column] = _class_name(row[column], names)
    return rows


def _class_names(feature: Any) -> list[str]:
    """The names of the classes that a column, or a list in it, is of; [] for any other column."""
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
    return names[value] if 0 <= value < len(names) else None
