"""A word is drawn with all its pieces: a token and the "##" pieces after it (whole-word masking of BERT's authors)."""

from collections.abc import Callable

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.pmi_vocabulary import pieces_of
from electra_tf2.pretrain.masking import Proposal


def make(config: PretrainingConfig) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Proposal]:
    continues = pieces_of(config.vocab_file).continues

    def propose(input_ids: tf.Tensor, candidates: tf.Tensor, noise: tf.Tensor) -> Proposal:
        del candidates, noise  # special tokens continue no word, so they keep units apart
        return Proposal(units=numbered(begins_word(continues, input_ids)))

    return propose


def begins_word(continues: object, input_ids: tf.Tensor) -> tf.Tensor:
    """bool [B, L], from bool [V]: which tokens begin with "##"."""
    return ~tf.gather(tf.constant(continues), input_ids)


def numbered(begins: tf.Tensor) -> tf.Tensor:
    """int32 [B, L] from 0: the number of the unit that each token is in, of units that begin where `begins` is true."""
    return tf.maximum(tf.cumsum(tf.cast(begins, tf.int32), axis=-1), 1) - 1
