"""Scores texts by the sum over their tokens, without special ones, of log p(token | the other tokens).

    Electric             minus its energies, one pass for each text (Electric, section 2.5)
    BERT                 the masked language model, one pass for each token (Salazar et al. 2020)
    ELECTRA              generator and discriminator together, one pass for each token (ELECTRA, appendix G)
    disc_tokens masked   as ELECTRA, with the share of samples among the masked positions. If all of them got samples,
                         the discriminator learned p itself and is used alone, one pass for each text

The other method, `detector`, sums log D(token is original), in one pass, for any discriminator. These sums rank texts,
but they are no log-likelihoods: D also depends on how good the generator was.
"""

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.encoding import Row, by_length, padded, values_at_tokens
from electra_tf2.corpus.vocabulary import SpecialIds
from electra_tf2.inference.network import Network, graph_of_any_shape
from electra_tf2.util.errors import UserError

METHODS = ("likelihood", "detector")


def log_original(logits: np.ndarray) -> np.ndarray:
    """log D, where D is the probability that a token is original.

    If a discriminator learned from masked positions alone (disc_tokens masked) and all of them got samples, D is
    p(token | others): a sample t equals the original with the probability that the original is t.

    Args:
      logits: the discriminator's, positive where a token looks replaced.
    """
    return -np.logaddexp(0, logits.astype(np.float64))


def log_data_probabilities(log_generator: np.ndarray, logits: np.ndarray, sampled: float) -> np.ndarray:
    """log p(token | others) = log D g / (c (1 - D) + g), where c = (1 - a) / a (ELECTRA, appendix G).

    A share a of the positions holds samples, the others hold the text's tokens. For the best possible discriminator
    D = p ((1 - a) + a g) / ((1 - a) p + a g). The formula solves this for p.

    Args:
      log_generator: log g, where g is the probability with which the generator samples the token, at the temperature of
        pre-training.
      logits: the discriminator's.
      sampled: a.
    """
    log_replaced = log_original(-logits)
    log_odds = math.log((1 - sampled) / sampled)
    log_denominator = np.logaddexp(log_odds + log_replaced, log_generator)
    return log_original(logits) + log_generator - log_denominator


class Scorer:
    """Scores rows of tokens with whatever heads a network has.

    kind: "energies", "detector", "language_model" or "electra" (generator and discriminator).
    note: a caution for the user about these scores, or "".

    Args:
      config: the run's.
      method: one of `METHODS`.
      mask_prob: share of tokens that were masked in pre-training; default: the configuration's.

    Raises:
      UserError: the scores would be no probabilities, a head is missing, or mask_prob is no share.
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
        # The detector learned from samples drawn at the temperature of pre-training. The language model itself was
        # trained at temperature 1.
        self.temperature = getattr(config, "temperature", 1.0)
        if self.kind == "language_model":
            self.temperature = 1.0
        # The share of the tokens from which the detector learned that are samples. Where BERT's rule keeps a token
        # instead of [MASK], the generator sees it and samples it again. Two towers never see the token they predict.
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
        """float32 [rows], the score of each row "[CLS] text [SEP]"; 0 for an empty text."""
        sums = [token_scores.sum() for token_scores in self.token_scores(rows, batch_size)]
        return np.array(sums, np.float32)

    def token_scores(self, rows: Sequence[Row], batch_size: int) -> list[np.ndarray]:
        """For each row float32 [tokens], the scores of all tokens but [CLS] and the last [SEP]."""
        if self.kind == "language_model":
            return self._language_model(rows, batch_size)
        all_logits = _inner(values_at_tokens(self._detect, rows, self.special, batch_size))
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
        """For each row float32 [tokens], the log-probability of each token when it alone is masked."""
        if self.network.towers is not None:  # one pass gives the probabilities of all tokens
            return _inner(values_at_tokens(self._cloze, rows, self.special, batch_size))
        # Each token needs a copy of its row in which it is masked. Copies of similar length share a batch.
        log_probs = []
        copies = []  # (index of the row, position of the mask)
        lengths = []
        for row_index, row in enumerate(rows):
            tokens_in_row = len(row.input_ids) - 2  # all but [CLS] and [SEP]
            log_probs.append(np.zeros(tokens_in_row, np.float32))
            for position in range(1, tokens_in_row + 1):
                copies.append((row_index, position))
                lengths.append(tokens_in_row)
        for batch in by_length(lengths, batch_size):
            row_indices, positions = np.array([copies[copy] for copy in batch]).T
            inputs = padded([rows[row_index] for row_index in row_indices], self.special)
            masked = np.arange(len(batch)), positions
            tokens = inputs.input_ids[masked]
            inputs.input_ids[masked] = self.special.mask
            values = self._fill(*inputs, positions.astype(np.int32), tokens).numpy()
            for row_index, position, value in zip(row_indices, positions, values, strict=True):
                log_probs[row_index][position - 1] = value
        return log_probs

    def _cloze_log_probs(self, ids: tf.Tensor, mask: tf.Tensor, segments: tf.Tensor) -> tf.Tensor:
        """int32 [B, L] three times -> float32 [B, L], of a two-tower generator."""
        assert self.network.towers is not None
        inputs = {"input_ids": ids, "masked_input_ids": ids, "input_mask": mask, "segment_ids": segments}
        # The towers also compute distributions at masked positions. These are not used, so any position will do.
        batch: Any = SimpleNamespace(**inputs, positions=tf.zeros_like(ids[:, :1]))
        cloze = self.network.towers(batch).cloze
        assert cloze is not None
        return self._log_probs(cloze.logits, ids)

    def _log_probs_at(
        self, ids: tf.Tensor, mask: tf.Tensor, segments: tf.Tensor, positions: tf.Tensor, tokens: tf.Tensor
    ) -> tf.Tensor:
        """int32 [B, L] three times, positions [B], tokens [B] -> float32 [B]."""
        network = self.network
        assert network.language_model is not None
        states = network.filler(ids, mask, segments).sequence
        states = tf.gather(states, positions[:, tf.newaxis], batch_dims=1)  # before the product with the vocabulary
        logits = network.language_model(states)[:, 0]
        return self._log_probs(logits, tokens)

    def _log_probs(self, logits: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
        """Log-probabilities of tokens [...] under logits [..., V], at the temperature."""
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(tokens, logits / self.temperature)


def _inner(rows_of_values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The values of each row without those of [CLS] and the last [SEP]."""
    return [values[1:-1] for values in rows_of_values]


