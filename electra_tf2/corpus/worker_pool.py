"""Work on files or jobs, in this process or in several, with one progress for all.

The builders of records and of papers' tables run on it.
"""

import concurrent.futures
import functools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from electra_tf2.util.environment import use_processor_only
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import Progress

Result = TypeVar("Result")
Advance = Callable[[float], None]  # takes what has been done since the last call, in the progress's unit

PRELOADED = ["tensorflow", "tensorflow_text"]  # by the process that workers are forked from
_run: Callable[[Any], Any]  # the work of a worker process


def run_on_processes(
    work: Callable[..., Result], items: Sequence[Any], processes: int, progress: Progress, when_killed: str
) -> list[Result]:
    """The results of all items, in their order.

    Args:
      work: called with an item and `advance`, an `Advance`. It and its results can be pickled, if there is more than
        one process.
      processes: 1: this one.
      when_killed: advice, if the system kills one of them.

    Raises:
      UserError: of the work; a process was killed.
    """
    if processes > 1:
        return _in_pool(work, items, processes, progress, when_killed)
    done = 0.0

    def advance(step: float) -> None:
        nonlocal done
        done += step
        progress.update(done)

    return [work(item, advance=advance) for item in items]


def _in_pool(
    work: Callable[..., Result], items: Sequence[Any], processes: int, progress: Progress, when_killed: str
) -> list[Result]:
    # Workers are forked from a process that has imported TensorFlow but run nothing of it (one that has cannot be
    # forked), where the system can do that; else each imports it anew, which takes seconds of a core.
    use_processor_only()  # they have the environment of this process
    forks = "forkserver" in multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if forks else "spawn")
    context.set_forkserver_preload(PRELOADED)
    done, stopped = context.Value("d"), context.Event()
    pool = concurrent.futures.ProcessPoolExecutor(processes, context, _start_worker, (work, done, stopped))
    try:
        try:
            jobs = [pool.submit(_work, item) for item in items]
        except (EOFError, ConnectionError):  # of the process that workers are forked from
            raise BrokenProcessPool from None
        waiting = set(jobs)
        while waiting:
            ended, waiting = concurrent.futures.wait(waiting, timeout=1, return_when="FIRST_COMPLETED")
            for job in ended:
                job.result()
            progress.update(done.value)
        return [job.result() for job in jobs]
    except BrokenProcessPool:
        raise UserError(f"a worker process was killed (out of memory?); {when_killed}") from None
    finally:
        stopped.set()  # whoever still works does not go on to the end of an item
        pool.shutdown(wait=True, cancel_futures=True)


def _start_worker(work: Callable[..., Any], done: Any, stopped: Any) -> None:
    def advance(step: float) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt  # nobody waits for the result
        with done.get_lock():
            done.value += step

    global _run
    _run = functools.partial(work, advance=advance)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends the workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    use_processor_only()
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)  # there are as many processes as wanted
    tf.config.threading.set_inter_op_parallelism_threads(1)


def _end_with_parent() -> None:
    """A killed parent cannot end its workers, and they must not write into a build that has been taken up again."""
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


def _work(item: Any) -> Any:
    return _run(item)
