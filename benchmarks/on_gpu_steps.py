"""Our pre-training step in a process of its own, for benchmarks/on_gpu.py: one program of XLA's, in one of some forms.

  python -m benchmarks.on_gpu_steps JOB FORM MICRO_BATCHES

Answers {"steps": N, "per_call": M} with the seconds of N steps, M of them in each call of the device, as the training
loop makes them, and {"steps": N, "profile": folder} with lines of a profile.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import on_gpu_profile
from benchmarks.common import answer_questions
from benchmarks.step_contenders import our_task, peak_memory
from benchmarks.step_job import Job
from electra_tf2.util.environment import before_tensorflow

FORMS = ("ours", "without kernels/xla.py", "plain formulas", "without barriers")


@contextlib.contextmanager
def form(name: str) -> Iterator[None]:
    """Makes the model's modules, not yet imported, of one of `FORMS`, and the programs that are traced within."""
    from electra_tf2.model.kernels import compilation

    assert "electra_tf2.model.layers" not in sys.modules
    with_kernel, materialize = compilation.with_kernel, compilation.materialize
    if name == "without kernels/xla.py":
        compilation.with_kernel = lambda kernel, within_program=None: with_kernel(kernel)
    elif name == "without barriers":
        # Vectors keep theirs: the one that bars TensorFlow from computing constants on the host is among them.
        compilation.materialize = lambda *tensors: (
            materialize(*tensors) if all(tensor.shape.rank == 1 for tensor in tensors) else list(tensors)
        )
    with compilation.off() if name == "plain formulas" else contextlib.nullcontext():
        yield


def steps(stack: contextlib.ExitStack) -> Callable[..., dict[str, Any]]:
    """Builds the model of the command line and warms it up. Returns the function that answers."""
    job, name, parts = Job.read(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    before_tensorflow()
    start = time.perf_counter()
    stack.enter_context(form(name))
    import tensorflow as tf

    from electra_tf2.training.device_loop import DeviceLoop
    from electra_tf2.training.distribution import distribute

    strategy, task, batch = our_task(job, True, gradient_accumulation_steps=parts)
    data = tf.data.Dataset.from_tensors(batch).repeat()
    loop = DeviceLoop(task, strategy, iter(distribute(strategy, data)))

    def run(number: int, per_call: int) -> float:
        """The loss of the last call's last step, for which it waits."""
        totals = loop.nothing
        for _ in range(max(1, number // per_call)):
            totals = loop.run(per_call, 0, loop.nothing)
        return float(totals.sums["losses"]["loss"])

    run(3, 3)
    startup = time.perf_counter() - start

    def answer(steps: int, per_call: int = 1, profile: str = "") -> dict[str, Any]:
        began = time.perf_counter()
        if profile:
            try:
                times = on_gpu_profile.profiled(lambda: run(steps, steps), Path(profile))
            except OSError as error:
                return {"rows": [("profile", str(error))]}
            return {"rows": on_gpu_profile.rows(times, steps)}
        if steps:
            run(steps, per_call)
        seconds = time.perf_counter() - began
        return {"seconds": seconds, "memory": peak_memory(), "startup": startup}

    return answer


if __name__ == "__main__":
    with contextlib.ExitStack() as programs:
        answer_questions(lambda: steps(programs))
