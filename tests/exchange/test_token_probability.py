"""ELECTRA's probabilities of tokens (its appendix G): the formula, and with a two-tower generator."""

import numpy as np
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.vocabulary import load_vocab, special_ids
from electra_tf2.exchange.network import Network
from electra_tf2.exchange.scoring import Scorer, log_data_probabilities
from electra_tf2.model import kernels
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from tests import golden_support as golden
from tests import training_support as support


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
    scorer = Scorer(network, special, 0.15, 8, electric=False)
    assert scorer.kind == "electra"
    np.testing.assert_allclose(scorer.token_scores(row), expected, rtol=1e-4)
    assert len(scorer.token_scores([*row, 40, special.sep])) == 5  # another length, in the same graph
    assert Scorer(network, special, 0.15, 8, electric=True).kind == "electric"
