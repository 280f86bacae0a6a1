"""Auxiliary tasks (On Losses, section 3.2): their class, heads, text that is changed before it is masked, and those on
the tokens of a record: trigram shuffling, corrupted tokens and sequences, term frequency.
"""

import itertools
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from electra_tf2.corpus.vocabulary import load_vocab
from electra_tf2.model.architecture import Architecture
from electra_tf2.model.initializers import truncated_normal
from electra_tf2.model.layers import Dense, Layer, LayerNorm
from electra_tf2.papers.on_losses.config import Config
from electra_tf2.papers.on_losses.tables import inverse_frequencies
from electra_tf2.pretrain.masking import Batch, Draw, MaskedBatch
from electra_tf2.pretrain.objectives.coco_lm import View
from electra_tf2.pretrain.objectives.objective import Forward, LossTerm, Networks, Objective, weighted_mean


class TaskHead(Layer):
    """C numbers: [B, C] of [CLS] states, by dense(H) + tanh, or [B, L, C] of all, by dense(H), gelu and layer norm.

    Args:
      of_sequence: reads [CLS] states.
      input_size: of the states; the network's width if not given.

    >>> sizes = make_architecture("small", {"hidden_size": 64}, 600, None)
    >>> TaskHead("head", sizes, 3, of_sequence=True)(tf.zeros([2, 7, 64])).shape
    TensorShape([2, 3])
    """

    def __init__(
        self,
        scope: str,
        architecture: Architecture,
        outputs: int,
        seed: int = 0,
        of_sequence: bool = False,
        input_size: int | None = None,
    ) -> None:
        super().__init__(scope, seed)
        width, initializer = architecture.hidden_size, truncated_normal(architecture.initializer_range)
        activation = "tanh" if of_sequence else "gelu"
        self.dense = Dense(f"{scope}/dense", input_size or width, width, initializer, seed, activation)
        self.layer_norm = None if of_sequence else LayerNorm(f"{scope}/LayerNorm", width)
        self.outputs = Dense(f"{scope}/outputs", width, outputs, initializer, seed)

    def call(self, states: tf.Tensor) -> tf.Tensor:
        inner = self.dense(states[:, 0]) if self.layer_norm is None else self.layer_norm(self.dense(states))
        return tf.cast(self.outputs(inner), tf.float32)


class TaskBatch(NamedTuple):
    """A masked batch, and what tasks did to its sequences before; fields of `MaskedBatch` are its own, too.

    masked: the masked batch.
    labels: task -> int32 [B, ...] labels of `Classification.change_text`.
    task_ids: int32 [B], the task that the step is about, from 1 on; 0: none (use_task_ids).
    """

    masked: MaskedBatch
    labels: dict[str, tf.Tensor]
    task_ids: tf.Tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self.masked, name)


class Auxiliary(Objective):
    """A task of `aux_tasks`.

    Class attributes:
      task: its name there. Metrics of a task that changes the text begin with it.
    """

    config: Config
    task: str
    weight = "aux_weight"

    def views(self, masked: MaskedBatch) -> Sequence[View]:
        """Other sequences that the network shall read."""
        del masked
        return ()


class Changed(NamedTuple):
    """Sequences as a task changed them, before they are masked.

    batch: int32 [B, L] of each field of records.
    labels: int32, what was done; -1 where nothing is asked.
    unmaskable: bool [B, L], tokens that must not be masked; False: none.
    """

    batch: Batch
    labels: tf.Tensor
    unmaskable: tf.Tensor | bool = False


class Classification(Auxiliary):
    """A task that changes the text and asks what was done, one of C classes for each label that is not negative.

    Class attributes:
      head_name: of its head's variables.
      of_sequence: the head reads the [CLS] state; false: that of every token.
      states_together: number of states that the head reads as one.
    """

    classes: int
    head_name: str
    of_sequence = True
    states_together = 1

    def __init__(self, config: Config, networks: Networks) -> None:
        super().__init__(config, networks)
        self.initial_loss, sizes = math.log(self.classes), config.architecture
        scope, width = f"{self.head_name}_predictions", self.states_together * sizes.hidden_size
        self.head = TaskHead(scope, sizes, self.classes, config.seed, self.of_sequence, width)

    def change_text(self, batch: Batch, candidates: tf.Tensor, draw: Draw) -> Changed:
        """Changes the sequences before they are masked, for everyone.

        Args:
          batch: int32 [B, L] input_ids, input_mask, segment_ids.
          candidates: float32 [B, L], 1 at tokens that are not special.
          draw: uniform draws for the rows of this task.
        """
        raise NotImplementedError

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return tf.cast(labels_of(masked, self.task) >= 0, tf.float32)

    def logits(self, forward: Forward) -> tf.Tensor:
        """float32 [..., C], of the labels' shape."""
        return self.head(forward.states)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        labels = tf.maximum(labels_of(forward.masked, self.task), 0)
        logits, weights = self.logits(forward), self.token_weights(forward.masked)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        correct = tf.equal(tf.argmax(logits, -1, tf.int32), labels)
        return self.output(forward, losses, {f"{self.task}_accuracy": weighted_mean(correct, weights)})


