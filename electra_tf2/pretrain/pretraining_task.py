"""Pre-training as a task of the training loop: one step on one replica, its data and its metrics.

Shapes: B rows of this replica, L length.
"""

import dataclasses
from typing import Any

import tensorflow as tf

from electra_tf2.config.papers import paper_or_core
from electra_tf2.configure_pretraining import GeneratorKind, PretrainingConfig
from electra_tf2.pretrain import pretrain_data
from electra_tf2.pretrain.diagnosis import ON_TRAINING_RECORDS
from electra_tf2.pretrain.evaluation_metrics import evaluation_summary
from electra_tf2.pretrain.initial_weights import Start, load_initial_weights
from electra_tf2.pretrain.masking import Batch, MaskedBatch
from electra_tf2.pretrain.objectives import contrast
from electra_tf2.pretrain.objectives.objective import WholeBatch
from electra_tf2.pretrain.pretrain_data import Records
from electra_tf2.pretrain.pretraining_model import make_model
from electra_tf2.training.distribution import host_rows
from electra_tf2.training.optimization import AdamW, LearningRateSchedule
from electra_tf2.training.training_task import TrainingTask, part_of_step, whole_step

# Purposes of seeds: training step 7 and evaluation batch 7 draw differently (`TrainingTask.step_seed`).
TRAIN = 1
EVALUATE = 2


