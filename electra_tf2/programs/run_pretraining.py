"""Pre-trains ELECTRA, BERT or one of their relatives, and evaluates it on held-out records.

  python run_pretraining.py --data-dir data --model-name electra_small

trains the recipe of that name on <data-dir>/pretrain_tfrecords with <data-dir>/vocab.txt. The same command resumes a
run that was stopped. --do-eval --no-do-train evaluates the newest checkpoint; --dry-run shows what would happen, times
a few steps and leaves nothing behind.
"""

import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import flags

from electra_tf2.config import flags as util_flags
from electra_tf2.config.hparams import dashed, free_on_resume, places, unmet_needs
from electra_tf2.config.phases import Phase, phases_of
from electra_tf2.configure_pretraining import TRAIN_GENERATOR, PretrainingConfig
from electra_tf2.corpus.vocabulary import load_vocab
from electra_tf2.files.writing import check_writable, write_atomically, write_json
from electra_tf2.formats.folders import holds_weights, is_missing, no_model, read_config
from electra_tf2.formats.readers import find_model
from electra_tf2.pretrain import diagnosis
from electra_tf2.pretrain.implied_hparams import implied_hparams
from electra_tf2.pretrain.next_steps import export_formats, next_commands
from electra_tf2.pretrain.summary import epochs_in_phase, expected_loss, summary
from electra_tf2.training.cluster import this_host
from electra_tf2.training.precision import fitted_to_machine
from electra_tf2.training.run_folder import RunFolder, begins_anew, holds_work
from electra_tf2.util.environment import import_tensorflow
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.progress import duration, say, warn

if TYPE_CHECKING:
    import tensorflow as tf

    from electra_tf2.pretrain.pretrain_data import Records
    from electra_tf2.pretrain.pretraining_task import PretrainingTask
    from electra_tf2.training.loop import Trainer

# A resumed run may change it besides what is declared with `free_hparam`: no variable depends on it.
_MAY_CHANGE = {"precision"}
_SCHEDULE = ("learning_rate", "num_warmup_steps", "lr_decay_steps")
_MOST_EPOCHS = 100  # more are warned about
_MORE_STEPS = 10_000  # of a released model, where an example is given
# The released models of these names were trained by other recipes, for longer and on more text.
_RECIPE_OF_RELEASED = {"electra_small": "electra_small_pp", "electra_large": "electra_large_pp"}
_MARGIN = 15  # columns of the summary for the names of its lines


class Run(NamedTuple):
    """Things that all phases of a run share. config: the whole run's, as its folder records it."""

    config: PretrainingConfig
    folder: RunFolder
    strategy: "tf.distribute.Strategy"
    dry_run: bool


class PhaseData(NamedTuple):
    """Records that a phase trains on and is evaluated on; None if it does not need them."""

    train: "Records | None"
    held_out: "Records | None"


def main() -> int:
    dry_run = flags.FLAGS.dry_run
    config = util_flags.config_from_flags(PretrainingConfig, implied_by=implied_hparams)
    training = config.do_train and not dry_run

    # These checks need no TensorFlow, which takes seconds to import.
    check_request(config, dry_run)
    check_vocabulary(config)
    folder = make_folder(config, dry_run)
    if is_chief(config) and not dry_run:
        check_files(config, folder, training)
    check_starts(config, folder)
    config = fit_to_machine(config, folder)

    # Only training locks the folder: a run may be evaluated while it trains.
    with folder if training else contextlib.nullcontext():
        free = config.free_to_change | _MAY_CHANGE
        chosen = util_flags.read_layers(PretrainingConfig).user
        folder.check(config.to_json(), free, chosen=chosen, resolve=resolve)
        if config.debug and "debug" not in chosen and not config.do_train:
            print(f"note: {config.model_dir} holds a run of debug, which is evaluated", file=sys.stderr)
        print_changed_hparams()
        return run_phases(config, folder, dry_run)


def resolve(user_hparams: Mapping[str, Any]) -> str:
    """Makes the configuration that follows from what a user gives, as JSON."""
    return util_flags.resolve(PretrainingConfig, user_hparams, implied_hparams).to_json()


def is_chief(config: PretrainingConfig) -> bool:
    """True for the process that writes files: the first of a job on several hosts, or the only one."""
    return this_host(config.strategy).rank == 0


def check_request(config: PretrainingConfig, dry_run: bool) -> None:
    """Raises UserError if there is nothing to do, or a required hparam is missing."""
    if not (config.do_train or config.do_eval or dry_run):
        raise UserError("do_train and do_eval are both false: nothing to do")
    if config.do_train and not dry_run and not config.num_train_steps:
        raise UserError("num_train_steps is 0: there is less than one step to train")
    needs = list(unmet_needs(config))
    if needs:
        raise UserError("; ".join(needs))


