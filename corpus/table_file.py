"""Tables counted over records, as files: arrays of numpy beside the checksum of the vocabulary whose ids they hold.

build_table.py writes them, pre-training reads them. A table of another vocabulary would be silently wrong in every
entry, so reading compares the checksums.
"""

import os
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from electra_tf2.corpus.vocabulary import vocab_sha256
from electra_tf2.util.errors import UserError, reason
from electra_tf2.util.files import replacing

_VOCABULARY, _KIND = "vocab_sha256", "kind"


def write_table(path: str | os.PathLike[str], kind: str, vocab_file: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes a table whole or not at all. Raises UserError as `util.files.writing`."""
    own = {_KIND: np.array(kind), _VOCABULARY: np.array(vocab_sha256(vocab_file))}
    save: Any = np.savez_compressed
    with replacing(path) as temporary, open(temporary, "wb") as file:
        save(file, **own, **arrays)


def read_table(path: str, hparam: str, kind: str, vocab_file: str) -> dict[str, np.ndarray]:
    """The arrays of a table.

    Args:
      hparam: that names the file. kind: what `write_table` was given; build_table.py makes it.

    Raises:
      UserError: there is no such file, it is no table of this kind, or one of another vocabulary.
    """
    hint = f"make it with electra build-table {kind}"
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise UserError(f"{hparam}: {path!r} does not exist; {hint}") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        why = reason(error) if isinstance(error, OSError) else str(error)
        raise UserError(f"{hparam}: {path!r} cannot be read ({why}); {hint}") from None
    if str(arrays.pop(_KIND, "")) != kind:
        raise UserError(f"{hparam}: {path!r} is no table of this kind; {hint}")
    if str(arrays.pop(_VOCABULARY, "")) != vocab_sha256(vocab_file):
        raise UserError(f"{hparam}: {path!r} was counted with another vocabulary than {vocab_file}; {hint}")
    return arrays
