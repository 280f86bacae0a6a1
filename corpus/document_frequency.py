"""Number of records that hold each token: inverse document frequencies of TF-IDF ("On Losses", auxiliary task)."""

import numpy as np

from electra_tf2.corpus.key_counts import Counted
from electra_tf2.corpus.table_file import read_table, write_table

KIND = "document_frequency"


def count_documents(ids: np.ndarray, vocab_size: int) -> Counted:
    """totals: int64 [V + 1], records of ids [R, L] that hold each token, and R."""
    rows = np.repeat(np.arange(len(ids)), ids.shape[1])
    distinct = np.unique(rows * vocab_size + ids.reshape(-1).astype(np.int64)) % vocab_size
    totals = np.append(np.bincount(distinct, minlength=vocab_size), len(ids)).astype(np.int64)
    return Counted(np.empty(0, np.int64), np.empty(0, np.int64), totals)


def write_frequencies(path: str, totals: np.ndarray, vocab_file: str) -> None:
    """Writes the totals of `count_documents`."""
    write_table(path, KIND, vocab_file, {"holding": totals[:-1], "documents": totals[-1:]})


def inverse_frequencies(path: str, vocab_file: str) -> np.ndarray:
    """float32 [V]: log(documents / documents that hold the token); of a token that none holds, as if one did.

    Raises:
      UserError: the file is no table of this kind, or of another vocabulary.
    """
    arrays = read_table(path, "document_frequency_file", KIND, vocab_file)
    return np.log(arrays["documents"] / np.maximum(arrays["holding"], 1)).astype(np.float32)
