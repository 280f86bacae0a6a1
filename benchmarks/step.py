"""Measures the speed of a step of ELECTRA, ours and its peers', in one interleaved run.

  python -m benchmarks.step --contenders ours_float32,ours_bfloat16,tf_models_float32
  python -m benchmarks.step --what evaluation
  python -m benchmarks.step --model-size mini --batch-size 64 --max-seq-length 64
  python -m benchmarks.step --what finetuning --max-seq-length 32
  python -m benchmarks.step --contenders ours_bfloat16,ours_recompute_bfloat16 --batch-size 8 --max-seq-length 512
  python -m benchmarks.step --contenders ours_xla_bfloat16,hugging_face_compiled_bfloat16 \\
      --batch-size 128 --steps 50 --start-together  # on a GPU

Every contender is a process that keeps its model in memory (benchmarks/step_contenders.py). They take turns of
`--steps` steps each, and the median of the turns counts.

A step of pre-training is masking (where the program masks within the step), both networks, dropout, the gradient and
AdamW's update on random tokens. A step of evaluation is the forward passes without dropout. A step of fine-tuning is
one network, dropout, the gradient and the update for a classifier of sequences without padding.

For each contender it prints
  - examples a second, of the median and of the best turn, and how many times as fast as the slowest contender it is;
  - FLOPs a second, and their share of the limit, which is a contender that computes the matrix products of our step and
    nothing else, with TensorFlow's own kernels. On a GPU these are launched one by one, and so no limit for a step that
    is one program;
  - processor time of a step, of all threads: the minimum of the turns, which other work disturbs little;
  - the peak memory of the process, or of the GPU if there is one.
"""

import json
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from benchmarks.common import ArgumentParser, Worker, processor, turns
from benchmarks.step_job import SIZES, WHAT, Job, product_flops


class Contender(Worker):
    """A process that runs steps of a job (benchmarks/step_contenders.py). Raises OSError if it does not start.

    Args:
      torch_python: Python of Hugging Face's contenders.

    Attributes:
      startup: seconds until it was warm.
      processor_seconds: processor time of a step, the minimum of all turns.
      memory: peak so far, in bytes.
    """

    def __init__(self, program: str, job: Job, torch_python: str, environment: Mapping[str, str] | None = None) -> None:
        self.job = job
        python = torch_python if program.startswith("hugging_face") else sys.executable
        super().__init__([python, "-m", "benchmarks.step_contenders", program, json.dumps(job)], environment)
        self.startup = self.ask(steps=0)["startup"]
        self.processor_seconds = float("inf")
        self.memory = 0.0

    def turn(self, steps: int, per_call: int = 1) -> float:
        """Runs some steps, `per_call` of them in each call of the device. Returns the seconds of one step."""
        answer = self.ask(steps=steps, per_call=per_call)
        self.memory = answer["memory"]
        self.processor_seconds = min(self.processor_seconds, answer["processor_seconds"] / steps)
        return answer["seconds"] / steps


def limits_of(names: Sequence[str]) -> list[str]:
    """Names of the contenders that compute products alone, in the precisions of these contenders."""
    precisions = {name.rpartition("_")[2] for name in names}
    return [f"products_{precision}" for precision in ("float32", "bfloat16") if precision in precisions]


def start(name: str, job: Job, torch_python: str) -> Contender | None:
    """Starts a contender by its name, such as ours_bfloat16. If it cannot run, prints why and returns None."""
    program, _, precision = name.rpartition("_")
    try:
        return Contender(program, job._replace(precision=precision), torch_python)
    except OSError as error:
        print(f"left out: {name}: {error}", file=sys.stderr)
        return None


def result(name: str, contender: Contender, seconds: Sequence[float], slowest: float, limit: float | None) -> str:
    """Formats the result of a contender.

    Args:
      seconds: of a step, in each turn.
      slowest: median of the slowest contender.
      limit: median of the products alone, if they ran.
    """
    job = contender.job
    median = statistics.median(seconds)
    line = f"{name:30} {job.batch_size / median:8.2f} examples/s (best {job.batch_size / min(seconds):.2f})"
    line += f"  {slowest / median:5.2f}x  {product_flops(job) / median / 1e9:6.0f} GFLOP/s"
    if limit is not None:
        line += f", {limit / median:4.0%} of its products alone"
    line += f"  {contender.processor_seconds:.2f} s of processor time a step  {contender.memory / 1e9:.2f} GB"
    return f"{line}  warm after {contender.startup:.0f} s"


def main() -> None:
    parser = ArgumentParser(__doc__)
    default = "ours_float32,ours_bfloat16,tf_models_float32"
    parser.add_flag("--contenders", default, "program and precision each, with commas between them")
    parser.add_flag("--what", WHAT[0], "kind of step", choices=WHAT)
    parser.add_flag("--model-size", "small", "size of the networks", choices=tuple(SIZES))
    parser.add_flag("--batch-size", 32, "sequences of a step")
    parser.add_flag("--max-seq-length", 128, "tokens of a sequence")
    parser.add_flag("--rounds", 7, "turns of each contender")
    parser.add_flag("--steps", 4, "steps of a turn")
    parser.add_flag("--torch-python", sys.executable, "a Python that has torch and transformers")
    parser.add_switch("--start-together", "start all contenders at once, where there are cores for it")
    options = parser.parse_args()

    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")  # contenders share a GPU's memory
    job = Job(options.what, SIZES[options.model_size], options.batch_size, options.max_seq_length, "")
    names = options.contenders.split(",")
    names = list(dict.fromkeys([*names, *limits_of(names)]))  # without duplicates
    contenders = {}
    with ThreadPoolExecutor(len(names) if options.start_together else 1) as threads:
        started = threads.map(lambda name: start(name, job, options.torch_python), names)
        for name, contender in zip(names, started, strict=True):
            if contender is not None:
                contenders[name] = contender
    if not contenders:
        sys.exit("error: no contender could be started")

    calls = {name: partial(contender.turn, options.steps) for name, contender in contenders.items()}
    seconds = turns(calls, options.rounds)
    print(f"{job.what}, {options.model_size}, batch {job.batch_size}, length {job.length}")
    print(processor())
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    for name, contender in contenders.items():
        limit = medians.get(f"products_{contender.job.precision}")
        print(result(name, contender, seconds[name], max(medians.values()), limit))
        contender.end()


if __name__ == "__main__":
    main()
