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

import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common import parser_of, processor, seconds, turns, write_records, write_vocabulary
from electra_tf2.util.environment import quiet_tensorflow

ALONE, BESIDE, WAITED = KINDS = ("no checkpoint", "written beside", "waited for")


def make_trainer(folder: Path, recipe: str, batch_size: int, length: int) -> Any:
    """The trainer of a recipe on records of random tokens."""
    import tensorflow as tf

    from electra_tf2.configure_pretraining import PretrainingConfig
    from electra_tf2.pretrain.task import PretrainingTask
    from electra_tf2.training.loop import Schedule, Trainer
    from electra_tf2.util.recipes import read_recipe

    records = write_records(folder / "pretrain_tfrecords", length, 64 * batch_size, 2)
    write_vocabulary(folder / "vocab.txt")
    given = {"model_name": recipe, "data_dir": str(folder), "max_seq_length": length, "train_batch_size": batch_size}
    config = PretrainingConfig.from_dict(read_recipe(recipe) | given)
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        task = PretrainingTask(config, strategy, False, records)
    return Trainer(task, strategy, Schedule(10**6, 1, 1000, 1, 0, 0, batch_size), config.model_dir)


def main() -> None:
    options = parser_of(__doc__, rounds=5, recipe="electra_base", batch_size=8, length=128, steps=4).parse_args()
    quiet_tensorflow()
    from electra_tf2.training import checkpoint_files
    from electra_tf2.training.device_loop import DeviceLoop

    found: dict[str, list[float]] = defaultdict(list)
    parts: dict[str, float] = defaultdict(float)  # of a checkpoint, in the processor's time
    with tempfile.TemporaryDirectory() as temporary:
        trainer = make_trainer(Path(temporary), options.recipe, options.batch_size, options.length)
        loop = DeviceLoop(trainer.task, trainer.strategy, iter(trainer.task.training_data(0)))
        trainer.model_dir.mkdir(parents=True)
        writer = trainer.checkpoints.writer

        def steps(count: int) -> None:
            for _ in range(count):
                float(loop.run(1, 0, loop.nothing).sums["losses"]["loss"])

        def timed(part: str, function: Callable[[Path], object]) -> Callable[[Path], object]:
            def run(path: Path) -> object:
                results: list[object] = []
                parts[part] += seconds(lambda: results.append(function(path)), time.process_time)
                return results[0]

            return run

        for part, name in (("checksums", "_sha256"), ("fsync", "_sync")):
            setattr(checkpoint_files, name, timed(part, getattr(checkpoint_files, name)))

        def turn(kind: str) -> float:
            began, used = time.monotonic(), time.process_time()
            parts.clear()
            if kind != ALONE:
                wrote = lambda: found[f"writing, {kind}"].append(time.monotonic() - began)  # noqa: E731
                trainer.checkpoints.save(trainer.current_step, {}, wrote)
                found[f"copy, {kind}"].append(time.monotonic() - began)
                parts["copy"] = time.process_time() - used
            if kind == WAITED:
                writer.wait()
                rest = time.process_time() - used - sum(parts.values())
                for part, value in (parts | {"writing": rest}).items():
                    found[f"part, {part}"].append(value)
            steps(options.steps)
            writer.wait()
            found[f"processor, {kind}"].append(time.process_time() - used)
            return time.monotonic() - began

        steps(2)
        trainer.checkpoints.save(0, {})  # the first one makes room for the copy
        writer.wait()
        found |= turns({kind: lambda kind=kind: turn(kind) for kind in KINDS}, options.rounds)  # type: ignore[misc]
        size = sum(path.stat().st_size for path in trainer.model_dir.glob("model.ckpt-*.data-*"))
    median = {name: statistics.median(values) for name, values in found.items()}
    step, used = median[ALONE] / options.steps, median[f"processor, {ALONE}"] / options.steps
    print(f"{options.recipe}, batch {options.batch_size}, length {options.length}, checkpoints of {size / 1e9:.2f} GB")
    print(f"{processor()}; {options.rounds} rounds, turns of {options.steps} steps")
    print(f"{ALONE:15} {step:6.2f} s a step, {used:.2f} s of processors")
    for kind in (BESIDE, WAITED):
        cost, more = median[kind] - median[ALONE], median[f"processor, {kind}"] - median[f"processor, {ALONE}"]
        print(
            f"{kind:15} {median[kind] / options.steps:6.2f} s a step; a checkpoint costs {cost:.2f} s, "
            f"{cost / step:.2f} steps, and {more:.2f} s of processors; copied in {median[f'copy, {kind}']:.2f} s, "
            f"on the disk in {median[f'writing, {kind}']:.2f} s"
        )
    spent = [f"{name[6:]} {value:.2f} s" for name, value in median.items() if name.startswith("part, ")]
    print(f"processors, waited for: {', '.join(spent)}")


if __name__ == "__main__":
    main()
