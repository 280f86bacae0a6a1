"""The network, an encoder with a head for each task, and its training: a step of a replica, data, predictions."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.finetune.batching import Batch, FeatureTable
from electra_tf2.finetune.tasks.head import HeadInput, HeadOutput
from electra_tf2.finetune.tasks.task import Prediction, Task
from electra_tf2.model.encoder import Encoder
from electra_tf2.model.layers import Layer, SeedStream
from electra_tf2.training.distribution import distribute, has_several_hosts, host_rows
from electra_tf2.training.optimization import AdamW, LearningRateSchedule
from electra_tf2.training.training_task import TrainingTask, part_of_step, whole_step
from electra_tf2.util.environment import untuned

_TRAIN = 3  # first word of the seeds of training steps; pre-training has 1 and 2


class FinetuningModel(Layer):
    """Encoder and heads (ELECTRA, section 3.1); create it under the strategy's scope.

    Args:
      seed: seed of the heads' initial values, and of the encoder's if no checkpoint is loaded.
    """

    def __init__(self, config: FinetuningConfig, tasks: Sequence[Task], seed: int) -> None:
        super().__init__("", seed)
        self.tasks = list(tasks)
        settings: Any = {"compute_dtype": config.precision, "seed": seed, "recompute": config.recompute}
        self.encoder = Encoder("electra", config.architecture, **settings)
        self.heads = [task.make_head(self.encoder, seed) for task in tasks]

    def call(
        self,
        batch: Batch,
        seed: tf.Tensor | None = None,
        training: bool = False,
        task_indices: Sequence[int] | None = None,
    ) -> list[HeadOutput]:
        """Computes the heads' outputs on every row of a batch of finetune.batching.

        Args:
          seed: int32 [2] of the dropout; None: without dropout.
          task_indices: the tasks whose heads are computed; None: all.
        """
        seeds = None if seed is None else SeedStream(seed)
        if task_indices is None:
            task_indices = range(len(self.tasks))
        input_ids = batch["input_ids"]
        input_mask = batch["input_mask"]
        segment_ids = batch["segment_ids"]
        sequence = self.encoder(input_ids, input_mask, segment_ids, seeds).sequence
        outputs = []
        for task_index in task_indices:
            task = self.tasks[task_index]
            labels = {name: batch[f"{task.name}/{name}"] for name in task.labels}
            inputs = HeadInput(sequence, input_mask, segment_ids, labels, input_ids)
            outputs.append(self.heads[task_index](inputs, seeds, training))
        return outputs

    def predict(self, batch: Batch, task_index: int) -> HeadOutput:
        """Computes the output of one task's head, without dropout."""
        return self.call(batch, task_indices=[task_index])[0]


def layer_of(name: str, num_layers: int) -> int | None:
    """The layer of a variable: 0 to num_layers - 1 in transformer layers, -1 in the embeddings, None in a head."""
    if not name.startswith("electra/"):
        return None
    if name.startswith("electra/encoder/LayerNorm/"):
        # Of pre-norm encoders: the norm behind the last layer.
        return num_layers - 1
    if "/encoder/layer_" not in name:
        return -1
    layer = name.split("/layer_")[1].split("/")[0]
    return int(layer)


def layer_multiplier(name: str, num_layers: int, decay: float, top: str) -> float:
    """Factor of a variable's learning rate (Clark et al. 2020, appendix A; Sun et al. 2019).

    A head has 1, and each layer `decay` times the factor of the layer above. With `top` "pooler" there is one step more
    between head and top layer, for a pooler that the original's code counts but does not have.
    """
    layer = layer_of(name, num_layers)
    if not decay or layer is None:
        return 1.0
    steps_down = num_layers - layer
    if top == "pooler":
        steps_down += 1
    return decay**steps_down


