"""Time that a checkpoint takes from training: of steps beside which none is written, one is, and one is waited for.

  python -m benchmarks.checkpoint --recipe electra_base --batch-size 8
  python -m benchmarks.checkpoint --recipe electra_small --batch-size 32 --steps 8

Turns of a few steps of the real training loop's parts (training.device_loop, training.checkpoints) on random tokens
alternate, so that what else the machine does hits all kinds alike: no checkpoint; one that is written while the steps
go on, as `Trainer` has it; one whose end is waited for before the first step. A turn ends with the last step and the
checkpoint. Printed are the medians of the turns: time of a step, what a checkpoint costs in all (the turn less one
without), also in steps and in the processor's time of all threads, how long the state's copy took, and when all was on
the disk; then what the processor did for a checkpoint that was waited for.
"""

import functools
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common import parser_of, processor, write_records, write_vocabulary
from electra_tf2.util.environment import quiet_tensorflow

KINDS = ("no checkpoint", "written beside", "waited for")


def make_trainer(folder: Path, recipe: str, batch_size: int, length: int) -> Any:
    """The trainer of a recipe on records of random tokens."""
    import tensorflow as tf

    from electra_tf2.configure_pretraining import PretrainingConfig
    from electra_tf2.pretrain.pretrain_data import find_records
    from electra_tf2.pretrain.task import PretrainingTask
    from electra_tf2.training.loop import Schedule, Trainer
    from electra_tf2.util.flags import read_recipe

    write_records(folder / "pretrain_tfrecords", length, 64 * batch_size, 2)
    write_vocabulary(folder / "vocab.txt")
    given = {"model_name": recipe, "data_dir": str(folder), "max_seq_length": length, "train_batch_size": batch_size}
    config = PretrainingConfig.from_dict(read_recipe(recipe) | given)
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        records = find_records(config.pretrain_tfrecords, config, "pretrain_tfrecords")
        task = PretrainingTask(config, strategy, False, records)
    return Trainer(task, strategy, Schedule(10**6, 1, 1000, 1, 0, 0, batch_size), config.model_dir)


def main() -> None:
    parser = parser_of(__doc__, rounds=5, recipe="electra_base", batch_size=8, length=128, steps=4)
    options = parser.parse_args()
    quiet_tensorflow()
    from electra_tf2.training import checkpoint_files
    from electra_tf2.training.device_loop import DeviceLoop

    seconds: dict[str, list[float]] = defaultdict(list)
    parts: dict[str, float] = defaultdict(float)  # of a checkpoint, in the processor's time
    with tempfile.TemporaryDirectory() as temporary:
        trainer = make_trainer(Path(temporary), options.recipe, options.batch_size, options.length)
        loop = DeviceLoop(trainer.task, trainer.strategy, iter(trainer.task.training_data(0)))
        trainer.model_dir.mkdir(parents=True)
        writer = trainer.checkpoints.writer

        def steps(count: int) -> None:
            for _ in range(count):
                float(loop.run(1, 0, loop.nothing).sums["losses"]["loss"])

        def wrote(kind: str, began: float) -> None:
            seconds[f"writing, {kind}"].append(time.monotonic() - began)

        def timed(part: str, function: Callable[[Path], object]) -> Callable[[Path], object]:
            def run(path: Path) -> object:
                used = time.process_time()
                result = function(path)
                parts[part] += time.process_time() - used
                return result

            return run

        for part, name in (("checksums", "_sha256"), ("fsync", "_sync")):
            setattr(checkpoint_files, name, timed(part, getattr(checkpoint_files, name)))

        steps(2)
        trainer.checkpoints.save(0, {})  # the first one makes room for the copy
        writer.wait()
        for _ in range(options.rounds):
            for kind in KINDS:
                began, used = time.monotonic(), time.process_time()
                parts.clear()
                if kind != KINDS[0]:
                    trainer.checkpoints.save(trainer.current_step, {}, functools.partial(wrote, kind, began))
                    seconds[f"copy, {kind}"].append(time.monotonic() - began)
                    parts["copy"] = time.process_time() - used
                if kind == KINDS[2]:
                    writer.wait()
                    parts["all"] = time.process_time() - used
                    for part, value in parts.items():
                        seconds[f"part, {part}"].append(value)
                steps(options.steps)
                writer.wait()
                seconds[kind].append(time.monotonic() - began)
                seconds[f"processor, {kind}"].append(time.process_time() - used)
        size = sum(path.stat().st_size for path in trainer.model_dir.glob("model.ckpt-*.data-*"))
    median = {name: statistics.median(values) for name, values in seconds.items()}
    step, used = median[KINDS[0]] / options.steps, median[f"processor, {KINDS[0]}"] / options.steps
    print(f"{options.recipe}, batch {options.batch_size}, length {options.length}, checkpoints of {size / 1e9:.2f} GB")
    print(f"{processor()}; {options.rounds} rounds, turns of {options.steps} steps")
    print(f"{KINDS[0]:15} {step:6.2f} s a step, {used:.2f} s of processors")
    for kind in KINDS[1:]:
        cost, more = median[kind] - median[KINDS[0]], median[f"processor, {kind}"] - median[f"processor, {KINDS[0]}"]
        print(
            f"{kind:15} {median[kind] / options.steps:6.2f} s a step; a checkpoint costs {cost:.2f} s, "
            f"{cost / step:.2f} steps, and {more:.2f} s of processors; copied in {median[f'copy, {kind}']:.2f} s, "
            f"on the disk in {median[f'writing, {kind}']:.2f} s"
        )
    spent = {name.removeprefix("part, "): value for name, value in median.items() if name.startswith("part, ")}
    spent["writing"] = spent.pop("all") - sum(spent.values())
    print(f"processors, waited for: {', '.join(f'{part} {value:.2f} s' for part, value in spent.items())}")


if __name__ == "__main__":
    main()
