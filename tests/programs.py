"""Runs our programs in this process, as from a command line: no test need import TensorFlow anew for them."""

import contextlib
import functools
import io
import runpy
import sys
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from absl import flags

ROOT = Path(__file__).parent.parent


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
    defines = [name for name in dir(flags) if name.startswith("DEFINE_")]
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(flags, "FLAGS", values))
        for name in defines:
            define = functools.partial(getattr(flags, name), flag_values=values)
            stack.enter_context(mock.patch.object(flags, name, define))
        yield values


def run_program(script: str | Path, *words: str) -> Finished:
    """`python script words`. An exception that the program lets escape is the test's."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(flags_of_its_own())
        stack.enter_context(mock.patch.object(sys, "argv", [str(script), *words]))
        stack.enter_context(mock.patch.object(sys, "path", [str((ROOT / script).parent), *sys.path]))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        code = 0
        try:
            runpy.run_path(str(ROOT / script), run_name="__main__")
        except SystemExit as exit:
            code = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    return Finished(code, out.getvalue(), err.getvalue())
