"""What the progress line says, on a clock of the test's own."""

import pytest

from util.progress import Progress, duration


class Clock:
    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


def test_rates_are_of_the_last_steps_and_leave_pauses_out(capsys):
    clock = Clock()
    progress = Progress(0, 100, 8, clock)
    clock.seconds = 60  # compilation
    assert progress.update(10, {"loss": 45.0}) == pytest.approx(10 * 8 / 60)
    clock.seconds = 65
    with progress.pause():
        clock.seconds = 70
    assert progress.update(20, {"loss": 40.0}) == pytest.approx(10 * 8 / 5)
    clock.seconds = 72
    assert progress.update(30, {"loss": 35.0}) == pytest.approx(10 * 8 / 2)
    lines = capsys.readouterr().out.splitlines()
    # 20 steps since the first report in 12 s, pauses included: 70 more take 42 s.
    assert lines[-1] == "step 30/100  40 examples/s  loss 35  42 s left"


def test_a_line_names_the_losses_and_the_learning_rate_only(capsys):
    clock = Clock()
    progress = Progress(0, 2000, 1, clock)
    clock.seconds = 1
    progress.update(1000, {"learning_rate": 5e-4, "disc_loss": 0.69, "loss": 45.0, "gradient_norm": 3.0})
    expected = "step 1,000/2,000  1,000 examples/s  loss 45, disc_loss 0.69, learning_rate 0.0005  1 s left"
    assert capsys.readouterr().out.strip() == expected


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59, "59 s"), (245, "4 min 5 s"), (11520, "3 h 12 min"), (93600, "1 d 2 h")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text
