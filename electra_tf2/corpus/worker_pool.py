"""Runs work on files or jobs, in this process or in several, with one progress display.

The builders of records and of papers' tables use it.
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
Advance = Callable[[float], None]  # called with the amount done since the last call, in the progress's unit

PRELOADED = ["tensorflow", "tensorflow_text"]  # imported by the fork server, so that its workers need not
_run: Callable[[Any], Any]  # what a worker process does with an item


def run_on_processes(
    work: Callable[..., Result], items: Sequence[Any], processes: int, progress: Progress, when_killed: str
) -> list[Result]:
    """Runs `work` on all items. Returns the results in their order.

    Args:
      work: called with an item and `advance`, an `Advance`. With several processes, it and its results are pickled.
      processes: number of processes; 1: this one.
      when_killed: advice for the error if the system kills a process.

    Raises:
      UserError: a process was killed, or from `work`.
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
    use_processor_only()  # in the environment, which workers inherit
    # A process in which TensorFlow has run cannot be forked. The fork server has only imported it, so that its workers
    # need not, which would take each of them seconds. Not every system has one.
    has_fork_server = "forkserver" in multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if has_fork_server else "spawn")
    context.set_forkserver_preload(PRELOADED)
    done = context.Value("d")
    stopped = context.Event()
    pool = concurrent.futures.ProcessPoolExecutor(processes, context, _start_worker, (work, done, stopped))
    try:
        try:
            futures = [pool.submit(_work, item) for item in items]
        except (EOFError, ConnectionError):  # the fork server was killed
            raise BrokenProcessPool from None
        waiting = set(futures)
        while waiting:
            ended, waiting = concurrent.futures.wait(waiting, timeout=1, return_when="FIRST_COMPLETED")
            for future in ended:
                future.result()  # raises the error of the work
            progress.update(done.value)
        return [future.result() for future in futures]
    except BrokenProcessPool:
        raise UserError(f"a worker process was killed (out of memory?); {when_killed}") from None
    finally:
        stopped.set()  # workers stop at their next call of `advance`
        pool.shutdown(wait=True, cancel_futures=True)


def _start_worker(work: Callable[..., Any], done: Any, stopped: Any) -> None:
    def advance(step: float) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt  # ends the item: its result is not needed
        with done.get_lock():
            done.value += step

    global _run
    _run = functools.partial(work, advance=advance)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends the workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    use_processor_only()
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)  # the processes are the parallelism
    tf.config.threading.set_inter_op_parallelism_threads(1)


def _end_with_parent() -> None:
    """Ends this process when its parent ends.

    A killed parent cannot end its workers, and these must not write into a build that another process resumes.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(item: Any) -> Any:
    return _run(item)