def _kept_share(config: PretrainingConfig | FinetuningConfig) -> float:
    """Share of the masked positions at which pre-training kept the token instead of writing [MASK]."""
    _, kept, _ = getattr(config, "mask_rates", (0.85, 0.15, 0.0))  # masked, kept, random
    return kept


def _note(network: Network, kind: str, method: str) -> str:
    """Makes `Scorer.note`."""
    if kind == "language_model" and network.generator is not None:
        return "scores are those of the generator alone: the main network of this model never read a [MASK]"
    if kind == "language_model" and network.reads_no_mask:
        return "scores are those of a main network that never read a [MASK] in pre-training: they say little"
    if method == "detector":
        return "sums of log D(original) rank texts; they are no log-likelihoods"
    return ""


def _kind(network: Network, config: PretrainingConfig | FinetuningConfig, method: str) -> str:
    """Chooses `Scorer.kind`. Raises UserError if the network cannot be scored by the method."""
    if method not in METHODS:
        raise UserError(f"method is one of {', '.join(METHODS)}, not {method!r}")
    has_detector = network.detector is not None
    is_electric = getattr(config, "electric_objective", False)
    if method == "detector":
        if is_electric:
            raise UserError("method detector: Electric's energies are scores already, without --method")
        if not has_detector:
            raise UserError("method detector: this model does not detect replaced tokens")
        return "detector"
    why_not = getattr(config, "why_no_probabilities", "")
    if why_not:
        raise UserError(why_not)
    if is_electric and has_detector:
        return "energies"
    learned_from_masked = has_detector and getattr(config, "disc_tokens", "all") == "masked"
    only_samples = network.towers is not None or not _kept_share(config)
    if learned_from_masked and only_samples:
        return "detector"  # its D is the probability itself (`log_original`)
    if learned_from_masked and network.language_model is None:
        raise UserError(
            "this model's detector judged drawn tokens of which some were kept (mask_rates): its probabilities need "
            "its generator (--generator, or load(..., generator=...)); alone it scores by method detector"
        )
    # Two towers give probabilities for the detector's formula, but are no language model without it.
    has_generator = network.language_model is not None or (network.towers is not None and has_detector)
    if not has_generator:
        raise UserError(
            "this model gives no probabilities: neither energies (Electric) nor a masked language model (BERT, or "
            "ELECTRA with its generator: --generator, or load(..., generator=...)); its detector alone scores by "
            "method detector"
        )
    if has_detector:
        return "electra"
    return "language_model"
