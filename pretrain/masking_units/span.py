"""A span of whole words is drawn together, of 1 to 10 words, short ones oftener (SpanBERT, Joshi et al. 2020, 3.1).

SpanBERT draws span after span, each at a random word, until enough is masked. Here each sequence is cut into spans of
random length at random places, and some of them are drawn: the lengths have the same distribution, every word is in one
span, and no span has to be drawn again because another one covers its place.
"""

import math
from collections.abc import Callable

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.pmi_vocabulary import pieces_of
from electra_tf2.pretrain.masking import Proposal
from electra_tf2.pretrain.masking_units.whole_word import begins_word, numbered

ENDS = 0.2  # probability that a span ends after a word, the parameter of SpanBERT's geometric distribution
LONGEST = 10  # words; longer ones are drawn again
_BEFORE = 2 * LONGEST  # the cutting begins so many words before a sequence, so that it begins anywhere in a span


def span_lengths(noise: tf.Tensor) -> tf.Tensor:
    """int32 of the shape of uniform draws: geometric, given that it is at most LONGEST; 3.8 on average."""
    below = 1.0 - noise * (1.0 - (1.0 - ENDS) ** LONGEST)
    return tf.clip_by_value(1 + tf.cast(tf.math.log(below) / math.log(1.0 - ENDS), tf.int32), 1, LONGEST)


def make(config: PretrainingConfig) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Proposal]:
    continues = pieces_of(config.vocab_file).continues

    def propose(input_ids: tf.Tensor, candidates: tf.Tensor, noise: tf.Tensor) -> Proposal:
        rows, length = tf.shape(input_ids)[0], input_ids.shape[1]
        begins = begins_word(continues, input_ids)
        words = numbered(begins)
        # Which words begin a span: those where the lengths before add up to their number.
        ends = tf.cumsum(span_lengths(noise), axis=-1) - _BEFORE
        outside = rows * length
        flat = tf.where((ends >= 0) & (ends < length), ends + tf.range(rows)[:, tf.newaxis] * length, outside)
        cuts = tf.math.unsorted_segment_sum(tf.ones_like(flat), flat, outside + 1)[:outside]
        begins_span = tf.gather(tf.reshape(cuts, [-1, length]), words, batch_dims=1) > 0
        # Special tokens stand alone: a span ends before them, and another one begins after them.
        alone = candidates == 0
        after = tf.pad(alone[:, :-1], [[0, 0], [1, 0]])
        return Proposal(units=numbered(begins & begins_span | alone | after))

    return propose
