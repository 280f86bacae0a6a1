"""Pre-trains ELECTRA, BERT or one of their relatives, and evaluates it on held-out records.

  python run_pretraining.py --data-dir data --model-name electra_small

trains the recipe of that name on <data-dir>/pretrain_tfrecords with <data-dir>/vocab.txt. The same command resumes a
run that was stopped. --do-eval --no-do-train evaluates the newest checkpoint; --dry-run shows what would happen, times
a few steps and leaves nothing behind.
"""

import contextlib
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from absl import flags

from electra_tf2.config import flags as util_flags
from electra_tf2.config.hparams import free_on_resume, places
from electra_tf2.configure_pretraining import Phase, PretrainingConfig, phases_of
from electra_tf2.corpus.vocabulary import load_vocab
from electra_tf2.files.writing import check_writable, write_atomically, write_json
from electra_tf2.formats.folders import read_config
from electra_tf2.pretrain import diagnosis
from electra_tf2.training.cluster import this_host
from electra_tf2.training.precision import fitted_to_machine
from electra_tf2.training.run_folder import RunFolder, holds_work
from electra_tf2.util.environment import import_tensorflow
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.machine import this_processor
from electra_tf2.util.progress import duration, say

if TYPE_CHECKING:
    import tensorflow as tf

    from electra_tf2.pretrain.pretrain_data import Records
    from electra_tf2.pretrain.task import PretrainingTask
    from electra_tf2.training.loop import Trainer


def check_vocabulary(config: PretrainingConfig) -> None:
    """Before anything slow: the vocabulary is there and has the configured size."""
    size = len(load_vocab(config.vocab_file))
    if size != config.vocab_size:
        raise UserError(
            f"vocab_size is {config.vocab_size}, but {config.vocab_file} has {size} tokens: set --vocab-size {size}"
        )


def check_files(config: PretrainingConfig, training: bool) -> None:
    """Before anything slow: what will be written can be, and --overwrite renames nothing that is to be read."""
    folder = Path(config.model_dir)
    outputs = [folder / "config.json", folder / "events" / "events"] if training else []
    outputs += [Path(config.results_txt), Path(config.results_json)] if config.do_eval else []
    for path in outputs:
        check_writable(path)
    if not (training and config.overwrite):
        return
    # Of the generator's first weights a run that goes on wants to know the sizes again.
    names = sorted({*places(type(config), "read"), "init_generator_checkpoint"})
    read = [(name, getattr(phase.config, name)) for phase in phases_of(config) for name in names]
    for name, path in ((name, Path(value).resolve()) for name, value in read if value):
        if path.is_relative_to(folder.resolve()):
            raise UserError(f"--overwrite would rename {name} {path} with the run in {folder}: move it elsewhere first")


def print_summary(phase: Phase, whole: "Run", task: "PretrainingTask") -> None:
    """Prints what is about to be trained, on what, for how long."""
    from electra_tf2.pretrain.flops import training_flops

    config, steps, strategy = phase.config, phase.end - phase.start, whole.strategy
    parameters = sum(math.prod(variable.shape) for variable in task.model.trainable_variables)
    replicas, flops = strategy.num_replicas_in_sync, training_flops(whole.config)
    devices = f"{replicas} x {strategy.extended.worker_devices[0].rpartition(':')[0].rpartition(':')[2]}"
    if replicas > 1:
        devices += f" ({type(strategy).__name__})"
    parts = [f"{config.train_batch_size} sequences of {config.max_seq_length} tokens"]
    parts += [f"{config.train_batch_size // replicas} per device"] if replicas > 1 else []
    if config.gradient_accumulation_steps > 1:
        parts.append(f"in {config.gradient_accumulation_steps} micro-batches")
    lines = [
        f"model          {config.model_name}: {parameters:,} parameters, {config.vocab_size:,} WordPieces",
        f"               {flops:.3g} FLOP in all",
        f"devices        {devices}, {config.precision}, XLA {'on' if task.jit_compile else 'off'}",
    ]
    if whole.dry_run:
        lines.append(f"processor      {this_processor()}")
    if task.train_records is not None:
        lines.append(f"batch          {', '.join(parts)}")
        epochs = steps * config.train_batch_size / task.train_records.total
        lines.append(f"data           {task.train_records.total:,} records, seen {epochs:.3g} times in {steps:,} steps")
        if epochs > 100:
            lines.append("               WARNING: more than 100 epochs: a larger corpus or fewer steps serve better")
    say("\n".join(lines), indent=15, broken=True)


