"""Runs our programs, as from a command line, without importing TensorFlow anew for them: in this process, or in one of
their own that is forked from one which has imported it."""

import contextlib
import functools
import io
import multiprocessing
import os
import runpy
import sys
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from absl import flags

from electra_tf2 import __main__ as electra
from electra_tf2.config import flags as util_flags
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus import worker_pool
from electra_tf2.pretrain.implied_hparams import implied_hparams
from electra_tf2.util.environment import before_tensorflow

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "electra_tf2" / "programs"
worker_pool.PRELOADED = [__name__, "tests.support.training"]  # for programs that are forked, too


class Finished(NamedTuple):
    returncode: int
    stdout: str
    stderr: str

    @property
    def errors(self) -> list[str]:
        """The lines in which the program says what is wrong."""
        return [line for line in self.stderr.splitlines() if line.startswith("error: ")]


@contextlib.contextmanager
def flags_of_its_own():
    """absl's flags are global: in here they are those that are defined in here."""
    values = flags.FlagValues()
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(flags, "FLAGS", values))
        for name in dir(flags):
            if name.startswith("DEFINE"):
                define = functools.partial(getattr(flags, name), flag_values=values)
                stack.enter_context(mock.patch.object(flags, name, define))
        yield values


def configured(*words: str) -> PretrainingConfig:
    """The configuration that words of run_pretraining.py's command line mean."""
    with flags_of_its_own():
        util_flags.define_hparam_flags(PretrainingConfig)
        util_flags.parse(words)
        return util_flags.config_from_flags(PretrainingConfig, implied_by=implied_hparams)


def file_of(script: str | Path) -> Path:
    """Where a program is: ours by its file's name, another's by its path from the root."""
    inside = PROGRAMS / script
    return inside if inside.exists() else ROOT / script


def run_program(script: str | Path, *words: str) -> Finished:
    """`python script words`. An exception that the program lets escape is the test's."""
    return _run(lambda: runpy.run_path(str(file_of(script)), run_name="__main__"), str(script), *words)


def run_command(*words: str, called: str = "electra") -> Finished:
    """`electra words`, called by another name if one is given."""

    def run_anew(module: str, name: str, rest: list[str]) -> None:
        # Some programs define their flags when they are imported, so each call imports its program again.
        script = runpy.run_path(str(PROGRAMS / f"{module}.py"), run_name=module)
        sys.argv = [name, *rest]
        script["command"]()

    with mock.patch.object(electra, "_run", run_anew):
        return _run(electra.command, called, *words)


def _run(program: Callable[[], object], *words: str) -> Finished:
    out = io.StringIO()
    err = io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(flags_of_its_own())
        stack.enter_context(mock.patch.object(sys, "argv", [*words]))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        code = 0
        try:
            program()
        except SystemExit as exit:
            code = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    return Finished(code, out.getvalue(), err.getvalue())


def _settle_checkpoints() -> None:
    """Checkpoints are whole before training goes on."""
    from electra_tf2.training.checkpoints import Writer

    start = Writer.start

    def start_and_settle(writer: Writer, work: Callable[[], None]) -> None:
        start(writer, work)
        writer.settle()

    mock.patch.object(Writer, "start", start_and_settle).start()


def run_in_child(
    words: list[str], log: Path, environment: dict[str, str], settled: bool = False, formulas: bool = False
) -> None:
    """In the process: the program, its output in a file. It leads a process group, as from a shell."""
    os.setpgid(0, 0)
    os.environ.update(environment)
    with open(log, "w") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    sys.argv = words
    os.chdir(ROOT)
    if settled:
        _settle_checkpoints()
    with contextlib.ExitStack() as stack:
        if formulas:
            from electra_tf2.model import kernels

            stack.enter_context(kernels.off())
        runpy.run_path(str(file_of(words[0])), run_name="__main__")


@functools.cache
def start_fork_server() -> None:
    """Waits until the process that others are forked from has imported everything."""
    context = multiprocessing.get_context("forkserver")
    before_tensorflow()
    context.set_forkserver_preload(worker_pool.PRELOADED)
    process = context.Process(target=os.getpid)
    process.start()
    process.join()


def start_forked(
    words: list[str], log: Path, settled: bool = False, formulas: bool = False, **environment: str
) -> ForkServerProcess:
    """`python words` in a process of its own, its output and errors in a file or a pipe.

    Args:
      settled: a step is reported when the checkpoint before it is whole.
      formulas: kernels are off, which XLA would compile for seconds.
    """
    start_fork_server()
    arguments = (words, log, environment, settled, formulas)
    process = multiprocessing.get_context("forkserver").Process(target=run_in_child, args=arguments)
    process.start()
    return process


def run_forked(
    words: list[str], pipe: Path, step: int = 0, number: int = 0, formulas: bool = False
) -> tuple[int | None, str]:
    """`python words` in a process of its own, sent a signal when it reports a step, if one is given.

    What was to be saved before that step is whole then. Returns its exit code and output, which comes through a named
    pipe.
    """
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    process = start_forked(words, pipe, settled=bool(step), formulas=formulas)
    output = []
    with open(pipe) as lines:
        for line in lines:
            output.append(line)
            if process.pid and step and line.startswith(f"step {step}/"):
                os.kill(process.pid, number)
    process.join()
    return process.exitcode, "".join(output)
