"""The pre-trained language-model head in fine-tuning: where a checkpoint has one, and its loss beside the tasks'.

GPT (Radford et al. 2018, section 3.2) goes on with its language model on the texts of a task, at half the weight. An
encoder's is the masked one: a second pass over the same batch, some of whose tokens are masked.
"""

from pathlib import Path

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.vocabulary import SpecialIds
from electra_tf2.exchange.checkpoints import CheckpointVariables
from electra_tf2.exchange.formats.folders import read_config
from electra_tf2.model.architecture import Architecture
from electra_tf2.model.auxiliary_heads import vocabulary_head
from electra_tf2.model.encoder import Encoder
from electra_tf2.model.layers import Layer, SeedStream
from electra_tf2.util.errors import UserError
from electra_tf2.util.hparams import places
from electra_tf2.util.uniform import uniform

_MASKED = 0.15  # of a sequence's tokens


def language_model_head(hparam: str, checkpoint: str | None) -> tuple[str, bool]:
    """Scope of the head over the vocabulary that the main network of a checkpoint has, and whether it has a transform.

    Args:
      hparam: that needs it, for the message.

    Raises:
      UserError: there is none, as after ELECTRA's pre-training with a generator of its own.
    """
    assert checkpoint is not None, "checked with the hparams"
    variables = CheckpointVariables(checkpoint)
    scope = variables.language_model
    if scope is not None:
        return scope, f"{scope}/dense/kernel" in variables.names()
    raise UserError(
        f"{hparam}: the main network of {checkpoint} has no language-model head: it was pre-trained to detect replaced "
        "tokens only. One is there after COCO-LM (corrective_lm_objective), BERT (--no-electra-objective), "
        "replace_mlm_objective or all_tokens_mlm_objective, or with a generator that shares the network "
        "(--no-untied-generator)"
    )


def generator_sizes(hparam: str, checkpoint: str | None) -> Architecture:
    """Sizes of the generator that a checkpoint has beside a main network that copies or corrects (COCO-LM).

    Args:
      hparam: that needs them, for the message.

    Raises:
      UserError: the checkpoint has no such generator or network.
    """
    assert checkpoint is not None, "checked with the hparams"
    variables = CheckpointVariables(checkpoint)
    saved = read_config(checkpoint) or read_config(Path(checkpoint).parent)
    needed = ("generator_predictions/dense/kernel", "copy_predictions/dense/kernel")
    if saved is None or not variables.has_own_generator or set(needed) - set(variables.names()):
        raise UserError(
            f"{hparam} needs the auxiliary network and the copy head of COCO-LM's pre-training "
            f"(corrective_lm_objective), which {checkpoint} has not"
        )
    kept = {name: value for name, value in saved.items() if name not in places(PretrainingConfig)}
    return PretrainingConfig.from_dict(kept).generator_architecture


class AuxiliaryLanguageModel(Layer):
    """Masked language modelling on the batches of fine-tuning.

    Args:
      head: its scope, and whether it has a transform (`language_model_head`).
      special: ids of [MASK] and of what is never masked.
    """

    def __init__(
        self, encoder: Encoder, head: tuple[str, bool], special: SpecialIds, max_length: int, seed: int
    ) -> None:
        super().__init__("", seed)
        scope, transform = head
        self.head = vocabulary_head(scope, encoder, transform, seed)
        self.encoder, self.special = encoder, special
        self.most = max(1, round(_MASKED * max_length))

    def call(self, input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """float32 [B]: the mean cross-entropy of each row's masked tokens; 0 where none can be masked.

        Args:
          input_ids, input_mask, segment_ids: int32 [B, L].
          seed: int32 [2], of masks and dropout.
        """
        seeds = SeedStream(tf.random.experimental.stateless_fold_in(seed, 1))
        allowed = tf.cast(input_mask, tf.bool)
        for token in (self.special.cls, self.special.sep, self.special.mask):
            allowed &= tf.not_equal(input_ids, token)
        drawn = tf.where(allowed, uniform(tf.shape(input_ids), seeds.next()), -1.0)
        chosen, places = tf.math.top_k(drawn, tf.minimum(self.most, tf.shape(input_ids)[1]))  # [B, N]
        tokens = tf.reduce_sum(tf.cast(allowed, tf.float32), -1, keepdims=True)
        wanted = tf.maximum(1.0, tf.round(_MASKED * tokens))
        weights = tf.cast(tf.range(tf.shape(places)[1])[tf.newaxis], tf.float32) < wanted
        weights = tf.cast(weights & (chosen >= 0), tf.float32)
        at = tf.equal(places[:, :, tf.newaxis], tf.range(tf.shape(input_ids)[1])) & (weights > 0)[:, :, tf.newaxis]
        masked = tf.where(tf.reduce_any(at, 1), self.special.mask, input_ids)
        states = self.encoder(masked, input_mask, segment_ids, seeds).sequence
        logits = self.head(tf.gather(states, places, batch_dims=1))
        truth = tf.gather(input_ids, places, batch_dims=1)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(truth, logits) * weights
        return tf.reduce_sum(losses, -1) / tf.maximum(tf.reduce_sum(weights, -1), 1.0)
