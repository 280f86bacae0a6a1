"""Shared by the tests of MPA."""

import numpy as np

from electra_tf2.papers.mpa.tables import NOBODY


def dense(table):
    """float64 [V, V]: the score of every pair."""
    whole = np.zeros([len(table.neighbours)] * 2)
    rows, places = np.nonzero(table.neighbours != NOBODY)
    whole[rows, table.neighbours[rows, places]] = table.scores[rows, places]
    return whole
