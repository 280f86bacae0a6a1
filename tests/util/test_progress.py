"""Progress as it is shown, on a clock of the test's own: lines in a log, a bar that fits on a terminal."""

import ast
import io
import re
import threading
from pathlib import Path

import pytest

from electra_tf2.util import progress as module
from electra_tf2.util.progress import Progress, duration, rewording, track, warn


@pytest.fixture
def clock(monkeypatch):
    """A list of one number: the time in seconds."""
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_rates_are_of_the_last_steps_and_leave_pauses_out(clock, capsys):
    progress = Progress("step", 100, unit="examples", per=8)
    clock[0] = 60  # compilation
    assert progress.update(10, {"loss": 45.0}) == pytest.approx(10 * 8 / 60)
    clock[0] = 65
    with progress.pause():
        clock[0] = 70
    assert progress.update(20, {"loss": 40.0}) == pytest.approx(10 * 8 / 5)
    clock[0] = 71
    progress.update(25)  # a sign of life: the next report's rate is of all ten steps
    clock[0] = 72
    assert progress.update(30, {"loss": 35.0}) == pytest.approx(10 * 8 / 2)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "step 30/100  40 examples/s  loss 35" and len(lines) == 3


def test_the_time_left_is_that_at_the_pace_of_late(clock, capsys):
    progress, value = Progress("step", 1000), {"loss": 1.0}
    clock[0] = 60  # compilation
    progress.update(1, value)
    for step in range(2, 7):  # each of these compiles another shape
        clock[0] += 6
        progress.update(step, value)
    for step in (10, 30, 50, 70, 100):
        clock[0] += 5
        with progress.pause():
            clock[0] += 1
        progress.update(step, value)
    lines = capsys.readouterr().out.splitlines()
    assert lines[3] == "step 4/1,000  loss 1" and "left" not in "".join(lines[:6])
    # The 50 steps since step 50 took 12 s, pauses included.
    assert lines[-1] == "step 100/1,000  loss 1  3 min 36 s left"


def test_a_log_gets_a_line_every_ten_seconds_and_with_all_values(clock, capsys):
    for number in track(range(45), "evaluation batch", 45):
        clock[0] = number + 1.0
    assert capsys.readouterr().out.splitlines() == [
        "evaluation batch 30/45  15 s left",
        "evaluation batch 40/45  5 s left",
    ]
    with Progress("step", 2000, done=999, unit="examples") as progress:
        clock[0] += 1
        progress.update(1000, {"copy_loss": 0.69, "learning_rate": 5e-4})
    # No time left: the first report waited for compilation.
    assert capsys.readouterr().out == "step 1,000/2,000  1 examples/s  copy_loss 0.69, learning_rate 0.0005\n"


def test_values_that_do_not_fit_a_line_of_a_log_have_their_own(clock, capsys):
    with Progress("step", 2000, unit="examples") as progress:
        for step in (10, 20, 30):
            clock[0] += 10
            progress.update(step, dict.fromkeys(["loss", "masked_lm_loss", "disc_loss", "disc_recall"], 12.345))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4:2] == ["step 10/2,000  1 examples/s", "step 20/2,000  1 examples/s"]
    assert lines[4] == "step 30/2,000  1 examples/s  32 min 50 s left"
    assert lines[1] == lines[5] and lines[1].startswith("  loss 12.3") and max(map(len, lines)) <= 80


def test_the_rate_of_what_has_no_values_leaves_the_first_report_out(clock, capsys):
    progress = Progress("MB of text", 100, unit="MB")
    clock[0] = 60  # imports
    progress.update(10)
    clock[0] = 90
    assert progress.update(70) == pytest.approx(2)
    assert capsys.readouterr().out.splitlines()[-1] == "MB of text 70/100  2 MB/s  15 s left"


class Terminal(io.StringIO):
    def isatty(self):
        return True


VALUES = dict.fromkeys(["loss", "masked_lm_loss", "clm_loss", "copy_loss", "scl_loss", "disc_accuracy"], 12.345)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_bar_fits_the_terminal_and_leaves_its_last_values(clock, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    file = Terminal()
    with Progress("step", 1_000_000, unit="examples", per=128, file=file) as progress:
        for step in (100_000, 200_000):
            clock[0] += 200_000
            progress.update(step, VALUES)
        with progress.pause():
            for _ in track([1, 2], "evaluation batch", 2):
                clock[0] += 1
        progress.line("evaluation at step 200,000")
    assert "evaluation at step 200,000" in file.getvalue()
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue())
    rows = re.split(r"[\r\n]+", text)
    assert max(map(len, rows)) <= width
    assert "step 200,000/1,000,000  64 examples/s  18 d 12 h left" in text
    assert all(f"{name} 12.3" in text.split("evaluation at step")[1] for name in VALUES)


def test_what_is_printed_in_a_pause_is_not_drawn_over(clock, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    file = Terminal()
    with Progress("step", 20, file=file) as progress:
        clock[0] = 1
        progress.update(10, VALUES)
        with progress.pause():
            file.write("evaluation\n")
        clock[0] = 2
        progress.update(11, VALUES)
        after = file.getvalue().rpartition("evaluation\n")[2]
        assert "step 11/20" in after and "\x1b[1A" not in after  # drawn below, without moving up first


def test_long_lines_break_between_words_on_a_terminal_only(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "20")
    module.say("model   one two three four")
    assert capsys.readouterr().out == "model   one two three four\n"
    monkeypatch.setattr(module.sys.stdout, "isatty", lambda: True)
    module.say("model   one two three four\n        five", indent=8)
    assert capsys.readouterr().out == "model   one two\n        three four\n        five\n"


def test_a_terminal_that_cannot_rewrite_gets_lines(clock, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    file = Terminal()
    with Progress("step", 2, file=file) as progress:
        clock[0] += 1
        progress.update(1, {"loss": 1.0})
    assert file.getvalue() == "step 1/2  loss 1\n"


def test_every_warning_leaves_by_standard_error(capsys):
    module.warn("the text is short")
    assert capsys.readouterr() == ("", "WARNING: the text is short\n")
    package = Path(module.__file__).parents[1]
    others = []  # places that print a warning of their own
    for path in package.rglob("*.py"):
        if path == Path(module.__file__):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "WARNING:" in node.value:
                others.append(f"{path}:{node.lineno}")
    assert not others


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59, "59 s"), (245, "4 min 5 s"), (11520, "3 h 12 min"), (93600, "1 d 2 h")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_messages_are_reworded_in_the_thread_that_asked_for_it(capsys: pytest.CaptureFixture) -> None:
    other = threading.Thread(target=warn, args=("there",))
    with rewording(str.upper):
        warn("here")
        other.start()
        other.join()
    warn("after")
    assert capsys.readouterr().err.splitlines() == ["WARNING: HERE", "WARNING: there", "WARNING: after"]
