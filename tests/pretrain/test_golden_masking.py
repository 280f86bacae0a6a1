"""Masking and sampling against the original's rules, counts and statistics."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from electra_tf2.corpus.vocabulary import load_vocab, special_ids
from electra_tf2.model.heads import GeneratorOutput
from electra_tf2.model.kernels.vocabulary_softmax import FusedSoftmax
from electra_tf2.pretrain import masking
from electra_tf2.pretrain.original_masking import averaged_updates
from tests.support import golden
from tests.support import training as support

ARRAYS = golden.load_arrays("masking")
DRAWS = 20_000
SIGNIFICANCE = 1e-4  # of every chi-squared test; the seeds are fixed, so a test passes or fails for good


@pytest.fixture(scope="module")
def special():
    return special_ids(load_vocab(golden.CHECKPOINT / "vocab.txt"))


def draw(config, special, input_ids, rows=DRAWS, seed=7):
    """`rows` maskings of one sequence whose pads are id 0."""
    batch = {"input_ids": tf.tile(tf.constant(input_ids)[tf.newaxis], [rows, 1])}
    batch["input_mask"] = tf.cast(batch["input_ids"] != 0, tf.int32)
    batch["segment_ids"] = tf.zeros_like(batch["input_ids"])
    return masking.mask(config, batch, masking.row_draws(tf.constant([seed, 1]), rows, 0, rows), special)


@pytest.mark.parametrize("key", [key for key in ARRAYS if key.startswith("num_to_predict/")])
def test_number_of_predictions(key):
    length, mask_prob = key.removeprefix("num_to_predict/L").split("_p")
    maximum = golden.config(max_seq_length=int(length), mask_prob=float(mask_prob)).max_predictions_per_seq
    assert maximum == golden.load_json("masking")[key]["max_predictions_per_seq"]
    lengths, expected = ARRAYS[key]
    input_mask = tf.sequence_mask(lengths, int(length), tf.int32)
    actual = masking.mask_count(input_mask, float(mask_prob), maximum)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("case", ["full128", "len60", "len20_special", "len7"])
def test_positions_are_distributed_as_the_original_s(case, special):
    config = golden.config(max_seq_length=128)
    input_ids = ARRAYS[f"stats/{case}/input_ids"]
    masked = draw(config, special, input_ids)
    weights = masked.masked_lm_weights.numpy().astype(bool)
    positions = masked.positions.numpy()

    counts = np.bincount(positions[weights], minlength=128)
    theirs = ARRAYS[f"stats/{case}/position_counts"]
    np.testing.assert_array_equal(counts > 0, theirs > 0)  # the same positions are never drawn
    assert stats.chi2_contingency([counts[counts > 0], theirs[counts > 0]]).pvalue > SIGNIFICANCE

    predictions = np.bincount(weights.sum(-1), minlength=20)
    np.testing.assert_array_equal(predictions > 0, ARRAYS[f"stats/{case}/num_predictions"] > 0)

    distinct = np.bincount([len(set(row[w])) for row, w in zip(positions, weights, strict=True)], minlength=20)
    theirs = ARRAYS[f"stats/{case}/distinct_masked"]
    seen = (distinct + theirs) > 0
    if seen.sum() > 1:
        assert stats.chi2_contingency([distinct[seen], theirs[seen]]).pvalue > SIGNIFICANCE


@pytest.mark.parametrize("case", ["full128", "len60"])
def test_draws_become_mask_as_often_as_the_original_s(case, special):
    masked = draw(golden.config(max_seq_length=128), special, ARRAYS[f"stats/{case}/input_ids"])
    drawn = np.zeros(masked.input_ids.shape, np.int64)
    rows = np.arange(DRAWS)[:, np.newaxis]
    np.add.at(
        drawn,
        (np.broadcast_to(rows, masked.positions.shape), masked.positions.numpy()),
        masked.masked_lm_weights.numpy().astype(np.int64),
    )
    hidden = masked.masked_input_ids.numpy() == special.mask
    assert not hidden[drawn == 0].any()
    for multiplicity in (1, 2):  # 85 % of single draws; 1 - 0.15^2 of double ones
        ours = [(hidden[drawn == multiplicity]).sum(), (~hidden[drawn == multiplicity]).sum()]
        chosen = ARRAYS[f"stats/{case}/chosen_given_multiplicity"][multiplicity]
        replaced = ARRAYS[f"stats/{case}/replaced_given_multiplicity"][multiplicity]
        assert stats.chi2_contingency([ours, [replaced, chosen - replaced]]).pvalue > SIGNIFICANCE


def test_row_without_candidates_gets_no_weight(special):
    input_ids = np.array([special.cls, special.sep] + [0] * 30, np.int32)
    masked = draw(golden.config(), special, input_ids, rows=3)
    assert not masked.masked_lm_weights.numpy().any()
    np.testing.assert_array_equal(masked.masked_input_ids, masked.input_ids)


@pytest.mark.parametrize("case", ["plain", "zero_ignored", "dup_same", "dup_different"])
def test_update_positions_with_averaged_duplicates(case):
    expected = {name: ARRAYS[f"scatter/{case}/{name}"] for name in ("sequence", "updates", "positions", "result")}
    result, updated = averaged_updates(*(tf.constant(expected[name]) for name in ("sequence", "updates", "positions")))
    np.testing.assert_array_equal(result, expected["result"])
    np.testing.assert_array_equal(updated, ARRAYS[f"scatter/{case}/mask"])


def test_update_positions_keeps_the_first_of_duplicates():
    result, updated = masking.update_positions(
        tf.constant([[5, 6, 7, 8]]), tf.constant([[20, 31, 40]]), tf.constant([[2, 2, 0]])
    )
    np.testing.assert_array_equal(result, [[5, 6, 20, 8]])
    np.testing.assert_array_equal(updated, [[0, 0, 1, 0]])


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("disallow", [None, 9, 3])
def test_samples_are_distributed_as_the_original_s(temperature, disallow, special):
    arrays = golden.load_arrays("sampling")
    key = f"T{temperature}_disallow{disallow}"
    config = golden.config(temperature=temperature, disallow_correct=disallow is not None, vocab_size=12)
    rows, slots = 100_000, 3
    noise = tf.random.stateless_uniform([rows, slots, 2], [5, 6])
    masked = support.masked_batch_of(masked_lm_ids=tf.fill([rows, slots], disallow or 0), sampling_noise=noise)
    softmax = FusedSoftmax(tf.ones([rows, slots, 1]), arrays["logits"][:, None], tf.zeros([12]))
    generated = GeneratorOutput(softmax)
    samples = masking.sampled_softmax(config, masked, generated).sample(masked.sampling_noise, config.temperature)
    counts = np.bincount(samples.numpy().reshape(-1), minlength=12)
    exact = arrays[f"{key}/softmax"].astype(np.float64)
    possible = exact > 1e-6
    assert not counts[~possible].any()
    expected = exact[possible] / exact[possible].sum() * counts.sum()
    assert stats.chisquare(counts[possible], expected).pvalue > SIGNIFICANCE
    theirs = arrays[f"{key}/counts"][possible]
    assert stats.chi2_contingency([counts[possible], theirs]).pvalue > SIGNIFICANCE