def check_vocabulary(config: PretrainingConfig) -> None:
    """Raises UserError if the vocabulary is missing, or of another size than the configuration."""
    size = len(load_vocab(config.vocab_file))
    if size != config.vocab_size:
        raise UserError(
            f"vocab_size is {config.vocab_size}, but {config.vocab_file} has {size} tokens: set --vocab-size {size}"
        )


def check_files(config: PretrainingConfig, folder: RunFolder, training: bool) -> None:
    """Raises UserError if an output cannot be written, or if an input would be renamed with the folder."""
    outputs = []
    if training:
        outputs += [folder.path / "config.json", folder.path / "events" / "events"]
    if config.do_eval:
        outputs += [Path(config.results_txt), Path(config.results_json)]
    for path in outputs:
        check_writable(path)

    if not (training and folder.overwrite):
        return
    what_renames = "--overwrite"
    if not config.overwrite:
        what_renames = "a run without debug"
    # A resumed run reads the sizes in init_generator_checkpoint again, so that folder must survive --overwrite.
    names = {*places(type(config), "read"), "init_generator_checkpoint"}
    for phase in phases_of(config):
        for name in sorted(names):
            value = getattr(config.in_phase(phase), name)
            if not value:
                continue
            path = Path(value).resolve()
            if path.is_relative_to(folder.path.resolve()):
                raise UserError(
                    f"{what_renames} would rename {name} {path} with the run in {folder.path}: move it elsewhere first"
                )


def check_starts(config: PretrainingConfig, folder: RunFolder) -> None:
    """Raises UserError if a model to start from is missing, or if the run's folder holds another program's model."""
    if not folder.overwrite:
        check_is_ours(config)
    if holds_work(folder.path) and not folder.overwrite:
        return  # it goes on from its own checkpoints
    for name in ("init_checkpoint", "init_generator_checkpoint"):
        path = getattr(config, name)
        if path and is_missing(path):
            raise no_model(path, dashed(name))


def check_is_ours(config: PretrainingConfig) -> None:
    """Raises UserError if the run's folder holds a checkpoint of another program, as of a released model.

    The original goes on in such a folder, with the optimizer's slots. Here it is where a new run starts from.
    """
    path = config.model_dir
    if read_config(path) is not None or not holds_weights(path) or not find_model(path).network:
        return
    recipe = ""
    if config.recipe:
        recipe = f"--recipe {_RECIPE_OF_RELEASED.get(config.recipe, config.recipe)} "
    purpose = "To train it further, start a new run from it"
    what_to_do = f"--num-train-steps {_MORE_STEPS}"
    if not config.do_train:
        purpose = "To evaluate it, name it as a start"
        what_to_do = "--no-do-train --do-eval"
    raise UserError(
        f"{path} holds a model of another program, not a run of this one. {purpose}: "
        f"--model-name NEW_NAME {recipe}--init-checkpoint {path} {what_to_do} (docs/from_google_research.md)"
    )


def make_folder(config: PretrainingConfig, dry_run: bool) -> RunFolder:
    """Makes the object for the run's folder. Nothing is written yet."""
    advice = "Give another --model-name, or --overwrite to rename that run."
    if not (config.do_train or dry_run):
        advice = f"Evaluate it with its own: --hparams {config.model_dir}/config.json"
    path = Path(config.model_dir)
    # A dry run with --overwrite, too, may have another configuration than the run in the folder.
    overwrite = config.do_train and begins_anew(path, config.overwrite, config.debug)
    return RunFolder(path, is_chief(config), overwrite, advice)


def fit_to_machine(config: PretrainingConfig, folder: RunFolder) -> PretrainingConfig:
    """The configuration with the precision in which the run began, or else one that suits this machine."""
    began = {}
    if not folder.overwrite and holds_work(folder.path):
        began = read_config(config.model_dir) or {}
    config, notes = fitted_to_machine(config, util_flags.read_hparams(PretrainingConfig), began)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    return config


def print_changed_hparams() -> None:
    """Prints the hparams that differ from the recipe, if any, or from the defaults, and affect what is trained."""
    changes = []
    for name, value in util_flags.changed_hparams(PretrainingConfig).items():
        # Others that may change on resume are paths, devices, or how often something is saved.
        if name in _SCHEDULE or name not in free_on_resume(PretrainingConfig):
            changes.append(f"{name} {shown(value)}")
    base = "the defaults"
    if util_flags.read_layers(PretrainingConfig).recipe:
        base = "the recipe's"
    if changes:
        say(f"hparams        other than {base}: {', '.join(changes)}", indent=_MARGIN, broken=True)


