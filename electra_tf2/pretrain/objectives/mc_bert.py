"""MC-BERT: multiple choice among a generator's candidates, with a reject option (Xu et al. 2020)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from electra_tf2.model.flops import Part, language_model_head, table_width
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.objectives.bert import MaskedLM
from electra_tf2.pretrain.objectives.electra import ElectraHparams
from electra_tf2.pretrain.objectives.objective import Forward, LossTerm, Networks, Objective, weighted_mean
from electra_tf2.util.hparams import hparam
from electra_tf2.util.lazy import tf


@dataclasses.dataclass(frozen=True)
class McBertHparams(ElectraHparams):
    """Multiple choice; disc_weight is the weight of its loss."""

    multiple_choice_objective: bool = hparam(
        False, "every token is rejected as original or answered by one of a few candidates (MC-BERT)", heading="MC-BERT"
    )
    choice_candidates: int = hparam(10, "classes: the rejection, and words that the generator samples", at_least=2)


class MultipleChoice(Objective[McBertHparams]):
    """At every token: leave it, or which of a few words stood there? Cross-entropy over all real tokens.

    Class 0 rejects all candidates, and is right where a token was not replaced. The others are words that the generator
    draws for that position, as it reads the masked sequence; where a token was replaced, class 1 is the original one.
    As in the authors' code a word may be drawn twice.
    """

    flag = "multiple_choice_objective"
    title = "multiple choice among candidates (MC-BERT)"
    role = "main"
    loss_name = "choice_loss"
    weight = "disc_weight"
    shown = ("choice_accuracy_replaced",)

    @classmethod
    def problems(cls, config: McBertHparams) -> Iterator[str]:
        if config.uniform_generator or MaskedLM not in config.objective_classes:
            yield "multiple_choice_objective draws its candidates from one masked language model as generator"
        if config.disallow_correct:
            yield (
                "multiple_choice_objective offers what the generator says, right or not: disallow_correct must be false"
            )

    @classmethod
    def parts(cls, config: McBertHparams) -> list[Part]:
        sizes, generator, length = config.architecture, config.generator_architecture, config.max_seq_length
        drawn = language_model_head("candidates", generator.hidden_size, generator, length)
        head, size = language_model_head("choice head", sizes.hidden_size, sizes, length), table_width(sizes)
        flops = head.forward_flops + 2 * length * size * (config.choice_candidates - sizes.vocab_size)
        states = head.states + length * (config.choice_candidates - sizes.vocab_size)
        return [
            drawn._replace(parameters=0, backward=False),
            Part("choice head", head.parameters + size + 1, flops, states),
        ]

    def __init__(self, config: McBertHparams, networks: Networks) -> None:
        from electra_tf2.model.generator import MaskedLanguageModel
        from electra_tf2.model.heads import LanguageModelHead
        from electra_tf2.model.layers import truncated_normal, zeros

        super().__init__(config, networks)
        assert networks.encoder is not None and isinstance(networks.generator, MaskedLanguageModel)
        self.initial_loss = math.log(config.choice_candidates)
        self.generator_head = networks.generator.head
        sizes = config.architecture
        self.head = LanguageModelHead("choice_predictions", networks.encoder, config.seed)
        initializer = truncated_normal(sizes.initializer_range)
        self.rejection = self.head.weight("rejection_embedding", [self.head.table.shape[1]], initializer)
        self.rejection_bias = self.head.weight("rejection_bias", [1], zeros, decay=False)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return tf.cast(masked.input_mask, tf.float32)

    def candidates(self, forward: Forward) -> tf.Tensor:
        """int32 [B, L, K - 1]: the words to choose from. Rows are sampled one after the other, so that the generator's
        logits of all tokens never exist together; from the pass and at the temperature that replacements are of."""
        masked = forward.masked
        assert forward.sampled is not None and forward.sampled.encoded is not None
        count, length = self.config.choice_candidates - 1, masked.input_ids.shape[1]

        def of_row(row: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
            states, noise = row
            softmax = self.generator_head.softmax(tf.stop_gradient(states)[tf.newaxis])
            draws = [softmax.sample(draw[tf.newaxis], forward.temperature)[0] for draw in tf.unstack(noise)]
            return tf.stack(draws, -1)

        rows = (forward.sampled.encoded.sequence, masked.row_noise([count, length, 2]))
        drawn = tf.ensure_shape(tf.map_fn(of_row, rows, fn_output_signature=tf.int32), [None, length, count])
        replaced = forward.replaced.is_replaced[..., tf.newaxis] > 0
        return tf.concat([tf.where(replaced, masked.input_ids[..., tf.newaxis], drawn[..., :1]), drawn[..., 1:]], -1)

    def logits(self, forward: Forward, candidates: tf.Tensor) -> tf.Tensor:
        """float32 [B, L, K]: of the rejection and of each candidate, int32 [B, L, K - 1]."""
        from electra_tf2.model.kernels.compilation import to_float32

        hidden = self.head.hidden(forward.states)
        words = tf.gather(tf.cast(self.head.table, hidden.dtype), candidates)  # [B, L, K - 1, E]
        scores = to_float32(tf.einsum("ble,blke->blk", hidden, words)) + tf.gather(self.head.output_bias, candidates)
        rejection = tf.tensordot(to_float32(hidden), self.rejection[:, tf.newaxis], 1) + self.rejection_bias
        return tf.concat([rejection, scores], -1)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        weights, answers = self.token_weights(forward.masked), forward.replaced.is_replaced
        logits = self.logits(forward, self.candidates(forward))
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(answers, logits)
        chosen = tf.argmax(logits, -1, tf.int32)
        replaced = weights * tf.cast(answers, tf.float32)
        metrics = {
            "choice_accuracy_replaced": weighted_mean(tf.equal(chosen, 1), replaced),
            "choice_accuracy_original": weighted_mean(tf.equal(chosen, 0), weights - replaced),
            "choice_recall": weighted_mean(chosen > 0, replaced),
            "replaced_rate": weighted_mean(answers, weights),
        }
        return self.output(forward, losses, metrics)
