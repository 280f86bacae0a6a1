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

    Where a discriminator learned from the drawn positions alone (disc_tokens masked) and none of the drawn tokens were
    kept, D is p(token | others): a sample t is original with the probability that the original token is t.
    """
    return -np.logaddexp(0, logits.astype(np.float64))


def log_data_probabilities(log_generator: np.ndarray, logits: np.ndarray, sampled: float) -> np.ndarray:
    """log p(token | others) = log D g / (c (1 - D) + g), c = (1 - a) / a (ELECTRA, appendix G).

    A share a of the positions holds samples, the others the tokens of the text. The best discriminator of such
    positions is D = p ((1 - a) + a g) / ((1 - a) p + a g); the formula solves this for p.

    Args:
      log_generator: log g, of the probability with which the generator samples the token: its softmax at the
        temperature of the run.
      logits: as `log_original`.
      sampled: a.
    """
    log_replaced = log_original(-logits)
    log_odds = math.log((1 - sampled) / sampled)
    log_denominator = np.logaddexp(log_odds + log_replaced, log_generator)
    return log_original(logits) + log_generator - log_denominator


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
        self.network = network
        self.special = special
        if mask_prob is None:
            mask_prob = getattr(config, "mask_prob", 0.15)
        self.mask_prob = mask_prob
        if not 0 < self.mask_prob < 1:
            raise UserError(f"mask_prob is a share of tokens, between 0 and 1, not {self.mask_prob:g}")
        self.kind = _kind(network, config, method)
        # The temperature of pre-training shapes the samples that the detector judges. A language model alone is read
        # as it was trained, at 1.
        self.temperature = getattr(config, "temperature", 1.0)
        if self.kind == "language_model":
            self.temperature = 1.0
        # Share of the detector's tokens that are samples. A masked language model reads the drawn tokens that were
        # kept, and puts them back; two towers never see the token that they predict.
        self.sampled = 1.0
        if network.towers is None:
            self.sampled = 1 - _kept_share(config)
        if getattr(config, "disc_tokens", "all") != "masked":
            self.sampled *= self.mask_prob
        self.note = _note(network, self.kind, method)
        self._cloze = graph_of_any_shape(self._cloze_log_probs)
        self._detect = graph_of_any_shape(network.replaced_logits)
        self._fill = graph_of_any_shape(self._log_probs_at)

    def scores(self, rows: Sequence[Row], batch_size: int) -> np.ndarray:
        """float32 [rows], the score of each "[CLS] text [SEP]"; 0 without a token between."""
        sums = [token_scores.sum() for token_scores in self.token_scores(rows, batch_size)]
        return np.array(sums, np.float32)

    def token_scores(self, rows: Sequence[Row], batch_size: int) -> list[np.ndarray]:
        """float32 [tokens] of each row: the score of each token but [CLS] and the last [SEP]."""
        if self.kind == "language_model":
            return self._language_model(rows, batch_size)
        all_logits = _inner(at_tokens(self._detect, rows, self.special, batch_size))
        if self.kind == "energies":
            return [-logits for logits in all_logits]
        if self.kind == "detector":
            return [log_original(logits).astype(np.float32) for logits in all_logits]
        all_log_generator = self._language_model(rows, batch_size)
        scores = []
        for log_generator, logits in zip(all_log_generator, all_logits, strict=True):
            log_probs = log_data_probabilities(log_generator, logits, self.sampled)
            scores.append(log_probs.astype(np.float32))
        return scores

    def _language_model(self, rows: Sequence[Row], batch_size: int) -> list[np.ndarray]:
        """float32 [tokens] of each row: log-probability of each token where it alone is masked."""
        if self.network.towers is not None:  # which know every token's probability after one pass
            return _inner(at_tokens(self._cloze, rows, self.special, batch_size))
        # A copy of the row for each of its tokens, with that token masked. Copies of similar length share a batch,
        # whichever row they are of.
        log_probs = []
        copies = []  # (number of the row, place of the mask in it)
        lengths = []
        for number, row in enumerate(rows):
            tokens_in_row = len(row.input_ids) - 2  # all but [CLS] and [SEP]
            log_probs.append(np.zeros(tokens_in_row, np.float32))
            for place in range(1, tokens_in_row + 1):
                copies.append((number, place))
                lengths.append(tokens_in_row)
        for batch in by_length(lengths, batch_size):
            numbers, places = np.array([copies[index] for index in batch]).T
            inputs = padded([rows[number] for number in numbers], self.special)
            masked = np.arange(len(batch)), places
            tokens = inputs.input_ids[masked]
            inputs.input_ids[masked] = self.special.mask
            values = self._fill(*inputs, places.astype(np.int32), tokens).numpy()
            for number, place, value in zip(numbers, places, values, strict=True):
                log_probs[number][place - 1] = value
        return log_probs

    def _cloze_log_probs(self, ids: tf.Tensor, mask: tf.Tensor, segments: tf.Tensor) -> tf.Tensor:
        """int32 [B, L] three times -> float32 [B, L], of a two-tower generator."""
        assert self.network.towers is not None
        inputs = {"input_ids": ids, "masked_input_ids": ids, "input_mask": mask, "segment_ids": segments}
        # The towers want masked positions, too; any will do, since only the distributions everywhere are read.
        batch: Any = SimpleNamespace(**inputs, positions=tf.zeros_like(ids[:, :1]))
        cloze = self.network.towers(batch).cloze
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
        logits = network.language_model(states)[:, 0]
        return self._log_probs(logits, tokens)

    def _log_probs(self, logits: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
        """Log-probabilities of tokens [...] under logits [..., V], at the temperature."""
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(tokens, logits / self.temperature)


def _inner(rows_of_values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The values of each row without those of [CLS] and the last [SEP]."""
    return [values[1:-1] for values in rows_of_values]


