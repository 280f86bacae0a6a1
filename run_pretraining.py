"""Pre-trains an ELECTRA, Electric or BERT model, and evaluates it on held-out records.

  python run_pretraining.py --data-dir data --model-name electra_small

trains the recipe of that name on <data-dir>/pretrain_tfrecords with <data-dir>/vocab.txt. The same command resumes a
run that was stopped. --do-eval --no-do-train evaluates the newest checkpoint; --dry-run shows what would happen, times
a few steps and leaves nothing behind.
"""

import glob
import math
from pathlib import Path
from typing import Any

from absl import flags

from configure_pretraining import PretrainingConfig
from corpus.vocabulary import load_vocab
from pretrain import diagnosis
from training.cluster import this_host
from training.run_folder import check_run_folder, delete_run_folder, write_config
from util import flags as util_flags
from util.errors import UserError
from util.files import write_atomically, write_json
from util.hparams import free_on_resume


def check_vocabulary(config: PretrainingConfig) -> None:
    """Before anything slow: the vocabulary is there and has the configured size."""
    size = len(load_vocab(config.vocab_file))
    if size != config.vocab_size:
        raise UserError(
            f"vocab_size is {config.vocab_size}, but {config.vocab_file} has {size} tokens: set --vocab-size {size}"
        )


def prepare_model_dir(config: PretrainingConfig, dry_run: bool) -> None:
    """Refuses to mix runs; deletes the old one for --overwrite. Of several hosts, the first does it."""
    folder = Path(config.model_dir)
    if this_host(config.strategy).number:
        return
    if config.overwrite and config.do_train and not dry_run:
        delete_run_folder(folder)
    advice = "Give another --model-name, or --overwrite to delete that run."
    check_run_folder(folder, config.to_json(), free_on_resume(PretrainingConfig), advice)


def print_summary(config: PretrainingConfig, task: Any, strategy: Any) -> None:
    """What is about to be trained, on what, for how long."""
    from pretrain.flops import training_flops_per_example

    parameters = sum(math.prod(variable.shape) for variable in task.model.trainable_variables)
    flops = training_flops_per_example(config)
    lines = [
        f"model          {config.model_name}: {parameters:,} parameters, {flops / 1e9:.2f} GFLOP per training example",
        f"               {config.num_train_steps * config.train_batch_size * flops:.3g} FLOP in all",
        f"devices        {strategy.num_replicas_in_sync} x {strategy.extended.worker_devices[0]}"
        f" ({type(strategy).__name__}), {config.precision}, XLA {'on' if task.jit_compile else 'off'}",
        f"batch          {config.train_batch_size} sequences of {config.max_seq_length} tokens, "
        f"{config.train_batch_size // strategy.num_replicas_in_sync} per device, "
        f"{config.gradient_accumulation_steps} micro-batch(es)",
    ]
    if task.train_records is not None:
        epochs = config.num_train_steps * config.train_batch_size / task.train_records.total
        lines.append(
            f"data           {task.train_records.total:,} records, "
            f"which {config.num_train_steps:,} steps see {epochs:.3g} times"
        )
        if epochs > 100:
            lines.append(
                "               WARNING: more than 100 epochs; a larger corpus or fewer steps would serve better"
            )
    terms = [f"{objective.loss_weight:g} x {objective.loss_name}" for objective in task.model.objectives]
    expected = sum(objective.loss_weight * objective.initial_loss for objective in task.model.objectives)
    lines.append(f"initial loss   about {expected:.2f} expected of {' + '.join(terms)}")
    print("\n".join(lines), flush=True)