def labels_of(masked: MaskedBatch, task: str) -> tf.Tensor:
    """int32, the labels of a task that changed the text."""
    assert isinstance(masked, TaskBatch)
    return masked.labels[task]


def integers(draws: tf.Tensor, number: int | tf.Tensor) -> tf.Tensor:
    """int32 in [0, number) of uniform draws in [0, 1)."""
    return tf.minimum(tf.cast(draws * tf.cast(number, tf.float32), tf.int32), number - 1)


# Tasks on tokens.

ORDERS = list(itertools.permutations(range(3)))
HIGHEST = 10.0  # of scaled term frequencies
_SHARE = 0.05  # of the threes (On Losses, section 3.2); of the tokens, of either kind of corruption: 10 % together


class TrigramOrder(Classification):
    """Trigram shuffling (TGS): the order, of six, in which three tokens stand. Cross-entropy at the drawn threes.

    Records are cut into threes of tokens from the first on; one in twenty of those that hold no special token is put
    into an order drawn from all six, the original one among them, and not masked. Ours: the label is predicted from the
    three states together.
    """

    task, loss_name, classes = "tgs", "tgs_loss", len(ORDERS)
    head_name, of_sequence, states_together = "trigram", False, 3

    def change_text(self, batch: Batch, candidates: tf.Tensor, draw: Draw) -> Changed:
        ids, threes = batch["input_ids"], _threes(batch["input_ids"])
        number, rest = threes.shape[1], ids[:, 1 + 3 * threes.shape[1] :]
        drawn = (draw(0, [number]) < _SHARE) & tf.reduce_all(_threes(candidates) > 0, -1)
        order = integers(draw(1, [number]), self.classes)
        moved = tf.gather(threes, tf.gather(tf.constant(ORDERS), tf.where(drawn, order, 0)), batch_dims=2)
        ids = tf.concat([ids[:, :1], tf.reshape(moved, [-1, 3 * number]), rest], 1)
        inside = tf.pad(tf.repeat(drawn, 3, axis=1), [[0, 0], [1, rest.shape[1]]])
        return Changed(batch | {"input_ids": ids}, tf.where(drawn, order, -1), inside)

    def logits(self, forward: Forward) -> tf.Tensor:
        states = _threes(forward.states)
        return self.head(tf.reshape(states, [-1, states.shape[1], 3 * states.shape[-1]]))


def _threes(values: tf.Tensor) -> tf.Tensor:
    """[B, K, 3, ...]: values [B, L, ...] at tokens 1 + 3k, 2 + 3k and 3 + 3k."""
    number = (values.shape[1] - 1) // 3
    return tf.reshape(values[:, 1 : 1 + 3 * number], [-1, number, 3, *values.shape[2:]])


