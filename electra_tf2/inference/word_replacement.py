"""Replaces words of texts by samples of a generator, as ELECTRA corrupts its input, for negatives of sentences.

For sentence vectors, a sentence with one likely but different word is the hardest to tell from the original
(`electra build-pairs --negatives`). B batch, L length, N most pieces of a text that are replaced.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from electra_tf2.corpus.encoding import by_length, encode_rows, padded
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.inference.network import Network, graph_of_any_shape
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import Progress

_BATCH = 256
_MAX_LENGTH = 64  # tokens; longer texts are truncated


def replaced_texts(
    network: Network, tokenizer: WordpieceTokenizer, texts: Sequence[str], share: float, seed: int
) -> list[str]:
    """Replaces wordpieces of texts.

    Args:
      share: most wordpieces of a text that are replaced, as a share; at least one is.

    Returns:
      The texts, as the tokenizer normalises them.

    Raises:
      UserError: the network has no masked language model.
    """
    language_model = network.language_model
    if language_model is None:
        raise UserError("a model with a generator or a masked language model is needed to replace words")

    def sample(
        ids: tf.Tensor, mask: tf.Tensor, segments: tf.Tensor, positions: tf.Tensor, noise_seed: tf.Tensor
    ) -> tf.Tensor:
        """int32 [B, L] three times, positions [B, N], a seed [2] -> int32 [B, N], a sampled id for each position."""
        states = tf.gather(network.filler(ids, mask, segments).sequence, positions, batch_dims=1)
        logits = language_model(states)
        uniform = tf.random.stateless_uniform(tf.shape(logits), noise_seed, 1e-9, 1.0)
        gumbel = -tf.math.log(-tf.math.log(uniform))
        return tf.argmax(logits + gumbel, -1, tf.int32)  # the Gumbel-max trick

    graph = graph_of_any_shape(sample)
    random = np.random.default_rng(seed)
    special = tokenizer.special
    rows = encode_rows(tokenizer, texts, _MAX_LENGTH)
    replaced = [""] * len(rows)
    with Progress("replacing words: text", len(rows)) as progress:
        batches = by_length([len(row.input_ids) for row in rows], _BATCH)
        for batch_index, row_indices in enumerate(batches):
            inputs = padded([rows[index] for index in row_indices], special)
            ids = inputs.input_ids
            positions, is_replaced = draw_positions(inputs.lengths, ids.shape[1], share, random)
            row_in_batch = np.arange(len(row_indices))[:, np.newaxis]
            masked = ids.copy()
            masked[row_in_batch, positions] = np.where(is_replaced, special.mask, ids[row_in_batch, positions])
            noise_seed = np.array([seed, batch_index], np.int32)
            samples = graph(masked, inputs.input_mask, inputs.segment_ids, positions, noise_seed).numpy()
            ids[row_in_batch, positions] = np.where(is_replaced, samples, ids[row_in_batch, positions])
            for index, row_ids, length in zip(row_indices, ids, inputs.lengths, strict=True):
                replaced[index] = tokenizer.readable(row_ids[1 : length - 1])
            progress.update((batch_index + 1) * _BATCH)
    return replaced


def draw_positions(
    lengths: np.ndarray, length: int, share: float, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draws how many and which pieces of each row are replaced: from one to `share` of its pieces.

    Args:
      lengths: [B], tokens of the rows, [CLS] and [SEP] included.
      length: L.

    Returns:
      int32 [B, N] positions, and bool [B, N], true for those that are replaced. Rows need not use all N.
    """
    is_piece = np.arange(length) < lengths[:, np.newaxis] - 1
    is_piece[:, 0] = False
    pieces = is_piece.sum(1)
    most = np.maximum(1, np.round(share * pieces).astype(int))
    # The order of random numbers puts pieces in random order. All other positions get 2 and come last.
    order = np.argsort(np.where(is_piece, random.random(is_piece.shape), 2), 1)
    positions = order[:, : most.max()].astype(np.int32)
    count = np.minimum(pieces, random.integers(1, most + 1))
    return positions, np.arange(positions.shape[1]) < count[:, np.newaxis]
