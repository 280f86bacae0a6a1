"""Scores of texts: sums over a text's tokens, special ones left out, of log p(token | the other tokens).

    Electric       minus its energies, one pass a text (Electric, section 2.5)
    BERT           the masked language model, one pass a token (Salazar et al. 2020)
    ELECTRA        its generator and its discriminator together, one pass a token (ELECTRA, appendix G)
    disc_tokens masked   the same, with the share of replaced tokens among the drawn ones; where none were kept, the
                   discriminator alone, which learned just this, one pass a text

By another method, `detector`, every discriminator can score: log D(token is original) summed, in one pass. These sums
rank texts, but they are no log-likelihoods: D also depends on how good the generator was.
"""

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.encoding import Row, at_tokens, by_length, padded
from electra_tf2.corpus.vocabulary import SpecialIds
from electra_tf2.inference.network import Network, graph_of_any_shape
from electra_tf2.util.errors import UserError

METHODS = ("likelihood", "detector")


def log_original(logits: np.ndarray) -> np.ndarray:
    """log D, of the probability that a token is original; logits are positive where it looks replaced.

    A discriminator that learned from the drawn positions alone (disc_tokens masked), all of them masked, says
    p(token | others) itself: there a sample t is original with the probability that the original token is t.
    """
    return -np.logaddexp(0, logits.astype(np.float64))


def log_data_probabilities(log_generator: np.ndarray, logits: np.ndarray, sampled: float) -> np.ndarray:
    """log p(token | others) = log D g / (c (1 - D) + g), c = (1 - a) / a (ELECTRA, appendix G).

    A share a of the positions holds samples, the others the text's own tokens. The best discriminator of such positions
    says D = p ((1 - a) + a g) / ((1 - a) p + a g); the formula solves this for p.

    Args:
      log_generator: log g, of the probability with which the generator samples the token: its softmax at the
        temperature of the run.
      logits: as `log_original`.
      sampled: a.
    """
    log_replaced = log_original(-logits)
    odds = math.log((1 - sampled) / sampled)
    return log_original(logits) + log_generator - np.logaddexp(odds + log_replaced, log_generator)


