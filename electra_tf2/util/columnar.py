"""Tables by column: parquet files, Arrow files, and folders that Hugging Face's `datasets` saves. Needs pyarrow."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from electra_tf2.util.errors import UserError, reason

SUFFIXES = (".parquet", ".arrow")
BESIDE = ("dataset_info.json", "state.json", "dataset_dict.json")  # what `datasets` writes beside its Arrow files
_BATCH = 1000  # rows that are Python objects at a time


def is_columnar(path: str | os.PathLike[str]) -> bool:
    """Tells whether a path is such a file, by its name, or a folder of such files."""
    return str(path).lower().endswith(SUFFIXES) or bool(files_of(path))


def files_of(path: str | os.PathLike[str]) -> list[Path]:
    """The files of a folder of such; [] for anything else."""
    folder = Path(path)
    return sorted(one for one in folder.iterdir() if one.suffix in SUFFIXES) if folder.is_dir() else []


def read_rows(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """The rows of a file or folder; numbers of `datasets`' classes as their names, -1 as None.

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
    for file in files_of(path) or [Path(path)]:
        try:
            if file.suffix.lower() == ".parquet":
                with arrow.parquet.ParquetFile(file) as table:
                    schema = table.schema_arrow
                    kept = None if columns is None else [name for name in schema.names if name in columns]
                    for batch in table.iter_batches(_BATCH, columns=kept):
                        yield from _named(batch.to_pylist(), schema)
                continue
            with arrow.memory_map(str(file)) as source:
                is_stream = source.read(6) != b"ARROW1"  # `datasets` writes streams, others may write files
                source.seek(0)
                reader = arrow.ipc.open_stream(source) if is_stream else arrow.ipc.open_file(source)
                batches = reader if is_stream else map(reader.get_batch, range(reader.num_record_batches))
                for batch in batches:
                    kept = [name for name in reader.schema.names if columns is None or name in columns]
                    for start in range(0, batch.num_rows, _BATCH):
                        yield from _named(batch.select(kept).slice(start, _BATCH).to_pylist(), reader.schema)
        except (arrow.ArrowException, OSError) as error:
            why = reason(error) if isinstance(error, OSError) and error.errno else error
            raise UserError(f"{file} cannot be read: {why}") from None


def _named(rows: list[dict[str, Any]], schema: Any) -> list[dict[str, Any]]:
    """The rows with the names of classes for their numbers."""
    described = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    features = described.get("info", {}).get("features", {}) if isinstance(described, dict) else {}
    classes = {
        name: feature["names"]
        for name, feature in features.items()
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" and feature.get("names")
    }
    for name, names in classes.items():
        for row in rows:
            number = row.get(name)
            if type(number) is int:
                row[name] = names[number] if 0 <= number < len(names) else None
    return rows
