"""The head of question answering, which scores where an answer starts and ends, and whether there is one."""

import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.finetune.tasks.head import Head, HeadInput, HeadOutput
from electra_tf2.model.heads import PredictionHead
from electra_tf2.model.initializers import glorot_uniform
from electra_tf2.model.kernels.products import matmul, matrix_product
from electra_tf2.model.layers import Dense, SeedStream, activation, shape_of

_FORBIDDEN = 1000.0  # subtracted from the logits of positions that cannot be answers, as in the original
_HIDDEN = 512  # width of the inner layers


class AnswerHead(Head):
    """Logits of an answer's start, of its end, and of there being no answer.

    With joint_prediction the end is predicted given the start: the true one in training, each of the best `beam_size`
    ones in evaluation. The first layer over [start state, end state] is split into two products, so that no array
    [B, beam, L, 2H] exists.
    """

    def __init__(self, scope: str, hidden_size: int, config: FinetuningConfig, seed: int) -> None:
        super().__init__(scope, seed)
        self.config = config
        self.gelu = activation("gelu")
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
        states = inputs.sequence
        labels = inputs.labels
        if self.prediction_head is not None:
            states = self.prediction_head(states)
        allowed = tf.cast(inputs.input_mask * inputs.segment_ids, tf.float32)
        allowed = tf.concat([tf.ones_like(allowed[:, :1]), allowed[:, 1:]], 1)  # [CLS]: no answer here
        penalty = _FORBIDDEN * (allowed - 1.0)
        start_logits = _logit(self.start, states) + penalty
        start_losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels["start_positions"], start_logits)
        if self.config.joint_prediction:
            gold = tf.gather(states, labels["start_positions"][:, tf.newaxis], batch_dims=1)
            end_logits = tf.squeeze(self._end_logits(gold, states), 1) + penalty
        else:
            end_logits = _logit(self.end, states) + penalty
        end_losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels["end_positions"], end_logits)
        losses = 0.5 * (start_losses + end_losses)
        answerable = tf.zeros_like(start_logits[:, 0])  # of the losses, exports would hold their graph
        if self.answerable is not None:
            answerable = self._answerable_logit(states, start_logits)
            impossible = tf.cast(labels["is_impossible"], tf.float32)
            losses += self.config.answerable_weight * tf.nn.sigmoid_cross_entropy_with_logits(impossible, answerable)
        if training:
            return HeadOutput(losses, {})
        # The places of answers are looked for in training data alone, so an evaluation has no loss.
        predictions = {"answerable_logit": answerable}
        if self.config.joint_prediction:
            predictions |= self._beam(states, start_logits, penalty)
        else:
            predictions |= {"start_logits": start_logits, "end_logits": end_logits}
        return HeadOutput(None, predictions)

    def logits(self, inputs: HeadInput, seeds: SeedStream | None) -> tf.Tensor:
        """float32 [B, L, 2] of starts and ends, without joint_prediction."""
        states = inputs.sequence
        if self.prediction_head is not None:
            states = self.prediction_head(states)
        return tf.stack([_logit(self.start, states), _logit(self.end, states)], -1)

    def _end_logits(self, starts: tf.Tensor, states: tf.Tensor) -> tf.Tensor:
        """float32 [B, K, L] from states of starts [B, K, H] and of all positions [B, L, H]."""
        size = states.shape[-1]
        kernel = tf.cast(self.end_hidden.kernel, states.dtype)
        from_start = matrix_product(starts, kernel[:size]) + tf.cast(self.end_hidden.bias, states.dtype)
        from_end = matrix_product(states, kernel[size:])
        hidden = self.gelu(from_start[:, :, tf.newaxis] + from_end[:, tf.newaxis])
        return _logit(self.end, hidden)

    def _beam(self, states: tf.Tensor, start_logits: tf.Tensor, penalty: tf.Tensor) -> dict[str, tf.Tensor]:
        size = tf.minimum(self.config.beam_size, shape_of(states)[1])
        # What cannot be a start is alike, so that the order of such places does not hang on rounding.
        start_logits = tf.where(penalty < 0, penalty, start_logits)
        start_log_probs, starts = tf.math.top_k(tf.nn.log_softmax(start_logits), size)
        end_logits = self._end_logits(tf.gather(states, starts, batch_dims=1), states)
        penalty = penalty[:, tf.newaxis] + tf.zeros_like(end_logits)
        end_logits = tf.where(penalty < 0, penalty, end_logits)
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
            start = tf.squeeze(matmul(probabilities[:, tf.newaxis], states), 1)
            features = self.gelu(self.answerable_hidden(tf.concat([features, start], -1)))
        return _logit(self.answerable, features)


def _logit(layer: Dense, x: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.squeeze(layer(x), -1), tf.float32)
