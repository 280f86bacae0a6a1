"""Summary of a pre-training run that is about to begin: model, devices, batches, data."""

import math
from typing import TYPE_CHECKING

from electra_tf2.config.phases import Phase
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.flops import training_flops
from electra_tf2.util.machine import this_processor

if TYPE_CHECKING:
    import tensorflow as tf

    from electra_tf2.pretrain.pretraining_task import PretrainingTask


def summary(
    run_config: PretrainingConfig,
    phase: Phase,
    strategy: "tf.distribute.Strategy",
    task: "PretrainingTask",
    names_processor: bool,
) -> list[str]:
    """Lines of the summary, each with a name in front.

    Args:
      run_config: configuration of the run.
      phase: the phase that is about to begin.
      names_processor: whether to show the processor.
    """
    config = run_config.in_phase(phase)
    parameters = sum(math.prod(variable.shape) for variable in task.model.trainable_variables)
    xla = "on" if task.jit_compile else "off"
    lines = [
        f"model          {config.model_name}: {parameters:,} parameters, {config.vocab_size:,} WordPieces",
        f"               {training_flops(run_config):.3g} FLOP in all",
        f"devices        {described_devices(strategy)}, {config.precision}, XLA {xla}",
    ]
    if config.freeze_generator:
        lines.append("generator      stays as it is (freeze_generator): it learns nothing of this text")
    if names_processor:
        lines.append(f"processor      {this_processor()}")
    if task.train_records is not None:
        records = task.train_records.total
        steps = phase.end - phase.start
        epochs = epochs_in_phase(config, phase, records)
        lines.append(f"batch          {described_batch(config, strategy.num_replicas_in_sync)}")
        lines.append(f"data           {records:,} records, seen {epochs:.3g} times in {steps:,} steps")
    return lines


def epochs_in_phase(config: PretrainingConfig, phase: Phase, records: int) -> float:
    """How often a phase reads each of its records."""
    return (phase.end - phase.start) * config.train_batch_size / records


def described_devices(strategy: "tf.distribute.Strategy") -> str:
    """How many devices of which kind: "1 x CPU"."""
    # "/job:localhost/replica:0/task:0/device:GPU:0"
    kind = strategy.extended.worker_devices[0].split(":")[-2]
    replicas = strategy.num_replicas_in_sync
    if replicas == 1:
        return f"1 x {kind}"
    return f"{replicas} x {kind} ({type(strategy).__name__})"


def described_batch(config: PretrainingConfig, replicas: int) -> str:
    """Size of a step's batch, and how devices and micro-batches divide it."""
    described = f"{config.train_batch_size} sequences of {config.max_seq_length} tokens"
    if replicas > 1:
        described += f", {config.train_batch_size // replicas} per device"
    if config.gradient_accumulation_steps > 1:
        described += f", in {config.gradient_accumulation_steps} micro-batches"
    return described


def expected_loss(task: "PretrainingTask", first_step: int) -> str:
    """Line with the loss that random weights should have at the first step: a weighted sum over the objectives."""
    import tensorflow as tf

    step = tf.constant(first_step, tf.int64)
    weights = {name: float(weight) for name, weight in task.model.loss_weights(step).items()}
    expected = 0.0
    for objective in task.model.objectives:
        expected += weights[objective.loss_name] * objective.initial_loss
    terms = [f"{weight:g} x {name}" for name, weight in weights.items() if weight]
    return f"expected loss  {expected:.3g} +- {expected / 10:.2g} at first ({' + '.join(terms)})"
