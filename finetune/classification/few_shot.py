"""Which examples a few-shot experiment trains on, and which choose its checkpoint."""

import numpy as np

from electra_tf2.util.errors import UserError

FEW_SHOT_DEV = "few_shot_dev"  # K examples of each label, of the training data, beside the K that train


def few_shot_split(groups: np.ndarray, size: int, seed: int) -> tuple[list[int], list[int]]:
    """Training and development examples of a few-shot experiment (LM-BFF, section 3): disjoint, a function of the seed.

    Args:
      groups: int64 [examples], the label's number of each.
      size: K, examples of each label in either split.

    Raises:
      UserError: a label has fewer than 2 K examples.
    """
    order = np.random.default_rng(seed).permutation(len(groups))
    train, dev = [], []
    for group in np.unique(groups):
        members = [int(i) for i in order if groups[i] == group]
        if len(members) < 2 * size:
            raise UserError(
                f"few_shot {size} needs {2 * size} training examples of each label, half of them to choose the best "
                f"checkpoint; one has {len(members)}"
            )
        train += members[:size]
        dev += members[size : 2 * size]
    return train, dev
