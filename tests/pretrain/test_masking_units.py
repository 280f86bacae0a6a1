"""Masking units against plain loops: which tokens belong together, and that they are masked together or not at all."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from scipy import stats

from electra_tf2.corpus.vocabulary import load_vocab
from electra_tf2.pretrain import masking
from electra_tf2.pretrain.masking_units import LONGEST_SPAN, draw_spans, draw_units, span_lengths
from tests.pretrain.test_masking import SETTINGS, SPECIAL, draw_of, unit_of
from tests.support import golden

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
    return units.indices.numpy(), candidates.numpy()


def words_of(row):
    """(start, end) of every word or special token."""
    starts = [place for place, token in enumerate(row) if place == 0 or token not in PIECES]
    return list(zip(starts, [*starts[1:], len(row)], strict=True))


def spans_of(units):
    return [
        (int(np.flatnonzero(units == unit)[0]), int(np.flatnonzero(units == unit)[-1]) + 1) for unit in np.unique(units)
    ]


@SETTINGS
@hypothesis.given(st.integers(0, 2**31 - 1))
def test_words_are_found_as_by_plain_loops(seed):
    config, batch = config_of("whole_word"), rows_of(seed)
    words, _ = units_of(config, batch, draw_of(6))
    for row, of_words in zip(batch["input_ids"].numpy(), words, strict=True):
        assert spans_of(of_words) == words_of(row)


def check_drawn_units(config, batch, seed):
    """By falling noise; a unit that does not fit is passed over; [MASK] or kept as a whole."""
    draw = draw_of(6, seed % 1000)
    units, candidates = units_of(config, batch, draw)
    masked = masking.mask(config, batch, draw, SPECIAL, unit=unit_of(config))
    where = draw(masking.WHERE, [32]).numpy()
    wanted = masking.mask_count(batch["input_mask"], config.mask_prob, 12).numpy()
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


@SETTINGS
@hypothesis.given(st.integers(0, 2**31 - 1), st.sampled_from([0.15, 0.3]))
def test_units_are_drawn_as_by_plain_loops(seed, mask_prob):
    check_drawn_units(config_of("whole_word", mask_prob=mask_prob), rows_of(seed), seed)


def test_the_token_unit_is_the_draw_without_replacement():
    """Against a unit for every token, too: the machinery of units draws the very same tokens."""
    config = config_of("token")
    batch, where = rows_of(3), draw_of(6)(masking.WHERE, [32])
    masked = masking.mask(config, batch, draw_of(6), SPECIAL)
    places = tf.tile(tf.range(32)[tf.newaxis], [6, 1])
    wanted = tf.reduce_sum(tf.cast(masked.masked_lm_weights, tf.int32), -1)
    as_units = draw_units(where, places, masked.candidates, wanted)
    drawn = np.zeros([6, 32], bool)
    for row in range(6):
        count = int(masked.masked_lm_weights.numpy()[row].sum())
        by_noise = np.argsort(-np.where(masked.candidates.numpy()[row] > 0, where[row], -1.0))[:count]
        assert set(masked.positions.numpy()[row][:count].tolist()) == set(by_noise.tolist())
        drawn[row, by_noise] = True
    np.testing.assert_array_equal(as_units, drawn)


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


@pytest.mark.parametrize("unit", ["token", "whole_word", "span"])
@pytest.mark.parametrize("mask_count", ["round", "probabilistic"])
def test_the_effective_rate_is_that_asked_for(unit, mask_count):
    check_rate(unit, mask_count)


def test_the_lengths_of_spans_are_spanberts():
    draws = span_lengths(tf.constant(np.random.RandomState(0).rand(200_000), tf.float32)).numpy()
    shares = 0.2 * 0.8 ** np.arange(LONGEST_SPAN)
    shares /= shares.sum()
    assert (shares * np.arange(1, 11)).sum() == pytest.approx(3.797, abs=5e-4)
    assert stats.chisquare(np.bincount(draws)[1:], shares * len(draws)).pvalue > 1e-4
    assert span_lengths(tf.constant([0.0, 1 - 2**-24])).numpy().tolist() == [1, LONGEST_SPAN]


@SETTINGS
@hypothesis.given(st.integers(0, 2**31 - 1), st.sampled_from([0.15, 0.5]))
def test_spans_are_drawn_as_by_plain_loops(seed, mask_prob):
    """Whole words by falling noise, from the first to where span, segment or budget end; [MASK] or kept as a whole."""
    config = config_of("span", mask_prob=mask_prob)
    batch, draw = rows_of(seed), draw_of(6, seed % 1000)
    _, candidates = units_of(config, batch, draw)
    masked = masking.mask(config, batch, draw, SPECIAL, unit=unit_of(config))
    where = draw(masking.WHERE, [32]).numpy()
    wanted = masking.mask_count(batch["input_mask"], mask_prob, 12).numpy()
    lengths = span_lengths(draw(masking.UNIT, [32])).numpy()
    hidden = (masked.masked_input_ids != masked.input_ids).numpy()
    for row in range(6):
        words, left = words_of(batch["input_ids"].numpy()[row]), int(wanted[row])
        sizes = [int(candidates[row, start:end].sum()) for start, end in words]
        spans: list[list[int]] = []
        drawn: set[int] = set()
        for first in np.argsort(-where[row, : len(words)], kind="stable"):
            if first in drawn or not 0 < sizes[first] <= left:
                continue
            spans.append([])
            for word in range(first, min(first + lengths[row, first], len(words))):
                if sizes[word] == 0 or (word not in drawn and sizes[word] > left):
                    break
                if word not in drawn:
                    spans[-1].append(word)
                    drawn.add(word)
                    left -= sizes[word]
        tokens = {token for word in drawn for token in range(*words[word])}
        weights = masked.masked_lm_weights.numpy()[row] > 0
        assert set(masked.positions.numpy()[row][weights].tolist()) == tokens
        for span in spans:
            for run in np.split(span, 1 + np.flatnonzero(np.diff(span) > 1)):  # other spans may stand between
                of_run = hidden[row, words[run[0]][0] : words[run[-1]][1]]
                assert of_run.all() or not of_run.any()


def spanbert(random, length, wanted):
    """SpanBERT's own loop over words of one token: bool [length], and the tokens that each span masks."""
    shares = 0.2 * 0.8 ** np.arange(LONGEST_SPAN)
    shares /= shares.sum()
    masked, spans = np.zeros(length, bool), []
    while masked.sum() < wanted:
        span = random.choice(np.arange(1, LONGEST_SPAN + 1), p=shares)
        start = random.randint(length)
        if masked[start]:
            continue
        spans.append(0)
        for place in range(start, min(start + span, length)):
            if masked.sum() == wanted:
                break
            spans[-1] += not masked[place]
            masked[place] = True
    return masked, spans