def run_phases(config: PretrainingConfig, folder: RunFolder, dry_run: bool) -> int:
    """Trains the phases, of which most runs have one, and evaluates after the last.

    The data of all phases are checked before the first one begins.

    Returns:
      The exit code: 0, or that of the phase that was stopped.
    """
    import_tensorflow()
    from electra_tf2.training.distribution import make_strategy

    run = Run(config, folder, make_strategy(config), dry_run)
    all_phases = phases_of(config)
    phases = phases_to_run(run, all_phases)
    data = [find_data(config.in_phase(phase), run) for phase in phases]
    for phase, phase_data in zip(phases, data, strict=True):
        if len(all_phases) > 1:
            position = all_phases.index(phase) + 1
            say(f"phase {position} of {len(all_phases)}: steps {phase.start:,} to {phase.end:,}")
        code = run_phase(phase, phase_data, run, first=phase is phases[0])
        if code:
            return code
    if config.do_train and not dry_run and is_chief(config):
        # Not by `say`, which breaks lines on a terminal: they are to be pasted.
        print("\n".join(next_commands(config)), flush=True)
    return 0


def phases_to_run(run: Run, phases: list[Phase]) -> list[Phase]:
    """Chooses phases: all for a dry run, the unfinished ones for training, the newest checkpoint's for evaluation."""
    from electra_tf2.training.checkpoints import newest_good

    if run.dry_run or len(phases) == 1:
        return phases
    step = 0
    if not run.folder.overwrite:
        step = newest_good(run.folder.path)[0] or 0
    if run.config.do_train:
        unfinished = [phase for phase in phases if phase.end > step]
        # If all are done, the last phase trains no step and is evaluated.
        return unfinished or phases[-1:]
    begun = [phase for phase in phases if phase.start < max(step, 1)]
    return begun[-1:]


def find_data(config: PretrainingConfig, run: Run) -> PhaseData:
    """Finds the records of a phase and prints what they are.

    Raises:
      UserError: records that are missing or do not fit; batches that the devices cannot share evenly.
    """
    from electra_tf2.pretrain.pretrain_data import dataset_summary, find_records, has_records
    from electra_tf2.training.distribution import check_batch

    train_records = None
    if config.do_train or run.dry_run:
        check_batch("train_batch_size", config.train_batch_size, run.strategy, config.gradient_accumulation_steps)
        train_records = find_records(config.pretrain_tfrecords, config, "pretrain_tfrecords")
        say(f"training on {dataset_summary(train_records)}", indent=2)

    eval_records = None
    if config.do_eval or config.eval_every_steps:
        check_batch("eval_batch_size", config.eval_batch_size, run.strategy)
        if has_records(config.eval_tfrecords):
            eval_records = find_records(config.eval_tfrecords, config, "eval_tfrecords")
        else:
            warn(
                f"no held-out records match {config.eval_tfrecords}: evaluating on the training records. The builder's "
                "--dev-fraction 0.01 holds some out"
            )
            eval_records = find_records(config.pretrain_tfrecords, config, "pretrain_tfrecords")
            eval_records = eval_records._replace(trained_on=True)
        say(f"evaluating on {dataset_summary(eval_records)}", indent=2)
    return PhaseData(train_records, eval_records)


def run_phase(phase: Phase, data: PhaseData, run: Run, first: bool) -> int:
    """Trains a phase, and evaluates after the last; a dry run times some steps.

    Args:
      first: True for the first phase that this process runs.
    """
    from electra_tf2.pretrain.initial_weights import Start

    config = run.config.in_phase(phase)
    trainer, task = make_trainer(phase, data, run)
    print_summary(phase, run, task)
    # With --overwrite the checkpoints in the folder are still the old run's when the first phase begins.
    starts_anew = run.folder.overwrite and (first or run.dry_run)
    step = 0 if starts_anew else trainer.restore()
    if step:
        verb = "resuming" if config.do_train else "reading"
        say(f"{verb} {config.model_dir} at step {step:,}")
    else:
        start = task.load_initial_weights()
        if task.train_records is not None and not start:
            say(expected_loss(task, phase.start), indent=_MARGIN, broken=True)
        is_trained_further = start == Start.WHOLE and config.do_train and config.do_eval
        if is_trained_further and not run.dry_run:
            # What the training is to improve.
            trainer.reporter.evaluation(0, trainer.evaluate())

    if run.dry_run:
        return time_some_steps(trainer, config, phase.end - phase.start)

    if config.do_train:
        # Not earlier, so that a command that failed leaves no folder, and the corrected one can reuse the name.
        if first:
            run.folder.begin(run.config.to_json(), config.vocab_file)
        code = trainer.train()
        if code:
            return code
        if not config.do_eval:
            warn_without_evaluation(trainer, config, phase.end, task.unigram_entropy)
    elif not step and not config.init_checkpoint and config.num_train_steps:
        raise UserError(
            f"nothing was trained in {config.model_dir} yet: it holds no checkpoint that could be evaluated. Train "
            "first (--do-train), or name weights by --init-checkpoint; --num-train-steps 0 evaluates random weights"
        )

    is_last = phase.end == run.config.num_train_steps
    if config.do_eval and (is_last or not config.do_train):
        evaluate(trainer, config)
    return 0


