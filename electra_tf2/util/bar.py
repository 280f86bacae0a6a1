"""A bar of progress on a terminal, by rich: what is done in a line that stays in place, and values below it.

A module of its own, since rich is imported only where there is a terminal to draw on.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from rich.columns import Columns
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
from rich.table import Column


class _ProgressWithValues(Progress):
    values: Sequence[str] = ()

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        yield Columns(self.values, padding=(0, 2))


class Bar:
    """A bar that is redrawn when `show` is called, and at no other time.

    Args:
      total: of what is counted; without it there is the line, but no bar.
    """

    def __init__(self, console: Console, total: float | None) -> None:
        self._console = console
        self._total = total
        self._begin(0, "", [])

    def _begin(self, done: float, line: str, values: Sequence[str]) -> None:
        """Begins a display, of which nothing is drawn before the next `show` or the end."""
        columns: list[ProgressColumn] = [TextColumn("{task.description}", markup=False, table_column=Column())]
        if self._total:
            columns.append(BarColumn(bar_width=None, table_column=Column(ratio=1)))
        self._progress = _ProgressWithValues(
            *columns, console=self._console, auto_refresh=False, transient=True, expand=True
        )
        self._progress.values = values
        self._task = self._progress.add_task(line, total=self._total)
        self._progress.update(self._task, completed=done)
        self._progress.live.start()

    def show(self, done: float, line: str, values: Sequence[str]) -> None:
        self._progress.values = values
        self._progress.update(self._task, completed=done, description=line, refresh=True)

    def print(self, text: str) -> None:
        """Prints a line above the bar, which stays."""
        self._console.print(text, markup=False, soft_wrap=True)

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Takes the bar off the terminal, so that others can print there."""
        task = self._progress.tasks[0]
        self._progress.stop()
        try:
            yield
        finally:
            # A new display: the old one would first move the cursor up, over what was printed meanwhile.
            self._begin(task.completed, task.description, self._progress.values)

    def close(self) -> None:
        """Ends the display; where there are values, they stay, with the line."""
        self._progress.live.transient = not self._progress.values
        self._progress.stop()


def bar_on(file: TextIO, total: float | None) -> Bar | None:
    """Makes a bar; None on a terminal that cannot rewrite what it shows."""
    console = Console(file=file, highlight=False)
    if console.is_dumb_terminal:
        return None
    return Bar(console, total)