def main() -> int:
    config = util_flags.config_from_flags(PretrainingConfig)
    dry_run = flags.FLAGS.dry_run
    if not (config.do_train or config.do_eval or dry_run):
        raise UserError("do_train and do_eval are both false: nothing to do")
    if config.init_encoder_from_generator and not config.init_generator_checkpoint:
        raise UserError(
            "init_encoder_from_generator needs --init-generator-checkpoint: the model of the first stage, a run with "
            "--no-electra-objective"
        )
    check_vocabulary(config)
    prepare_model_dir(config, dry_run)
    print(config.to_json(), flush=True)

    from pretrain.pretrain_data import dataset_summary, find_records
    from pretrain.task import PretrainingTask
    from training.distribution import check_batch, is_chief, make_strategy, wants_xla
    from training.trainer import Schedule, Trainer, format_metrics

    strategy = make_strategy(config)
    check_batch("train_batch_size", config.train_batch_size, strategy, config.gradient_accumulation_steps)
    check_batch("eval_batch_size", config.eval_batch_size, strategy)

    train_records = eval_records = None
    if config.do_train or dry_run:
        train_records = find_records(config.pretrain_tfrecords, config, "pretrain_tfrecords")
        print(f"training on {dataset_summary(train_records)}")
    if config.do_eval or config.eval_every_steps:
        pattern, flag = config.eval_tfrecords, "eval_tfrecords"
        if not glob.glob(pattern):
            print(f"WARNING: no held-out records match {pattern}: evaluating on the training records.")
            pattern, flag = config.pretrain_tfrecords, "pretrain_tfrecords"
        eval_records = find_records(pattern, config, flag)
        print(f"evaluating on {dataset_summary(eval_records)}")

    with strategy.scope():
        task = PretrainingTask(config, strategy, wants_xla(config), train_records, eval_records)
    print_summary(config, task, strategy)
    schedule = Schedule(
        num_train_steps=config.num_train_steps,
        iterations_per_loop=config.iterations_per_loop,
        save_checkpoints_steps=config.save_checkpoints_steps,
        keep_checkpoint_max=config.keep_checkpoint_max,
        eval_every_steps=config.eval_every_steps,
        num_eval_steps=config.num_eval_steps,
        examples_per_step=config.train_batch_size,
    )
    trainer = Trainer(task, strategy, schedule, config.model_dir)
    if dry_run:
        return time_some_steps(trainer, config)
    step = trainer.restore()
    if step:
        print(f"resuming {config.model_dir} at step {step:,}")
    else:
        load_initial_weights(task.model, config)

    if config.do_train:
        if is_chief(strategy):  # not before: what failed until here is no run, and the mended command may have its name
            write_config(Path(config.model_dir), config.to_json())
        code = trainer.train()
        if code:
            return code
        if is_chief(strategy) and not config.do_eval and trainer.last_logged is not None:
            loss, kept = trainer.last_logged.get("masked_lm_loss"), config.mask_rates[1]
            problem = diagnosis.warning_of_training(loss, task.unigram_entropy, kept)
            if problem is not None:
                print(f"WARNING: {problem}.")
    elif not step and not config.init_checkpoint:
        print("There is no checkpoint: evaluating the initial weights.")
    if config.do_eval:
        metrics = trainer.evaluate()
        print(f"evaluation at step {trainer.current_step:,}: {format_metrics(metrics)}")
        for problem in diagnosis.warnings(metrics):
            print(f"WARNING: {problem}.")
        if is_chief(strategy):
            write_json(config.results_json, {"step": trainer.current_step} | metrics)
            table = "".join(f"{name} = {value}\n" for name, value in metrics.items())
            write_atomically(config.results_txt, table)
    return 0


def load_initial_weights(model: Any, config: PretrainingConfig) -> None:
    """What a new run starts from: a whole checkpoint, or one for the generator and, in two-stage training, for both."""
    from exchange.checkpoints import copy_encoder, generator_names, warm_start

    if config.init_checkpoint:
        print(warm_start(model, config.init_checkpoint))
    if config.init_generator_checkpoint:
        report = warm_start(model.generator, config.init_generator_checkpoint, generator_names)
        print(f"generator: loaded {len(report.loaded)} variables, {len(report.missing)} missing")
        heads = [name for name in report.missing if "_predictions/" in name]
        if len(heads) < len(report.missing):
            lacking = [name for name in report.missing if name not in heads]
            raise UserError(f"init_generator_checkpoint lacks {', '.join(lacking[:5])}")
        if heads:
            print(f"  an encoder alone: random values for {', '.join(heads)}")
    if config.init_encoder_from_generator:
        copy_encoder(model.generator.encoder, model.encoder)
        print("the main network starts as a copy of the generator")


def time_some_steps(trainer: Any, config: PretrainingConfig) -> int:
    """Runs a few steps and says how long the whole run would take."""
    from training.distribution import peak_memory
    from util.progress import duration

    loss, seconds = trainer.time_steps()
    print(
        f"dry run        loss {loss:.2f}; {1 / seconds:.2f} steps/s, "
        f"{config.train_batch_size / seconds:.1f} examples/s, {peak_memory()} of memory at most; "
        f"{config.num_train_steps:,} steps would take {duration(config.num_train_steps * seconds)}"
    )
    return 0


flags.DEFINE_bool("dry_run", False, "show what would happen, time a few steps, leave nothing behind")
util_flags.define_hparam_flags(PretrainingConfig)

if __name__ == "__main__":
    util_flags.run(main, __doc__)
