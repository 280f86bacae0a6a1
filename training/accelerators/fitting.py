"""Does a step fit a device, and if it does not, with which micro-batch, recomputation or precision?"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from electra_tf2.training.accelerators.compiling import ASSUMPTIONS, Compiled, check_compiler, compile_for
from electra_tf2.training.accelerators.devices import Device
from electra_tf2.training.accelerators.program import Program
from electra_tf2.util.progress import say

_TRIES = 5  # micro-batches that are compiled, at most
HEADINGS = ("", "fits", "micro-batch", "memory", "kernels", "moved", "products", "steps/s", "compiled in", "host")
_WIDTHS = (44, 5, 12, 20, 9, 13, 13, 9, 12, 8)


class Configuration(Protocol):
    """A configuration of pre-training or fine-tuning, a dataclass, as far as a fit depends on it."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    @property
    def train_batch_size(self) -> int: ...
    @property
    def gradient_accumulation_steps(self) -> int: ...
    @property
    def max_seq_length(self) -> int: ...
    @property
    def precision(self) -> str: ...
    @property
    def recompute(self) -> str: ...
    @property
    def num_gpus(self) -> int | None: ...
    @property
    def num_tpu_cores(self) -> int: ...


C = TypeVar("C", bound=Configuration)


class Row(NamedTuple):
    """A configuration and what the compiler said of it."""

    name: str
    micro_batch: int
    compiled: Compiled


def headings() -> str:
    return _line(HEADINGS)


def cells(row: Row, device: Device) -> tuple[str, ...]:
    """A row of the table, under `HEADINGS`."""
    compiled = row.compiled
    memory = f"{compiled.memory / 1e9:.1f} of {device.memory / 1e9:.1f} GB"
    if not compiled.kernels:  # refused
        return (row.name, "no", f"{row.micro_batch:,}", memory, *[""] * 6)
    return (
        row.name,
        "yes" if compiled.fits else "no",
        f"{row.micro_batch:,}",
        memory,
        "" if device.is_tpu else f"{compiled.kernels:,}",
        f"{compiled.moved / 1e9:.1f} GB",
        f"{compiled.flops / 1e12:.2f} TF",
        f"{compiled.steps_per_second:.3g}",
        f"{compiled.seconds:.0f} s",
        f"{compiled.host_bytes / 1e9:.1f} GB",
    )


def show(device: Device, row: Row) -> None:
    """Prints a row."""
    print(_line(cells(row, device)), flush=True)


def _line(values: tuple[str, ...]) -> str:
    first, *rest = values
    return (
        first.ljust(_WIDTHS[0])
        + "".join(value.rjust(width) for value, width in zip(rest, _WIDTHS[1:], strict=True)).rstrip()
    )


