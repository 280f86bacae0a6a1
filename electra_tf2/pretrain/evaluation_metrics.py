"""Metrics that add up over steps and replicas: areas under ROC curves from histograms, cosines between states."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.pretrain.diagnosis import on_plateau
from electra_tf2.training.loop import ratios

NUM_BUCKETS = 200  # tf.metrics.auc's default number of thresholds
_EPSILON = 1e-6  # tf.metrics.auc's
_LOGIT_RANGE = 32
_BUCKETS_PER_LOGIT = 64
_LOGIT_BUCKETS = 2 * _LOGIT_RANGE * _BUCKETS_PER_LOGIT


def probability_histogram(probs: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Counts probabilities between tf.metrics.auc's thresholds -eps, 1/199, ..., 198/199, 1 + eps.

    Args:
      probs: float32, any shape, in [0, 1].
      labels: 0 or 1, same shape.
      weights: same shape.

    Returns:
      float32 [2, 200]: in column k the weight of negatives and of positives that exceed exactly k thresholds.
    """
    exceeded = tf.cast(tf.math.ceil(probs * (NUM_BUCKETS - 1)), tf.int32)
    exceeded = tf.maximum(exceeded, 1)  # 0 exceeds -eps
    return _counts(exceeded, labels, weights, NUM_BUCKETS)


def logit_histogram(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Counts logits between thresholds 1/64 apart, from -32 to 32.

    They tell predictions apart whose probabilities are all near 0 or 1.

    Args:
      logits: float32, any shape.
      labels: 0 or 1, same shape.
      weights: same shape.

    Returns:
      float32 [2, 4096]: weight of negatives and of positives by bucket; bucket 0 is empty.
    """
    place = (logits + _LOGIT_RANGE) * _BUCKETS_PER_LOGIT
    bucket = tf.cast(tf.clip_by_value(place, 1, _LOGIT_BUCKETS - 1), tf.int32)
    return _counts(bucket, labels, weights, _LOGIT_BUCKETS)


def _counts(bucket: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, buckets: int) -> tf.Tensor:
    """float32 [2, K]: the summed weights of labels 0 and 1 by bucket."""
    # The K buckets of label 0 come first, then those of label 1.
    places = tf.reshape(tf.cast(labels, tf.int32) * buckets + bucket, [-1])
    flat_weights = tf.reshape(tf.cast(weights, tf.float32), [-1])
    counts = tf.math.unsorted_segment_sum(flat_weights, places, 2 * buckets)
    return tf.reshape(counts, [2, buckets])


def auc(histogram: np.ndarray) -> float:
    """Area under the ROC curve of a histogram [2, K] by the trapezoidal rule, as tf.metrics.auc computes it."""
    negatives, positives = np.asarray(histogram, np.float64)
    # At threshold k everything is predicted positive that exceeds more than k thresholds.
    false_positives = negatives.sum() - np.cumsum(negatives)
    true_positives = positives.sum() - np.cumsum(positives)
    false_positive_rate = false_positives / (negatives.sum() + _EPSILON)
    true_positive_rate = (true_positives + _EPSILON) / (positives.sum() + _EPSILON)
    widths = false_positive_rate[:-1] - false_positive_rate[1:]
    heights = (true_positive_rate[:-1] + true_positive_rate[1:]) / 2
    return float(np.sum(widths * heights))


def state_cosines(states: tf.Tensor, input_mask: tf.Tensor) -> dict[str, tuple[tf.Tensor, tf.Tensor]]:
    """Mean cosines between the rows' [CLS] states and between all tokens' states; near 1 where states have collapsed.

    Args:
      states: [B, L, H].
      input_mask: int32 [B, L].

    Returns:
      cls_cosine, token_cosine: (sum over all pairs of different states, number of these pairs).
    """
    unit = tf.math.l2_normalize(tf.cast(states, tf.float32), -1)  # [B, L, H]
    real = tf.cast(input_mask, tf.float32)  # [B, L]

    def pair_cosines(vectors: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Sum of the cosines of all pairs of different unit vectors, and number of the pairs."""
        all_but_last = list(range(vectors.shape.rank - 1))
        total = tf.reduce_sum(vectors * weights[..., tf.newaxis], all_but_last)  # [H]
        count = tf.reduce_sum(weights)
        # |sum of vectors|^2 is the sum of all products, among them those of each vector with itself, which are 1.
        return tf.reduce_sum(tf.square(total)) - count, count * (count - 1.0)

    return {"cls_cosine": pair_cosines(unit[:, 0], real[:, 0]), "token_cosine": pair_cosines(unit, real)}


def evaluation_summary(
    totals: Mapping[str, Any],
    unigram_entropy: float | None,
    weights: Mapping[str, float],
) -> dict[str, float]:
    """Computes the metrics of an evaluation by name.

    Args:
      totals: "metrics" and "histograms", summed over the evaluation.
      unigram_entropy: entropy of the records' tokens, in nats; None if unknown.
      weights: loss name -> weight in the total loss.
    """
    metrics = ratios(totals["metrics"])
    if "uniformity_kernel" in metrics:  # a mean over pairs, whose logarithm is the metric
        metrics["uniformity"] = math.log(max(metrics.pop("uniformity_kernel"), 1e-30))
    for name, histogram in totals["histograms"].items():
        metrics[name] = auc(histogram.numpy())
    if unigram_entropy is not None and "hidden_masked_lm_loss" in metrics:
        metrics["unigram_entropy"] = unigram_entropy
        metrics["plateau"] = float(on_plateau(metrics["hidden_masked_lm_loss"], unigram_entropy))
    metrics["loss"] = sum(weight * metrics[name] for name, weight in weights.items())
    return dict(sorted(metrics.items()))