def make_trainer(phase: Phase, data: PhaseData, run: Run) -> "tuple[Trainer, PretrainingTask]":
    """Makes the networks of a phase and the loop that trains them. No weights are loaded yet."""
    from electra_tf2.pretrain.pretraining_task import make_task
    from electra_tf2.training.distribution import wants_xla
    from electra_tf2.training.loop import LoopSchedule, Trainer

    config = run.config.in_phase(phase)
    with run.strategy.scope():
        task = make_task(config, run.strategy, wants_xla(config), data.train, data.held_out)
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
    return Trainer(task, run.strategy, schedule, config.model_dir), task


def print_summary(phase: Phase, run: Run, task: "PretrainingTask") -> None:
    """Prints a summary of what is trained, on which data, for how long."""
    lines = summary(run.config, phase, run.strategy, task, names_processor=run.dry_run)
    if run.dry_run:
        lines.append(f"export         {export_formats(run.config.architecture)}")
    say("\n".join(lines), indent=_MARGIN, broken=True)
    if task.train_records is None:
        return
    if epochs_in_phase(run.config.in_phase(phase), phase, task.train_records.total) > _MOST_EPOCHS:
        warn(f"more than {_MOST_EPOCHS} epochs: a larger corpus or fewer steps serve better")


def advice_on_plateau(config: PretrainingConfig, step: int) -> str:
    """Advises on a run whose generator ends on the plateau or above it, after so many steps."""
    if config.generator_stays_random:
        return f"it is not trained (freeze_generator): {TRAIN_GENERATOR}"
    if config.freeze_generator:
        start = config.init_generator_checkpoint or config.init_checkpoint
        return f"the generator is not trained here (freeze_generator): train {start}, where it comes from, for longer"
    return diagnosis.advice_for(config.architecture, step)


def evaluate(trainer: "Trainer", config: PretrainingConfig) -> None:
    """Evaluates on held-out records. Prints the metrics, and writes them to TensorBoard and the results' files."""
    metrics = trainer.evaluate()
    step = trainer.current_step
    trainer.reporter.evaluation(step, metrics, during_training=False)
    trainer.reporter.close()
    advice = advice_on_plateau(config, step)
    for problem in diagnosis.warnings(metrics, advice):
        warn(f"{problem}.")
    if trainer.chief:
        write_json(config.results_json, {"step": step} | metrics)
        write_atomically(config.results_txt, "".join(f"{name} = {value}\n" for name, value in metrics.items()))
        say(f"wrote {config.results_txt} and {config.results_json}")


def warn_without_evaluation(
    trainer: "Trainer", config: PretrainingConfig, step: int, unigram_entropy: float | None
) -> None:
    """Warns, by the last training loss, if a run is still on the plateau."""
    if not trainer.chief:
        return
    visible = config.mask_rates[1]  # share of the masked positions that keep their token
    loss = trainer.reporter.last.get("masked_lm_loss")
    advice = advice_on_plateau(config, step)
    problem = diagnosis.warning_of_training(loss, unigram_entropy, visible, advice)
    if problem is not None:
        warn(f"{problem}.")


def time_some_steps(trainer: "Trainer", config: PretrainingConfig, steps: int) -> int:
    """Times a few steps and prints how long all steps of the phase would take."""
    from electra_tf2.pretrain.flops import step_flops
    from electra_tf2.training.distribution import peak_memory

    loss, seconds = trainer.time_steps()
    tflops = step_flops(config) / seconds / 1e12
    say(
        f"dry run        loss {loss:.2f}; {1 / seconds:.2f} steps/s, "
        f"{config.train_batch_size / seconds:.1f} examples/s, {tflops:.2g} TFLOP/s, {peak_memory()} of memory at most; "
        f"{steps:,} steps would take {duration(steps * seconds)}",
        indent=_MARGIN,
    )
    return 0


_FIRST = """
    dry_run hparams model_name recipe paper do_train do_eval overwrite data_dir vocab_file pretrain_tfrecords model_dir
    num_train_steps train_batch_size max_seq_length gradient_accumulation_steps learning_rate num_warmup_steps
    iterations_per_loop save_checkpoints_steps eval_every_steps init_checkpoint seed precision num_gpus use_tpu
    model_size vocab_size do_lower_case
"""
FIRST = tuple(_FIRST.split())  # flags that --help shows; --help all shows the others, too
flags.DEFINE_bool("dry_run", False, "show what would happen, time a few steps, leave nothing behind")
util_flags.define_hparam_flags(PretrainingConfig)


def command() -> None:
    util_flags.run(main, __doc__, goes_on=True, first=FIRST)


if __name__ == "__main__":
    command()
