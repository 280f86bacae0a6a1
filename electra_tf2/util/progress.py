"""Shows the progress of long work: how much is done, how fast, the time left, and values such as the loss.

Training, evaluation, building and analyses all use it. On a terminal it is a bar that stays in place, with the values
below it (`util.bar`); in a log, plain lines.

  with Progress("step", 1000, unit="examples", per=128) as progress:
      progress.update(10, {"loss": 3.1})                    # step 10/1,000  912 examples/s  loss 3.1  2 min 20 s left
  for feature in track(features, "tokenizing cola", len(features)):
      ...
"""

import contextlib
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, TextIO, TypeVar

if TYPE_CHECKING:
    from electra_tf2.util.bar import Bar

QUIET_SECONDS = 10.0  # between two lines of a log without values
_REDRAW_SECONDS = 0.1
_LINE = 80  # columns of a line in a log; values that do not fit go to a second line

T = TypeVar("T")


class Progress:
    """Reports progress. Use it as a context manager, or call `close`.

    Args:
      title: what is counted: "step", "evaluation batch", "MB of text".
      total: the count at the end; None if it is unknown.
      done: the count at the start.
      unit: unit of the rate, such as "examples"; "": no rate is shown.
      per: number of units in one of what is counted, such as examples in a step.
      file: where it is shown; default: standard output.
    """

    def __init__(
        self,
        title: str,
        total: float | None,
        *,
        done: float = 0,
        unit: str = "",
        per: float = 1.0,
        file: TextIO | None = None,
    ) -> None:
        self._title = title
        self._total = total
        self._unit = unit
        self._file = file or sys.stdout
        self._pace = _Pace(done, per)
        self._values: Mapping[str, float] = {}
        self._last_shown = time.monotonic()
        self._bar: Bar | None = None  # None: plain lines
        if self._file.isatty():
            from electra_tf2.util.bar import bar_on

            self._bar = bar_on(self._file, total)
        if self._bar is not None:
            self._bar.show(done, self._count(done), [])

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Excludes the time within from the rate, but not from the time left. Others may show progress meanwhile."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._pace.pause())
            if self._bar is not None:
                stack.enter_context(self._bar.away())
            yield

    def update(self, done: float, values: Mapping[str, float] | None = None) -> float:
        """Reports how much is done.

        Args:
          values: values to show. Without values, a log gets a line only if it has had none for `QUIET_SECONDS`.

        Returns:
          The rate, in units per second, since the last report with values.
        """
        now = time.monotonic()
        is_first = self._pace.is_new
        rate = self._pace.report(done, now, ends_span=values is not None)
        quiet_seconds = QUIET_SECONDS if self._bar is None else _REDRAW_SECONDS
        if values is None and now - self._last_shown < quiet_seconds:
            return rate
        self._last_shown = now
        if values is not None:
            self._values = values
        speed = ""
        if self._unit and (values is not None or not is_first):
            speed = f"{_number(rate)} {self._unit}/s"
        left = ""
        seconds = self._pace.seconds_left(done, now, self._total)
        if seconds is not None:
            left = f"{duration(seconds)} left"
        if self._bar is not None:
            self._bar.show(done, _joined(self._count(done), speed, left), _shown(self._values))
        elif values or speed or left or not self._total:  # a line with nothing but the count tells little
            self._print(self._count(done), speed, ", ".join(_shown(values or {})), left)
        return rate

    def _print(self, count: str, speed: str, values: str, left: str) -> None:
        """Prints a line of a log, and values that do not fit on a second line."""
        line = _joined(count, speed, values, left)
        if values and len(line) > _LINE:
            line = _joined(count, speed, left) + f"\n  {values}"
        print(line, file=self._file, flush=True)

    def line(self, text: str) -> None:
        """Prints a line that stays."""
        if self._bar is not None:
            self._bar.print(text)
        else:
            print(text, file=self._file, flush=True)

    def close(self) -> None:
        """Ends the report. A bar disappears, except for its last values."""
        if self._bar is not None:
            self._bar.close()

    def _count(self, done: float) -> str:
        if self._total is None:
            return f"{self._title} {_number(done)}"
        return f"{self._title} {_number(done)}/{_number(self._total)}"


