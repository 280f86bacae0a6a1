"""COCO-LM: corrective language modelling and sequence contrast (Meng et al. 2021, section 3.2).

The main network reads the generator's samples; at masked positions it copies what is original and predicts what was
replaced (L_copy and L_LM, equation 2), and a corrupted sequence and a crop of the original one are alike where other
sequences are not (L_SCL, equation 3). `CopyDetection` trains the copy head, `CorrectiveLM` reads it through a
stop-gradient.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

from electra_tf2.model.flops import Part, contrast_head, token_unit
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.objectives.contrast import Contrast, ContrastHparams, without_padding
from electra_tf2.pretrain.objectives.electra_ablations import (
    AblationHparams,
    MainLanguageModel,
    copy_log_prob,
    copy_metrics,
    is_original,
)
from electra_tf2.pretrain.objectives.objective import (
    Forward,
    LossTerm,
    Metrics,
    Needs,
    Networks,
    Objective,
    View,
    weighted_mean,
)
from electra_tf2.util.hparams import hparam
from electra_tf2.util.lazy import tf


@dataclasses.dataclass(frozen=True)
class CocoHparams(ContrastHparams, AblationHparams):
    """Corrective language modelling, sequence contrast and crops; clm_weight and clm_head are the ablations', too."""

    corrective_lm_objective: bool = hparam(False, "corrective language modelling, copy detection", heading="COCO-LM")
    sequence_contrast_objective: bool = hparam(False, "contrast of corrupted text and crops (COCO-LM), beside another")
    copy_weight: float = hparam(50.0, "weight of COCO-LM's copy loss (lambda_copy)", at_least=0)
    clm_loss: str = hparam(
        "mixture",
        "form of COCO-LM's language-modelling loss: mixture: the paper's equation 2; weighted_ce: the authors' code; "
        "plain_ce: without copying",
        choices=("mixture", "weighted_ce", "plain_ce"),
    )
    clm_stop_gradient: bool = hparam(True, "the copy probability is a constant in COCO-LM's language-modelling loss")
    scl_weight: float = hparam(1.0, "weight of the loss of sequence contrast", at_least=0)
    scl_temperature: float = hparam(1.0, "temperature of the softmax of sequence contrast", above=0)
    scl_head: str = hparam(
        "none",
        "layers between [CLS] states and the cosine of sequence contrast: none (paper), mlp_ln (the authors' code)",
        choices=("none", "mlp_ln"),
    )
    crop_fraction: float = hparam(0.9, "part of a sequence that a crop holds; above 1: number of its tokens", above=0)
    crop_mode: str = hparam(
        "body",
        "what a crop is cut from: body: the tokens between [CLS] and [SEP]; raw_cls: all of them, and a [CLS] is put "
        "before (others' code)",
        choices=("body", "raw_cls"),
    )

    @property
    def crop_length(self) -> int:
        """Tokens of a crop of a full-length sequence, special ones included."""
        if self.crop_mode == "raw_cls":
            return min(self.max_seq_length, self._crop_span(self.max_seq_length) + 1)
        return self._crop_span(self.max_seq_length - 2) + 2

    def _crop_span(self, tokens: int) -> int:
        if self.crop_fraction > 1:
            return min(tokens, int(self.crop_fraction))
        return max(1, int(self.crop_fraction * tokens + 1e-4))


# Corrective language modelling.


class CopyDetection(Objective[CocoHparams]):
    """Is this token the original? Binary cross-entropy over all real tokens (COCO-LM, L_copy)."""

    flag = "corrective_lm_objective"
    title = "corrective language modelling (COCO-LM)"
    role = "main"
    loss_name = "copy_loss"
    weight = "copy_weight"
    initial_loss = math.log(2)
    shown = ("copy_accuracy_replaced",)

    @classmethod
    def parts(cls, config: CocoHparams) -> list[Part]:
        return [token_unit("copy head", config.architecture, config.max_seq_length)]

    def __init__(self, config: CocoHparams, networks: Networks) -> None:
        from electra_tf2.model.heads import CopyHead

        super().__init__(config, networks)
        self.head = CopyHead("copy_predictions", config.architecture, config.seed)

    def logits(self, forward: Forward) -> tf.Tensor:
        """float32 [B, L]: positive means original."""
        return self.head(forward.states)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return tf.cast(masked.input_mask, tf.float32)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        logits, original = self.logits(forward), is_original(forward)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(original, tf.float32), logits)
        return self.output(forward, losses, copy_metrics(logits, original, self.token_weights(forward.masked)))


