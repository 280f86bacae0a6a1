"""The table of On Losses' TF-IDF: in how many records each token occurs, for inverse document frequencies."""

from functools import partial

import numpy as np

from electra_tf2.papers.counts import Counted, TableInputs, TableKind, counted, read_table, write_table

DOCUMENT_FREQUENCY = "document_frequency"


def count_documents(ids: np.ndarray, vocab_size: int) -> Counted:
    """Counts, in records of ids [R, L], how many hold each token; totals: int64 [V + 1], these counts, and R."""
    rows = np.repeat(np.arange(len(ids)), ids.shape[1])
    # (row, token) as one number, each pair once.
    tokens_by_row = np.unique(rows * vocab_size + ids.reshape(-1).astype(np.int64))
    holding = np.bincount(tokens_by_row % vocab_size, minlength=vocab_size)
    totals = np.append(holding, len(ids)).astype(np.int64)
    nothing = np.empty(0, np.int64)
    return Counted(nothing, nothing, totals)


def inverse_frequencies(path: str, vocab_file: str) -> np.ndarray:
    """float32 [V]: log(documents / documents that hold the token); for a token that none holds, as if one did.

    Raises:
      UserError: the file is no table of this kind, or of another vocabulary.
    """
    arrays = read_table(path, "document_frequency_file", DOCUMENT_FREQUENCY, vocab_file)
    return np.log(arrays["documents"] / np.maximum(arrays["holding"], 1)).astype(np.float32)


def build(inputs: TableInputs, output: str) -> str:
    """Counts and writes the table; returns a description of its content for the user."""
    count_in = partial(count_documents, vocab_size=len(inputs.tokens))
    with counted(inputs, count_in, len(inputs.tokens), inputs.record_format.length) as (totals, _):
        arrays = {"holding": totals[:-1], "documents": totals[-1:]}
        write_table(output, DOCUMENT_FREQUENCY, inputs.vocab_file, arrays)
    return f"{int((totals[:-1] > 0).sum()):,} tokens occur in {totals[-1]:,} records"


TABLES = {DOCUMENT_FREQUENCY: TableKind("records that hold each token (On Losses: auxiliary task tf_idf)", build)}
