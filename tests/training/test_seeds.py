"""Seeds: dropout of its own at every step, replica, micro-batch and place of the network."""

import itertools

import tensorflow as tf

from electra_tf2.model.layers import SeedStream
from tests.training.toy import Toy

PLACES = 20


def test_no_two_draws_of_dropout_have_the_same_seed(monkeypatch):
    """Equal masks in all layers, or on all replicas, would train as well, and regularise less."""
    task, seeds = Toy(tf.distribute.get_strategy()), set()
    sources = list(itertools.product((1, 2), range(3), range(2), range(2)))
    for purpose, step, replica, part in sources:
        monkeypatch.setattr(task, "replica", lambda number=replica: tf.constant(number))
        of_replica = task.seed_of_replica(task.seed_of(purpose, tf.constant(step, tf.int64)))
        stream = SeedStream(tf.random.experimental.stateless_fold_in(of_replica, part))
        seeds |= {tuple(stream.next().numpy().tolist()) for _ in range(PLACES)}
    assert len(seeds) == len(sources) * PLACES
