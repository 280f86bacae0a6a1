"""ELECTRA's probabilities of tokens (its appendix G): the formula, and with a two-tower generator."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.encoding import Row
from electra_tf2.corpus.vocabulary import SpecialIds, load_vocab, special_ids
from electra_tf2.inference.network import Network
from electra_tf2.inference.scoring import Scorer, log_data_probabilities
from electra_tf2.model import kernels
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from tests.support import golden
from tests.support import training as support


@given(st.floats(1e-4, 1 - 1e-4), st.floats(1e-4, 1 - 1e-4), st.floats(0.05, 0.5))
def test_the_formula_inverts_the_best_discriminator(p, g, a):
    real = p * ((1 - a) + a * g) / ((1 - a) * p + a * g)
    found = np.exp(log_data_probabilities(np.log([g]), np.log([(1 - real) / real]), a))
    np.testing.assert_allclose(found, [p], rtol=1e-9)


def test_a_two_tower_generator_scores_every_token_in_one_pass(tmp_path):
    config = PretrainingConfig.from_dict(support.hparams(tmp_path, two_tower_generator=True))
    with kernels.off():
        model = PretrainingModel(config)
    weights = {variable.name.split(":")[0]: variable.numpy() for variable in model.trainable_variables}
    network = Network(config.architecture, config.generator_architecture, weights)
    special = special_ids(load_vocab(golden.CHECKPOINT / "vocab.txt"))
    row = [special.cls, 30, 31, 99, special.sep]
    ids = tf.constant([row])
    batch = {"input_ids": ids, "input_mask": tf.ones_like(ids), "segment_ids": tf.zeros_like(ids)}
    with kernels.off():
        real = 1 / (1 + np.exp(network.replaced_logits(*batch.values()).numpy()[0, 1:-1]))
        masked = type("Masked", (), batch | {"masked_input_ids": ids, "positions": ids[:, :1]})()
        g = np.exp(model.generator(masked).cloze.log_probs(ids).numpy()[0, 1:-1])
    expected = np.log(real * g / (0.85 / 0.15 * (1 - real) + g))
    scorer = Scorer(network, special, config, mask_prob=0.15)
    assert scorer.kind == "electra"
    rows = [Row(np.array(ids), np.zeros(len(ids), np.int32)) for ids in ([*row, 40, special.sep], row)]
    longer, found = scorer.token_scores(rows, 8)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert len(longer) == 5


P = np.array([0.185, 0.291, 0.214, 0.183, 0.127])  # probabilities of a token, given the others
G = np.array([0.4, 0.1, 0.1, 0.3, 0.1])  # the generator's softmax


def best_detector(share, temperature, masked_only, kept):
    """Logits of the detector that cannot be better, from the joint distribution of what it sees and its label.

    A token is drawn with probability `share`: there the detector sees a sample, or with probability `kept` the token
    itself, which the generator has seen and puts back; elsewhere the token itself.
    """
    sampled = G ** (1 / temperature) / (G ** (1 / temperature)).sum()
    original, replaced = np.zeros(5), np.zeros(5)
    for token, probability in enumerate(P):
        original[token] += (0 if masked_only else (1 - share) * probability) + share * kept * probability
        for sample, chance in enumerate(sampled):
            (original if sample == token else replaced)[sample] += share * (1 - kept) * probability * chance
    return np.log(replaced / original)


@pytest.mark.parametrize("masked_only", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
@pytest.mark.parametrize("share", [0.15, 0.4])
@pytest.mark.parametrize("kept", [0.15, 0.0, 0.5])
def test_the_best_detector_scores_with_the_datas_probabilities(tmp_path, share, temperature, masked_only, kept):
    of_run = {"mask_prob": share, "temperature": temperature, "disc_tokens": "masked" if masked_only else "all"}
    of_run |= {"mask_rates": [1 - kept, kept, 0.0]}
    logits = tf.constant(np.append(best_detector(share, temperature, masked_only, kept), np.zeros(5)), tf.float32)
    network: Any = SimpleNamespace(
        towers=None,
        generator=True,
        detector=True,
        replaced_logits=lambda ids, mask, segments: tf.gather(logits, ids),
        filler=lambda ids, mask, segments: SimpleNamespace(sequence=tf.one_hot(ids, 1)),
        language_model=lambda states: tf.constant(np.log(G), tf.float32) + 0 * states,
    )
    special = SpecialIds(pad=5, unk=6, cls=7, sep=8, mask=9)
    scorer = Scorer(network, special, PretrainingConfig.from_dict(support.hparams(tmp_path, **of_run)))
    rows = [Row(np.array([7, token, 8], np.int32), np.zeros(3, np.int32)) for token in range(5)]
    np.testing.assert_allclose(np.exp(scorer.scores(rows, 2)), P, rtol=1e-4)
