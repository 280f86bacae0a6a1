"""Texts in which a generator replaced some words: ELECTRA's corruption of text, as negatives of sentences.

A word that is likely in its place and is not the one that stood there is hardest to tell apart for vectors of
sentences (`electra build-pairs --negatives`).
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from electra_tf2.corpus.encoding import by_length, padded, rows_of
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.inference.network import Network, graph_of_any_shape
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import Progress

_BATCH, _MAX_LENGTH = 256, 64  # texts of a pass; tokens of a text, of which more are left out


def replaced_texts(
    network: Network, tokenizer: WordpieceTokenizer, texts: Sequence[str], share: float, seed: int
) -> list[str]:
    """Texts as the tokenizer normalises them, with up to `share` of their wordpieces replaced, one at least.

    Raises:
      UserError: the network has no masked language model.
    """
    model = network.language_model
    if model is None:
        raise UserError("a model with a generator or a masked language model is needed to replace words")

    def sampled(ids: tf.Tensor, mask: tf.Tensor, segments: tf.Tensor, places: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        logits = model(tf.gather(network.filler(ids, mask, segments).sequence, places, batch_dims=1))
        uniform = tf.random.stateless_uniform(tf.shape(logits), noise, 1e-9, 1.0)
        return tf.argmax(logits - tf.math.log(-tf.math.log(uniform)), -1, tf.int32)  # a sample, by Gumbel's trick

    graph, random = graph_of_any_shape(sampled), np.random.default_rng(seed)
    rows, special = rows_of(tokenizer, texts, _MAX_LENGTH), tokenizer.special
    found = [""] * len(rows)
    with Progress("replacing words: text", len(rows)) as progress:
        for number, chosen in enumerate(by_length([len(row.input_ids) for row in rows], _BATCH)):
            inputs = padded([rows[place] for place in chosen], special)
            inside = np.arange(inputs.input_ids.shape[1]) < inputs.lengths[:, np.newaxis] - 1
            inside[:, 0] = False
            most = max(1, round(share * int(inside.sum(1).max())))
            order = np.argsort(np.where(inside, random.random(inside.shape), 2), 1)[:, :most].astype(np.int32)
            here = np.arange(len(chosen))[:, np.newaxis]
            used = np.arange(most) < random.integers(1, most + 1, [len(chosen), 1])
            used &= inside[here, order]
            masked = inputs.input_ids.copy()
            masked[here, order] = np.where(used, special.mask, masked[here, order])
            noise = np.array([seed, number], np.int32)
            samples = graph(masked, inputs.input_mask, inputs.segment_ids, order, noise).numpy()
            inputs.input_ids[here, order] = np.where(used, samples, inputs.input_ids[here, order])
            for place, ids, length in zip(chosen, inputs.input_ids, inputs.lengths, strict=True):
                found[place] = tokenizer.readable(ids[1 : length - 1])
            progress.update((number + 1) * _BATCH)
    return found
