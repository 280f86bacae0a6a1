"""Runs the units of a build on this machine's processes.

build_pretraining_dataset.py calls `build`: the plan says what is to be done, the staging folder what has been, and
whatever runs the units, this machine or Apache Beam, gives the same bytes.
"""

import concurrent.futures
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from corpus.build_plan import BuildPlan, Unit
from corpus.build_unit import build_unit
from corpus.staging import Staging
from util.environment import before_tensorflow
from util.errors import UserError
from util.progress import Progress

_WORTH_A_PROCESS = 4 << 20  # bytes of text; importing TensorFlow once more takes as long as this

RunUnits = Callable[[Staging, list[Unit]], None]


def build(plan: BuildPlan, run_units: RunUnits, overwrite: bool = False) -> dict[str, Any]:
    """Builds, or goes on building, the records of a plan. Returns the metadata.

    Args:
      run_units: runs the units that are given, each of which leaves its report.

    Raises:
      UserError: the output directory holds something else or cannot be written, or the corpus is unusable.
    """
    staging = Staging(plan)
    with staging.locked():
        finished = staging.begin(overwrite)
        if finished is not None:
            print(f"{staging.output} already holds these records; nothing to do")
            return finished
        units = staging.todo()
        if len(units) < len(plan.units):
            print(f"going on with an unfinished build: {len(plan.units) - len(units)} of {len(plan.units)} units done")
        run_units(staging, units)
        staging.complete()
        return staging.publish()


def run_local(num_processes: int = 0) -> RunUnits:
    """Runs units on this machine; one process means this one, 0 one for each core if there is work for it."""

    def run(staging: Staging, units: list[Unit]) -> None:
        # Large units first, so that the last ones to finish are small.
        units = sorted(units, key=lambda unit: -unit.text_bytes)
        total = sum(unit.text_bytes for unit in units)
        processes = num_processes or min(len(os.sched_getaffinity(0)), 1 + total // _WORTH_A_PROCESS)
        with Progress("MB of text", total / 1e6, unit="MB") as progress:
            if min(processes, len(units)) > 1:
                _run_pool(staging, units, min(processes, len(units)), progress)
                return
            done = 0.0
            for unit in units:
                for step in build_unit(staging, unit):
                    done += step / 1e6
                    progress.update(done)

    return run


# ---- processes ----

_worker: tuple[Staging, Any] | None = None  # in a worker: what its units have in common


def _start_worker(staging: Staging, done: Any) -> None:
    global _worker
    _worker = (staging, done)
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


def quiet_tensorflow() -> None:
    """Before TensorFlow is imported: keeps it off the GPU and its start-up messages off the screen."""
    before_tensorflow()
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"


def _work(unit: Unit) -> None:
    assert _worker is not None
    staging, done = _worker
    for step in build_unit(staging, unit):
        with done.get_lock():
            done.value += step / 1e6


def _run_pool(staging: Staging, units: list[Unit], processes: int, progress: Progress) -> None:
    context = multiprocessing.get_context("spawn")  # TensorFlow cannot be forked
    done = context.Value("d")
    pool = concurrent.futures.ProcessPoolExecutor(
        processes, mp_context=context, initializer=_start_worker, initargs=(staging, done)
    )
    try:
        waiting = {pool.submit(_work, unit) for unit in units}
        while waiting:
            ended, waiting = concurrent.futures.wait(waiting, timeout=1, return_when="FIRST_COMPLETED")
            for job in ended:
                job.result()
            progress.update(done.value)
    except concurrent.futures.process.BrokenProcessPool:
        raise UserError(
            "a worker process was killed (out of memory?); run the same command again to go on, "
            "with a smaller --num-processes if memory is short"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
