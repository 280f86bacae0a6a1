"""MC-BERT: multiple choice among a generator's candidates, with a reject option (Xu et al. 2020)."""

import dataclasses
import math

import tensorflow as tf

from electra_tf2.model.heads import GeneratorOutput, LanguageModelHead, MaskedLanguageModel
from electra_tf2.model.initializers import truncated_normal, zeros
from electra_tf2.model.kernels.compilation import to_float32
from electra_tf2.papers.mc_bert.config import Config
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.noise import row_noise
from electra_tf2.pretrain.objectives.choice import make_objectives
from electra_tf2.pretrain.objectives.objective import Forward, LossTerm, Networks, Objective, weighted_mean
from electra_tf2.pretrain.pretraining_model import PretrainingModel


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampledForward(Forward):
    """A forward pass that knows what its replacements were drawn from.

    sampled: the generator's pass whose distributions were sampled.
    temperature: of the softmax that was sampled.
    """

    sampled: GeneratorOutput
    temperature: float | tf.Tensor


class Model(PretrainingModel):
    """A generator, and a main network that answers by multiple choice."""

    config: Config

    def make_objectives(self, networks: Networks) -> list[Objective]:
        own = [MultipleChoice(self.config, networks)] if self.config.multiple_choice_objective else None
        return make_objectives(self.config, networks, main=own)

    def forward(
        self,
        masked: MaskedBatch,
        seed: tf.Tensor | None = None,
        sampled_ids: tf.Tensor | None = None,
        temperature: float | tf.Tensor | None = None,
    ) -> Forward:
        forward = super().forward(masked, seed, sampled_ids, temperature)
        sampled = forward.generator
        if self.config.generator_sample_mode == "eval" and seed is not None:
            sampled = self.generator(masked, None)
        temperature = self.config.temperature if temperature is None else temperature
        return SampledForward(**vars(forward), sampled=sampled, temperature=temperature)


class MultipleChoice(Objective):
    """At every token: leave it, or which of a few words stood there? Cross-entropy over all real tokens.

    Class 0 rejects all candidates, and is right where a token was not replaced. The others are words that the generator
    draws for that position, as it reads the masked sequence; where a token was replaced, class 1 is the original one.
    As in the authors' code a word may be drawn twice.
    """

    config: Config
    loss_name = "choice_loss"
    weight = "disc_weight"
    shown = ("choice_accuracy_replaced",)

    def __init__(self, config: Config, networks: Networks) -> None:
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
        assert isinstance(forward, SampledForward) and forward.sampled.encoded is not None
        masked = forward.masked
        count, length = self.config.choice_candidates - 1, masked.input_ids.shape[1]

        def of_row(row: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
            states, noise = row
            softmax = self.generator_head.softmax(tf.stop_gradient(states)[tf.newaxis])
            draws = [softmax.sample(draw[tf.newaxis], forward.temperature)[0] for draw in tf.unstack(noise)]
            return tf.stack(draws, -1)

        rows = (forward.sampled.encoded.sequence, row_noise(masked.sampling_noise[:, 0], [count, length, 2]))
        drawn = tf.ensure_shape(tf.map_fn(of_row, rows, fn_output_signature=tf.int32), [None, length, count])
        replaced = forward.replaced.is_replaced[..., tf.newaxis] > 0
        return tf.concat([tf.where(replaced, masked.input_ids[..., tf.newaxis], drawn[..., :1]), drawn[..., 1:]], -1)

    def logits(self, forward: Forward, candidates: tf.Tensor) -> tf.Tensor:
        """float32 [B, L, K]: of the rejection and of each candidate, int32 [B, L, K - 1]."""
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
