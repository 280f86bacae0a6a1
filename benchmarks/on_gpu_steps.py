"""Steps of pre-training on a GPU, beside Hugging Face's: the parts `small` and `base` of benchmarks/on_gpu.py."""

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial

from benchmarks.on_gpu_part import Part
from benchmarks.step import Contender
from benchmarks.step_contenders import ONE_PROGRAM
from benchmarks.step_job import Job, product_flops

OURS = ONE_PROGRAM[0]  # the form of our step that is trained with
# An H100's compiler on our step (benchmarks/RESULTS.md): (size, batch, length) -> steps/s at most, and GB of memory.
COMPILED = {("small", 128, 128): (155.0, 2.3), ("base", 256, 128): (24.8, 14.6), ("base", 256, 512): (4.08, 35.9)}
NO_COMMAND_BUFFERS = ", no command buffers"  # end of the name of a contender that launches its kernels one by one


class Steps(Contender):
    """A contender of a part; its name is that of a program, and maybe `NO_COMMAND_BUFFERS`."""

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

    def turns(self, number: int, steps: int, per_call: int | None = None) -> list[float]:
        """Seconds of a step in some turns. A call of our programs is `per_call` of its steps, or the whole turn."""
        steps_of_call = 1
        if self.is_ours and self.job.what == "pretraining":
            steps_of_call = per_call or steps
        return [self.turn(steps, steps_of_call) for _ in range(number)]

    def report(self, title: str, times: list[float], size: str = "") -> None:
        """Writes examples/s of the median turn, and what they are of the peak and of the compiled program's limit."""
        job = self.job
        median = statistics.median(times)
        notes = [f"{job.batch_size} x {job.length}", f"{1 / median:.2f} steps/s"]
        peak = self.part.earlier("products, bfloat16")
        if peak:
            notes.append(f"{product_flops(job) / median / peak / 1e12:.1%} of the products' peak (MFU)")
        if self.is_ours and (size, job.batch_size, job.length) in COMPILED:
            limit, memory = COMPILED[size, job.batch_size, job.length]
            notes.append(f"{1 / median / limit:.0%} of an H100's limit, {memory} GB by its compiler")
        if job.micro_batches > 1:
            notes.append(f"{job.micro_batches} micro-batches")
        notes.append(f"{self.memory / 1e9:.1f} GB")
        notes.append(f"warm after {self.startup:.0f} s")
        self.part.found(title, job.batch_size / median, "examples/s", ", ".join(notes))


def started(part: Part, makers: Mapping[str, Callable[[], Steps]]) -> Iterator[Steps]:
    """Starts contenders at the same time; yields each when it has compiled, and writes why another has not."""
    with ThreadPoolExecutor(len(makers)) as threads:
        futures = {threads.submit(make): name for name, make in makers.items()}
        for future in as_completed(futures):
            try:
                yield future.result()
            except OSError as error:
                part.missing(futures[future], error)


def small(part: Part) -> None:
    """electra_small: ours in its forms, command buffers, steps a call, Hugging Face's, and a profile."""
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
                times_of_call = contender.turns(rounds, 2 * steps, per_call)
                contender.report(f"{contender.name}, {per_call} steps a call", times_of_call, "small")
        if contender.name.removesuffix(NO_COMMAND_BUFFERS) == OURS:
            write_profile(contender, 2 if part.tiny else 20)
        contender.end()


def write_profile(contender: Steps, steps: int) -> None:
    part = contender.part
    with tempfile.TemporaryDirectory() as folder, part.trying(f"profile of {contender.name}"):
        for title, text in contender.ask(steps=steps, per_call=steps, profile=folder)["rows"]:
            part.found(f"{contender.name}: {title}", text)


def base(part: Part) -> None:
    """electra_base at both lengths: ours in as few micro-batches as fit, Hugging Face's."""
    rounds, steps = (1, 2) if part.tiny else (3, 17)
    for name in (OURS, "hugging_face_compiled"):
        # Hugging Face's at full length is not sure to fit with 256 sequences.
        jobs = [part.job("base", 256, 128), part.job("base", 256 if name == OURS else 64, 512)]
        makers = {f"{name}, {job.batch_size} x {job.length}": partial(fitting, part, name, job) for job in jobs}
        for contender in list(started(part, makers)):
            title = f"{name}, {contender.job.batch_size} x {contender.job.length}"
            with part.trying(title):
                contender.report(title, contender.turns(rounds, steps), "base")
            contender.end()


def fitting(part: Part, name: str, job: Job) -> Steps:
    """Starts a contender, ours in the fewest micro-batches that its memory holds, at most 8."""
    micro_batches = 1
    while True:
        try:
            return Steps(part, name, job._replace(micro_batches=micro_batches))
        except OSError as error:
            micro_batches *= 2
            message = str(error).lower()
            is_of_memory = "memory" in message or "exhausted" in message
            if micro_batches > 8 or not is_of_memory or name != OURS:
                raise
