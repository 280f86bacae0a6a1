"""Tells whether a recipe's training step fits a GPU or TPU that this machine lacks, and if not, with which settings.

  python -m benchmarks.compiled electra_small --devices h100,v5e
  python -m benchmarks.compiled electra_base --devices t4 --set train_batch_size=128 --set precision=float16

The step is lowered here and compiled by each device's own compiler (the extra `accelerators`; ACCELERATORS_PYTHON names
a Python that has it). The precision is bfloat16 unless --set changes it. If the whole batch does not fit, the largest
micro-batch that fits is searched for; then recomputation and bfloat16 are tried.

Memory grows linearly with the micro-batch, so that one compilation tells which size to try next. For a large batch, a
micro-batch is compiled first.
"""

import dataclasses
import functools
import gc
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import ArgumentParser, write_vocabulary
from benchmarks.compiled_devices import Device, find_devices
from electra_tf2.config.papers import load_paper
from electra_tf2.config.recipes import read_recipe
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.util.environment import use_processor_only
from electra_tf2.util.errors import UserError

_TRIES = 5  # most micro-batches of a configuration that are compiled
_FIRST = 1 << 17  # most tokens of the first micro-batch that is compiled
_MPA_NEIGHBOURS = 64


class Row(NamedTuple):
    """A compiler's report on a configuration. memory: bytes. seconds: processor time of the compilation."""

    name: str
    micro_batch: int
    memory: int
    fits: bool
    seconds: float


MemoryOf = Callable[[PretrainingConfig], tuple[int, int, float]]


def search(config: PretrainingConfig, device: Device, memory_of: MemoryOf, show: Callable[[Row], object]) -> list[Row]:
    """Searches for the largest micro-batch that fits.

    First for the configuration as it is; if the whole batch does not fit, also with each way to save memory; if nothing
    fits, with all of them together.

    Args:
      memory_of: compiles a configuration's step. Returns its bytes, the bytes of its arguments (weights, moments and
        the batch), and seconds.
      show: called with each row as soon as it is known.
    """

    def row_with(changes: dict[str, Any]) -> Row:
        name = ", ".join(f"{hparam} {value}" for hparam, value in changes.items()) or "as configured"
        return largest_micro_batch(dataclasses.replace(config, **changes), name, device, memory_of, show)

    as_it_is = row_with({})
    if as_it_is.fits and as_it_is.micro_batch == _micro_batch(config):
        return [as_it_is]
    savings: dict[str, Any] = {}
    if config.precision == "float32":
        savings["precision"] = "bfloat16"
    if config.recompute == "none":
        savings["recompute"] = "layers"
    rows = [as_it_is]
    for hparam, value in savings.items():
        rows.append(row_with({hparam: value}))
    if len(savings) > 1 and not any(row.fits for row in rows):
        rows.append(row_with(savings))
    return rows


