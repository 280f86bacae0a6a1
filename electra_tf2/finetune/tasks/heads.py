"""Heads: layers on top of the encoder, which make losses and predictions of its states; one a task.

`classifier_pooling` says which state of a text those that classify it read, `classifier` what is between it and their
outputs. B batch, L length (differs between batches), H hidden.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.model.encoder import Encoder
from electra_tf2.model.heads import PredictionHead
from electra_tf2.model.initializers import glorot_uniform
from electra_tf2.model.layers import Dense, Layer, SeedStream, activation, dropout, shape_of
from electra_tf2.model.other_heads import vocabulary_head
from electra_tf2.model.pooling import mean_state, orthogonal, text_state, text_vectors

FORBIDDEN = 1000.0  # subtracted from the logits of positions that cannot be answers, as in the original

NUM_SPANS = 2
_HIDDEN = 512  # of the layers of question answering
_IMPOSSIBLE = -1e9  # logit of what stands for nothing to contrast with


class HeadInput(NamedTuple):
    """Input of a head. B batch, L length (differs between batches), H hidden.

    sequence: [B, L, H], the encoder's last layer, in the compute type.
    input_mask, segment_ids: int32 [B, L].
    labels: name -> [B] or [B, L]; zeros where there are none.
    input_ids: int32 [B, L], what the encoder read.
    """

    sequence: tf.Tensor
    input_mask: tf.Tensor
    segment_ids: tf.Tensor
    labels: dict[str, tf.Tensor]
    input_ids: tf.Tensor | None = None


class HeadOutput(NamedTuple):
    """Output of a head on a batch.

    losses: float32 [B], one per row; the rows of one example have equal parts of its loss.
    predictions: name -> [B, ...]; empty when training.
    """

    losses: tf.Tensor
    predictions: dict[str, tf.Tensor]


class Head(Layer):
    """Base of heads; variables under "task_specific/<task>" as in the original."""

    def logits(self, inputs: HeadInput, seeds: SeedStream | None) -> tf.Tensor:
        """float32 [B, ...], what other programs' heads of the kind say; not every kind has such."""
        raise NotImplementedError

    def call(self, inputs: HeadInput, seeds: SeedStream | None, training: bool) -> HeadOutput:
        """`seeds` of the dropout, None without it."""
        raise NotImplementedError


class TextHead(Head):
    """Dropout and a dense layer on the [CLS] state, without a pooler (ELECTRA, section 3.1).

    Args:
      config: `classifier`: "tanh" or "gelu" puts dropout and a dense layer with that activation before (COCO-LM);
        `classifier_pooling`: "mean" takes the mean of all tokens' states for [CLS]'s. With head_style modernbert a
        head as in pre-training is before the dropout.
    """

    output_name = "dense"  # of the last layer's variables
    spans = 0  # whose mean states are read beside that of the text
    reads_classifier = True  # whether config.classifier counts

    def __init__(self, scope: str, hidden_size: int, outputs: int, config: FinetuningConfig, seed: int) -> None:
        super().__init__(scope, seed)
        self.dropout_rate, self.pooling = config.classifier_dropout, config.classifier_pooling
        width = (1 + self.spans) * hidden_size
        self.inner = self.prediction_head = None
        if config.architecture.head_style == "modernbert":
            self.prediction_head = PredictionHead(f"{scope}/head", config.architecture, seed, width)
            width = hidden_size
        elif self.reads_classifier and config.classifier != "linear":
            self.inner = Dense(f"{scope}/inner", width, hidden_size, glorot_uniform, seed)
            self.activation, width = activation(config.classifier), hidden_size
        self.dense = Dense(f"{scope}/{self.output_name}", width, outputs, glorot_uniform, seed)

    def states(self, inputs: HeadInput) -> tf.Tensor:
        """[B, width], what it reads; [B, L, width] of heads on words."""
        marks = [inputs.labels[span_label(number)] for number in range(self.spans)]
        state = text_state(inputs.sequence, inputs.input_mask, self.pooling)
        return tf.concat([state, *(mean_state(inputs.sequence, of_span) for of_span in marks)], -1)

    def logits(self, inputs: HeadInput, seeds: SeedStream | None) -> tf.Tensor:
        """float32 [B, outputs], or [B, L, outputs]."""
        state = self.states(inputs)
        if self.prediction_head is not None:
            state = self.prediction_head(state)
        state = dropout(state, self.dropout_rate, seeds)
        if self.inner is not None:
            state = dropout(self.activation(self.inner(state)), self.dropout_rate, seeds)
        return tf.cast(self.dense(state), tf.float32)