class CorrectiveLM(MainLanguageModel[CocoHparams]):
    """The original token at every masked position, by copying or predicting (COCO-LM, L_LM).

    clm_loss "mixture" is the paper's equation 2; "weighted_ce" the authors' code, cross-entropy weighted by 1 - p_copy;
    "plain_ce" the ablation "w/o copy". The copy probability is a constant unless clm_stop_gradient is off.
    """

    flag, title = CopyDetection.flag, CopyDetection.title
    loss_name = "clm_loss"

    def __init__(self, config: CocoHparams, networks: Networks) -> None:
        super().__init__(config, networks)
        self.copy = networks.first(CopyDetection)
        self.initial_loss = math.log(2 * config.vocab_size)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        masked = forward.masked
        copied = tf.gather(is_original(forward), masked.positions, batch_dims=1)
        copy_logits = tf.gather(self.copy.logits(forward), masked.positions, batch_dims=1)
        logits = self.head(tf.gather(forward.states, masked.positions, batch_dims=1))
        losses = corrective_losses(self.config, copy_logits, logits, masked.masked_lm_ids, copied)
        return self.output(forward, losses, {} if training else self._accuracy(forward))

    def _accuracy(self, forward: Forward) -> Metrics:
        """Accuracy of argmax p_LM on replaced tokens, and on original ones of an evenly spread subset."""
        masked = forward.masked
        length, count = masked.input_ids.shape[1], masked.positions.shape[1]
        spread = tf.range(count) * length // count
        spread = tf.tile(spread[tf.newaxis], [tf.shape(masked.positions)[0], 1])
        real = tf.cast(masked.input_mask, tf.float32)
        metrics: Metrics = {}
        for name, positions, wanted in (("replaced", masked.positions, False), ("original", spread, True)):

            def at(field: tf.Tensor, positions: tf.Tensor = positions) -> tf.Tensor:
                return tf.gather(field, positions, batch_dims=1)

            weights = masked.masked_lm_weights if name == "replaced" else at(real)
            weights *= tf.cast(tf.equal(at(is_original(forward)), wanted), tf.float32)
            predicted = predictions(
                at(self.copy.logits(forward)), self.head(at(forward.states)), at(forward.replaced.input_ids)
            )
            metrics[f"clm_accuracy_{name}"] = weighted_mean(tf.equal(predicted, at(masked.input_ids)), weights)
        return metrics


