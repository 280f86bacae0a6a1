"""Steps of pre-training on a GPU, beside Hugging Face's: the parts `small` and `base` of benchmarks/on_gpu.py."""

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial

from benchmarks.on_gpu_results import Part
from benchmarks.step import Contender
from benchmarks.step_contenders import ONE_PROGRAM
from benchmarks.step_job import Job, product_flops

OURS = ONE_PROGRAM[0]  # the form of our step that training uses
# (size, batch, length) -> most steps/s and GB of memory, from an H100's compiler (benchmarks/RESULTS.md).
COMPILED = {("small", 128, 128): (155.0, 2.3), ("base", 256, 128): (24.8, 14.6), ("base", 256, 512): (4.08, 35.9)}
NO_COMMAND_BUFFERS = ", no command buffers"  # suffix of a contender's name: it launches its kernels one by one


class Steps(Contender):
    """A contender in a part. Its name is the program's, with the suffix `NO_COMMAND_BUFFERS` or without."""

    def __init__(self, part: Part, name: str, job: Job) -> None:
        self.part = part
        self.name = name
        self.is_ours = name.startswith(OURS)
        program = name.removesuffix(NO_COMMAND_BUFFERS)
        environment = dict(os.environ)
        if program != name:
            xla_flags = f"{environment.get('XLA_FLAGS', '')} --xla_gpu_enable_command_buffer="
            environment["XLA_FLAGS"] = xla_flags.strip()
        super().__init__(program, job, part.torch_python, environment)

    def turns(self, count: int, steps: int, per_call: int | None = None) -> list[float]:
        """Takes turns of so many steps each. Returns the seconds of a step in each turn.

        Args:
          per_call: steps in a call of our programs; None: all steps of the turn.
        """
        steps_per_call = 1
        if self.is_ours and self.job.what == "pretraining":
            steps_per_call = per_call or steps
        return [self.turn(steps, steps_per_call) for _ in range(count)]

    def report(self, title: str, times: list[float], size: str = "") -> None:
        """Records examples/s of the median turn, and its share of the peak and of the compiled program's limit."""
        job = self.job
        median = statistics.median(times)
        notes = [f"{job.batch_size} x {job.length}", f"{1 / median:.2f} steps/s"]
        peak = self.part.last_value("products, bfloat16")
        if peak:
            notes.append(f"{product_flops(job) / median / peak / 1e12:.1%} of the products' peak (MFU)")
        if self.is_ours and (size, job.batch_size, job.length) in COMPILED:
            limit, memory = COMPILED[size, job.batch_size, job.length]
            notes.append(f"{1 / median / limit:.0%} of an H100's limit, {memory} GB by its compiler")
        if job.micro_batches > 1:
            notes.append(f"{job.micro_batches} micro-batches")
        notes.append(f"{self.memory / 1e9:.1f} GB")
        notes.append(f"warm after {self.startup:.0f} s")
        self.part.record(title, job.batch_size / median, "examples/s", ", ".join(notes))


def started(part: Part, makers: Mapping[str, Callable[[], Steps]]) -> Iterator[Steps]:
    """Starts contenders at the same time. Yields each when it has compiled, and records the failures of others."""
    with ThreadPoolExecutor(len(makers)) as threads:
        futures = {threads.submit(make): name for name, make in makers.items()}
        for future in as_completed(futures):
            try:
                yield future.result()
            except OSError as error:
                part.record_failure(futures[future], error)


def small(part: Part) -> None:
    """Times electra_small: forms of our step, command buffers, steps in a call, Hugging Face's; records a profile."""
    job = part.job("small", 128, 128)
    steps = 50
    rounds = 3
    names = [OURS, f"{OURS}{NO_COMMAND_BUFFERS}", *ONE_PROGRAM[1:], "hugging_face", "hugging_face_compiled"]
    if part.tiny:
        steps = 2
        rounds = 1
        names = [OURS, ONE_PROGRAM[1], "hugging_face"]
    contenders = []
    for contender in started(part, {name: partial(Steps, part, name, job) for name in names}):
        contenders.append(contender)
        contender.report(contender.name, contender.turns(1, steps), "small")  # while others compile
    times: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for _ in range(rounds):
        for contender in contenders:
            times[contender.name] += contender.turns(1, steps)
            contender.report(contender.name, times[contender.name], "small")
    for contender in sorted(contenders, key=lambda contender: contender.name):
        if contender.name == OURS:
            for per_call in (1, steps // 5 or 2, 2 * steps):
                times_by_calls = contender.turns(rounds, 2 * steps, per_call)
                contender.report(f"{contender.name}, {per_call} steps a call", times_by_calls, "small")
        if contender.name.removesuffix(NO_COMMAND_BUFFERS) == OURS:
            write_profile(contender, 2 if part.tiny else 20)
        contender.end()


def write_profile(contender: Steps, steps: int) -> None:
    part = contender.part
    with tempfile.TemporaryDirectory() as folder, part.recording_failure(f"profile of {contender.name}"):
        for title, text in contender.ask(steps=steps, per_call=steps, profile=folder)["rows"]:
            part.record(f"{contender.name}: {title}", text)


def base(part: Part) -> None:
    """Times electra_base at two lengths: ours in as few micro-batches as fit, and Hugging Face's."""
    rounds = 1 if part.tiny else 3
    steps = 2 if part.tiny else 17
    for name in (OURS, "hugging_face_compiled"):
        # With 256 sequences of full length, Hugging Face's may not fit.
        jobs = [part.job("base", 256, 128), part.job("base", 256 if name == OURS else 64, 512)]
        makers = {f"{name}, {job.batch_size} x {job.length}": partial(fitting, part, name, job) for job in jobs}
        for contender in list(started(part, makers)):
            title = f"{name}, {contender.job.batch_size} x {contender.job.length}"
            with part.recording_failure(title):
                contender.report(title, contender.turns(rounds, steps), "base")
            contender.end()


def fitting(part: Part, name: str, job: Job) -> Steps:
    """Starts a contender. Ours gets the fewest micro-batches that fit into memory, at most 8."""
    micro_batches = 1
    while True:
        try:
            return Steps(part, name, job._replace(micro_batches=micro_batches))
        except OSError as error:
            micro_batches *= 2
            message = str(error).lower()
            is_out_of_memory = "memory" in message or "exhausted" in message
            if micro_batches > 8 or not is_out_of_memory or name != OURS:
                raise
