"""An encoder with one head per task."""

from collections.abc import Sequence

import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.finetune.batching import Batch
from electra_tf2.finetune.language_model import AuxiliaryLanguageModel, language_model_head
from electra_tf2.finetune.task import HeadInput, HeadOutput, Task
from electra_tf2.model.encoder import Encoder
from electra_tf2.model.layers import Layer, SeedStream


class FinetuningModel(Layer):
    """Encoder and heads (ELECTRA, section 3.1); create it under the strategy's scope.

    Args:
      seed: of the heads' initial values, and of the encoder's where no checkpoint is loaded.
    """

    def __init__(self, config: FinetuningConfig, tasks: Sequence[Task], seed: int) -> None:
        super().__init__("", seed)
        self.tasks = list(tasks)
        self.encoder = Encoder(
            "electra",
            config.architecture,
            compute_dtype=config.precision,
            seed=seed,
            recompute=config.recomputes_layers,
        )
        self.heads = [task.make_head(self.encoder, seed) for task in tasks]
        self.language_model = None
        if config.auxiliary_lm_weight and config.do_train:
            head = language_model_head("auxiliary_lm_weight", config.init_checkpoint)
            special, length = tasks[0].tokenizer.special, config.max_seq_length
            self.language_model = AuxiliaryLanguageModel(self.encoder, head, special, length, seed)

    def call(self, batch: Batch, seed: tf.Tensor | None = None, training: bool = False) -> list[HeadOutput]:
        """Every head's output on every row (finetune.batching describes the batch).

        Args:
          seed: int32 [2] of the dropout; None switches it off.
        """
        seeds = None if seed is None else SeedStream(seed)
        return self._apply(range(len(self.tasks)), batch, seeds, training)

    def predict(self, batch: Batch, number: int) -> HeadOutput:
        """The output of one task's head, without dropout."""
        return self._apply([number], batch, None, training=False)[0]

    @property
    def trained_variables(self) -> list[tf.Variable]:
        """The trainable variables, without those that a head only reads."""
        frozen = {id(variable) for head in self.heads for variable in head.frozen}
        return [variable for variable in self.trainable_variables if id(variable) not in frozen]

    def _apply(
        self, numbers: Sequence[int], batch: Batch, seeds: SeedStream | None, training: bool
    ) -> list[HeadOutput]:
        """The outputs of the heads of these numbers."""
        input_ids, input_mask, segment_ids = (batch[name] for name in ("input_ids", "input_mask", "segment_ids"))
        labels = [
            {name: batch[f"{self.tasks[number].name}/{name}"] for name in self.tasks[number].labels}
            for number in numbers
        ]
        for number, of_task in zip(numbers, labels, strict=True):
            inputs = HeadInput(None, input_mask, segment_ids, of_task)
            input_ids = self.heads[number].rewritten(input_ids, inputs)
        sequence = self.encoder(input_ids, input_mask, segment_ids, seeds).sequence
        return [
            self.heads[number](HeadInput(sequence, input_mask, segment_ids, of_task, input_ids), seeds, training)
            for number, of_task in zip(numbers, labels, strict=True)
        ]


def layer_of(name: str, num_layers: int) -> int | None:
    """The transformer layer that a variable belongs to, 0 to num_layers - 1; -1 below them, None for a head."""
    if not name.startswith("electra/"):
        return None
    if name.startswith("electra/encoder/LayerNorm/"):  # after the last layer, where layers normalise what they read
        return num_layers - 1
    return int(name.split("/layer_")[1].split("/")[0]) if "/encoder/layer_" in name else -1


def layer_multiplier(name: str, num_layers: int, decay: float, top: str) -> float:
    """Factor of a variable's learning rate (Clark et al. 2020, appendix A; Sun et al. 2019).

    A head has 1, and each layer below `decay` times that of the one above, embeddings the least. `top` "pooler" leaves
    out one step between head and top layer, as the original's code does for a pooler that it has not.
    """
    layer = layer_of(name, num_layers)
    if not decay or layer is None:
        return 1.0
    return decay ** (num_layers - layer + (1 if top == "pooler" else 0))
