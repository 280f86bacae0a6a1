"""Corrupted tokens: which tokens of the text were tampered with (TCP), or was the text at all (SCP)? ("On Losses")

One token in twenty becomes a random one, and as many change places with a neighbour. "On Losses" inserts tokens as
well, which would push others out of a record of fixed length. For ELECTRA a tampered token that the generator left
alone is no replaced one: both tasks then say different things of it. What was tampered with is not masked, so that no
masked language model is taught the random tokens and the label can be read off the input; a two-tower generator, which
predicts every token, is taught them all the same. Random tokens are ordinary ones.
"""

import re

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.vocabulary import load_vocab
from electra_tf2.pretrain.masking import Arranged, Draw, unmaskable
from electra_tf2.pretrain.objectives.auxiliary import Classification, PooledHead, StateHead
from electra_tf2.pretrain.objectives.base import Built

_SHARE = 0.05  # of the tokens, of either kind; 10 % together


def tampered(
    ids: tf.Tensor, candidates: tf.Tensor, replaced: tf.Tensor, random_ids: tf.Tensor, exchanged: tf.Tensor
) -> tf.Tensor:
    """int32 [B, L]: tokens 1 + 2k and 2 + 2k exchanged where `exchanged` says so, then random ids where `replaced`.

    Args:
      candidates, replaced: float32 and bool [B, L]; no other token is touched. exchanged: bool [B, (L - 1) // 2].
    """
    pairs = exchanged.shape[1]
    both = tf.reduce_all(tf.reshape(candidates[:, 1 : 1 + 2 * pairs], [-1, pairs, 2]) > 0, -1)
    body = tf.reshape(ids[:, 1 : 1 + 2 * pairs], [-1, pairs, 2])
    body = tf.where((both & exchanged)[..., tf.newaxis], tf.reverse(body, [-1]), body)
    moved = tf.concat([ids[:, :1], tf.reshape(body, [-1, 2 * pairs]), ids[:, 1 + 2 * pairs :]], 1)
    return tf.where(replaced & (candidates > 0), random_ids, moved)


def ordinary_ids(config: PretrainingConfig) -> list[int]:
    """Ids of the tokens that text can hold: neither [UNK] nor others in brackets, nor those that mark sources."""
    unmasked = set(config.unmasked_tokens)
    tokens = load_vocab(config.vocab_file)
    return [i for i, token in enumerate(tokens) if not re.fullmatch(r"\[.+\]", token) and token not in unmasked]


class TokenCorruption(Classification):
    """Cross-entropy over (as it was, tampered with) at every token that is not special."""

    task, loss_name, classes = "tcp", "tcp_loss", 2

    def __init__(self, config: PretrainingConfig, built: Built | None = None) -> None:
        super().__init__(config, built)
        self.head = StateHead("token_corruption_predictions", config, self.classes)
        self._ordinary = ordinary_ids(config)

    def changed(self, batch: dict[str, tf.Tensor], candidates: tf.Tensor, draw: Draw) -> tf.Tensor:
        ids, kinds = batch["input_ids"], len(self._ordinary)
        length = ids.shape[1]
        drawn = tf.minimum(tf.cast(draw(1, [length]) * kinds, tf.int32), kinds - 1)
        random_ids = tf.gather(tf.constant(self._ordinary, tf.int32), drawn)
        exchanged = draw(2, [(length - 1) // 2]) < _SHARE
        return tampered(ids, candidates, draw(0, [length]) < _SHARE, random_ids, exchanged)

    def arrange(self, batch: dict[str, tf.Tensor], candidates: tf.Tensor, draw: Draw, active: tf.Tensor) -> Arranged:
        ids = batch["input_ids"]
        changed = tf.where(active, self.changed(batch, candidates, draw), ids)
        labels = tf.where((candidates > 0) & active, tf.cast(changed != ids, tf.int32), -1)
        return unmaskable(batch, changed != ids) | {"input_ids": changed}, {self.task: labels}


class SequenceCorruption(TokenCorruption):
    """The same of half of the sequences; cross-entropy over (as it was, tampered with) from the [CLS] state."""

    task, loss_name = "scp", "scp_loss"

    def __init__(self, config: PretrainingConfig, built: Built | None = None) -> None:
        super().__init__(config, built)
        self.head = PooledHead("sequence_corruption_predictions", config, self.classes)
        self._ordinary = ordinary_ids(config)

    def arrange(self, batch: dict[str, tf.Tensor], candidates: tf.Tensor, draw: Draw, active: tf.Tensor) -> Arranged:
        ids = batch["input_ids"]
        chosen = (draw(3, []) < 0.5) & active
        changed = tf.where(chosen[:, tf.newaxis], self.changed(batch, candidates, draw), ids)
        real = tf.reduce_any(batch["input_mask"] > 0, -1)
        labels = tf.where(real & active, tf.cast(tf.reduce_any(changed != ids, -1), tf.int32), -1)
        return unmaskable(batch, changed != ids) | {"input_ids": changed}, {self.task: labels}
