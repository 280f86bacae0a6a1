"""COCO-LM: corrective language modelling and sequence contrast (Meng et al. 2021, section 3.2).

Corrective language modelling: the main network reads the generator's samples; at masked positions it copies what is
original and predicts what was replaced (L_copy and L_LM, equation 2). `CopyDetection` trains the copy head,
`CorrectiveLM` reads it through a stop-gradient.

Sequence contrast: a corrupted sequence and a crop of the original get like vectors, other sequences do not (L_SCL,
equation 3).

Shapes: B rows, L length, N masked positions, C length of a crop, H hidden, V vocabulary.
"""

import functools
import math
from collections.abc import Sequence

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.coco_lm_heads import ContrastHead, CopyHead
from electra_tf2.model.kernels.products import matmul
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.networks import Networks
from electra_tf2.pretrain.objectives.ablations import MainLanguageModel, copy_log_prob, copy_metrics, is_original
from electra_tf2.pretrain.objectives.contrast import Contrast, without_padding
from electra_tf2.pretrain.objectives.objective import Forward, LossTerm, Metrics, Objective, View, weighted_mean

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
        logits = self.logits(forward)  # [B, L]
        original = is_original(forward)  # [B, L]
        losses = tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(original, tf.float32), logits)
        metrics = copy_metrics(logits, original, self.token_weights(forward.masked))
        return self.output(forward, losses, metrics)


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
        is_input = tf.gather(is_original(forward), masked.positions, batch_dims=1)  # [B, N]
        copy_logits = tf.gather(self.copy.logits(forward), masked.positions, batch_dims=1)  # [B, N]
        logits = self.head(tf.gather(forward.states, masked.positions, batch_dims=1))  # [B, N, V]
        losses = corrective_losses(self.config, copy_logits, logits, masked.masked_lm_ids, is_input)
        metrics: Metrics = {}
        if not training:
            metrics = self._accuracy(forward)
        return self.output(forward, losses, metrics)

    def _accuracy(self, forward: Forward) -> Metrics:
        """Accuracy of argmax p_LM on replaced tokens, and on original ones at N evenly spaced positions."""
        masked = forward.masked
        original = is_original(forward)  # [B, L]
        copy_logits = self.copy.logits(forward)  # [B, L]
        length = masked.input_ids.shape[1]
        count = masked.positions.shape[1]
        spaced = tf.broadcast_to(tf.range(count) * length // count, tf.shape(masked.positions))  # [B, N]
        real = tf.cast(tf.gather(masked.input_mask, spaced, batch_dims=1), tf.float32)  # [B, N]

        def accuracy(positions: tf.Tensor, weights: tf.Tensor, among_originals: bool) -> tuple[tf.Tensor, tf.Tensor]:
            at_positions = functools.partial(tf.gather, indices=positions, batch_dims=1)  # [B, L, ...] -> [B, N, ...]
            logits = self.head(at_positions(forward.states))  # [B, N, V]
            input_ids = at_positions(forward.main_input.input_ids)
            predicted = predictions(at_positions(copy_logits), logits, input_ids)
            is_right = tf.equal(predicted, at_positions(masked.input_ids))
            counts = tf.equal(at_positions(original), among_originals)
            return weighted_mean(is_right, weights * tf.cast(counts, tf.float32))

        return {
            "clm_accuracy_replaced": accuracy(masked.positions, masked.masked_lm_weights, among_originals=False),
            "clm_accuracy_original": accuracy(spaced, real, among_originals=True),
        }


def corrective_losses(
    config: PretrainingConfig,
    copy_logits: tf.Tensor,
    logits: tf.Tensor,
    token_ids: tf.Tensor,
    is_input: tf.Tensor,
) -> tf.Tensor:
    """float32 [B, N]: losses by the hparam clm_loss.

    Args:
      copy_logits: float32 [B, N], positive means copy.
      logits: float32 [B, N, V], of the language model.
      token_ids: int32 [B, N], the original tokens.
      is_input: bool [B, N], whether the input holds the original token.
    """
    if config.clm_stop_gradient:
        copy_logits = tf.stop_gradient(copy_logits)
    cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(token_ids, logits)
    if config.clm_loss == "plain_ce":
        return cross_entropy
    if config.clm_loss == "weighted_ce":
        return tf.sigmoid(-copy_logits) * cross_entropy
    return -copy_log_prob(copy_logits, -cross_entropy, is_input)


def predictions(copy_logits: tf.Tensor, logits: tf.Tensor, input_ids: tf.Tensor) -> tf.Tensor:
    """int32 [B, N]: argmax of p_LM (equation 2).

    With s the softmax, copying wins if p_copy + (1 - p_copy) s(input) is at least (1 - p_copy) max s.
    """
    log_probs = tf.nn.log_softmax(logits)  # [B, N, V]
    best = tf.argmax(log_probs, -1, tf.int32)  # [B, N]
    input_log_probs = tf.gather(log_probs, input_ids, batch_dims=2)  # [B, N]
    copied = copy_log_prob(copy_logits, input_log_probs, tf.ones_like(input_ids, tf.bool))
    predicted = -tf.nn.softplus(copy_logits) + tf.reduce_max(log_probs, -1)
    return tf.where(copied >= predicted, input_ids, best)


# Sequence contrast.


class SequenceContrast(Contrast):
    """A corrupted sequence and a crop of the original are alike, others are not (COCO-LM, L_SCL).

    Cross-entropy of cosines between [CLS] states: of a row's two views each has to find the other among the 2B - 2
    views of other rows. The rows are those of one replica, or with scl_gather those of all.
    """

    loss_name = "scl_loss"
    weight = "scl_weight"
    shown: Sequence[str] = ("positive_cosine", "negative_cosine")

    def __init__(self, config: PretrainingConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        self.initial_loss = math.log(max(1, 2 * config.train_batch_size - 1))
        if config.scl_head == "mlp_ln":
            self.head = ContrastHead("contrast_predictions", config.architecture, config.seed)

    def views(self, masked: MaskedBatch) -> Sequence[View]:
        return [crop(self.config, masked)]

    def pair(self, forward: Forward) -> tuple[tf.Tensor, tf.Tensor]:
        (crop_output,) = forward.views[self.loss_name]
        return self.cls_vectors(forward.states, crop_output.sequence)

    def losses(self, first: tf.Tensor, second: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
        return contrastive_losses(first, second, self.config.scl_temperature, real)

    def contrast_metrics(self, first: tf.Tensor, second: tf.Tensor, real: tf.Tensor) -> Metrics:
        return view_metrics(first, second, real)


def crop(config: PretrainingConfig, masked: MaskedBatch) -> View:
    """A random contiguous part of every original (unmasked) sequence; positions start again at 0.

    crop_mode "body" crops what is between the first [CLS] and the last [SEP] and puts both around it; "raw_cls" crops
    the sequence with its special tokens and puts a [CLS] before it, as others' code for continued pre-training does.
    Where the crop starts is drawn uniformly.
    """
    is_body = config.crop_mode == "body"
    length = tf.reduce_sum(masked.input_mask, -1, keepdims=True)  # [B, 1]
    tokens = length  # that may be cropped
    if is_body:
        tokens = length - 2
    span = _crop_span(config, tokens)  # [B, 1]
    last_start = tokens - span
    possible_starts = tf.cast(last_start + 1, tf.float32)
    start = tf.cast(masked.crop_noise[:, tf.newaxis] * possible_starts, tf.int32)  # [B, 1]
    start = tf.maximum(tf.minimum(start, last_start), 0)
    if is_body:
        start += 1  # behind [CLS]

    # The crop's token at `position` is the sequence's token at `source`: [CLS], the span and, with "body", [SEP].
    position = tf.range(config.crop_length)[tf.newaxis]  # [1, C]
    source = tf.where(position == 0, 0, position - 1 + start)  # [B, C]
    end = span + 1
    if is_body:
        last_separator = length - 1
        source = tf.where(position == end, last_separator, source)
        # A row of padding has no [SEP]: its crop is empty, too.
        end = tf.minimum(end + 1, length)
    source = tf.clip_by_value(source, 0, masked.input_ids.shape[1] - 1)
    mask = tf.cast(position < end, tf.int32)  # [B, C]
    input_ids = tf.gather(masked.input_ids, source, batch_dims=1) * mask
    segment_ids = tf.gather(masked.segment_ids, source, batch_dims=1) * mask
    return View(input_ids, mask, segment_ids)


def _crop_span(config: PretrainingConfig, tokens: tf.Tensor) -> tf.Tensor:
    """int32, how many of so many tokens are cropped; a crop_fraction above 1 is that number itself."""
    if config.crop_fraction > 1:
        span = tf.minimum(tokens, int(config.crop_fraction))
    else:
        # 0.9 x 20 is 18, not 17, whatever float32 makes of 0.9.
        share = config.crop_fraction * tf.cast(tokens, tf.float32)
        span = tf.cast(tf.floor(share + 1e-4), tf.int32)
    return tf.maximum(1, span)


def contrastive_losses(
    first: tf.Tensor,
    second: tf.Tensor,
    temperature: float,
    real: tf.Tensor | None = None,
) -> tf.Tensor:
    """Per sequence the mean of both directions' cross-entropies (COCO-LM, equation 3).

    Args:
      first, second: float32 [B, H] unit vectors; row i of one belongs to row i of the other.
      real: bool [B], false where a row only fills up a batch of an evaluation: it is no negative; its own loss means
        nothing.

    Returns:
      float32 [B]; zeros for B = 1, which has no negatives.
    """
    rows = tf.shape(first)[0]
    views = tf.concat([first, second], 0)  # [2B, H]
    similarity = matmul(views, views, transpose_b=True) / temperature  # [2B, 2B]
    # No view is its own partner.
    similarity = tf.linalg.set_diag(similarity, tf.fill([2 * rows], similarity.dtype.min / 2))
    if real is not None:
        similarity = without_padding(similarity, tf.concat([real, real], 0))
    partner = tf.concat([tf.range(rows, 2 * rows), tf.range(rows)], 0)  # [2B]
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(partner, similarity)  # [2B]
    return 0.5 * (losses[:rows] + losses[rows:])


def view_metrics(first: tf.Tensor, second: tf.Tensor, real: tf.Tensor) -> Metrics:
    """Mean cosine of partners and of others (COCO-LM, Figure 7), retrieval, alignment and uniformity.

    The last two are Wang and Isola's (2020, "Understanding Contrastive Representation Learning").
    """
    similarity = tf.stop_gradient(matmul(first, second, transpose_b=True))  # [B, B]
    rows = tf.shape(first)[0]
    weights = tf.cast(real, tf.float32)  # [B]
    count = tf.reduce_sum(weights)
    partners = tf.linalg.diag_part(similarity) * weights  # [B]
    pairs = count * (count - 1.0)
    below_any_cosine = -2.0
    nearest = tf.argmax(tf.where(real, similarity, below_any_cosine), -1, tf.int32)  # [B]
    is_retrieved = tf.cast(tf.equal(nearest, tf.range(rows)), tf.float32) * weights
    others = (1.0 - tf.eye(rows)) * weights * weights[:, tf.newaxis]  # [B, B]
    return {
        "positive_cosine": (tf.reduce_sum(partners), count),
        "negative_cosine": (tf.reduce_sum(similarity * others), pairs),
        "retrieval_at_1": (tf.reduce_sum(is_retrieved), count),
        "alignment": (2.0 * count - 2.0 * tf.reduce_sum(partners), count),
        # E exp(-2 |f - f'|^2), whose logarithm is the uniformity
        "uniformity_kernel": (tf.reduce_sum(tf.exp(-2.0 * (2.0 - 2.0 * similarity)) * others), pairs),
    }
