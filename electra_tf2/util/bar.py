"""A progress bar on a terminal, drawn by rich: a line that stays in place, with values below it.

rich is slow to import, so this module is imported only if there is a terminal.
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
      total: the amount at the end; None: there is only the line, without a bar.
    """

    def __init__(self, console: Console, total: float | None) -> None:
        self._console = console
        self._total = total
        self._begin(0, "", [])

    def _begin(self, done: float, line: str, values: Sequence[str]) -> None:
        """Begins a display. Nothing is drawn before the next `show` or the end."""
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
        """Removes the bar from the terminal, so that others can print."""
        task = self._progress.tasks[0]
        self._progress.stop()
        try:
            yield
        finally:
            # The old display would first move the cursor up, over what was printed meanwhile.
            self._begin(task.completed, task.description, self._progress.values)

    def close(self) -> None:
        """Ends the display. If there are values, they stay on the terminal with the line."""
        self._progress.live.transient = not self._progress.values
        self._progress.stop()


def bar_on(file: TextIO, total: float | None) -> Bar | None:
    """Makes a bar; None if the terminal cannot move its cursor."""
    console = Console(file=file, highlight=False)
    if console.is_dumb_terminal:
        return None
    return Bar(console, total)
