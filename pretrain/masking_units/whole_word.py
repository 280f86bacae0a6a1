"""A word is drawn with all its pieces: a token and the "##" pieces after it (whole-word masking of BERT's authors)."""

import functools

import numpy as np
import tensorflow as tf

from configure_pretraining import PretrainingConfig
from corpus.vocabulary import load_vocab
from pretrain.masking import Proposal


@functools.cache
def _continues_a_word(vocab_file: str) -> np.ndarray:
    """bool [V]."""
    return np.array([token.startswith("##") for token in load_vocab(vocab_file)])


def propose(config: PretrainingConfig, input_ids: tf.Tensor, candidates: tf.Tensor) -> Proposal:
    del candidates  # special tokens continue no word, so they keep units apart
    continues = tf.gather(tf.constant(_continues_a_word(config.vocab_file)), input_ids)
    return Proposal(units=tf.maximum(tf.cumsum(tf.cast(~continues, tf.int32), axis=-1), 1) - 1)
