"""Every token is drawn for itself (BERT, ELECTRA)."""

from collections.abc import Callable

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.masking import Proposal


def make(config: PretrainingConfig) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Proposal]:
    del config
    return lambda input_ids, candidates, noise: Proposal()
