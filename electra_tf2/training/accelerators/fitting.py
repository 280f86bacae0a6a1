"""Does a step fit a device, and if it does not, with which micro-batch, recomputation or precision?"""

import dataclasses
import functools
import gc
from collections.abc import Callable
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from electra_tf2.model.attention import LONG_IN_PROGRAM
from electra_tf2.training.accelerators.compiling import ASSUMPTIONS, Compiled, check_compiler, compile_for
from electra_tf2.training.accelerators.devices import Device
from electra_tf2.training.accelerators.program import Program
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import say

_TRIES = 5  # micro-batches that are compiled, at most
_FIRST = 1 << 17  # tokens of the micro-batch that is compiled before a larger batch is
_MICRO_BATCHES = "gradient_accumulation_steps"
_SURE = 1.3  # a prediction that is so many times the memory is not tried
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
    def attention_implementation(self) -> str: ...
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

    def as_it_is(self, config: C, name: str, before: str = "") -> list[Row]:
        """Compiles a configuration. Of a large batch a micro-batch comes first; if what follows of it is that the whole
        is far from fitting, that is not compiled, but predicted.

        Args:
          before: of the micro-batch's name.

        Returns:
          The whole, and the micro-batch if there is one.
        """
        whole, batch = config.train_batch_size // config.gradient_accumulation_steps, config.train_batch_size
        sizes = [size for size in range(1, whole) if not batch % size and size * config.max_seq_length <= _FIRST]
        if whole * config.max_seq_length <= _FIRST or not sizes:
            return [self.try_out(config, name)]
        first = self._try_size(config, sizes[-1], before)
        predicted = self._estimate(first, whole)
        if predicted <= _SURE * self.device.memory:
            return [self.try_out(config, name), first]
        row = Row(f"{name}, predicted", whole, Compiled(False, int(predicted)))
        self._show(row)
        return [row, first]

    def try_out(self, config: C, name: str) -> Row:
        """Compiles a configuration as it is."""
        program = self._lower(config)
        gc.collect()  # graphs, of GBs, refer to themselves
        self._argument_bytes = Program(program).argument_bytes
        micro_batch = config.train_batch_size // config.gradient_accumulation_steps
        row = Row(name, micro_batch, compile_for(self.device, program, config.precision))
        self._show(row)
        return row

    def search(self, config: C) -> list[Row]:
        """The configuration as it is; if it does not fit, with less precision, with either recomputation, and with the
        largest micro-batch that fits, each alone; the latter with less precision and the recomputation that takes the
        least memory where it does not fit alone."""
        rows = self.as_it_is(config, "as configured")
        if rows[0].compiled.fits:
            return rows[:1]
        savings: list[dict[str, str]] = []
        if config.precision == "float32" and "bfloat16" in self.device.peaks:
            savings.append({"precision": "bfloat16"})
        if config.recompute == "none":
            ways = ("layers",) if config.max_seq_length >= LONG_IN_PROGRAM else ("selective", "layers")
            savings += [{"recompute": way} for way in ways]
        tried = [
            self.as_it_is(dataclasses.replace(config, **saving), _named(saving), f"{_named(saving)}, ")
            for saving in savings
        ]
        found = self.largest_micro_batch(config, rows, "")
        rows = [rows[0], *(of_saving[0] for of_saving in tried), *rows[1:], *found]
        if not (found and found[-1].compiled.fits) and savings:
            by_memory = sorted(zip(savings, tried, strict=True), key=lambda pair: -pair[1][0].compiled.memory)
            both = {name: value for saving, _ in by_memory for name, value in saving.items()}
            least, known = by_memory[-1]
            known = known if both == least else known[:1]
            if not known[0].compiled.fits:
                rows += self.largest_micro_batch(dataclasses.replace(config, **both), known, f"{_named(both)}, ")
        return rows

    def largest_micro_batch(self, config: C, known: list[Row], before: str) -> list[Row]:
        """Tries micro-batches, from an estimate up and down, until the largest that fits is known.

        Args:
          known: rows of this configuration, the whole, which does not fit, first.
          before: of the rows' names.

        Returns:
          New rows; the last is the largest that fits, also if it was known.
        """
        batch, rows = config.train_batch_size, list(known)
        for _ in range(_TRIES):
            fits, too_large = _best(rows), min(row.micro_batch for row in rows if not row.compiled.fits)
            least = fits.micro_batch if fits else 0
            sizes = [size for size in range(least + 1, too_large) if not batch % size]
            could = [size for size in sizes if self._estimate(rows[-1], size) <= self.device.memory]
            if not sizes or (fits and not could):
                break
            rows.append(self._try_size(config, max(could or sizes[:1]), before))
        fits = _best(rows)
        return [row for row in rows[len(known) :] if row is not fits] + ([fits] if fits else [])

    def _try_size(self, config: C, micro_batch: int, before: str) -> Row:
        parts = config.train_batch_size // micro_batch
        name = f"{before}{_MICRO_BATCHES} {parts}"
        return self.try_out(dataclasses.replace(config, gradient_accumulation_steps=parts), name)

    def _estimate(self, known: Row, micro_batch: int) -> float:
        """Bytes of a step with a micro-batch: what does not depend on it are weights, moments and two gradients."""
        fixed = self._argument_bytes * 5 / 3
        per_row = max(known.compiled.memory - fixed, 0) / known.micro_batch
        return fixed + per_row * micro_batch


def _best(rows: list[Row]) -> Row | None:
    return max((row for row in rows if row.compiled.fits), key=lambda row: row.micro_batch, default=None)


def _named(changes: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(changes.items()))


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
        if config.attention_implementation == "cudnn" and not device.has_fused_attention:
            raise UserError(
                f"attention_implementation cudnn: {device.full_name} has no fused attention of cuDNN, which GPUs have "
                "from the A100 on; use xla"
            )
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
    best: dict[str, Row] = {}  # of the same settings that of the largest micro-batch
    for row in sorted((row for row in rows if row.compiled.fits), key=lambda row: row.micro_batch):
        best[row.name.partition(_MICRO_BATCHES)[0].removesuffix(", ")] = row
    if not best:
        return "it does not fit, whatever the micro-batch: shorter sequences or a device with more memory would"
    answers = [
        row.name if row.micro_batch == rows[0].micro_batch else f"{row.name} (micro-batches of {row.micro_batch:,})"
        for row in rows
        if row in best.values()
    ]
    return "it does not fit as configured; it fits with " + ", or with ".join(dict.fromkeys(answers))
