"""Pseudo-log-likelihoods of texts by three kinds of model (Electric, section 2.5; ELECTRA, appendix G; BERT).

All are sums over a text's tokens, special ones left out, of log p(token | the other tokens).
"""

import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from corpus.vocabulary import SpecialIds
from exchange.network import Network, graph_of_any_shape
from util.errors import UserError


class Scorer:
    """Scores rows of ids with the parts that a network has.

    Args:
      mask_prob: the share of masked tokens in pre-training (a in ELECTRA's formula).
      batch_size: rows of a pass, where one is needed for every token.
    """

    def __init__(self, network: Network, special: SpecialIds, mask_prob: float, batch_size: int) -> None:
        self.network, self.special, self.batch_size = network, special, batch_size
        self.noise_odds = (1 - mask_prob) / mask_prob
        self.kind = _kind(network)
        self._detect = graph_of_any_shape(network.replaced_logits)
        self._fill = graph_of_any_shape(self._log_probs_at)

    def scores(self, rows: Sequence[list[int]]) -> np.ndarray:
        """float32 [rows], the pseudo-log-likelihood of each "[CLS] text [SEP]"; 0 without a token between."""
        if self.kind != "electric":
            return np.array([self.token_scores(row).sum() for row in rows], np.float32)
        found = []
        for start in range(0, len(rows), self.batch_size):
            part = rows[start : start + self.batch_size]
            inputs = tf.ragged.constant(part, tf.int32, ragged_rank=1)
            ids, mask = inputs.to_tensor(self.special.pad), tf.ones_like(inputs).to_tensor(0)
            energies = self._detect(ids, mask, tf.zeros_like(ids)).numpy()
            # Energies are -log p; those of [CLS], [SEP] and padding do not count.
            found += [-energies[number, 1 : len(row) - 1].sum() for number, row in enumerate(part)]
        return np.array(found, np.float32)

    def token_scores(self, row: list[int]) -> np.ndarray:
        """float32 [tokens]: log p of each token but the special ones, of BERT and ELECTRA."""
        log_generator = self._masked_one_by_one(row)
        if self.kind == "bert":
            return log_generator
        ids = tf.constant([row], tf.int32)
        logits = self._detect(ids, tf.ones_like(ids), tf.zeros_like(ids)).numpy()[0, 1:-1].astype(np.float64)
        log_real, log_replaced = -np.logaddexp(0, logits), -np.logaddexp(0, -logits)
        # p = D g / (c (1 - D) + g), D the probability of being real, g the generator's, c = (1 - a) / a.
        odds = np.logaddexp(math.log(self.noise_odds) + log_replaced, log_generator)
        return (log_real + log_generator - odds).astype(np.float32)

    def _masked_one_by_one(self, row: list[int]) -> np.ndarray:
        """float32 [tokens]: log-probability of each token where it alone is masked."""
        places = np.arange(1, len(row) - 1)
        copies = np.tile(np.array(row, np.int32), [len(places), 1])
        copies[np.arange(len(places)), places] = self.special.mask
        results = [
            self._fill(
                tf.constant(copies[start : start + self.batch_size]),
                tf.constant(places[start : start + self.batch_size], tf.int32),
                tf.constant(np.array(row, np.int32)[places[start : start + self.batch_size]]),
            ).numpy()
            for start in range(0, len(places), self.batch_size)
        ]
        return np.concatenate([*results, np.zeros([0], np.float32)])

    def _log_probs_at(self, ids: tf.Tensor, places: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
        """int32 [B, L], [B], [B] -> float32 [B]; only the masked positions meet the vocabulary."""
        network = self.network
        assert network.language_model is not None
        states = network.filler(ids, tf.ones_like(ids), tf.zeros_like(ids)).sequence
        states = tf.gather(states, places[:, tf.newaxis], batch_dims=1)
        logits = network.language_model(states)[:, 0]
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(tokens, logits)


def _kind(network: Network) -> str:
    if network.towers is not None and network.detector is not None:
        return "electric"
    if network.language_model is None:
        raise UserError(
            "this model gives no probabilities: neither energies (Electric) nor a masked language model (BERT, or "
            "ELECTRA with its generator: load(..., generator=...))"
        )
    return "bert" if network.detector is None else "electra"
