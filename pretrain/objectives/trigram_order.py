"""Trigram shuffling: in which of its six orders do three tokens stand? ("On Losses", TGS)

Records are cut into threes of tokens from the first on; one in twenty of those that hold no special token is put into
an order drawn from all six, the original one among them, and not masked. Ours: the label is predicted from the three
states together.
"""

import itertools

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.masking import Arranged, Draw, unmaskable
from electra_tf2.pretrain.objectives.auxiliary import Classification, StateHead
from electra_tf2.pretrain.objectives.base import Built, Forward

ORDERS = list(itertools.permutations(range(3)))
_SHARE = 0.05  # of the threes ("On Losses", section 3.2)


class TrigramOrder(Classification):
    """Cross-entropy over the six orders, at the drawn threes."""

    task, loss_name, classes = "tgs", "tgs_loss", len(ORDERS)

    def __init__(self, config: PretrainingConfig, built: Built | None = None) -> None:
        super().__init__(config, built)
        self.head = StateHead("trigram_predictions", config, self.classes, 3 * config.architecture.hidden_size)
        self._threes = (config.max_seq_length - 1) // 3

    def arrange(self, batch: dict[str, tf.Tensor], candidates: tf.Tensor, draw: Draw, active: tf.Tensor) -> Arranged:
        whole = tf.reshape(candidates[:, 1 : 1 + 3 * self._threes], [-1, self._threes, 3])
        drawn = (draw(0, [self._threes]) < _SHARE) & tf.reduce_all(whole > 0, -1) & active
        order = tf.minimum(tf.cast(draw(1, [self._threes]) * self.classes, tf.int32), self.classes - 1)
        labels = tf.where(drawn, order, -1)
        length = batch["input_ids"].shape[1]
        inside = tf.pad(tf.repeat(drawn, 3, axis=1), [[0, 0], [1, length - 1 - 3 * self._threes]])
        return unmaskable(shuffled(batch, tf.where(drawn, order, 0)), inside), {self.task: labels}

    def logits(self, forward: Forward) -> tf.Tensor:
        states = forward.trained
        together = tf.reshape(states[:, 1 : 1 + 3 * self._threes], [-1, self._threes, 3 * states.shape[-1]])
        return self.head(together)


def shuffled(batch: dict[str, tf.Tensor], orders: tf.Tensor) -> dict[str, tf.Tensor]:
    """Tokens 1 + 3k, 2 + 3k, 3 + 3k of each row in the order ORDERS[orders[:, k]], int32 [B, K]."""
    ids, threes = batch["input_ids"], orders.shape[1]
    body = tf.reshape(ids[:, 1 : 1 + 3 * threes], [-1, threes, 3])
    moved = tf.gather(body, tf.gather(tf.constant(ORDERS), orders), batch_dims=2)
    parts = [ids[:, :1], tf.reshape(moved, [-1, 3 * threes]), ids[:, 1 + 3 * threes :]]
    return batch | {"input_ids": tf.concat(parts, 1)}