class _Pace:
    """Computes the rate and the time left.

    The rate is measured since the last report with values, without pauses (saving, evaluating): it tells how fast
    training is. The time left is estimated from the later half of all reports, with pauses. Before the first report,
    there was tracing, compilation or an import, so that later reports do not count that time.

    Args:
      per: number of units of the rate in one of what is counted.
    """

    def __init__(self, done: float, per: float) -> None:
        self._per = per
        self._span_start = (done, time.monotonic())  # of the rate's time span
        self._paused = 0.0  # seconds of pauses in that span
        self._reports: list[tuple[float, float]] = []  # (done, time) of the first report and of some later ones

    @property
    def is_new(self) -> bool:
        return not self._reports

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self._paused += time.monotonic() - start

    def report(self, done: float, now: float, ends_span: bool) -> float:
        """Returns the rate, in units per second, of the current time span.

        Args:
          ends_span: True: the next report begins a new span.
        """
        done_before, time_before = self._span_start
        seconds = now - time_before - self._paused
        rate = (done - done_before) * self._per / max(seconds, 1e-9)
        if ends_span or self.is_new:
            self._span_start = (done, now)
            self._paused = 0.0
        if self.is_new or now > self._reports[-1][1] + 1:
            self._reports.append((done, now))
            if len(self._reports) > 256:  # every second one is enough
                del self._reports[1:-1:2]
        return rate

    def seconds_left(self, done: float, now: float, total: float | None) -> float | None:
        """Estimates the time left; None until enough has been reported."""
        if not total:
            return None
        first_done, first_time = self._reports[0]
        enough = min(10.0, 0.1 * total)  # the first few may each have compiled something
        if now - first_time < 2 * QUIET_SECONDS or done - first_done < enough:
            return None
        half_done, half_time = self._reports[0]
        for report in self._reports:
            if report[0] <= (first_done + done) / 2:
                half_done, half_time = report
        seconds_each = (now - half_time) / (done - half_done)
        return max(total - done, 0) * seconds_each


def track(items: Iterable[T], title: str, total: float | None = None) -> Iterator[T]:
    """Yields items, and shows progress while the caller works on them."""
    with Progress(title, total) as progress:
        for done, item in enumerate(items, start=1):
            yield item
            progress.update(done)


def say(text: str, indent: int = 0, broken: bool = False) -> None:
    """Prints a line. On a terminal, a line that is too long is broken between words.

    Args:
      indent: number of blanks at the start of the second line and all later ones.
      broken: True: lines are also broken elsewhere, at 80 columns. For text that no program searches.
    """
    print(_wrapped(_reworded(text), sys.stdout, indent, broken), flush=True)


def warn(text: str | Warning) -> None:
    """Prints a warning to standard error, where it is seen if output goes to a file. Every warning goes through it."""
    print(_wrapped(_reworded(f"WARNING: {text}"), sys.stderr, indent=2), file=sys.stderr, flush=True)


@contextlib.contextmanager
def rewording(reword: Callable[[str], str]) -> Iterator[None]:
    """Lets everything that `say` and `warn` print in this thread meanwhile go through a function.

    It may name other things, such as an argument in the place of a flag.
    """
    token = _rewordings.set((*_rewordings.get(), reword))
    try:
        yield
    finally:
        _rewordings.reset(token)


# That are on in this thread, each within the one before.
_rewordings: ContextVar[tuple[Callable[[str], str], ...]] = ContextVar("rewordings", default=())


def _reworded(text: str) -> str:
    for reword in reversed(_rewordings.get()):
        text = reword(text)
    return text


def _wrapped(text: str, stream: TextIO, indent: int = 0, broken: bool = False) -> str:
    """Breaks lines that are too long for the terminal. Other streams get lines as they are.

    Args:
      broken: True: lines for other streams are broken at 80 columns.
    """
    if stream.isatty():
        width = shutil.get_terminal_size().columns
    elif broken:
        width = _LINE
    else:
        return text
    wrapper = textwrap.TextWrapper(
        width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(wrapper.fill(line) for line in text.splitlines())


def _shown(values: Mapping[str, float]) -> list[str]:
    return [f"{name} {value:.4g}" for name, value in values.items()]


def _joined(*texts: str) -> str:
    """Joins the texts that are not empty to a line."""
    return "  ".join(text for text in texts if text)


def _number(value: float) -> str:
    if value == int(value) or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def duration(seconds: float) -> str:
    """A duration in words: "3 h 12 min", "4 min 5 s", "12 s"."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    if minutes:
        return f"{minutes} min {seconds} s"
    return f"{seconds} s"


def counted(number: int, noun: str) -> str:
    """A count with its noun: "1 layer", "2 layers", "1,000 steps"."""
    if number == 1:
        return f"{number:,} {noun}"
    return f"{number:,} {noun}s"
