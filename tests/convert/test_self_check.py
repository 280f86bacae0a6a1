"""The measure of self-checks."""

import numpy as np
import pytest

from electra_tf2.corpus.encoding import Encoded
from electra_tf2.exports import self_check as check


@pytest.mark.parametrize(("size", "expected"), [(20.0, 1e-6), (1.0, 2e-5), (0.1, 2e-5)])
def test_differences_are_shares_of_the_largest_value_where_that_is_above_1(size: float, expected: float) -> None:
    """Float32 rounds in proportion: 2e-5 is nothing beside logits of 20, and a fault beside states of 1."""
    rows = Encoded(*(np.ones([1, 2], np.int32) for _ in range(3)))
    ours = {"logits": np.array([[[size, 0.0], [0.0, -size]]])}
    theirs = {"logits": ours["logits"] + [[[0.0, 2e-5], [0.0, 0.0]]]}
    assert check.largest_at_tokens(ours, theirs, rows) == pytest.approx(expected)


def test_what_is_beyond_a_rows_end_does_not_count() -> None:
    rows = Encoded(np.ones([1, 2], np.int32), np.array([[1, 0]], np.int32), np.zeros([1, 2], np.int32))
    ours = {"states": np.zeros([1, 2, 3])}
    assert check.largest_at_tokens(ours, {"states": np.array([[[0.0] * 3, [9.0] * 3]])}, rows) == 0.0
    assert check.largest_at_tokens(ours, {"states": np.array([[[0.5] * 3, [9.0] * 3]])}, rows) == 0.5
