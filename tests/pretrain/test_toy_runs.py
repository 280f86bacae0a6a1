"""Objectives train small models within seconds: one batch is learned by heart, contrast pulls views together, and
Electric's loss is least where the energies are those of the data."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model import kernels
from electra_tf2.model.encoder import EncoderOutput
from electra_tf2.model.heads import GeneratorOutput
from electra_tf2.model.kernels.vocabulary_softmax import FusedSoftmax
from electra_tf2.pretrain.masking import CorruptedBatch, MaskedBatch
from electra_tf2.pretrain.objectives.electric import NoiseContrastive
from electra_tf2.pretrain.objectives.objective import Forward
from electra_tf2.pretrain.pretraining_task import make_task
from tests.support import golden
from tests.support import training as support

SIZES = {
    "num_hidden_layers": 1, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.15,
}  # fmt: skip


def batch_of(seed):
    return support.batch_of(seed=seed, last=60, padding=3)


def run(steps, batches, folder, same_masking=False, **changes):
    """The task after so many steps, and the metrics of the last one."""
    settings = {"sizes": SIZES, "embedding_size": 32, "learning_rate": 5e-3, "num_warmup_steps": 0}
    settings |= {"num_train_steps": 1000, "lr_schedule": "separate"}
    config = PretrainingConfig.from_dict(support.hparams(folder, **settings | changes))
    with kernels.off():
        task = make_task(config, tf.distribute.get_strategy())
        step = tf.function(task.train_step, autograph=False)
        for number in range(steps):
            result = step(batch_of(seed=number % batches), tf.constant(0 if same_masking else number, tf.int64))
    return task, {name: float(total) / max(float(count), 1e-9) for name, (total, count) in result["metrics"].items()}


def test_bert_learns_one_batch_by_heart(tmp_path):
    task, metrics = run(100, 1, tmp_path, same_masking=True, electra_objective=False)
    assert metrics["masked_lm_loss"] < 0.1
    scopes = {variable.name.split("/")[0] for variable in task.model.trainable_variables}
    assert scopes == {"electra", "generator_predictions"}  # no discriminator, no generator of its own


@pytest.mark.parametrize(("weight", "apart"), [(1.0, True), (0.0, False)])
def test_views_of_a_sequence_come_together_by_contrast_alone(tmp_path, weight, apart):
    changes = {"sequence_contrast_objective": True, "scl_weight": weight, "disc_weight": 1.0, "learning_rate": 2e-3}
    _, metrics = run(100, 50, tmp_path, scl_temperature=0.2, **changes)
    difference = metrics["positive_cosine"] - metrics["negative_cosine"]
    assert difference > 0.3 if apart else difference < 0.2


def test_the_least_loss_of_electric_is_at_the_energies_of_the_data(tmp_path):
    """Five tokens with known distributions of data and noise (Electric, section 2.3): E = -log p makes the classifier's
    probability of noise a q / ((1 - a) p + a q), where the expected loss has no gradient; the sum of exp(-E) is 1."""
    config = PretrainingConfig.from_dict(
        support.hparams(tmp_path, electra_objective=False, electric_objective=True, mask_prob=0.2)
    )
    data, noise = np.array([0.4, 0.3, 0.15, 0.1, 0.05]), np.array([0.1, 0.1, 0.2, 0.25, 0.35])
    tokens = tf.range(5)[tf.newaxis]
    cloze = tf.math.log(tf.constant(noise, tf.float32))
    zeros, nothing = tf.zeros([1, 5], tf.int32), tf.zeros([1, 5])
    masked = MaskedBatch(zeros, zeros, zeros, zeros, zeros, zeros, nothing, nothing, nothing, nothing)
    everywhere = FusedSoftmax(tf.ones([1, 5, 1]), cloze[:, tf.newaxis], tf.zeros([5]))
    generated = GeneratorOutput(everywhere, cloze=everywhere)
    encoded = EncoderOutput(nothing, nothing, ())
    forward = Forward(masked, generated, CorruptedBatch(tokens, zeros, zeros, zeros), encoded)
    objective = NoiseContrastive(config, golden.NO_NETWORKS)
    energies = tf.Variable(-np.log(data)[np.newaxis], dtype=tf.float32)
    object.__setattr__(objective, "head", lambda states: energies + 0.0)
    with tf.GradientTape() as tape:
        logits = objective.logits(forward)
        of_data = tf.nn.sigmoid_cross_entropy_with_logits(tf.zeros_like(logits), logits)
        of_noise = tf.nn.sigmoid_cross_entropy_with_logits(tf.ones_like(logits), logits)
        loss = tf.reduce_sum(0.8 * data.astype(np.float32) * of_data + 0.2 * noise.astype(np.float32) * of_noise)
    np.testing.assert_allclose(tf.sigmoid(logits)[0], 0.2 * noise / (0.8 * data + 0.2 * noise), rtol=1e-5)
    np.testing.assert_allclose(tape.gradient(loss, energies), np.zeros([1, 5]), atol=1e-7)
    assert float(tf.reduce_sum(tf.exp(-energies))) == pytest.approx(1, rel=1e-6)
