"""Shared by the tests of masking: rows of a few words and pieces, and what any masking unit must do with them."""

import functools
from typing import Any, NamedTuple

import hypothesis
import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.corpus.vocabulary import load_vocab, special_ids
from electra_tf2.pretrain import masking
from electra_tf2.pretrain.masking_units import make_unit
from electra_tf2.pretrain.pretraining_model import make_model
from tests.support import golden

SPECIAL = special_ids(load_vocab(golden.CHECKPOINT / "vocab.txt"))
SETTINGS = hypothesis.settings(max_examples=25, deadline=None)


def draw_of(rows, seed=1):
    return masking.row_draws(tf.constant([seed, 3]), rows, 0, rows)


_UNITS: dict[str, Any] = {}  # by the configuration


def unit_of(config):
    """The masking unit of a configuration, made once: that of a paper comes with a whole model."""
    name = config.to_json()
    if name not in _UNITS:
        _UNITS[name] = make_model(config).unit if config.paper else make_unit(config)
    return _UNITS[name]


VOCABULARY = golden.CHECKPOINT / "vocab.txt"
TOKENS = load_vocab(VOCABULARY)
PIECES = [number for number, token in enumerate(TOKENS) if token.startswith("##")]
WORDS = [number for number, token in enumerate(TOKENS) if not token.startswith(("##", "["))]
FEW_WORDS, FEW_PIECES = WORDS[:6], PIECES[:2]


def rows_of(seed, ngrams=(), rows=6, length=32):
    """Two segments of random words and n-grams, a quarter of the tokens being pieces."""
    random = np.random.RandomState(seed)
    ids = np.full([rows, length], SPECIAL.pad, np.int32)
    for row in ids:
        size = random.randint(5, length + 1)
        row[:size] = np.where(random.rand(size) < 0.25, random.choice(FEW_PIECES, size), random.choice(FEW_WORDS, size))
        for start in random.randint(0, length - 5, length // 8 if ngrams else 0):
            ngram = ngrams[random.randint(len(ngrams))]
            row[start : start + len(ngram)] = ngram
        row[size:] = SPECIAL.pad
        row[0] = SPECIAL.cls
        row[[size - 1, random.randint(1, size)]] = SPECIAL.sep
        after = 1 + np.flatnonzero(np.isin(row[:-1], [SPECIAL.cls, SPECIAL.sep]) & np.isin(row[1:], PIECES))
        row[after] = FEW_WORDS[0]
    ids = tf.constant(ids)
    return {"input_ids": ids, "input_mask": tf.cast(ids != SPECIAL.pad, tf.int32), "segment_ids": tf.zeros_like(ids)}


def config_of(unit, length=32, **overrides):
    overrides = {"mask_prob": 0.3, "max_predictions_per_seq": 12} | overrides
    return golden.config(mask_unit=unit, mask_sampling="without_replacement", max_seq_length=length, **overrides)


class Drawn(NamedTuple):
    """A masking of a batch, and what it was drawn by: arrays of a row for each of the batch.

    units: the number of each token's unit. candidates: tokens that may be masked. positions, weights: what is masked.
    hidden: tokens that are not shown as they are. where, unit_noise: the draws. wanted: how many are to be masked.
    """

    units: np.ndarray
    candidates: np.ndarray
    positions: np.ndarray
    weights: np.ndarray
    hidden: np.ndarray
    where: np.ndarray
    unit_noise: np.ndarray
    wanted: np.ndarray


_PROGRAMS: dict[str, Any] = {}  # by the configuration


def drawn_of(config, batch, seed=1) -> Drawn:
    """Masks a batch of six rows, in a graph that is traced once for a configuration."""
    name = config.to_json()
    if name not in _PROGRAMS:
        unit = unit_of(config)
        length = config.max_seq_length

        @functools.partial(tf.function, autograph=False)
        def mask(batch, seed):
            draw = masking.row_draws(tf.stack([seed, 3]), 6, 0, 6)
            masked = masking.mask(config, batch, draw, SPECIAL, unit=unit)
            return Drawn(
                units=unit(batch["input_ids"], draw(masking.UNIT, [length])).indices,
                candidates=masking.candidates_mask(batch["input_ids"], batch["input_mask"], SPECIAL),
                positions=masked.positions,
                weights=masked.masked_lm_weights,
                hidden=masked.masked_input_ids != masked.input_ids,
                where=draw(masking.WHERE, [length]),
                unit_noise=draw(masking.UNIT, [length]),
                wanted=masking.mask_count(batch["input_mask"], config.mask_prob, 12),
            )

        _PROGRAMS[name] = mask
    return Drawn(*(value.numpy() for value in _PROGRAMS[name](batch, tf.constant(seed))))


def words_of(row):
    """(start, end) of every word or special token."""
    starts = [place for place, token in enumerate(row) if place == 0 or token not in PIECES]
    return list(zip(starts, [*starts[1:], len(row)], strict=True))


def spans_of(units):
    return [
        (int(np.flatnonzero(units == unit)[0]), int(np.flatnonzero(units == unit)[-1]) + 1) for unit in np.unique(units)
    ]


def check_drawn_units(config, batch, seed):
    """By falling noise; a unit that does not fit is passed over; [MASK] or kept as a whole."""
    drawn = drawn_of(config, batch, seed % 1000)
    for row in range(6):
        expected = set()
        left = int(drawn.wanted[row])
        for unit_number in np.argsort(-drawn.where[row], kind="stable"):
            tokens = np.flatnonzero((drawn.units[row] == unit_number) & (drawn.candidates[row] > 0))
            if 0 < len(tokens) <= left:
                expected |= set(tokens.tolist())
                left -= len(tokens)
        assert set(drawn.positions[row][drawn.weights[row] > 0].tolist()) == expected
        for unit_number in np.unique(drawn.units[row]):
            of_unit = drawn.hidden[row][(drawn.units[row] == unit_number) & (drawn.candidates[row] > 0)]
            assert of_unit.all() or not of_unit.any()


def check_rate(unit, mask_count, part=(), make=config_of):
    """Within half a point of mask_prob, of all tokens; `part` stands in every row."""
    random = np.random.RandomState(0)
    ids = np.where(random.rand(300, 128) < 0.25, random.choice(PIECES, [300, 128]), random.choice(WORDS, [300, 128]))
    ids[:, 20 : 20 + len(part)] = part
    ids[:, 0], ids[:, [60, 127]] = SPECIAL.cls, SPECIAL.sep
    ids = tf.constant(ids, tf.int32)
    batch = {"input_ids": ids, "input_mask": tf.ones_like(ids), "segment_ids": tf.zeros_like(ids)}
    config = make(unit, 128, mask_prob=0.15, max_predictions_per_seq=20, mask_count=mask_count)
    masked = masking.mask(config, batch, draw_of(300), SPECIAL, unit=unit_of(config))
    assert float(tf.reduce_sum(masked.masked_lm_weights)) / ids.shape.num_elements() == pytest.approx(0.15, abs=0.005)