class Fitting(Generic[C]):
    """Looks for settings with which a configuration fits a device.

    Args:
      device: to compile for.
      lower: lowers the training step of a configuration.
      show: called with each row as soon as it is known.
    """

    def __init__(self, device: Device, lower: Callable[[C], bytes], show: Callable[[Row], object]) -> None:
        self.device, self._lower, self._show = device, lower, show
        self._argument_bytes = 0

    def try_out(self, config: C, name: str) -> Row:
        """Compiles a configuration as it is."""
        program = self._lower(config)
        self._argument_bytes = Program(program).argument_bytes
        micro_batch = config.train_batch_size // config.gradient_accumulation_steps
        row = Row(name, micro_batch, compile_for(self.device, program, config.precision))
        self._show(row)
        return row

    def search(self, config: C) -> list[Row]:
        """The configuration as it is; if it does not fit, with less precision, with recomputation, and with the largest
        micro-batch that fits, each alone; the latter with both where it does not fit alone."""
        rows = [self.try_out(config, "as configured")]
        if rows[0].compiled.fits:
            return rows
        savings: list[dict[str, str]] = []
        if config.precision == "float32" and "bfloat16" in self.device.peaks:
            savings.append({"precision": "bfloat16"})
        if config.recompute == "none":
            savings.append({"recompute": "layers"})
        tried = []
        for saving in savings:
            changed = dataclasses.replace(config, **saving)
            tried.append((changed, self.try_out(changed, _named(saving))))
        rows += [row for _, row in tried]
        found = self.largest_micro_batch(config, rows[0], "")
        both = {name: value for saving in savings for name, value in saving.items()}
        if not found[-1].compiled.fits and both:
            rows += found
            changed = dataclasses.replace(config, **both)
            found = self.largest_micro_batch(changed, tried[-1][1], f"{_named(both)}, ")
        return rows + found

    def largest_micro_batch(self, config: C, refused: Row, before: str) -> list[Row]:
        """Tries micro-batches, from an estimate up and down, until the largest that fits is known; it comes last.

        Args:
          refused: a row of this configuration that does not fit.
          before: of the rows' names.
        """
        batch, rows, known = config.train_batch_size, [], refused
        smaller = [size for size in range(1, refused.micro_batch) if not batch % size]
        fits: Row | None = None
        for _ in range(_TRIES):
            if not smaller:
                break
            size = max([one for one in smaller if self._estimate(known, one) <= self.device.memory] or smaller[:1])
            parts = batch // size
            name = f"{before}gradient_accumulation_steps {parts}"
            known = self.try_out(dataclasses.replace(config, gradient_accumulation_steps=parts), name)
            if known.compiled.fits:
                fits, smaller = known, [one for one in smaller if one > size]
                smaller = smaller if smaller and self._estimate(known, smaller[0]) <= self.device.memory else []
            else:
                smaller = [one for one in smaller if one < size and (fits is None or one > fits.micro_batch)]
            rows.append(known)
        if fits is not None and rows[-1] is not fits:
            rows.remove(fits)
            rows.append(fits)
        return rows

    def _estimate(self, known: Row, micro_batch: int) -> float:
        """Bytes of a step with a micro-batch: what does not depend on it are weights, moments and two gradients."""
        fixed = self._argument_bytes * 5 / 3
        per_row = max(known.compiled.memory - fixed, 0) / known.micro_batch
        return fixed + per_row * micro_batch


def _named(changes: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in changes.items())


def replicas(config: Configuration, device: Device) -> int:
    """Devices that share a batch: num_gpus or num_tpu_cores, one if that is left open."""
    return config.num_tpu_cores if device.is_tpu else config.num_gpus or 1


def report(config: C, devices: list[Device], lower: Callable[[C], bytes]) -> None:
    """Prints whether a configuration's training step fits each device, and with what if it does not.

    Args:
      lower: lowers the training step of a configuration.
    """
    for device in devices:
        check_compiler(device)
    for device in devices:
        share = config.train_batch_size // replicas(config, device)
        say(
            f"{device.full_name}: {share:,} of {config.train_batch_size:,} sequences of {config.max_seq_length} tokens "
            f"a device, {config.precision}"
        )
        print(headings(), flush=True)
        fitting = Fitting(device, lower, functools.partial(show, device))
        rows = fitting.search(dataclasses.replace(config, train_batch_size=share))
        print(f"{device.name}: {verdict(rows)}", flush=True)
    say(ASSUMPTIONS)


def verdict(rows: list[Row]) -> str:
    """One sentence of what fits."""
    if rows[0].compiled.fits:
        return "it fits as configured"
    fitting = [row for row in rows if row.compiled.fits]
    if not fitting:
        return "it does not fit, whatever the micro-batch: shorter sequences or a device with more memory would"
    answers = [
        row.name if row.micro_batch == rows[0].micro_batch else f"{row.name} (micro-batches of {row.micro_batch:,})"
        for row in fitting
    ]
    return "it does not fit as configured; it fits with " + ", or with ".join(dict.fromkeys(answers))