def main() -> int:
    config = util_flags.config_from_flags(PretrainingConfig)
    dry_run = flags.FLAGS.dry_run
    if not (config.do_train or config.do_eval or dry_run):
        raise UserError("do_train and do_eval are both false: nothing to do")
    training = config.do_train and not dry_run
    if training and not config.num_train_steps:
        raise UserError("num_train_steps is 0: there is less than one step to train")
    if lacking := list(config.lacking()):
        raise UserError("; ".join(lacking))
    check_vocabulary(config)
    chief = not this_host(config.strategy).number
    if chief and not dry_run:
        check_files(config, training)
    advice = "Give another --model-name, or --overwrite to rename that run."
    if not (config.do_train or dry_run):
        advice = "Evaluate it with its own."
    # With --overwrite a dry run, too, may have another configuration than the run that it would replace.
    folder = RunFolder(Path(config.model_dir), chief, config.overwrite and config.do_train, advice)
    saved = read_config(config.model_dir)
    goes_on = saved is not None and not folder.overwrite and holds_work(folder.path)
    began = saved if saved is not None and goes_on else {}
    config, notes = fitted_to_machine(config, util_flags.given_hparams(PretrainingConfig), began)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    with folder if training else contextlib.nullcontext():
        folder.check(config.to_json(), config.free_to_change | {"learning_rate", "num_warmup_steps", "precision"})
        return run_phases(config, folder, dry_run)


class Run(NamedTuple):
    """Everything that all phases of a run have in common; config is the one that its folder records."""

    config: PretrainingConfig
    folder: RunFolder
    strategy: "tf.distribute.Strategy"
    dry_run: bool


def run_phases(config: PretrainingConfig, folder: RunFolder, dry_run: bool) -> int:
    """Trains one phase after the other, and evaluates as in the last; evaluation alone as in the phase of the
    checkpoint that is restored; a dry run times each. Records and batches of all are checked before the first.
    """
    changed = util_flags.changed_hparams(PretrainingConfig)  # of what is trained, not where or how often it is saved
    changed = {name: value for name, value in changed.items() if name not in free_on_resume(PretrainingConfig)}
    if changed:
        described = ", ".join(f"{name} {shown(value)}" for name, value in changed.items())
        say(f"hparams        other than the recipe's: {described}", indent=15, broken=True)
    import_tensorflow()
    from electra_tf2.training.checkpoints import newest_good
    from electra_tf2.training.distribution import make_strategy

    phases = every = phases_of(config)
    if len(every) > 1 and not dry_run:
        done = None if folder.overwrite else newest_good(folder.path)[0]
        if config.do_train:
            phases = [phase for phase in every if phase.end > (done or 0)] or every[-1:]
        else:
            phases = [phase for phase in every if phase.start < (done or 1)][-1:]  # that it was trained in
    whole = Run(config, folder, make_strategy(config), dry_run)
    data = [find_data(phase.config, whole) for phase in phases]
    for phase, of_phase in zip(phases, data, strict=True):
        if len(every) > 1:
            say(f"phase {every.index(phase) + 1} of {len(every)}: steps {phase.start:,} to {phase.end:,}")
        code = run(phase, of_phase, whole, first=phase is phases[0])
        if code:
            return code
    return 0


def find_data(config: PretrainingConfig, whole: Run) -> "tuple[Records | None, Records | None]":
    """The records that a phase trains on and is evaluated on, None for those that it does not need. Raises UserError
    for those that do not fit, and for batches that the devices do not share evenly."""
    from electra_tf2.pretrain.pretrain_data import dataset_summary, find_records, has_records
    from electra_tf2.training.distribution import check_batch

    train_records = eval_records = None
    if config.do_train or whole.dry_run:
        check_batch("train_batch_size", config.train_batch_size, whole.strategy, config.gradient_accumulation_steps)
        train_records = find_records(config.pretrain_tfrecords, config, "pretrain_tfrecords")
        say(f"training on {dataset_summary(train_records)}", indent=2)
    if config.do_eval or config.eval_every_steps:
        check_batch("eval_batch_size", config.eval_batch_size, whole.strategy)
        pattern, flag = config.eval_tfrecords, "eval_tfrecords"
        if not has_records(pattern):
            say(f"WARNING: no held-out records match {pattern}: evaluating on the training records.")
            pattern, flag = config.pretrain_tfrecords, "pretrain_tfrecords"
        eval_records = find_records(pattern, config, flag)
        say(f"evaluating on {dataset_summary(eval_records)}", indent=2)
    return train_records, eval_records


