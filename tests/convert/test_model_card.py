"""The card of an exported model tells of its training."""

import pytest

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.convert.huggingface import training_of
from tests.support import training as support


def test_whatever_trains_the_main_network_has_a_title():
    assert {*PretrainingConfig.MAIN_OBJECTIVES} <= PretrainingConfig.TITLES.keys()


@pytest.mark.parametrize(
    ("hparams", "text"),
    [
        ({"electra_objective": False}, "by masked language modelling (BERT): 30 steps"),
        ({}, "by replaced-token detection (ELECTRA): 30 steps"),
        (
            {"electra_objective": False, "corrective_lm_objective": True, "sequence_contrast_objective": True},
            "by corrective language modelling (COCO-LM) and sequence contrast (COCO-LM): 30 steps",
        ),
    ],
)
def test_all_that_was_trained_is_named(tmp_path, hparams, text):
    config = PretrainingConfig.from_dict(support.hparams(tmp_path, num_train_steps=30, **hparams))
    assert text in training_of(config)
    assert "/pretrain_tfrecords`" in training_of(config) and str(tmp_path) not in training_of(config)
