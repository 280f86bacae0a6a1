"""Shared by the tests of On Losses: batches of two segments, and by plain lists what the tasks make of them."""

import zlib

import numpy as np
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain import masking
from tests.support import golden
from tests.support import training as support

VOCAB = str(golden.CHECKPOINT / "vocab.txt")
LENGTH = support.LENGTH
SEED = tf.constant([3, 4])


def batch_of(rows, seed=0, repeated=60):
    """[CLS] A [SEP] B [SEP] of random lengths, every fourth row without B, the last one empty."""
    random = np.random.RandomState(seed)
    ids, segments = np.zeros([rows, LENGTH], np.int32), np.zeros([rows, LENGTH], np.int32)
    for row in range(rows - 1):
        first, second = random.randint(1, 7), 0 if row % 4 == 0 else random.randint(1, 7)
        body = random.randint(20, repeated, first + second)
        tokens = [2, *body[:first], 3] + ([*body[first:], 3] if second else [])
        ids[row, : len(tokens)] = tokens
        segments[row, first + 2 : len(tokens)] = 1
    return {"input_ids": ids, "input_mask": (ids > 0).astype(np.int32), "segment_ids": segments}


def tensors(batch):
    return {name: tf.constant(value) for name, value in batch.items()}


def rearranged_by(model, batch, seed=SEED, **more):
    """The masked batch of a step that trains every task, or those that are `active`, and its normalizers."""
    return model.prepare(model.rearrange(batch, seed, **more), seed)


def draws_of(model, task, rows):
    """(number, shape) -> the draws of a task in `rearrange` with SEED."""
    objective = next(one for one in model.tasks if one.task == task)
    key = tf.random.experimental.stateless_fold_in(SEED, zlib.crc32(objective.loss_name.encode()) >> 1)
    return masking.row_draws(key, rows, 0, rows)


def texts_of(batch, row):
    """The tokens of both segments, by plain lists."""
    ids, size, second = (
        batch["input_ids"][row].tolist(),
        batch["input_mask"][row].sum(),
        batch["segment_ids"][row].sum(),
    )
    return ids[1 : size - second - 1], ids[size - second : size - 1]


def put_together(first, last):
    """Ids and segments of [CLS] first [SEP] last [SEP]."""
    tokens = [2, *first, 3, *last, 3]
    padding = [0] * (LENGTH - len(tokens))
    return tokens + padding, [0] * (len(first) + 2) + [1] * (len(last) + 1) + padding


def left_out(draw, tokens):
    most = min(8, tokens // 4)
    return min(most, 1 + int(draw * most))


def rearranged(text, draws, swapped, longest=LENGTH):
    """The segments that a text is parted into, as they are shown, by plain lists."""
    before, gap = left_out(draws[0], len(text)), left_out(draws[1], len(text))
    kept = len(text) - before - gap
    least = max(1, kept // 4)
    lower = max(least, kept - longest)
    size = lower + int(draws[2] * np.float32(max(0, kept - least - lower) + 1))
    border = before + (kept - size if swapped else size)
    parts = text[before:border], text[border + gap :]
    return parts[::-1] if swapped else parts


def config_of(folder, tasks, **changes):
    settings = support.hparams(folder, paper="on_losses", aux_tasks=tasks, num_warmup_steps=0, **changes)
    return PretrainingConfig.from_dict(settings)
