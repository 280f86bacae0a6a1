"""Work on files or units, here or on several processes, with one progress for all.

The builders of records and of papers' tables run on it. Work is a generator: what it yields adds up to the progress,
what it returns is the result.
"""

import concurrent.futures
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from electra_tf2.util.environment import quiet_tensorflow
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import Progress

Item = TypeVar("Item")
Result = TypeVar("Result")
Work = Callable[[Item], Generator[float, None, Result]]

PRELOADED = ["tensorflow", "tensorflow_text"]  # by the process that workers are forked from


def run_on_processes(
    work: Work[Item, Result], items: Sequence[Item], processes: int, progress: Progress, when_killed: str
) -> list[Result]:
    """The results of all items, in their order.

    Args:
      work: can be pickled, and its results too, if there is more than one process.
      processes: 1: this one.
      when_killed: what to do if the system kills one of them.

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

    return [_result(work(item), advance) for item in items]


def _result(steps: Generator[float, None, Result], advance: Callable[[float], None]) -> Result:
    while True:
        try:
            advance(next(steps))
        except StopIteration as end:
            return end.value


class _Stopped(Exception):
    """The work of all has failed or been interrupted, so that of this process is of no use."""


_worker: tuple[Work, Any, Any] | None = None  # in a worker: the work, the progress of all, whether all are to stop


def _start_worker(work: Work, done: Any, stopped: Any) -> None:
    global _worker
    _worker = (work, done, stopped)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends the workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    quiet_tensorflow()
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)  # there are as many processes as wanted
    tf.config.threading.set_inter_op_parallelism_threads(1)


def _end_with_parent() -> None:
    """A killed parent cannot end its workers, and they must not write into a build that has been taken up again."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(item: Any) -> Any:
    assert _worker is not None
    work, done, stopped = _worker

    def advance(step: float) -> None:
        if stopped.is_set():
            raise _Stopped
        with done.get_lock():
            done.value += step

    return _result(work(item), advance)


def _context() -> multiprocessing.context.BaseContext:
    """Workers are forked from a process that has imported TensorFlow but run nothing of it (one that has cannot be
    forked), where the system can do that; else each imports it anew, which takes seconds of a core."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    quiet_tensorflow()  # the server has the environment of this process
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def _in_pool(
    work: Work[Item, Result], items: Sequence[Item], processes: int, progress: Progress, when_killed: str
) -> list[Result]:
    context = _context()
    done, stopped = context.Value("d"), context.Event()
    pool = concurrent.futures.ProcessPoolExecutor(
        processes, mp_context=context, initializer=_start_worker, initargs=(work, done, stopped)
    )
    try:
        try:
            jobs = [pool.submit(_work, item) for item in items]
        except (EOFError, ConnectionError):  # the process that workers are forked from has ended
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