class ClassificationHead(TextHead):
    """Classes of a softmax, or a number with squared error.

    Args:
      num_classes: None for regression.
      weights: of the classes' losses in training; None: all 1.
      value: of what is learned of a number, on the task's scale.
    """

    def __init__(
        self,
        scope: str,
        hidden_size: int,
        num_classes: int | None,
        config: FinetuningConfig,
        seed: int,
        weights: Sequence[float] | None = None,
        value: Callable[[tf.Tensor], tf.Tensor] = tf.identity,
    ) -> None:
        super().__init__(scope, hidden_size, num_classes or 1, config, seed)
        self.class_weights, self.num_classes, self.value = weights, num_classes, value

    def call(self, inputs: HeadInput, seeds: SeedStream | None, training: bool) -> HeadOutput:
        """Labels: int32 [B] `label_ids`, or float32 [B] `targets`.

        Predictions: float32 `logits` [B, C], or `value` [B].
        """
        logits = self.logits(inputs, seeds)
        if self.num_classes is None:
            numbers = tf.squeeze(logits, -1)
            losses = tf.square(numbers - inputs.labels["targets"])
            return HeadOutput(losses, {} if training else {"value": self.value(numbers)})
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(inputs.labels["label_ids"], logits)
        if training and self.class_weights is not None:
            losses *= tf.gather(tf.constant(self.class_weights, tf.float32), inputs.labels["label_ids"])
        return HeadOutput(losses, {} if training else {"logits": logits})


class ChoiceHead(TextHead):
    """One number of each text (GPT, section 3.3; as every encoder since does for RACE).

    Args:
      choices: candidates of a question; rows that lie together are one question's.
    """

    output_name = "choice"

    def __init__(self, scope: str, hidden_size: int, choices: int, config: FinetuningConfig, seed: int) -> None:
        super().__init__(scope, hidden_size, 1, config, seed)
        self.choices = choices

    def call(self, inputs: HeadInput, seeds: SeedStream | None, training: bool) -> HeadOutput:
        """Labels: int32 [B] `right`, the number of the question's right candidate on each of its rows.

        Losses: the question's, in equal parts on its rows. Predictions: float32 [B] log-probability of each candidate.
        """
        logits = tf.reshape(self.logits(inputs, seeds), [-1, self.choices])
        right = tf.reshape(inputs.labels["right"], [-1, self.choices])[:, 0]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(right, logits)
        losses = tf.repeat(losses / self.choices, self.choices)
        if training:
            return HeadOutput(losses, {})
        return HeadOutput(losses, {"log_probs": tf.reshape(tf.nn.log_softmax(logits), [-1])})


def span_label(number: int) -> str:
    """Name of the label that marks the tokens of a span."""
    return f"span_{number + 1}"


class SpanHead(ClassificationHead):
    """Classes of the text's state and the mean state of each span, one beside the other; zeros for a span cut off.

    As the baselines of SuperGLUE classify the two words of WiC and the two mentions of WSC (Wang et al. 2019, 4.1).
    Further labels: int32 [B, L] `span_1`, `span_2`, 1 at the span's tokens.
    """

    output_name, spans = "spans", NUM_SPANS


