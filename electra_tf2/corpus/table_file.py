"""Tables counted over records, as files: arrays of numpy beside the checksum of the vocabulary whose ids they hold.

build_table.py writes them, pre-training reads them. A table of another vocabulary would be silently wrong in every
entry, so reading compares the checksums. The smallest of them is counted here: how many records hold each token, for
inverse document frequencies of TF-IDF ("On Losses", auxiliary task).
"""

import os
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from electra_tf2.corpus.key_counts import Counted
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
    except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile) as error:  # TypeError: a single array
        why = reason(error) if isinstance(error, OSError) else str(error)
        raise UserError(f"{hparam}: {path!r} cannot be read ({why}); {hint}") from None
    if str(arrays.pop(_KIND, "")) != kind:
        raise UserError(f"{hparam}: {path!r} is no table of this kind; {hint}")
    if str(arrays.pop(_VOCABULARY, "")) != vocab_sha256(vocab_file):
        raise UserError(f"{hparam}: {path!r} was counted with another vocabulary than {vocab_file}; {hint}")
    return arrays


DOCUMENT_FREQUENCY = "document_frequency"


def count_documents(ids: np.ndarray, vocab_size: int) -> Counted:
    """totals: int64 [V + 1], records of ids [R, L] that hold each token, and R."""
    rows = np.repeat(np.arange(len(ids)), ids.shape[1])
    distinct = np.unique(rows * vocab_size + ids.reshape(-1).astype(np.int64)) % vocab_size
    totals = np.append(np.bincount(distinct, minlength=vocab_size), len(ids)).astype(np.int64)
    return Counted(np.empty(0, np.int64), np.empty(0, np.int64), totals)


def write_frequencies(path: str, totals: np.ndarray, vocab_file: str) -> None:
    """Writes the totals of `count_documents`."""
    write_table(path, DOCUMENT_FREQUENCY, vocab_file, {"holding": totals[:-1], "documents": totals[-1:]})


def inverse_frequencies(path: str, vocab_file: str) -> np.ndarray:
    """float32 [V]: log(documents / documents that hold the token); of a token that none holds, as if one did.

    Raises:
      UserError: the file is no table of this kind, or of another vocabulary.
    """
    arrays = read_table(path, "document_frequency_file", DOCUMENT_FREQUENCY, vocab_file)
    return np.log(arrays["documents"] / np.maximum(arrays["holding"], 1)).astype(np.float32)
