"""COCO-LM: corrective language modelling and sequence contrast (Meng et al. 2021, section 3.2).

The main network reads the generator's samples; at masked positions it copies what is original and predicts what was
replaced (L_copy and L_LM, equation 2), and a corrupted sequence and a crop of the original one are alike where other
sequences are not (L_SCL, equation 3). `CopyDetection` trains the copy head, `CorrectiveLM` reads it through a
stop-gradient.
"""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.coco_lm_heads import ContrastHead, CopyHead
from electra_tf2.model.kernels.products import matmul
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.networks import Networks
from electra_tf2.pretrain.objectives.ablations import MainLanguageModel, copy_log_prob, copy_metrics, is_original
from electra_tf2.pretrain.objectives.contrast import Contrast, without_padding
from electra_tf2.pretrain.objectives.objective import Forward, LossTerm, Metrics, Objective, weighted_mean

# Corrective language modelling.


class CopyDetection(Objective):
    """Is this token the original? Binary cross-entropy over all real tokens (COCO-LM, L_copy)."""

    loss_name = "copy_loss"
    weight = "copy_weight"
    initial_loss = math.log(2)
    shown = ("copy_accuracy_replaced",)

    def __init__(self, config: PretrainingConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        self.head = CopyHead("copy_predictions", config.architecture, config.seed)

    def logits(self, forward: Forward) -> tf.Tensor:
        """float32 [B, L]: positive means original."""
        return self.head(forward.states)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return tf.cast(masked.input_mask, tf.float32)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        logits = self.logits(forward)
        original = is_original(forward)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(original, tf.float32), logits)
        return self.output(forward, losses, copy_metrics(logits, original, self.token_weights(forward.masked)))


