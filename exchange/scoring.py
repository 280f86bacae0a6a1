"""Pseudo-log-likelihoods of texts by three kinds of model (Electric, section 2.5; ELECTRA, appendix G; BERT).

All are sums over a text's tokens, special ones left out, of log p(token | the other tokens).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.vocabulary import SpecialIds
from electra_tf2.exchange.network import Network, graph_of_any_shape
from electra_tf2.util.errors import UserError


class _Towers(NamedTuple):
    """What a two-tower generator reads: int32 [B, L] each."""

    input_ids: tf.Tensor
    input_mask: tf.Tensor
    segment_ids: tf.Tensor

    @property
    def masked_input_ids(self) -> tf.Tensor:
        return self.input_ids

    @property
    def positions(self) -> tf.Tensor:
        return tf.zeros_like(self.input_ids[:, :1])


def log_data_probabilities(log_generator: np.ndarray, logits: np.ndarray, mask_prob: float) -> np.ndarray:
    """log p(token | others) = log D g / (c (1 - D) + g), c = (1 - a) / a (ELECTRA, appendix G).

    It inverts the discriminator that cannot be better, D = p ((1 - a) + a g) / ((1 - a) p + a g).

    Args:
      log_generator: log g, of the generator's probability of the token. logits: positive where a token looks replaced;
        D is the probability that it is not. mask_prob: a.
    """
    logits = logits.astype(np.float64)
    log_real, log_replaced = -np.logaddexp(0, logits), -np.logaddexp(0, -logits)
    return log_real + log_generator - np.logaddexp(math.log((1 - mask_prob) / mask_prob) + log_replaced, log_generator)


class Scorer:
    """Scores rows of ids with the parts that a network has.

    Args:
      mask_prob: the share of masked tokens in pre-training (a in ELECTRA's formula).
      batch_size: rows of a pass, where one is needed for every token.
      electric: whether a model with two towers is Electric; else it is ELECTRA with such a generator (ELECTRA-TT).
    """

    def __init__(
        self, network: Network, special: SpecialIds, mask_prob: float, batch_size: int, electric: bool = True
    ) -> None:
        self.network, self.special, self.batch_size = network, special, batch_size
        self.mask_prob = mask_prob
        self.kind = _kind(network, electric)
        self._cloze = graph_of_any_shape(self._cloze_log_probs)
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
        ids = tf.constant([row], tf.int32)
        if self.network.towers is not None:  # which know every token's probability after one pass
            log_generator = self._cloze(ids).numpy()[0, 1:-1]
        else:
            log_generator = self._masked_one_by_one(row)
        if self.kind == "bert":
            return log_generator
        logits = self._detect(ids, tf.ones_like(ids), tf.zeros_like(ids)).numpy()[0, 1:-1]
        return log_data_probabilities(log_generator, logits, self.mask_prob).astype(np.float32)

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

    def _cloze_log_probs(self, ids: tf.Tensor) -> tf.Tensor:
        """int32 [B, L] -> float32 [B, L], of a two-tower generator."""
        assert self.network.towers is not None
        cloze = self.network.towers(_Towers(ids, tf.ones_like(ids), tf.zeros_like(ids))).cloze
        assert cloze is not None
        return cloze.log_probs(ids)

    def _log_probs_at(self, ids: tf.Tensor, places: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
        """int32 [B, L], [B], [B] -> float32 [B]; only the masked positions meet the vocabulary."""
        network = self.network
        assert network.language_model is not None
        states = network.filler(ids, tf.ones_like(ids), tf.zeros_like(ids)).sequence
        states = tf.gather(states, places[:, tf.newaxis], batch_dims=1)
        logits = network.language_model(states)[:, 0]
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(tokens, logits)


def check_scorable(config: FinetuningConfig | PretrainingConfig) -> None:
    """Raises UserError if a model has the parts of a kind that can be scored and means something else by them."""
    if getattr(config, "multiple_choice_objective", False):
        raise UserError("a model of MC-BERT gives no probabilities: it chooses among a few words that it is offered")
    if getattr(config, "generator_exits", None):
        raise UserError(
            "a model of AMOS gives no probabilities: its discriminator judges samples of a mixture of generators, of "
            "which the uppermost alone is at hand"
        )


def _kind(network: Network, electric: bool) -> str:
    if network.towers is not None and network.detector is not None:
        return "electric" if electric else "electra"
    if network.language_model is None:
        raise UserError(
            "this model gives no probabilities: neither energies (Electric) nor a masked language model (BERT, or "
            "ELECTRA with its generator: --generator, or load(..., generator=...))"
        )
    return "bert" if network.detector is None else "electra"