class TokenCorruption(Classification):
    """Token corruption (TCP): tokens that were tampered with. Cross-entropy at every token that is not special.

    One token in twenty becomes a random, ordinary one, and as many change places with a neighbour. "On Losses" inserts
    tokens as well, which would push others out of a record of fixed length. For ELECTRA a tampered token that the
    generator left alone is no replaced one: both tasks then say different things of it. What was tampered with is not
    masked, so that no masked language model is taught the random tokens and the label can be read off the input; a
    two-tower generator, which predicts every token, is taught them all the same.
    """

    task, loss_name, classes = "tcp", "tcp_loss", 2
    head_name, of_sequence = "token_corruption", False

    def __init__(self, config: Config, networks: Networks) -> None:
        super().__init__(config, networks)
        tokens = load_vocab(config.vocab_file)
        # What text can hold: neither [UNK] nor others in brackets.
        self._ordinary = [number for number, token in enumerate(tokens) if not re.fullmatch(r"\[.+\]", token)]

    def changed(self, batch: Batch, candidates: tf.Tensor, draw: Draw) -> tf.Tensor:
        ids, length = batch["input_ids"], batch["input_ids"].shape[1]
        random_ids = tf.gather(tf.constant(self._ordinary, tf.int32), integers(draw(1, [length]), len(self._ordinary)))
        exchanged = draw(2, [(length - 1) // 2]) < _SHARE
        return tampered(ids, candidates, draw(0, [length]) < _SHARE, random_ids, exchanged)

    def change_text(self, batch: Batch, candidates: tf.Tensor, draw: Draw) -> Changed:
        changed = self.changed(batch, candidates, draw)
        differs = changed != batch["input_ids"]
        labels = tf.where(candidates > 0, tf.cast(differs, tf.int32), -1)
        return Changed(batch | {"input_ids": changed}, labels, differs)


class SequenceCorruption(TokenCorruption):
    """Sequence corruption (SCP): half of the sequences are tampered with; cross-entropy from the [CLS] state."""

    task, loss_name = "scp", "scp_loss"
    head_name, of_sequence = "sequence_corruption", True

    def change_text(self, batch: Batch, candidates: tf.Tensor, draw: Draw) -> Changed:
        ids, chosen = batch["input_ids"], draw(3, [])[:, tf.newaxis] < 0.5
        changed = tf.where(chosen, self.changed(batch, candidates, draw), ids)
        real, differs = tf.reduce_any(batch["input_mask"] > 0, -1), changed != ids
        labels = tf.where(real, tf.cast(tf.reduce_any(differs, -1), tf.int32), -1)
        return Changed(batch | {"input_ids": changed}, labels, differs)


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


class TermFrequency(Auxiliary):
    """Term frequency (TF): number of times that a token occurs in its document. Squared error at every token that is
    not special, of the original tokens; their states may be of others.

    The document is the record, so nothing has to be stored in it. As the paper says, values are scaled to [0, 10]
    between the lowest and the highest of the document; its code scales per sentence, cuts them to integers and counts
    padding.
    """

    task, loss_name = "tf", "tf_loss"
    initial_loss = 10.0  # a guess: between 0 and 100, as the text has it

    def __init__(self, config: Config, networks: Networks) -> None:
        super().__init__(config, networks)
        self.head = TaskHead(f"{self.task}_predictions", config.architecture, 1, config.seed)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return masked.candidates

    def values(self, masked: MaskedBatch) -> tf.Tensor:
        """float32 [B, L], before they are scaled."""
        return frequencies(masked.input_ids, masked.candidates)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        masked = forward.masked
        wanted = scaled(self.values(masked), masked.candidates)
        losses = tf.math.squared_difference(self.head(forward.states)[..., 0], wanted)
        mean = weighted_mean(wanted, masked.candidates)
        return self.output(forward, losses, {f"{self.task}_mean": mean})


class TermFrequencyInverse(TermFrequency):
    """The same, weighed by how rare a token is elsewhere (TF-IDF).

    The factor is log(documents / documents that hold the token), of build_table.py.
    """

    task, loss_name = "tf_idf", "tf_idf_loss"

    def __init__(self, config: Config, networks: Networks) -> None:
        super().__init__(config, networks)
        self._inverse = inverse_frequencies(config.document_frequency_file, config.vocab_file)

    def values(self, masked: MaskedBatch) -> tf.Tensor:
        return super().values(masked) * tf.gather(tf.constant(self._inverse), masked.input_ids)


def frequencies(ids: tf.Tensor, candidates: tf.Tensor) -> tf.Tensor:
    """float32 [B, L]: how many of a row's candidates have the id of each token of it."""
    same = tf.cast(ids[:, :, tf.newaxis] == ids[:, tf.newaxis, :], tf.float32)
    return tf.reduce_sum(same * candidates[:, tf.newaxis], -1)


def scaled(values: tf.Tensor, candidates: tf.Tensor) -> tf.Tensor:
    """Values [B, L] moved to [0, 10] between the lowest and the highest of a row's candidates; 0 if all are alike."""
    inside = candidates > 0
    lowest = tf.reduce_min(tf.where(inside, values, values.dtype.max), -1, keepdims=True)
    highest = tf.reduce_max(tf.where(inside, values, values.dtype.min), -1, keepdims=True)
    span = highest - lowest
    return tf.where(inside & (span > 0), HIGHEST * (values - lowest) / tf.where(span > 0, span, 1.0), 0.0)