def corrective_losses(
    config: CocoHparams, copy_logits: tf.Tensor, logits: tf.Tensor, token_ids: tf.Tensor, copied: tf.Tensor
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
    """int32 [B, N]: argmax of p_LM. Copying wins if p_copy + (1 - p_copy) s(input) exceeds (1 - p_copy) max s."""
    log_probs = tf.nn.log_softmax(logits)
    best = tf.argmax(log_probs, -1, tf.int32)
    own = tf.gather(log_probs, input_ids, batch_dims=2)
    copy = copy_log_prob(copy_logits, own, tf.ones_like(input_ids, tf.bool))
    predict = -tf.nn.softplus(copy_logits) + tf.reduce_max(log_probs, -1)
    return tf.where(copy >= predict, input_ids, best)


# Sequence contrast.


class SequenceContrast(Contrast[CocoHparams]):
    """A corrupted sequence and a crop of the original are alike, others are not (COCO-LM, L_SCL).

    Cosine similarity of the [CLS] states, softmax over the 2B - 2 other views and the partner, both directions. The
    sequences are those of a replica, or of all replicas with scl_gather.
    """

    flag = "sequence_contrast_objective"
    title = "sequence contrast (COCO-LM)"
    loss_name = "scl_loss"
    weight = "scl_weight"
    shown: Sequence[str] = ("positive_cosine", "negative_cosine")

    @classmethod
    def problems(cls, config: CocoHparams) -> Iterator[str]:
        if config.crop_fraction <= 1 and config.crop_fraction * (config.max_seq_length - 2) < 1:
            yield "crop_fraction leaves no token"
        if config.scl_gather and config.gradient_accumulation_steps > 1:
            yield "scl_gather needs whole batches: gradient_accumulation_steps must be 1"

    @classmethod
    def needs(cls, config: CocoHparams) -> Needs:
        return Needs(views=(config.crop_length,), whole_batch=True)

    @classmethod
    def parts(cls, config: CocoHparams) -> list[Part]:
        return [contrast_head("contrast head", config.architecture)] if config.scl_head == "mlp_ln" else []

    def __init__(self, config: CocoHparams, networks: Networks) -> None:
        from electra_tf2.model.auxiliary_heads import ContrastHead

        super().__init__(config, networks)
        self.initial_loss = math.log(max(1, 2 * config.train_batch_size - 1))
        if config.scl_head == "mlp_ln":
            self.head = ContrastHead("contrast_predictions", config.architecture, config.seed)

    def views(self, masked: MaskedBatch) -> Sequence[View]:
        return [crop(self.config, masked)]

    def pair(self, forward: Forward) -> tuple[tf.Tensor, tf.Tensor]:
        return self.vectors(forward.states, forward.views[self.loss_name][0].sequence)

    def losses(self, first: tf.Tensor, second: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
        return contrastive_losses(first, second, self.config.scl_temperature, real)

    def metrics_of(self, first: tf.Tensor, second: tf.Tensor, real: tf.Tensor) -> Metrics:
        return view_metrics(first, second, real)


def crop(config: CocoHparams, masked: MaskedBatch) -> View:
    """A random contiguous part of every original (unmasked) sequence; positions start again at 0.

    crop_mode "body" crops what is between the first [CLS] and the last [SEP] and puts both around it; "raw_cls" crops
    the sequence with its special tokens and puts a [CLS] before it, as others' code for continued pre-training does. A
    crop_fraction above 1 is a number of tokens. The start is uniform.
    """
    length = tf.reduce_sum(masked.input_mask, -1)
    body = config.crop_mode == "body"
    tokens = length - 2 if body else length
    if config.crop_fraction > 1:
        span = tf.minimum(tokens, int(config.crop_fraction))
    else:
        # The product is taken in steps that float32 represents, so that 0.9 x 20 is 18, not 17.
        span = tf.cast(tf.floor(config.crop_fraction * tf.cast(tokens, tf.float32) + 1e-4), tf.int32)
    span = tf.maximum(1, span)
    starts = tf.cast(tokens - span + 1, tf.float32)
    start = tf.minimum(tf.cast(masked.crop_noise * starts, tf.int32), tokens - span)
    place = tf.range(config.crop_length)[tf.newaxis]
    first = 1 if body else 0
    source = place - 1 + first + tf.maximum(start, 0)[:, tf.newaxis]
    source = tf.where(place == 0, 0, source)
    end = span[:, tf.newaxis] + 1
    if body:
        source = tf.where(place == end, length[:, tf.newaxis] - 1, source)
        end += 1
    source = tf.clip_by_value(source, 0, masked.input_ids.shape[1] - 1)
    mask = tf.cast(place < tf.minimum(end, length[:, tf.newaxis] if body else end), tf.int32)
    gathered = [tf.gather(field, source, batch_dims=1) * mask for field in (masked.input_ids, masked.segment_ids)]
    return View(gathered[0], mask, gathered[1])


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
    similarity = tf.matmul(views, views, transpose_b=True) / temperature
    similarity = tf.linalg.set_diag(similarity, tf.fill([2 * rows], similarity.dtype.min / 2))
    if real is not None:
        similarity = without_padding(similarity, tf.concat([real, real], 0))
    partner = tf.concat([tf.range(rows, 2 * rows), tf.range(rows)], 0)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(partner, similarity)
    return 0.5 * (losses[:rows] + losses[rows:])


def view_metrics(first: tf.Tensor, second: tf.Tensor, real: tf.Tensor) -> Metrics:
    """Mean cosine of partners and of others (COCO-LM, Figure 7), retrieval, alignment and uniformity (Wang & Isola)."""
    similarity = tf.stop_gradient(tf.matmul(first, second, transpose_b=True))
    rows = tf.shape(first)[0]
    weights = tf.cast(real, tf.float32)
    count = tf.reduce_sum(weights)
    partners = tf.linalg.diag_part(similarity) * weights
    pairs = count * (count - 1.0)
    nearest = tf.argmax(tf.where(real, similarity, -2.0), -1, tf.int32)
    found = tf.cast(tf.equal(nearest, tf.range(rows)), tf.float32) * weights
    others = (1.0 - tf.eye(rows)) * weights * weights[:, tf.newaxis]
    return {
        "positive_cosine": (tf.reduce_sum(partners), count),
        "negative_cosine": (tf.reduce_sum(similarity * others), pairs),
        "retrieval_at_1": (tf.reduce_sum(found), count),
        "alignment": (2.0 * count - 2.0 * tf.reduce_sum(partners), count),
        # E exp(-2 |f - f'|^2), whose logarithm is the uniformity
        "uniformity_kernel": (tf.reduce_sum(tf.exp(-2.0 * (2.0 - 2.0 * similarity)) * others), pairs),
    }
