"""The progress line: step, rate, losses, time left. One line rewritten on a terminal, one line each in a log."""

import sys
import time


class Progress:
    """Reports steps; the first loop, which holds tracing and compilation, does not count in the rate.

    Args:
      start, end: steps.
      examples_per_step: of the global batch.
    """

    def __init__(self, start: int, end: int, examples_per_step: int) -> None:
        self._end = end
        self._examples = examples_per_step
        self._clock: tuple[int, float] | None = None
        self._first = (start, time.monotonic())
        self._terminal = sys.stdout.isatty()

    def update(self, step: int, values: dict[str, float]) -> float:
        """Reports that `step` is done. Returns examples per second."""
        now = time.monotonic()
        since_step, since = self._clock or self._first
        rate = (step - since_step) / max(now - since, 1e-9)
        if self._clock is None:
            self._clock = (step, now)
        shown = ", ".join(f"{name} {value:.4g}" for name, value in values.items() if name in _SHOWN)
        left = duration((self._end - step) / rate)
        self._write(f"step {step:,}/{self._end:,}  {rate * self._examples:,.0f} examples/s  {shown}  {left} left")
        return rate * self._examples

    def line(self, text: str) -> None:
        """A line of its own."""
        print(("\n" if self._terminal else "") + text, flush=True)

    def close(self) -> None:
        if self._terminal:
            print(flush=True)

    def _write(self, text: str) -> None:
        print(f"\r\033[K{text}" if self._terminal else text, end="" if self._terminal else "\n", flush=True)


_SHOWN = ("loss", "masked_lm_loss", "cloze_loss", "disc_loss", "disc_accuracy", "disc_recall")


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