class TaggingHead(TextHead):
    """A `TextHead` on the states of words' first pieces (BERT, section 5.3), always with a dense layer alone."""

    reads_classifier = False

    def states(self, inputs: HeadInput) -> tf.Tensor:
        """[B, L, H], entry i of word i."""
        return tf.gather(inputs.sequence, inputs.labels["labeled_positions"], batch_dims=1)

    def call(self, inputs: HeadInput, seeds: SeedStream | None, training: bool) -> HeadOutput:
        """Losses are sums over a row's words.

        Labels: int32 [B, L] `labels` and `labeled_positions`, float32 [B, L] `labels_mask`, entry i of word i.
        Predictions: int32 [B, L] `predictions`, float32 [B, L] `scores`, their probabilities.
        """
        labels, logits = inputs.labels, self.logits(inputs, seeds)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels["labels"], logits)
        losses = tf.reduce_sum(losses * labels["labels_mask"], -1)
        if training:
            return HeadOutput(losses, {})
        predictions = tf.argmax(logits, -1, tf.int32)
        return HeadOutput(losses, {"predictions": predictions, "scores": tf.reduce_max(tf.nn.softmax(logits), -1)})


class AnswerHead(Head):
    """Start logits; end logits given the start (joint_prediction) or not; whether there is no answer.

    With joint_prediction the end of training is predicted from the true start, and that of evaluation from each of the
    best `beam_size` starts. Its first layer over [start state, end state] is split into two products, so that nothing
    of shape [B, beam, L, 2H] exists.
    """

    def __init__(self, scope: str, hidden_size: int, config: FinetuningConfig, seed: int) -> None:
        super().__init__(scope, seed)
        self.config, self.gelu = config, activation("gelu")
        self.prediction_head = None
        if config.architecture.head_style == "modernbert":
            self.prediction_head = PredictionHead(f"{scope}/head", config.architecture, seed)

        def dense(name: str, input_size: int, output_size: int) -> Dense:
            return Dense(f"{scope}/{name}", input_size, output_size, glorot_uniform, seed)

        self.start = dense("start", hidden_size, 1)
        if config.joint_prediction:
            self.end_hidden = dense("end_hidden", 2 * hidden_size, _HIDDEN)
            self.end = dense("end", _HIDDEN, 1)
        else:
            self.end = dense("end", hidden_size, 1)
        self.answerable = None
        if config.answerable_classifier:
            self.answerable_hidden = None
            if config.answerable_uses_start_logits:
                self.answerable_hidden = dense("answerable_hidden", 2 * hidden_size, _HIDDEN)
            self.answerable = dense("answerable", _HIDDEN if self.answerable_hidden else hidden_size, 1)

    def call(self, inputs: HeadInput, seeds: SeedStream | None, training: bool) -> HeadOutput:
        """Losses: mean of start and end, plus answerable_weight times that of answerability.

        Labels: int32 [B] `start_positions`, `end_positions`, `is_impossible`. Predictions with joint_prediction:
        float32 `start_top_log_probs` [B, K], int32 `start_top_index` [B, K], and `end_top_*` [B, K, K]; else
        `start_logits`, `end_logits` [B, L]. Always `answerable_logit` [B], positive means impossible.
        """
        del seeds  # the original has no dropout here
        states, labels = inputs.sequence, inputs.labels
        if self.prediction_head is not None:
            states = self.prediction_head(states)
        allowed = tf.cast(inputs.input_mask * inputs.segment_ids, tf.float32)
        allowed = tf.concat([tf.ones_like(allowed[:, :1]), allowed[:, 1:]], 1)  # [CLS]: no answer here
        penalty = FORBIDDEN * (allowed - 1.0)
        start_logits = _logit(self.start, states) + penalty
        start_losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels["start_positions"], start_logits)
        if self.config.joint_prediction:
            gold = tf.gather(states, labels["start_positions"][:, tf.newaxis], batch_dims=1)
            end_logits = tf.squeeze(self._end_logits(gold, states), 1) + penalty
        else:
            end_logits = _logit(self.end, states) + penalty
        end_losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels["end_positions"], end_logits)
        losses = 0.5 * (start_losses + end_losses)
        answerable = tf.zeros_like(losses)
        if self.answerable is not None:
            answerable = self._answerable_logit(states, start_logits)
            impossible = tf.cast(labels["is_impossible"], tf.float32)
            losses += self.config.answerable_weight * tf.nn.sigmoid_cross_entropy_with_logits(impossible, answerable)
        if training:
            return HeadOutput(losses, {})
        predictions = {"answerable_logit": answerable}
        if self.config.joint_prediction:
            predictions |= self._beam(states, start_logits, penalty)
        else:
            predictions |= {"start_logits": start_logits, "end_logits": end_logits}
        return HeadOutput(losses, predictions)

    def logits(self, inputs: HeadInput, seeds: SeedStream | None) -> tf.Tensor:
        """float32 [B, L, 2] of starts and ends, without joint_prediction."""
        states = inputs.sequence if self.prediction_head is None else self.prediction_head(inputs.sequence)
        return tf.stack([_logit(self.start, states), _logit(self.end, states)], -1)

    def _end_logits(self, starts: tf.Tensor, states: tf.Tensor) -> tf.Tensor:
        """float32 [B, K, L] from states of starts [B, K, H] and of all positions [B, L, H]."""
        size = states.shape[-1]
        kernel = tf.cast(self.end_hidden.kernel, states.dtype)
        from_start = tf.tensordot(starts, kernel[:size], 1) + tf.cast(self.end_hidden.bias, states.dtype)
        from_end = tf.tensordot(states, kernel[size:], 1)
        hidden = self.gelu(from_start[:, :, tf.newaxis] + from_end[:, tf.newaxis])
        return _logit(self.end, hidden)

    def _beam(self, states: tf.Tensor, start_logits: tf.Tensor, penalty: tf.Tensor) -> dict[str, tf.Tensor]:
        size = tf.minimum(self.config.beam_size, shape_of(states)[1])
        start_log_probs, starts = tf.math.top_k(tf.nn.log_softmax(start_logits), size)
        end_logits = self._end_logits(tf.gather(states, starts, batch_dims=1), states) + penalty[:, tf.newaxis]
        end_log_probs, ends = tf.math.top_k(tf.nn.log_softmax(end_logits), size)
        return {
            "start_top_log_probs": start_log_probs,
            "start_top_index": starts,
            "end_top_log_probs": end_log_probs,
            "end_top_index": ends,
        }

    def _answerable_logit(self, states: tf.Tensor, start_logits: tf.Tensor) -> tf.Tensor:
        assert self.answerable is not None
        features = states[:, 0]
        if self.answerable_hidden is not None:
            probabilities = tf.cast(tf.nn.softmax(start_logits), states.dtype)
            start = tf.squeeze(tf.matmul(probabilities[:, tf.newaxis], states), 1)
            features = self.gelu(self.answerable_hidden(tf.concat([features, start], -1)))
        return _logit(self.answerable, features)


