"""Shared by the tests of masking: rows of a few words and pieces, and what any masking unit must do with them."""

from typing import Any

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


def units_of(config, batch, draw):
    candidates = masking.candidates_mask(batch["input_ids"], batch["input_mask"], SPECIAL)
    units = unit_of(config)(batch["input_ids"], draw(masking.UNIT, [config.max_seq_length]))
    return units.numbers.numpy(), candidates.numpy()


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
    draw = draw_of(6, seed % 1000)
    units, candidates = units_of(config, batch, draw)
    masked = masking.mask(config, batch, draw, SPECIAL, unit=unit_of(config))
    where = draw(masking.WHERE, [32]).numpy()
    wanted = masking.number_of_predictions(batch["input_mask"], config.mask_prob, 12).numpy()
    hidden = (masked.masked_input_ids != masked.input_ids).numpy()
    for row in range(6):
        drawn, left = set(), int(wanted[row])
        for unit_number in np.argsort(-where[row], kind="stable"):
            tokens = np.flatnonzero((units[row] == unit_number) & (candidates[row] > 0))
            if 0 < len(tokens) <= left:
                drawn |= set(tokens.tolist())
                left -= len(tokens)
        weights = masked.masked_lm_weights.numpy()[row] > 0
        assert set(masked.positions.numpy()[row][weights].tolist()) == drawn
        for unit_number in np.unique(units[row]):
            of_unit = hidden[row][(units[row] == unit_number) & (candidates[row] > 0)]
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
