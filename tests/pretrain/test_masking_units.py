"""Masking units against plain loops: which tokens belong together, and that they are masked together or not at all."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from scipy import stats

from electra_tf2.pretrain import masking
from electra_tf2.pretrain.masking_units import LONGEST_SPAN, draw_spans, draw_units, span_lengths
from tests.support.masking import (
    FEW_WORDS,
    SETTINGS,
    SPECIAL,
    check_drawn_units,
    check_rate,
    config_of,
    draw_of,
    drawn_of,
    rows_of,
    spans_of,
    unit_of,
    words_of,
)


@SETTINGS
@hypothesis.given(st.integers(0, 2**31 - 1))
def test_words_are_found_as_by_plain_loops(seed):
    config, batch = config_of("whole_word"), rows_of(seed)
    words = drawn_of(config, batch).units
    for row, of_words in zip(batch["input_ids"].numpy(), words, strict=True):
        assert spans_of(of_words) == words_of(row)


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
    batch = rows_of(seed)
    drawn = drawn_of(config, batch, seed % 1000)
    lengths = span_lengths(tf.constant(drawn.unit_noise)).numpy()
    for row in range(6):
        words, left = words_of(batch["input_ids"].numpy()[row]), int(drawn.wanted[row])
        sizes = [int(drawn.candidates[row, start:end].sum()) for start, end in words]
        spans: list[list[int]] = []
        taken: set[int] = set()
        for first in np.argsort(-drawn.where[row, : len(words)], kind="stable"):
            if first in taken or not 0 < sizes[first] <= left:
                continue
            spans.append([])
            for word in range(first, min(first + lengths[row, first], len(words))):
                if sizes[word] == 0 or (word not in taken and sizes[word] > left):
                    break
                if word not in taken:
                    spans[-1].append(word)
                    taken.add(word)
                    left -= sizes[word]
        tokens = {token for word in taken for token in range(*words[word])}
        assert set(drawn.positions[row][drawn.weights[row] > 0].tolist()) == tokens
        for span in spans:
            for run in np.split(span, 1 + np.flatnonzero(np.diff(span) > 1)):  # other spans may stand between
                of_run = drawn.hidden[row, words[run[0]][0] : words[run[-1]][1]]
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