def _logit(layer: Dense, x: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.squeeze(layer(x), -1), tf.float32)


class ContrastHead(Head):
    """The softmax over the texts of a batch that could be a text's partner (SimCSE, equations 1 and 5).

    Without variables: what is learned is the encoder. Texts are compared with those of their micro-batch on their
    device; those equal to the text or to its partner, or partners of an equal text, are left out.

    Args:
      choices: texts of an example, which lie together: the text, its partner, and with 3 its negative.
    """

    def __init__(
        self, scope: str, hidden_size: int, choices: int, rarity: np.ndarray | None, config: FinetuningConfig, seed: int
    ) -> None:
        super().__init__(scope, seed)
        self.projection = None
        if width := config.embedding_projection:
            self.projection = Dense(f"{scope}/projection", hidden_size, width, orthogonal, seed)
        self.choices, self.rarity, self.lexical_weight = choices, rarity, config.lexical_weight
        self.pooling, self.temperature = config.classifier_pooling, config.contrast_temperature

    def call(self, inputs: HeadInput, seeds: SeedStream | None, training: bool) -> HeadOutput:
        """Labels: int32 [B] `text`. Losses: the example's, in equal parts on its rows. Predictions: float32
        `embedding` [B, H], of length 1."""
        del seeds
        vectors = text_vectors(inputs.sequence, inputs.input_mask, self.pooling, self.projection)
        if not training:
            return HeadOutput(tf.zeros_like(vectors[:, 0]), {"embedding": vectors})
        # [N, H] and [N] of each place; candidates [N (choices - 1), H].
        vectors = tf.unstack(tf.reshape(vectors, [-1, self.choices, vectors.shape[-1]]), axis=1)
        texts = tf.unstack(tf.reshape(inputs.labels["text"], [-1, self.choices]), axis=1)
        candidates, names = tf.concat(vectors[1:], 0), tf.concat(texts[1:], 0)
        cosines = tf.matmul(vectors[0], candidates, transpose_b=True)
        anchors = tf.concat([texts[0], *map(tf.zeros_like, texts[2:])], 0)  # the texts whose partners candidates are
        same = (names == 0) | (names == texts[0][:, tf.newaxis]) | (names == texts[1][:, tf.newaxis])
        same |= anchors == texts[0][:, tf.newaxis]
        rows = tf.range(tf.shape(cosines)[0])
        own = rows[:, tf.newaxis] == tf.range(tf.shape(cosines)[1])
        logits = tf.where(same & ~own, _IMPOSSIBLE, cosines / self.temperature)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(rows, logits)
        if self.rarity is not None:
            words = _words(inputs, self.rarity)
            words = tf.unstack(tf.reshape(words, [-1, self.choices, words.shape[-1]]), axis=1)
            targets = tf.matmul(words[0], tf.concat(words[1:], 0), transpose_b=True)
            errors = tf.where(names == 0, 0.0, tf.square(cosines - targets))
            # A text's partner counts as much as all others, whose cosines differ little.
            weights = tf.where(own, 1.0, 1.0 / tf.cast(tf.shape(cosines)[1], tf.float32))
            losses += self.lexical_weight * tf.reduce_sum(weights * errors, -1)
        return HeadOutput(tf.repeat(losses / self.choices, self.choices), {})


