"""Contiguous parts of the original sequences: crops, the second view of sequence contrast (COCO-LM, section 3.2), and
halves, the two views of quick thoughts."""

from typing import NamedTuple

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.masking import MaskedBatch


class CroppedBatch(NamedTuple):
    """int32 [B, C] each, C = config.crop_length: ids, 1 at real tokens, segments."""

    input_ids: tf.Tensor
    input_mask: tf.Tensor
    segment_ids: tf.Tensor


def crop(config: PretrainingConfig, masked: MaskedBatch) -> CroppedBatch:
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
    return CroppedBatch(gathered[0], mask, gathered[1])


def halves(config: PretrainingConfig, masked: MaskedBatch) -> tuple[CroppedBatch, CroppedBatch]:
    """What is between the first [CLS] and the last [SEP], cut in two, each with both around it; one segment each.

    C is config.half_length; an odd token belongs to the second half.
    """
    length = tf.reduce_sum(masked.input_mask, -1, keepdims=True)
    body = tf.maximum(length - 2, 0)
    first = body // 2
    place = tf.range(config.half_length)[tf.newaxis]
    parts = []
    for size, source in (
        (first, tf.where(place == first + 1, length - 1, place)),
        (body - first, tf.where(place == 0, 0, place + first)),
    ):
        mask = tf.cast((place < size + 2) & (length > 0), tf.int32)
        source = tf.clip_by_value(source, 0, masked.input_ids.shape[1] - 1)
        ids = tf.gather(masked.input_ids, source, batch_dims=1) * mask
        parts.append(CroppedBatch(ids, mask, tf.zeros_like(ids)))
    return parts[0], parts[1]
