"""Texts in which a generator replaced some words: ELECTRA's corruption of text, as negatives of sentences.

A word that is likely in its place and is not the one that stood there is hardest to tell apart for vectors of
sentences (`electra build-pairs --negatives`). B texts of a batch, L their length, N replaced pieces of a text at most.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from electra_tf2.corpus.encoding import by_length, padded, rows_of
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.inference.network import Network, graph_of_any_shape
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import Progress

_BATCH = 256  # texts
_MAX_LENGTH = 64  # tokens of a text, of which more are left out


def replaced_texts(
    network: Network, tokenizer: WordpieceTokenizer, texts: Sequence[str], share: float, seed: int
) -> list[str]:
    """Texts as the tokenizer normalises them, with up to `share` of their wordpieces replaced, one at least.

    Raises:
      UserError: the network has no masked language model.
    """
    language_model = network.language_model
    if language_model is None:
        raise UserError("a model with a generator or a masked language model is needed to replace words")

    def sampled(ids: tf.Tensor, mask: tf.Tensor, segments: tf.Tensor, places: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        """int32 [B, L] three times, places [B, N] and a seed [2] -> int32 [B, N], a sample for each place."""
        states = tf.gather(network.filler(ids, mask, segments).sequence, places, batch_dims=1)
        logits = language_model(states)
        uniform = tf.random.stateless_uniform(tf.shape(logits), noise, 1e-9, 1.0)
        return tf.argmax(logits - tf.math.log(-tf.math.log(uniform)), -1, tf.int32)  # Gumbel's trick

    graph = graph_of_any_shape(sampled)
    random = np.random.default_rng(seed)
    special = tokenizer.special
    rows = rows_of(tokenizer, texts, _MAX_LENGTH)
    replaced = [""] * len(rows)
    with Progress("replacing words: text", len(rows)) as progress:
        for number, chosen in enumerate(by_length([len(row.input_ids) for row in rows], _BATCH)):
            inputs = padded([rows[place] for place in chosen], special)
            ids = inputs.input_ids
            places, is_replaced = drawn_places(inputs.lengths, ids.shape[1], share, random)
            in_row = np.arange(len(chosen))[:, np.newaxis]
            masked = ids.copy()
            masked[in_row, places] = np.where(is_replaced, special.mask, ids[in_row, places])
            noise = np.array([seed, number], np.int32)
            samples = graph(masked, inputs.input_mask, inputs.segment_ids, places, noise).numpy()
            ids[in_row, places] = np.where(is_replaced, samples, ids[in_row, places])
            for place, row_ids, length in zip(chosen, ids, inputs.lengths, strict=True):
                replaced[place] = tokenizer.readable(row_ids[1 : length - 1])
            progress.update((number + 1) * _BATCH)
    return replaced


def drawn_places(
    lengths: np.ndarray, length: int, share: float, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draws which pieces of each row are replaced: one at least, `share` of its pieces at most; none of a row without.

    Args:
      lengths: [B], tokens of the rows, [CLS] and [SEP] included.
      length: L.

    Returns:
      int32 [B, N] places, and bool [B, N], true for those that are replaced.
    """
    is_piece = np.arange(length) < lengths[:, np.newaxis] - 1
    is_piece[:, 0] = False
    pieces = is_piece.sum(1)
    most = np.maximum(1, np.round(share * pieces).astype(int))
    # Pieces in random order, behind them what is no piece.
    order = np.argsort(np.where(is_piece, random.random(is_piece.shape), 2), 1)
    places = order[:, : most.max()].astype(np.int32)
    count = np.minimum(pieces, random.integers(1, most + 1))
    return places, np.arange(places.shape[1]) < count[:, np.newaxis]
