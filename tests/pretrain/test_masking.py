"""Properties of masking and corruption that hold for every batch."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from electra_tf2.model import softmax
from electra_tf2.pretrain import masking
from electra_tf2.pretrain.masking import update_positions
from electra_tf2.pretrain.pretraining_task import TRAIN, PretrainingTask
from tests.support import golden
from tests.support.masking import SETTINGS, SPECIAL, draw_of, unit_of


@st.composite
def batches(draw, rows=6, length=32):
    """Rows of random lengths with [CLS], [SEP] and padding around random tokens."""
    ids = np.full([rows, length], SPECIAL.pad, np.int32)
    seed = draw(st.integers(0, 2**31 - 1))
    random = np.random.RandomState(seed)
    for row in ids:
        size = draw(st.integers(3, length))
        row[:size] = random.randint(5, 600, size)
        row[0], row[size - 1] = SPECIAL.cls, SPECIAL.sep
    mask = (ids != SPECIAL.pad).astype(np.int32)
    return {
        "input_ids": tf.constant(ids),
        "input_mask": tf.constant(mask),
        "segment_ids": tf.zeros_like(tf.constant(ids)),
    }


def mask(batch, **overrides):
    config = golden.config(**overrides)
    draw = draw_of(batch["input_ids"].shape[0])
    return config, masking.mask(config, batch, draw, SPECIAL, unit=unit_of(config))


@SETTINGS
@hypothesis.given(batches(), st.sampled_from(["with_replacement", "without_replacement"]))
def test_only_candidates_are_masked_and_unmasking_restores_them(batch, mask_sampling):
    _, masked = mask(batch, mask_sampling=mask_sampling)
    ids, hidden = masked.input_ids.numpy(), masked.masked_input_ids.numpy()
    changed = hidden != ids
    assert (masked.candidates.numpy()[changed] == 1).all()
    assert (hidden[changed] == SPECIAL.mask).all()
    restored, _ = update_positions(masked.masked_input_ids, masked.masked_lm_ids, masked.positions)
    np.testing.assert_array_equal(restored, ids)
    weights = masked.masked_lm_weights.numpy()
    assert (masked.positions.numpy()[weights == 0] == 0).all()
    assert (weights.sum(-1) >= 1).all()


@SETTINGS
@hypothesis.given(batches(), st.sampled_from(["with_replacement", "without_replacement"]))
def test_masking_is_a_function_of_the_global_row(batch, mask_sampling):
    config, whole = mask(batch, mask_sampling=mask_sampling)
    for start in (0, 3):
        part = {name: value[start : start + 3] for name, value in batch.items()}
        draw = masking.row_draws(tf.constant([1, 3]), 3, tf.constant(start), 6)
        ours, theirs = (tf.nest.flatten(found) for found in (masking.mask(config, part, draw, SPECIAL), whole))
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(one, other[start : start + 3])


def test_the_same_row_is_masked_elsewhere_at_another_step():
    """Dynamic masking (RoBERTa, section 4.1): a row comes back at a later step, in the next epoch."""
    config = golden.config()
    task = PretrainingTask(config, tf.distribute.get_strategy())
    ids = np.full([40, config.max_seq_length], 77, np.int32)
    ids[:, 0], ids[:, -1] = SPECIAL.cls, SPECIAL.sep
    batch = {"input_ids": tf.constant(ids), "input_mask": tf.ones_like(ids), "segment_ids": tf.zeros_like(ids)}

    def hidden_at(step):
        masked, _ = task.model.prepare(batch, task.step_seed(TRAIN, tf.constant(step)))
        return masked.masked_input_ids.numpy() == SPECIAL.mask

    first = hidden_at(0)
    np.testing.assert_array_equal(hidden_at(0), first)
    assert (hidden_at(1) != first).any(1).mean() > 0.9 and (hidden_at(1000) != first).any(1).mean() > 0.9


def test_mask_rates_are_respected():
    batch = {name: tf.ones([400, 32], tf.int32) for name in ("input_mask", "segment_ids")}
    batch["input_ids"] = tf.constant(np.array([[SPECIAL.cls] + [77] * 31] * 400, np.int32))
    _, masked = mask(batch, mask_rates=[0.8, 0.1, 0.1], mask_sampling="without_replacement", mask_prob=0.5)
    drawn = tf.gather(masked.masked_input_ids, masked.positions, batch_dims=1).numpy()
    drawn = drawn[masked.masked_lm_weights.numpy() > 0]
    shares = [(drawn == SPECIAL.mask).mean(), (drawn == 77).mean()]
    assert shares == pytest.approx([0.8, 0.1], abs=0.02)
    assert len(set(drawn)) > 100


def test_every_token_of_the_vocabulary_may_stand_in_the_place_of_another():
    config = golden.config(mask_rates=[0.0, 0.0, 1.0], mask_sampling="without_replacement")
    batch = {name: tf.ones([400, 32], tf.int32) for name in ("input_mask", "segment_ids")}
    batch["input_ids"] = tf.constant(np.array([[SPECIAL.cls] + [77] * 31] * 400, np.int32))
    count = config.max_predictions_per_seq
    token = (np.arange(400 * count) % config.vocab_size + 0.5) / config.vocab_size  # each as often as any other

    def draw(number, shape):
        draws = draw_of(400)(number, shape)
        if number != masking.HOW:
            return draws
        return tf.stack([draws[..., 0], tf.constant(token.reshape([400, count]), tf.float32)], -1)

    masked = masking.mask(config, batch, draw, SPECIAL)
    drawn = tf.gather(masked.masked_input_ids, masked.positions, batch_dims=1).numpy()
    assert set(drawn[masked.masked_lm_weights.numpy() > 0]) == set(range(config.vocab_size))


@SETTINGS
@hypothesis.given(batches(), st.booleans())
def test_corruption_labels(batch, original):
    config, masked = mask(batch, compat="original" if original else "none")
    sampled = tf.constant(np.random.RandomState(0).randint(0, 600, masked.positions.shape), tf.int32)
    corrupted = masking.corrupt(config, masked, sampled)
    differs = corrupted.input_ids.numpy() != batch["input_ids"].numpy()
    np.testing.assert_array_equal(corrupted.is_replaced.numpy() == 1, differs)
    assert (corrupted.was_sampled.numpy() >= corrupted.is_replaced.numpy()).all()
    written = np.zeros(differs.shape, bool)
    for row, (positions, weights) in enumerate(
        zip(masked.positions.numpy(), masked.masked_lm_weights.numpy(), strict=True)
    ):
        written[row, positions[weights > 0]] = True
    np.testing.assert_array_equal(corrupted.was_sampled.numpy() == 1, written)


@pytest.mark.parametrize("vocab_size", [5, 600, 30522])
def test_every_noise_gives_a_valid_sample(vocab_size):
    """Also the ends of the unit interval, and distributions with all mass on the first or the last token."""
    edge = np.float32(1 - 2**-24)
    noise = tf.constant([[[0.0, 0.0]], [[edge, edge]], [[0.0, edge]], [[edge, 0.0]]])
    for token in (0, vocab_size - 1):
        logits = tf.one_hot(tf.fill([4, 1], token), vocab_size, 200.0, -200.0)
        np.testing.assert_array_equal(softmax.sample_from_logits(logits, noise), np.full([4, 1], token))
    uniform = softmax.sample_from_logits(tf.zeros([4, 1, vocab_size]), noise).numpy()
    assert ((uniform >= 0) & (uniform < vocab_size)).all()
    assert uniform[0] == 0