class CorrectiveLM(MainLanguageModel):
    """The original token at every masked position, by copying or predicting (COCO-LM, L_LM).

    clm_loss "mixture" is the paper's equation 2; "weighted_ce" the authors' code, cross-entropy weighted by 1 - p_copy;
    "plain_ce" the ablation "w/o copy". The copy probability is a constant unless clm_stop_gradient is off.
    """

    loss_name = "clm_loss"

    def __init__(self, config: PretrainingConfig, networks: Networks, copy: CopyDetection) -> None:
        super().__init__(config, networks)
        self.copy = copy
        self.initial_loss = math.log(2 * config.vocab_size)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        masked = forward.masked
        copied = tf.gather(is_original(forward), masked.positions, batch_dims=1)
        copy_logits = tf.gather(self.copy.logits(forward), masked.positions, batch_dims=1)
        logits = self.head(tf.gather(forward.states, masked.positions, batch_dims=1))
        losses = corrective_losses(self.config, copy_logits, logits, masked.masked_lm_ids, copied)
        return self.output(forward, losses, {} if training else self._accuracy(forward))

    def _accuracy(self, forward: Forward) -> Metrics:
        """Accuracy of argmax p_LM on replaced tokens, and on original ones at N evenly spaced positions."""
        masked = forward.masked
        original = is_original(forward)
        copy_logits = self.copy.logits(forward)
        length = masked.input_ids.shape[1]
        count = masked.positions.shape[1]
        spaced = tf.broadcast_to(tf.range(count) * length // count, tf.shape(masked.positions))
        real = tf.cast(tf.gather(masked.input_mask, spaced, batch_dims=1), tf.float32)

        def accuracy(positions: tf.Tensor, weights: tf.Tensor, among_originals: bool) -> tuple[tf.Tensor, tf.Tensor]:
            at = functools.partial(tf.gather, indices=positions, batch_dims=1)
            logits = self.head(at(forward.states))
            predicted = predictions(at(copy_logits), logits, at(forward.replaced.input_ids))
            is_right = tf.equal(predicted, at(masked.input_ids))
            counts = tf.cast(tf.equal(at(original), among_originals), tf.float32)
            return weighted_mean(is_right, weights * counts)

        return {
            "clm_accuracy_replaced": accuracy(masked.positions, masked.masked_lm_weights, among_originals=False),
            "clm_accuracy_original": accuracy(spaced, real, among_originals=True),
        }


def corrective_losses(
    config: PretrainingConfig, copy_logits: tf.Tensor, logits: tf.Tensor, token_ids: tf.Tensor, copied: tf.Tensor
) -> tf.Tensor:
    """float32 [B, N] from copy logits [B, N], logits [B, N, V], original ids and whether they are the input's."""
    if config.clm_stop_gradient:
        copy_logits = tf.stop_gradient(copy_logits)
    cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(token_ids, logits)
    if config.clm_loss == "plain_ce":
        return cross_entropy
    if config.clm_loss == "weighted_ce":
        return tf.sigmoid(-copy_logits) * cross_entropy
    return -copy_log_prob(copy_logits, -cross_entropy, copied)


def predictions(copy_logits: tf.Tensor, logits: tf.Tensor, input_ids: tf.Tensor) -> tf.Tensor:
    """int32 [B, N]: argmax of p_LM (equation 2). Copying wins if p_copy + (1 - p_copy) s(input) is at least
    (1 - p_copy) max s, s the softmax."""
    log_probs = tf.nn.log_softmax(logits)
    best = tf.argmax(log_probs, -1, tf.int32)
    input_log_probs = tf.gather(log_probs, input_ids, batch_dims=2)
    copied = copy_log_prob(copy_logits, input_log_probs, tf.ones_like(input_ids, tf.bool))
    predicted = -tf.nn.softplus(copy_logits) + tf.reduce_max(log_probs, -1)
    return tf.where(copied >= predicted, input_ids, best)


# Sequence contrast.


class SequenceContrast(Contrast):
    """A corrupted sequence and a crop of the original are alike, others are not (COCO-LM, L_SCL).

    Cosine similarity of the [CLS] states, softmax over the 2B - 2 other views and the partner, both directions. The
    sequences are those of a replica, or of all replicas with scl_gather.
    """

    loss_name = "scl_loss"
    weight = "scl_weight"
    shown: Sequence[str] = ("positive_cosine", "negative_cosine")

    def __init__(self, config: PretrainingConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        self.initial_loss = math.log(max(1, 2 * config.train_batch_size - 1))
        if config.scl_head == "mlp_ln":
            self.head = ContrastHead("contrast_predictions", config.architecture, config.seed)

    def pair(self, forward: Forward) -> tuple[tf.Tensor, tf.Tensor]:
        return self.vectors(forward.states, forward.views[self.loss_name][0].sequence)

    def losses(self, first: tf.Tensor, second: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
        return contrastive_losses(first, second, self.config.scl_temperature, real)

    def metrics_of(self, first: tf.Tensor, second: tf.Tensor, real: tf.Tensor) -> Metrics:
        return view_metrics(first, second, real)


class View(NamedTuple):
    """A further sequence of every row, read by the main network: int32 [B, C] ids, 1 at real tokens, segments."""

    input_ids: tf.Tensor
    input_mask: tf.Tensor
    segment_ids: tf.Tensor


def crop(config: PretrainingConfig, masked: MaskedBatch) -> View:
    """A random contiguous part of every original (unmasked) sequence; positions start again at 0.

    crop_mode "body" crops what is between the first [CLS] and the last [SEP] and puts both around it; "raw_cls" crops
    the sequence with its special tokens and puts a [CLS] before it, as others' code for continued pre-training does. A
    crop_fraction above 1 is a number of tokens. The start is uniform.
    """
    is_body = config.crop_mode == "body"
    length = tf.reduce_sum(masked.input_mask, -1, keepdims=True)  # [B, 1], as all that follows
    tokens = length - 2 if is_body else length
    span = _span_of_crop(config, tokens)
    number_of_starts = tf.cast(tokens - span + 1, tf.float32)
    start = tf.cast(masked.crop_noise[:, tf.newaxis] * number_of_starts, tf.int32)
    start = tf.maximum(tf.minimum(start, tokens - span), 0)
    if is_body:
        start += 1  # behind [CLS]

    # The crop's token at `position` is the sequence's at `source`: [CLS], the span and, with "body", the last [SEP].
    position = tf.range(config.crop_length)[tf.newaxis]
    source = tf.where(position == 0, 0, position - 1 + start)
    end = span + 1
    if is_body:
        source = tf.where(position == end, length - 1, source)
        # A row of padding has no [SEP]: its crop is empty, too.
        end = tf.minimum(end + 1, length)
    source = tf.clip_by_value(source, 0, masked.input_ids.shape[1] - 1)
    mask = tf.cast(position < end, tf.int32)
    input_ids = tf.gather(masked.input_ids, source, batch_dims=1) * mask
    segment_ids = tf.gather(masked.segment_ids, source, batch_dims=1) * mask
    return View(input_ids, mask, segment_ids)


def _span_of_crop(config: PretrainingConfig, tokens: tf.Tensor) -> tf.Tensor:
    """Number of tokens that are cropped of so many, int32."""
    if config.crop_fraction > 1:
        span = tf.minimum(tokens, int(config.crop_fraction))
    else:
        # 0.9 x 20 is 18, not 17, whatever float32 makes of 0.9.
        share = config.crop_fraction * tf.cast(tokens, tf.float32)
        span = tf.cast(tf.floor(share + 1e-4), tf.int32)
    return tf.maximum(1, span)


def contrastive_losses(
    first: tf.Tensor, second: tf.Tensor, temperature: float, real: tf.Tensor | None = None
) -> tf.Tensor:
    """Per sequence the mean of both directions' cross-entropies (COCO-LM, equation 3).

    Args:
      first, second: float32 [B, H] unit vectors; row i of one belongs to row i of the other.
      real: bool [B], false where a row only fills up a batch of an evaluation: no negative; its loss means nothing.

    Returns:
      float32 [B]; zeros for B = 1, which has no negatives.
    """
    rows = tf.shape(first)[0]
    views = tf.concat([first, second], 0)
    similarity = matmul(views, views, transpose_b=True) / temperature
    similarity = tf.linalg.set_diag(similarity, tf.fill([2 * rows], similarity.dtype.min / 2))
    if real is not None:
        similarity = without_padding(similarity, tf.concat([real, real], 0))
    partner = tf.concat([tf.range(rows, 2 * rows), tf.range(rows)], 0)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(partner, similarity)
    return 0.5 * (losses[:rows] + losses[rows:])


def view_metrics(first: tf.Tensor, second: tf.Tensor, real: tf.Tensor) -> Metrics:
    """Mean cosine of partners and of others (COCO-LM, Figure 7), retrieval, alignment and uniformity (Wang & Isola)."""
    similarity = tf.stop_gradient(matmul(first, second, transpose_b=True))
    rows = tf.shape(first)[0]
    weights = tf.cast(real, tf.float32)
    count = tf.reduce_sum(weights)
    partners = tf.linalg.diag_part(similarity) * weights
    pairs = count * (count - 1.0)
    nearest = tf.argmax(tf.where(real, similarity, -2.0), -1, tf.int32)
    is_retrieved = tf.cast(tf.equal(nearest, tf.range(rows)), tf.float32) * weights
    others = (1.0 - tf.eye(rows)) * weights * weights[:, tf.newaxis]
    return {
        "positive_cosine": (tf.reduce_sum(partners), count),
        "negative_cosine": (tf.reduce_sum(similarity * others), pairs),
        "retrieval_at_1": (tf.reduce_sum(is_retrieved), count),
        "alignment": (2.0 * count - 2.0 * tf.reduce_sum(partners), count),
        # E exp(-2 |f - f'|^2), whose logarithm is the uniformity
        "uniformity_kernel": (tf.reduce_sum(tf.exp(-2.0 * (2.0 - 2.0 * similarity)) * others), pairs),
    }