def run(phase: Phase, data: "tuple[Records | None, Records | None]", whole: Run, first: bool) -> int:
    """Trains a phase and evaluates after the last, or times some steps, in a folder that was checked.

    Args:
      first: of those that this process runs.
    """
    config, last = phase.config, phase.end == whole.config.num_train_steps
    folder, strategy = whole.folder, whole.strategy

    from electra_tf2.pretrain.initial_weights import load_initial_weights
    from electra_tf2.pretrain.task import make_task
    from electra_tf2.training.distribution import wants_xla
    from electra_tf2.training.loop import LoopSchedule, Trainer

    with strategy.scope():
        task = make_task(config, strategy, wants_xla(config), *data)
    print_summary(phase, whole, task)
    schedule = LoopSchedule(
        num_train_steps=phase.end,
        iterations_per_loop=config.iterations_per_loop,
        save_checkpoints_steps=config.save_checkpoints_steps,
        keep_checkpoint_max=config.keep_checkpoint_max,
        eval_every_steps=config.eval_every_steps,
        num_eval_steps=config.num_eval_steps,
        examples_per_step=config.train_batch_size,
        first_step=phase.start,
        examples_before=phase.examples_before,
    )
    trainer = Trainer(task, strategy, schedule, config.model_dir)
    step = 0 if folder.overwrite and (first or whole.dry_run) else trainer.restore()
    if step:
        say(f"resuming {config.model_dir} at step {step:,}")
    else:
        load_initial_weights(task.model, config)
        if task.train_records is not None and not config.starts_from_weights:
            say(expected_loss(task, phase.start), indent=15, broken=True)
    if whole.dry_run:
        return time_some_steps(trainer, config, phase.end - phase.start)

    if config.do_train:
        # Not before: what failed until here is no run, and the mended command may have its name.
        if first:
            folder.begin(whole.config.to_json(), config.vocab_file)
        code = trainer.train()
        if code:
            return code
        if trainer.chief and not config.do_eval:
            loss, kept = trainer.reporter.last.get("masked_lm_loss"), config.mask_rates[1]
            problem = diagnosis.warning_of_training(loss, task.unigram_entropy, kept, advice(config, phase.end))
            if problem is not None:
                say(f"WARNING: {problem}.", indent=2)
    elif not step and not config.init_checkpoint:
        say("There is no checkpoint: evaluating the initial weights.")
    if config.do_eval and (last or not config.do_train):
        evaluate(trainer, config)
    return 0


def expected_loss(task: "PretrainingTask", first_step: int) -> str:
    """The loss that a network with random weights should have at its first step, by the objectives' own values."""
    import tensorflow as tf

    from electra_tf2.pretrain.pretraining_model import StepValues

    values = StepValues(tf.constant(first_step, tf.int64))
    weights = {name: float(weight) for name, weight in task.model.loss_weights(values).items()}
    expected = sum(weights[objective.loss_name] * objective.initial_loss for objective in task.model.objectives)
    terms = [f"{weight:g} x {name}" for name, weight in weights.items() if weight]
    return f"initial loss   {expected:.3g} +- {expected / 10:.2g} expected ({' + '.join(terms)})"


def advice(config: PretrainingConfig, steps: int) -> str:
    """Says what helps a run that has learned too little in so many steps."""
    return diagnosis.advice_for(config.architecture, steps)


def evaluate(trainer: "Trainer", config: PretrainingConfig) -> None:
    """The final evaluation: printed, in TensorBoard and in the results' files."""
    metrics, step = trainer.evaluate(), trainer.current_step
    trainer.reporter.evaluation(step, metrics, during_training=False)
    trainer.reporter.close()
    for problem in diagnosis.warnings(metrics, advice(config, step)):
        say(f"WARNING: {problem}.", indent=2)
    if trainer.chief:
        write_json(config.results_json, {"step": step} | metrics)
        write_atomically(config.results_txt, "".join(f"{name} = {value}\n" for name, value in metrics.items()))


def time_some_steps(trainer: "Trainer", config: PretrainingConfig, steps: int) -> int:
    """Runs a few steps and says how long all those of a phase would take."""
    from electra_tf2.pretrain.flops import step_flops
    from electra_tf2.training.distribution import peak_memory

    loss, seconds = trainer.time_steps()
    rate = step_flops(config) / seconds / 1e12
    say(
        f"dry run        loss {loss:.2f}; {1 / seconds:.2f} steps/s, "
        f"{config.train_batch_size / seconds:.1f} examples/s, {rate:.2g} TFLOP/s, {peak_memory()} of memory at most; "
        f"{steps:,} steps would take {duration(steps * seconds)}",
        indent=15,
    )
    return 0


# What a first run needs: the flags that --help shows.
FIRST = (
    *("dry_run", "hparams", "model_name", "recipe", "paper", "do_train", "do_eval", "overwrite", "data_dir"),
    *("vocab_file", "pretrain_tfrecords", "model_dir", "num_train_steps", "train_batch_size", "max_seq_length"),
    *("gradient_accumulation_steps", "learning_rate", "num_warmup_steps", "iterations_per_loop"),
    *("save_checkpoints_steps", "eval_every_steps", "init_checkpoint", "seed", "precision", "num_gpus", "use_tpu"),
    *("model_size", "vocab_size", "do_lower_case"),
)
flags.DEFINE_bool("dry_run", False, "show what would happen, time a few steps, leave nothing behind")
util_flags.define_hparam_flags(PretrainingConfig)


def command() -> None:
    util_flags.run(main, __doc__, goes_on=True, first=FIRST)


if __name__ == "__main__":
    command()
