"""The progress line: step, rate, losses, learning rate, time left. Rewritten on a terminal, one line each in a log."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

_SHOWN = ("loss", "masked_lm_loss", "cloze_loss", "disc_loss", "disc_accuracy", "disc_recall", "learning_rate")


class Progress:
    """Reports steps.

    The rate is that of the steps since the last report, without what was paused for (saving, evaluating). The time left
    follows from all steps and pauses, but for the first report, whose steps hold tracing and compilation.

    Args:
      start, end: steps.
      examples_per_step: of the global batch.
      clock: seconds.
    """

    def __init__(
        self, start: int, end: int, examples_per_step: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._end = end
        self._examples = examples_per_step
        self._now = clock
        self._last = (start, clock())
        self._warm: tuple[int, float] | None = None  # the first report: step, time
        self._paused = 0.0
        self._terminal = sys.stdout.isatty()

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Time in here counts for the time left, not for the rate."""
        start = self._now()
        try:
            yield
        finally:
            self._paused += self._now() - start

    def rate(self, step: int) -> float:
        """Examples per second since the last report; `step` steps are done."""
        last_step, last_time = self._last
        return (step - last_step) * self._examples / max(self._now() - last_time - self._paused, 1e-9)

    def update(self, step: int, values: dict[str, float]) -> float:
        """Reports that `step` steps are done. Returns examples per second."""
        now = self._now()
        rate = self.rate(step)
        since_step, since = self._warm or self._last
        left = duration((self._end - step) * (now - since) / max(step - since_step, 1))
        self._warm = self._warm or (step, now)
        self._last, self._paused = (step, now), 0.0
        shown = ", ".join(f"{name} {values[name]:.4g}" for name in _SHOWN if name in values)
        self._write(f"step {step:,}/{self._end:,}  {rate:,.0f} examples/s  {shown}  {left} left")
        return rate

    def line(self, text: str) -> None:
        """A line of its own."""
        print(("\n" if self._terminal else "") + text, flush=True)

    def close(self) -> None:
        if self._terminal:
            print(flush=True)

    def _write(self, text: str) -> None:
        print(f"\r\033[K{text}" if self._terminal else text, end="" if self._terminal else "\n", flush=True)


def duration(seconds: float) -> str:
    """ "3 h 12 min", "4 min 5 s", "12 s"."""
    seconds = int(seconds)
    days, hours, minutes = seconds // 86400, seconds // 3600 % 24, seconds // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    if minutes:
        return f"{minutes} min {seconds % 60} s"
    return f"{seconds} s"