class PretrainingTask(TrainingTask):
    """Model, optimizer and steps of a pre-training run; create it under the strategy's scope.

    Args:
      jit_compile: compiles the step with XLA, except with scl_gather on several replicas.
      train_records, eval_records: files that `training_data` and `evaluation_data` read.
    """

    def __init__(
        self,
        config: PretrainingConfig,
        strategy: tf.distribute.Strategy,
        jit_compile: bool = False,
        train_records: Records | None = None,
        eval_records: Records | None = None,
    ) -> None:
        if config.scl_gather and strategy.num_replicas_in_sync > 1:
            # The loss gathers vectors from all devices, which XLA cannot compile into the program of one device.
            jit_compile = False
        super().__init__(strategy, jit_compile, config.seed, config.precision, config.gradient_accumulation_steps)
        self.config = config
        self.train_records = train_records
        self.eval_records = eval_records
        self.model = make_model(config)
        self.shown = ["loss"]
        for objective in self.model.objectives:
            self.shown.append(objective.loss_name)
            if objective.loss_name == "masked_lm_loss":
                # For comparison: the loss of a generator that knows how frequent tokens are and nothing else.
                self.shown.append("unigram_entropy")
            self.shown += objective.shown
        schedule = LearningRateSchedule(
            peak=config.learning_rate,
            num_train_steps=config.num_train_steps,
            num_warmup_steps=config.num_warmup_steps,
            power=config.lr_decay_power,
            separate=config.lr_schedule == "separate",
            decay_steps=config.decay_steps,
        )
        self.optimizer = AdamW(self.model.trained_variables, schedule, self.model.decays, config)

    def load_initial_weights(self) -> Start:
        """Loads what a new run starts from, by its hparams."""
        return load_initial_weights(self.model, self.config)

    # A step, in replica context.

    @whole_step
    def train_step(self, batch: Batch, step: tf.Tensor) -> dict[str, Any]:
        """Makes one update: masks the batch, computes the gradient of the loss, updates the weights."""
        seed = self.step_seed(TRAIN, step)
        masked, normalizers = self._prepare(batch, seed, self._row_offset(batch))
        # Losses are divided by sums over the global batch, so the shares of replicas and micro-batches add up.
        normalizers = self._sum_over_replicas(normalizers)
        scale = self.scale()  # 1, except in float16
        # Dropout differs on every replica; masking, a function of the row in the global batch, does so anyway.
        gradients, result = self._gradients(masked, normalizers, self.replica_seed(seed), scale, step)
        gradient_norm = self.update(gradients, scale)
        return result | {"watched": {"gradient_norm": gradient_norm}}

    def eval_step(self, batch: Batch, step: tf.Tensor) -> dict[str, Any]:
        """Measures evaluation batch `step`. It is masked alike in every evaluation, so that evaluations compare."""
        seed = self.step_seed(EVALUATE, step)
        masked, _ = self._prepare(batch, seed, self._row_offset(batch))
        return self._forward(masked)

    @part_of_step
    def _prepare(
        self,
        batch: Batch,
        seed: tf.Tensor,
        row_offset: tf.Tensor,
    ) -> tuple[MaskedBatch, dict[str, tf.Tensor]]:
        global_batch_size = batch["input_ids"].shape[0] * self.replicas
        return self.model.prepare(batch, seed, row_offset, global_batch_size)

    @part_of_step
    def _gradients(
        self,
        masked: MaskedBatch,
        normalizers: dict[str, tf.Tensor],
        seed: tf.Tensor,
        scale: tf.Tensor,
        step: tf.Tensor,
    ) -> tuple[list[tf.Tensor], dict[str, Any]]:
        """Gradients of this replica's share of the loss, and the step's losses and metrics."""
        whole_batch = self._whole_batch(masked, seed)

        def loss(micro_batch: tuple[MaskedBatch, tf.Tensor], seed: tf.Tensor) -> tuple[tf.Tensor, dict[str, Any]]:
            rows, row_indices = micro_batch
            forward = self.model.forward(rows, seed)
            if whole_batch is not None:
                forward = dataclasses.replace(forward, whole=whole_batch._replace(start=row_indices[0]))
            outputs = self.model.outputs(forward, True, normalizers, step)
            losses = {"loss": outputs.loss} | outputs.losses
            return outputs.loss, {"losses": losses, "metrics": outputs.metrics}

        row_indices = tf.range(masked.input_ids.shape[0])  # [B], by which a micro-batch knows where it begins
        return self.summed_gradients(self.model.trained_variables, loss, (masked, row_indices), seed, scale)

    def _whole_batch(self, masked: MaskedBatch, seed: tf.Tensor) -> WholeBatch | None:
        """Computes, by a first pass, what losses need of rows in other micro-batches; None if none compares rows."""
        if self.micro_batches == 1 or not self.config.needs_whole_batch:
            return None
        return contrast.whole_batch(self.model.objectives, self.model.forward, masked, seed, self.micro_batches)

    @part_of_step
    def _forward(self, masked: MaskedBatch) -> dict[str, Any]:
        outputs = self.model(masked)
        return {"metrics": outputs.metrics, "histograms": outputs.histograms}

    def _row_offset(self, batch: Batch) -> tf.Tensor:
        """Index of this replica's first row in the global batch."""
        return self.replica() * batch["input_ids"].shape[0]

    def _sum_over_replicas(self, values: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        if self.replicas == 1:
            return values
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, values)

    # Data and metrics, on the host.

    def training_data(self, position: int) -> tf.data.Dataset:
        assert self.train_records is not None
        size = self.config.train_batch_size
        rows = host_rows(self.strategy, size)
        return pretrain_data.training_batches(self.train_records, size, self.config.seed, position, rows)

    def evaluation_data(self) -> tf.data.Dataset:
        assert self.eval_records is not None
        size = self.config.eval_batch_size
        return pretrain_data.evaluation_batches(self.eval_records, size, host_rows(self.strategy, size))

    def explain(self, error: Exception) -> str | None:
        """Names the damaged record behind an error; None if there is none."""
        return pretrain_data.find_problem(error, self.train_records, self.eval_records)

    @property
    def unigram_entropy(self) -> float | None:
        """Entropy of the tokens in nats: the loss of a generator that knows frequencies only; None if unknown."""
        if self.config.generator_kind is GeneratorKind.UNIFORM:
            return None
        for records in (self.train_records, self.eval_records):
            if records is not None:
                return records.unigram_entropy
        return None

    def summarise(self, totals: dict[str, Any]) -> dict[str, float]:
        """Computes an evaluation's metrics: the original's, `loss` (the weighted sum), areas under the ROC curves.

        `on_training_records`, 1, stands beside them if no records are held out.
        """
        weights = {objective.loss_name: objective.loss_weight for objective in self.model.objectives}
        metrics = evaluation_summary(totals, self.unigram_entropy, weights)
        if self.eval_records is not None and self.eval_records.trained_on:
            metrics[ON_TRAINING_RECORDS] = 1.0
        return metrics


def make_task(config: PretrainingConfig, *arguments: Any, **named: Any) -> PretrainingTask:
    """Makes the task of a run: its paper's if that has one, else the core's. Arguments as of `PretrainingTask`."""
    task_class = paper_or_core(config.paper, "model", "Task", PretrainingTask)
    return task_class(config, *arguments, **named)
