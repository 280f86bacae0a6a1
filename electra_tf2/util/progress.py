"""Progress of whatever takes more than a moment: how far, how fast, how long still, and the values that matter.

Training, evaluation, building and analyses all report through here. On a terminal a bar with the values below it stays
in place, fitted to the width (rich); elsewhere a report is one plain line.

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
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TextIO, TypeVar

QUIET_SECONDS = 10.0  # between two lines of a log that bring no values
_REDRAW_SECONDS = 0.1
_LINE = 80  # columns of a line in a log; values that do not fit have one of their own

T = TypeVar("T")


class Progress:
    """Reports progress; a context manager, or `close` it.

    The rate is that since the last report with values, without pauses (saving, evaluating). The first report waited for
    tracing, compilation or imports: without values it shows no rate, and later rates are of what came after it. The
    time left is that at the pace of the later half of what came after it, pauses included; not in the first seconds.

    Args:
      title: what is counted: "step", "evaluation batch", "MB of text".
      total: of that; None if nobody knows.
      done: of that, before this began.
      unit: what the rate is counted in; "" shows no rate.
      per: units in one of what is counted.
      file: default standard output.
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
        self._title, self._total, self._unit, self._per = title, total, unit, per
        self._file = file or sys.stdout
        self._written = time.monotonic()
        self._since = (done, self._written)  # done, time: where the rate's span begins
        self._paused = 0.0  # seconds of that span
        self._reports: list[tuple[float, float]] = []  # (done, time) of the first report and some later ones
        self._values: Mapping[str, float] = {}
        self._live: Any = _live(self._file) if self._file.isatty() else None
        if self._live is not None:
            self._draw(done, [self._count(done)])
            self._live.start()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Time in here counts for the time left, not for the rate; other progress may be shown meanwhile."""
        start = time.monotonic()
        if self._live is not None:
            self._live.stop()
        try:
            yield
        finally:
            self._paused += time.monotonic() - start
            if self._live is not None:
                shown = self._live.renderable
                self._live = _live(self._file)  # the old one would draw over what was printed meanwhile
                self._live.update(shown)
                self._live.start()

    def update(self, done: float, values: Mapping[str, float] | None = None) -> float:
        """Reports how much is done.

        Args:
          values: to show. Without them this is a sign of life: the rate's span goes on, and a log gets a line only if
            it has had none for `QUIET_SECONDS`.

        Returns:
          Units per second in the rate's span.
        """
        now = time.monotonic()
        first = not self._reports
        rate = (done - self._since[0]) * self._per / max(now - self._since[1] - self._paused, 1e-9)
        speed = f"{_number(rate)} {self._unit}/s" if self._unit and (values is not None or not first) else ""
        if values is not None or first:
            self._since, self._paused = (done, now), 0.0
        if first or now > self._reports[-1][1] + 1:
            self._reports.append((done, now))
            if len(self._reports) > 256:
                del self._reports[1:-1:2]
        quiet = QUIET_SECONDS if self._live is None else _REDRAW_SECONDS
        if values is None and now - self._written < quiet:
            return rate
        self._written, self._values = now, self._values if values is None else values
        head = [part for part in (self._count(done), speed, self._left(done, now)) if part]
        if self._live is not None:
            self._draw(done, head)
            self._live.refresh()
        elif values or len(head) > 1 or not self._total:  # a place alone says nothing
            shown = ", ".join(_shown(values or {}))
            place = 2 if speed else 1
            line = "  ".join([*head[:place], *([shown] if shown else []), *head[place:]])
            print(line if len(line) <= _LINE else "  ".join(head) + f"\n  {shown}", file=self._file, flush=True)
        return rate

    def _left(self, done: float, now: float) -> str:
        """The time left, or "" while that is not known."""
        first, begun = self._reports[0]
        enough = min(10.0, 0.1 * (self._total or 0))  # one at a time, each may have compiled something
        if not self._total or now - begun < 2 * QUIET_SECONDS or done - first < enough:
            return ""
        half, time_of_half = next(report for report in reversed(self._reports) if report[0] <= (first + done) / 2)
        return f"{duration(max(self._total - done, 0) * (now - time_of_half) / (done - half))} left"

    def line(self, text: str) -> None:
        """A line that stays."""
        if self._live is not None:
            self._live.console.print(text, markup=False, soft_wrap=True)
        else:
            print(text, file=self._file, flush=True)

    def close(self) -> None:
        """Ends the report. Of a bar on a terminal, only the last values stay."""
        if self._live is not None:
            self._live.transient = not self._values
            self._live.stop()

    def _count(self, done: float) -> str:
        return f"{self._title} {_number(done)}" + (f"/{_number(self._total)}" if self._total is not None else "")

    def _draw(self, done: float, head: list[str]) -> None:
        from rich.columns import Columns
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        row = Table.grid(padding=(0, 2, 0, 0), expand=True)
        row.add_column()
        row.add_column(ratio=1)
        row.add_row("  ".join(head), ProgressBar(self._total, done, pulse=False) if self._total else "")
        self._live.update(Group(row, Columns(_shown(self._values), padding=(0, 2))))


def track(items: Iterable[T], title: str, total: float | None = None) -> Iterator[T]:
    """The items, with progress while they are worked on."""
    with Progress(title, total) as progress:
        for number, item in enumerate(items, start=1):
            yield item
            progress.update(number)


def say(text: str, indent: int = 0, broken: bool = False) -> None:
    """Prints a line; on a terminal, one that is too long is broken between words.

    Args:
      indent: blanks before what follows the first break.
      broken: also elsewhere, at 80 columns: text for people, of which no program looks for a part.
    """
    terminal = sys.stdout.isatty()
    if terminal or broken:
        width = shutil.get_terminal_size().columns if terminal else _LINE
        fill = textwrap.TextWrapper(width, subsequent_indent=" " * indent, break_long_words=False)
        fill.break_on_hyphens = False
        text = "\n".join(fill.fill(line) for line in text.splitlines())
    print(text, flush=True)


def warn(text: str) -> None:
    """Prints a warning to standard error, where it is seen when output goes to a file."""
    print(f"WARNING: {text}", file=sys.stderr, flush=True)


def _live(file: TextIO) -> Any:
    """rich's display, redrawn by us alone; None on a terminal that cannot rewrite what it shows."""
    from rich.console import Console
    from rich.live import Live

    console = Console(file=file, highlight=False)
    return None if console.is_dumb_terminal else Live(console=console, auto_refresh=False, transient=True)


def _shown(values: Mapping[str, float]) -> list[str]:
    return [f"{name} {value:.4g}" for name, value in values.items()]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """ "3 h 12 min", "4 min 5 s", "12 s"."""
    seconds = int(seconds)
    for size, unit, rest, unit_of_rest in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            return f"{seconds // size} {unit} {seconds % size // rest} {unit_of_rest}"
    return f"{seconds} s"


def counted(number: int, noun: str) -> str:
    """ "1 layer", "2 layers", "1,000 steps"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