def test_spans_are_masked_as_in_spanberts_own_loop():
    """How often each place is masked, and how many tokens a span masks; bounds of 5 standard errors."""
    rows, length, wanted = 6000, 120, 18
    ids = np.full([rows, length + 2], FEW_WORDS[0], np.int32)
    ids[:, 0], ids[:, -1] = SPECIAL.cls, SPECIAL.sep
    ids = tf.constant(ids)
    batch = {"input_ids": ids, "input_mask": tf.ones_like(ids), "segment_ids": tf.zeros_like(ids)}
    config = config_of("span", length + 2, mask_prob=0.15, max_predictions_per_seq=wanted, mask_rates=[1.0, 0.0, 0.0])
    found = masking.mask(config, batch, draw_of(rows), SPECIAL, unit=unit_of(config))
    ours = (found.masked_input_ids != ids).numpy()[:, 1:-1]
    random = np.random.RandomState(0)
    masked, their_spans = zip(*(spanbert(random, length, wanted) for _ in range(rows)), strict=True)
    theirs = np.array(masked)
    np.testing.assert_array_equal(ours.sum(-1), wanted)

    rates = ours.mean(0), theirs.mean(0)
    share = (rates[0] + rates[1]) / 2
    assert (np.abs(rates[0] - rates[1]) < 5 * np.sqrt(2 * share * (1 - share) / rows)).all()
    np.testing.assert_allclose(rates[0][[0, 1, 2, -1]], [0.049, 0.086, 0.106, 0.155], atol=5 * (0.13 / rows) ** 0.5)

    where, of_units = (draw_of(rows)(number, [length + 2]) for number in (masking.WHERE, masking.UNIT))
    units, spans = unit_of(config)(ids, of_units)
    numbers = draw_spans(where, units, spans, found.candidates, tf.fill([rows], wanted)).numpy()
    lengths = np.concatenate([np.bincount(row[row > 0])[1:] for row in numbers]), np.concatenate(their_spans)
    error = np.hypot(*(sizes.std() / len(sizes) ** 0.5 for sizes in lengths))
    assert abs(lengths[0].mean() - lengths[1].mean()) < 5 * error < 0.1
    assert lengths[0].mean() == pytest.approx(3.26, abs=0.05)