def number_of_steps(config: FinetuningConfig, examples: int) -> int:
    """Computes the steps of all epochs, at least `min_train_steps`; 0 without examples or epochs.

    The last partial batch of an epoch counts as a whole one, as in the original.
    """
    steps_of_epoch = -(-examples // config.train_batch_size)
    steps = int(config.num_train_epochs * steps_of_epoch)
    if steps == 0:
        return 0
    return max(steps, config.min_train_steps)


class FinetuningTask(TrainingTask):
    """Trains and predicts. Create it under the strategy's scope.

    Args:
      table: training features of all tasks; None: it only predicts.
    """

    def __init__(
        self,
        config: FinetuningConfig,
        tasks: Sequence[Task],
        strategy: tf.distribute.Strategy,
        jit_compile: bool,
        table: FeatureTable | None,
        seed: int,
    ) -> None:
        micro_batches = config.gradient_accumulation_steps
        # The original takes the norm of a gathered table's gradient over its slices, repeated rows counted apart. That
        # is only defined where no sum over micro-batches or replicas makes the gradient dense.
        norm_of_slices = (
            config.compat == "original"
            and strategy.num_replicas_in_sync == 1
            and micro_batches == 1
            and config.precision != "float16"
        )
        super().__init__(
            strategy, jit_compile, seed, config.precision, micro_batches, dense_gradients=not norm_of_slices
        )
        self.config = config
        self.tasks = list(tasks)
        self.table = table
        self.seed = seed
        self.summed_examples = config.train_batch_size if config.loss_reduction == "sum" else 1
        self.model = FinetuningModel(config, tasks, seed)
        self.num_train_steps = 0
        self.choices = 1  # rows of an example
        if table is not None:
            self.choices = table.choices
            self.num_train_steps = number_of_steps(config, table.examples)
        schedule = LearningRateSchedule(
            peak=config.learning_rate,
            num_train_steps=self.num_train_steps,
            num_warmup_steps=int(self.num_train_steps * config.warmup_proportion),
            separate=config.lr_schedule == "separate",
        )
        num_layers = config.architecture.num_hidden_layers

        def lr_multiplier(variable: tf.Variable) -> float:
            return layer_multiplier(variable.name, num_layers, config.layerwise_lr_decay, config.layerwise_lr_top)

        self.optimizer = AdamW(
            self.model.trainable_variables,
            schedule,
            self.model.decays,
            config,
            lr_multiplier=lr_multiplier,
            norm_of_slices=norm_of_slices,
        )
        # Of several hosts each predicts all rows by itself, so that none waits for another.
        self._predicts_alone = has_several_hosts(strategy)
        self._predict_step = tf.function(self._predict_batch, reduce_retracing=True, autograph=False)

    # A step, in replica context.

    @whole_step
    def train_step(self, batch: Batch, step: tf.Tensor) -> dict[str, Any]:
        seed = self.replica_seed(self.step_seed(_TRAIN, step))
        scale = self.scale()
        gradients, result = self._gradients(batch, seed, scale)
        return result | {"watched": {"gradient_norm": self.update(gradients, scale)}}

    @part_of_step
    def _gradients(self, batch: Batch, seed: tf.Tensor, scale: tf.Tensor) -> tuple[list[tf.Tensor], dict[str, Any]]:
        """Computes gradients of the sum of the rows' losses. A row's loss is that of its task's head."""

        def forward(rows: Batch, seed: tf.Tensor) -> tuple[tf.Tensor, dict[str, Any]]:
            outputs = self.model(rows, seed, training=True)
            loss = tf.zeros([])
            metrics = {}
            for task_index, (task, output) in enumerate(zip(self.tasks, outputs, strict=True)):
                is_of_task = tf.cast(rows["task_id"] == task_index, tf.float32)
                task_loss = tf.reduce_sum(output.losses * is_of_task)
                loss += task_loss
                if len(self.tasks) > 1:
                    examples = tf.reduce_sum(is_of_task) / self.choices
                    metrics[f"{task.name}_loss"] = (task_loss, examples)
            if self.config.loss_reduction == "mean":
                loss /= self.config.train_batch_size
            return loss, {"losses": {"loss": loss}, "metrics": metrics}

        return self.summed_gradients(self.model.trainable_variables, forward, batch, seed, scale)

    # Data, on the host.

    def training_data(self, position: int) -> tf.data.Dataset:
        assert self.table is not None
        size = self.config.train_batch_size
        return self.table.training_batches(size, self.seed, position, host_rows(self.strategy, size))

    # Prediction.

    def predict(
        self,
        task_index: int,
        table: FeatureTable,
        batch_size: int,
        progress: Callable[[int], object] = lambda done: None,
    ) -> tuple[list[Prediction], np.ndarray | None]:
        """Predicts every row of a table of one task's features.

        Args:
          task_index: index of the task in `tasks`.
          progress: called with the number of rows done.

        Returns:
          The predictions in the order of the table, and float32 [rows] losses, meaningless for rows without labels;
          None instead if the head has no loss outside of training.
        """
        predictions: list[Prediction] = [{} for _ in range(len(table))]
        losses = np.zeros(len(table), np.float32)
        has_losses = True
        dataset = table.evaluation_batches(batch_size)
        batches = untuned(dataset) if self._predicts_alone else distribute(self.strategy, dataset)
        # Traced for any length: one graph for all batches.
        self._predict_step.get_concrete_function(batches.element_spec, task_index)
        done = 0
        for batch in batches:
            result = self._predict_step(batch, task_index)
            arrays = tf.nest.map_structure(self._on_this_host, result)
            has_losses = "losses" in arrays
            # Rows -1 only fill the last batch up.
            for i in np.flatnonzero(arrays["row"] >= 0):
                row = arrays["row"][i]
                predictions[row] = {name: values[i] for name, values in arrays["predictions"].items()}
                if has_losses:
                    losses[row] = arrays["losses"][i]
                done += 1
            progress(done)
        return predictions, losses if has_losses else None

    def _on_this_host(self, value: Any) -> np.ndarray:
        """Joins the rows of all replicas of this host."""
        return np.concatenate([part.numpy() for part in self.strategy.experimental_local_results(value)])

    def _predict_batch(self, batch: Batch, task_index: int) -> dict[str, Any]:
        if self._predicts_alone:
            return self.forward_rows(batch, task_index)
        return self.strategy.run(self.forward_rows, args=(batch, task_index))

    @part_of_step
    def forward_rows(self, batch: Batch, task_index: int) -> dict[str, Any]:
        output = self.model.predict(batch, task_index)
        result = {"row": batch["row"], "predictions": output.predictions}
        if output.losses is not None:
            result["losses"] = output.losses
        return result