class Scorer:
    """Scores rows with the parts that a network has.

    kind: "energies", "detector", "language_model" or "electra" (both).
    note: what a user should know of the scores, or "".

    Args:
      config: of the run.
      method: one of `METHODS`.
      mask_prob: share of tokens that were masked in pre-training; default: the configuration's.

    Raises:
      UserError: this model's scores would be no probabilities, or it lacks a part; mask_prob is no share.
    """

    def __init__(
        self,
        network: Network,
        special: SpecialIds,
        config: PretrainingConfig | FinetuningConfig,
        method: str = "likelihood",
        mask_prob: float | None = None,
    ) -> None:
        self.network, self.special = network, special
        self.mask_prob = getattr(config, "mask_prob", 0.15) if mask_prob is None else mask_prob
        if not 0 < self.mask_prob < 1:
            raise UserError(f"mask_prob is a share of tokens, between 0 and 1, not {self.mask_prob:g}")
        self.temperature = getattr(config, "temperature", 1.0)
        self.kind = _kind(network, config, method)
        # Share of the detector's tokens that are samples. A generator puts tokens back that were drawn and kept; one of
        # two towers has not seen them.
        self.sampled = 1.0 if network.towers is not None else 1 - _kept(config)
        if getattr(config, "disc_tokens", "all") != "masked":
            self.sampled *= self.mask_prob
        if self.kind == "language_model":
            self.temperature = 1.0  # which is that of samples
        self.note = ""
        if self.kind == "language_model" and network.generator is not None:
            self.note = "scores are those of the generator alone: the main network of this model never read a [MASK]"
        elif self.kind == "language_model" and network.reads_no_mask:
            self.note = "scores are those of a main network that never read a [MASK] in pre-training: they say little"
        elif method == "detector":
            self.note = "sums of log D(original) rank texts; they are no log-likelihoods"
        self._cloze = graph_of_any_shape(self._cloze_log_probs)
        self._detect = graph_of_any_shape(network.replaced_logits)
        self._fill = graph_of_any_shape(self._log_probs_at)

    def scores(self, rows: Sequence[Row], batch_size: int) -> np.ndarray:
        """float32 [rows], the score of each "[CLS] text [SEP]"; 0 without a token between."""
        return np.array([scores.sum() for scores in self.token_scores(rows, batch_size)], np.float32)

    def token_scores(self, rows: Sequence[Row], batch_size: int) -> list[np.ndarray]:
        """float32 [tokens] of each row: the score of each token but [CLS] and the last [SEP]."""
        if self.kind == "language_model":
            return self._language_model(rows, batch_size)
        logits = [values[1:-1] for values in at_tokens(self._detect, rows, self.special, batch_size)]
        if self.kind == "energies":
            return [-of_row for of_row in logits]
        if self.kind == "detector":
            return [log_original(of_row).astype(np.float32) for of_row in logits]
        return [
            log_data_probabilities(log_generator, of_row, self.sampled).astype(np.float32)
            for log_generator, of_row in zip(self._language_model(rows, batch_size), logits, strict=True)
        ]

    def _language_model(self, rows: Sequence[Row], batch_size: int) -> list[np.ndarray]:
        """float32 [tokens] of each row: log-probability of each token where it alone is masked."""
        if self.network.towers is not None:  # which know every token's probability after one pass
            return [values[1:-1] for values in at_tokens(self._cloze, rows, self.special, batch_size)]
        found = [np.zeros(len(row.input_ids) - 2, np.float32) for row in rows]
        copies = [(number, place) for number, row in enumerate(found) for place in range(1, len(row) + 1)]
        for chosen in by_length([len(found[number]) for number, _ in copies], batch_size):
            numbers, places = np.array([copies[one] for one in chosen]).T
            inputs = padded([rows[number] for number in numbers], self.special)
            masked = np.arange(len(chosen)), places
            tokens = inputs.input_ids[masked]
            inputs.input_ids[masked] = self.special.mask
            values = self._fill(*inputs, places.astype(np.int32), tokens).numpy()
            for number, place, value in zip(numbers, places, values, strict=True):
                found[number][place - 1] = value
        return found

    def _cloze_log_probs(self, ids: tf.Tensor, mask: tf.Tensor, segments: tf.Tensor) -> tf.Tensor:
        """int32 [B, L] three times -> float32 [B, L], of a two-tower generator."""
        assert self.network.towers is not None
        inputs = {"input_ids": ids, "masked_input_ids": ids, "input_mask": mask, "segment_ids": segments}
        rows: Any = SimpleNamespace(**inputs, positions=tf.zeros_like(ids[:, :1]))
        cloze = self.network.towers(rows).cloze
        assert cloze is not None
        return self._log_probs(cloze.logits, ids)

    def _log_probs_at(
        self, ids: tf.Tensor, mask: tf.Tensor, segments: tf.Tensor, places: tf.Tensor, tokens: tf.Tensor
    ) -> tf.Tensor:
        """int32 [B, L] three times, [B], [B] -> float32 [B]; only the masked positions meet the vocabulary."""
        network = self.network
        assert network.language_model is not None
        states = network.filler(ids, mask, segments).sequence
        states = tf.gather(states, places[:, tf.newaxis], batch_dims=1)
        return self._log_probs(network.language_model(states)[:, 0], tokens)

    def _log_probs(self, logits: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(tokens, logits / self.temperature)


def _kept(config: PretrainingConfig | FinetuningConfig) -> float:
    """Share of the drawn tokens that pre-training left as they were."""
    return getattr(config, "mask_rates", (0.85, 0.15, 0.0))[1]


def _kind(network: Network, config: PretrainingConfig | FinetuningConfig, method: str) -> str:
    if method not in METHODS:
        raise UserError(f"method is one of {', '.join(METHODS)}, not {method!r}")
    detects, electric = network.detector is not None, getattr(config, "electric_objective", False)
    if method == "detector":
        if not detects or electric:
            energies = "Electric's energies are scores already, without --method" if electric else ""
            raise UserError(f"method detector: {energies or 'this model does not detect replaced tokens'}")
        return "detector"
    if why := getattr(config, "no_probabilities", ""):
        raise UserError(why)
    if electric and detects:
        return "energies"
    judges_drawn = detects and getattr(config, "disc_tokens", "all") == "masked"
    if judges_drawn and (network.towers is not None or not _kept(config)):
        return "detector"
    if judges_drawn and network.language_model is None:
        raise UserError(
            "this model's detector judged drawn tokens of which some were kept (mask_rates): its probabilities need "
            "its generator (--generator, or load(..., generator=...)); alone it scores by method detector"
        )
    if network.language_model is None and not (network.towers is not None and detects):
        raise UserError(
            "this model gives no probabilities: neither energies (Electric) nor a masked language model (BERT, or "
            "ELECTRA with its generator: --generator, or load(..., generator=...)); its detector alone scores by "
            "method detector"
        )
    return "electra" if detects else "language_model"