def largest_micro_batch(
    config: PretrainingConfig, name: str, device: Device, memory_of: MemoryOf, show: Callable[[Row], object]
) -> Row:
    """Tries micro-batches. Returns the largest that fits, or if none fits, the last one."""
    batch = config.train_batch_size
    whole = _micro_batch(config)
    sizes = [size for size in range(1, whole + 1) if batch % size == 0]
    rows: list[Row] = []
    size = max([size for size in sizes if size * config.max_seq_length <= _FIRST] or sizes[:1])
    for _ in range(_TRIES):
        attempt = dataclasses.replace(config, gradient_accumulation_steps=batch // size)
        memory, arguments, seconds = memory_of(attempt)
        row = Row(name, size, memory, memory <= device.memory, seconds)
        rows.append(row)
        show(row)
        # The next size is between the largest that fits and the smallest that does not.
        fitting = max((row.micro_batch for row in rows if row.fits), default=0)
        too_large = min((row.micro_batch for row in rows if not row.fits), default=whole + 1)
        between = [size for size in sizes if fitting < size < too_large]
        # Weights, moments and two copies of the gradients do not depend on the micro-batch. All else grows with it.
        fixed = arguments * 5 / 3
        per_row = max(memory - fixed, 0) / size
        may_fit = [size for size in between if fixed + per_row * size <= device.memory]
        if not between or (fitting and not may_fit):
            break
        size = max(may_fit or between[:1])
    return max((row for row in rows if row.fits), key=lambda row: row.micro_batch, default=rows[-1])


def _micro_batch(config: PretrainingConfig) -> int:
    return config.train_batch_size // config.gradient_accumulation_steps


def verdict(config: PretrainingConfig, rows: list[Row]) -> str:
    """Sums up in a sentence what fits."""
    answers = []
    for row in rows:
        if row.fits and row.micro_batch == _micro_batch(config):
            answers.append(row.name)
        elif row.fits:
            parts = config.train_batch_size // row.micro_batch
            answers.append(f"{row.name}, gradient_accumulation_steps {parts} (micro-batches of {row.micro_batch:,})")
    if not answers:
        return "it does not fit, whatever the micro-batch: shorter sequences or a device with more memory would"
    return f"it fits {', or with '.join(answers)}"


def show(device: Device, row: Row) -> None:
    memory = f"{row.memory / 1e9:.1f} of {device.memory / 1e9:.1f} GB"
    fits = "fits" if row.fits else "too large"
    print(f"  {row.name:44} {row.micro_batch:6,} {memory:>20} {fits:>10} {row.seconds:5.0f} s", flush=True)


def write_inputs(folder: Path, config: PretrainingConfig) -> None:
    """Writes the files that building a step reads: a vocabulary, and MPA's table."""
    write_vocabulary(folder / "vocab.txt", config.vocab_size)
    if not getattr(config, "mpa_objective", False):
        return
    import numpy as np

    mpa = load_paper(config.paper, "tables")
    near = np.random.RandomState(0).randint(0, config.vocab_size, [config.vocab_size, _MPA_NEIGHBOURS])
    table = mpa.CooccurrenceTable(np.sort(near).astype(np.int32), np.ones(near.shape, np.float16))
    mpa.write_table(folder / "cooccurrence.npz", mpa.KIND, str(folder / "vocab.txt"), table._asdict())


def report(recipe: str, devices: list[Device], changes: dict[str, Any]) -> None:
    from benchmarks.compiled_step import memory_of, training_program

    with tempfile.TemporaryDirectory() as folder:
        hparams = read_recipe(recipe) | {"model_name": recipe, "data_dir": folder, "precision": "bfloat16"} | changes
        config = PretrainingConfig.from_dict(hparams)
        write_inputs(Path(folder), config)
        for device in devices:

            def compiled(attempt: PretrainingConfig, device: Device = device) -> tuple[int, int, float]:
                program = training_program(attempt)
                gc.collect()  # graphs, of GBs, refer to themselves
                return memory_of(device, program)

            print(
                f"{recipe} on {device.full_name}: {config.train_batch_size:,} x {config.max_seq_length}, "
                f"{config.precision}; micro-batch, memory, processor's seconds of the compilation"
            )
            rows = search(config, device, compiled, functools.partial(show, device))
            print(f"{recipe} on {device.name}: {verdict(config, rows)}", flush=True)


def main() -> None:
    parser = ArgumentParser(__doc__)
    parser.add_argument("recipes", nargs="+")
    parser.add_flag("--devices", "h100,v5e", "names with commas between them")
    parser.add_argument("--set", action="append", default=[], metavar="HPARAM=VALUE", help="other than the recipe's")
    options = parser.parse_args()
    changes: dict[str, Any] = {}
    for pair in options.set:
        name, _, value = pair.partition("=")
        try:
            changes[name] = json.loads(value)
        except ValueError:
            changes[name] = value
    use_processor_only()
    try:
        devices = find_devices(options.devices)
        from benchmarks.compiled_step import check_compiler

        for device in devices:
            check_compiler(device)
        for recipe in options.recipes:
            report(recipe, devices, changes)
    except UserError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