def _kept_share(config: PretrainingConfig | FinetuningConfig) -> float:
    """Share of the drawn tokens that pre-training left as they were."""
    _, kept, _ = getattr(config, "mask_rates", (0.85, 0.15, 0.0))  # masked, kept, random
    return kept


def _note(network: Network, kind: str, method: str) -> str:
    """A note on the meaning of scores of a kind, or ""."""
    if kind == "language_model" and network.generator is not None:
        return "scores are those of the generator alone: the main network of this model never read a [MASK]"
    if kind == "language_model" and network.reads_no_mask:
        return "scores are those of a main network that never read a [MASK] in pre-training: they say little"
    if method == "detector":
        return "sums of log D(original) rank texts; they are no log-likelihoods"
    return ""


def _kind(network: Network, config: PretrainingConfig | FinetuningConfig, method: str) -> str:
    """The kind of scores (`Scorer.kind`) that a method gives of a network. Raises UserError: it gives none."""
    if method not in METHODS:
        raise UserError(f"method is one of {', '.join(METHODS)}, not {method!r}")
    detects = network.detector is not None
    is_electric = getattr(config, "electric_objective", False)
    if method == "detector":
        if is_electric:
            raise UserError("method detector: Electric's energies are scores already, without --method")
        if not detects:
            raise UserError("method detector: this model does not detect replaced tokens")
        return "detector"
    why_not = getattr(config, "why_no_probabilities", "")
    if why_not:
        raise UserError(why_not)
    if is_electric and detects:
        return "energies"
    judges_drawn = detects and getattr(config, "disc_tokens", "all") == "masked"
    judges_samples_alone = judges_drawn and (network.towers is not None or not _kept_share(config))
    if judges_samples_alone:
        return "detector"  # whose D is the probability itself (`log_original`)
    if judges_drawn and network.language_model is None:
        raise UserError(
            "this model's detector judged drawn tokens of which some were kept (mask_rates): its probabilities need "
            "its generator (--generator, or load(..., generator=...)); alone it scores by method detector"
        )
    # Two towers have no language model of their own to score with, but their distributions beside a detector.
    has_generator = network.language_model is not None or (network.towers is not None and detects)
    if not has_generator:
        raise UserError(
            "this model gives no probabilities: neither energies (Electric) nor a masked language model (BERT, or "
            "ELECTRA with its generator: --generator, or load(..., generator=...)); its detector alone scores by "
            "method detector"
        )
    if detects:
        return "electra"
    return "language_model"