def _words(inputs: HeadInput, rarity: np.ndarray) -> tf.Tensor:
    """float32 [B, V] of length 1, log(1 + count) * rarity of each wordpiece."""
    assert inputs.input_ids is not None
    ids = inputs.input_ids * inputs.input_mask
    places = tf.stack([tf.range(tf.shape(ids)[0])[:, tf.newaxis] + tf.zeros_like(ids), ids], -1)
    counts = tf.scatter_nd(places, tf.ones_like(ids, tf.float32), [tf.shape(ids)[0], len(rarity)])
    return tf.math.l2_normalize(tf.math.log1p(counts) * rarity, -1)


class LabelWordHead(Head):
    """Softmax over the label words (LM-BFF, equation 1): the pre-trained head, restricted to a few rows.

    For corrective language modelling p(word) at [MASK] is (1 - p_copy) times the softmax, since no label word is
    [MASK] itself; the factor cancels among the words, and the head's logits are all it takes (COCO-LM, section 3.1).

    Args:
      transform: whether it has a dense layer and a layer norm (BERT's) or is tied softmax and bias only (COCO-LM's).
      word_ids: one per label; the two ends of a regression.
    """

    def __init__(
        self, scope: str, encoder: Encoder, transform: bool, word_ids: list[int], regression: bool, seed: int
    ) -> None:
        super().__init__("", seed)
        self.language_model = vocabulary_head(scope, encoder, transform, seed)
        self.word_ids, self.regression = tf.constant(word_ids), regression

    def call(self, inputs: HeadInput, seeds: SeedStream | None, training: bool) -> HeadOutput:
        """Labels: int32 [B] `mask_positions`; int32 [B] `label_ids`, or float32 [B] `targets` in [0, 1].

        Predictions: float32 [B, words] logits.
        """
        places = inputs.labels["mask_positions"][:, tf.newaxis]
        states = tf.gather(inputs.sequence, places, batch_dims=1)
        hidden = tf.cast(self.language_model.hidden(states), tf.float32)[:, 0]
        words = tf.gather(self.language_model.table, self.word_ids)
        logits = tf.matmul(hidden, words, transpose_b=True)
        logits += tf.gather(self.language_model.output_bias, self.word_ids)
        if self.regression:
            # Cross-entropy with a mixture of the two words: the KL divergence up to a constant.
            targets = inputs.labels["targets"]
            losses = tf.nn.softmax_cross_entropy_with_logits(tf.stack([1.0 - targets, targets], -1), logits)
        else:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(inputs.labels["label_ids"], logits)
        return HeadOutput(losses, {} if training else {"logits": logits})
