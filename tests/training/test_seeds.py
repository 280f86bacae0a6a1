"""Seeds: dropout of its own at every step, replica, micro-batch and place of the network."""

import itertools

import numpy as np
import tensorflow as tf

from electra_tf2.model.layers import SeedStream
from electra_tf2.training import micro_batches
from tests.support.toy import Toy

PLACES = 20


def test_no_two_draws_of_dropout_have_the_same_seed(monkeypatch):
    """Equal masks in all layers, or on all replicas, would train as well, and regularise less."""
    task, seeds = Toy(tf.distribute.get_strategy()), set()
    sources = list(itertools.product((1, 2), range(3), range(2), range(2)))
    for purpose, step, replica, part in sources:
        monkeypatch.setattr(task, "replica", lambda number=replica: tf.constant(number))
        of_replica = task.replica_seed(task.step_seed(purpose, tf.constant(step, tf.int64)))
        stream = SeedStream(tf.random.experimental.stateless_fold_in(of_replica, part))
        seeds |= {tuple(stream.next().numpy().tolist()) for _ in range(PLACES)}
    assert len(seeds) == len(sources) * PLACES


def test_every_micro_batch_has_a_seed_of_its_own():
    task, seed = Toy(tf.distribute.get_strategy()), tf.constant([3, 4])
    task.micro_batches = 4
    rows = {"row": tf.range(8)}

    def forward(rows, seed):
        """The loss, and the seed in the lines of these rows."""
        places = tf.one_hot(rows["row"], 8, dtype=tf.int32)
        return tf.reduce_sum(task.model.weight), tf.reduce_sum(places, 0)[:, tf.newaxis] * seed

    _, found = task.summed_gradients([task.model.weight], forward, rows, seed, tf.constant(1.0))
    seeds = [tuple(pair) for pair in found.numpy().tolist()]
    assert seeds[::2] == seeds[1::2] and len(set(seeds)) == 4

    # The pass before the step, of losses that contrast micro-batches, drops out what the step does.
    def view(rows, number):
        of_part = tf.random.experimental.stateless_fold_in(seed, number)
        return {"seed": tf.cast(forward(rows, of_part)[1], tf.float32)}

    views = micro_batches.mapped(view, rows, 4)["seed"]
    np.testing.assert_array_equal(tf.reduce_sum(tf.reshape(views, [4, 8, 2]), 0), tf.cast(found, tf.float32))
