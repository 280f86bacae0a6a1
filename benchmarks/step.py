"""Speed of a step of ELECTRA, ours beside its peers', in one interleaved run.

  python -m benchmarks.step --contenders ours_float32,ours_bfloat16,tf_models_float32
  python -m benchmarks.step --what evaluation
  python -m benchmarks.step --model-size mini --batch-size 64 --max-seq-length 64
  python -m benchmarks.step --what finetuning --max-seq-length 32
  python -m benchmarks.step --contenders ours_bfloat16,ours_recompute_bfloat16 --batch-size 8 --max-seq-length 512
  python -m benchmarks.step --contenders ours_xla_bfloat16,hugging_face_compiled_bfloat16 \\
      --batch-size 128 --steps 50 --start-together  # on a GPU

Every contender is a process that keeps its model in memory (benchmarks/step_contenders.py); they take turns of some
`--steps`. The median of the turns counts. Among them are the matrix products of our step and nothing else, by
TensorFlow's own kernels: the limit, of which our share is printed. A step of pre-training is masking (where the program
does it in the step), both networks, dropout, the gradient and AdamW's update on random tokens; of evaluation, the
forward passes without dropout; of fine-tuning, one network, dropout, the gradient and the update for a classifier of
sequences without padding. Beside the rate stand the processor time of a step (of all threads; the least of the turns,
which other work disturbs little) and the most memory that the process ever had, the GPU's where there is one. There the
products, launched one by one, are no limit of a step that is one program.
`--torch-python` has torch and transformers; `--start-together` starts all at once, where there are cores for it.
"""

import json
import os
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor

from benchmarks.common import Worker, parser_of, processor, turns
from benchmarks.step_job import JOB_FLAGS, Job, product_flops


class Contender:
    """A worker process: `turn` runs some steps in it. Raises OSError if it does not start."""

    def __init__(self, name: str, job: Job, python: str = sys.executable) -> None:
        self.name, self.job = name, job
        program = name.rsplit("_", 1)[0]
        self._worker = Worker([python, "-m", "benchmarks.step_contenders", program, json.dumps(job)])
        self.startup = self._worker.ask(steps=0)["startup"]
        self.processor_seconds, self.memory = float("inf"), 0.0  # of a step, the least; in bytes, the most

    def turn(self, steps: int) -> float:
        """Seconds of a step."""
        found = self._worker.ask(steps=steps)
        self.memory = found["memory"]
        self.processor_seconds = min(self.processor_seconds, found["processor_seconds"] / steps)
        return found["seconds"] / steps

    def end(self) -> None:
        self._worker.end()


def main() -> None:
    flags = JOB_FLAGS | {"rounds": 7, "steps": 4, "torch_python": sys.executable, "start_together": False}
    options = parser_of(__doc__, contenders="ours_float32,ours_bfloat16,tf_models_float32", **flags).parse_args()
    names = options.contenders.split(",")
    limits = [f"products_{precision}" for precision in ("float32", "bfloat16") if any(precision in n for n in names)]
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")  # all that a GPU has is no one contender's

    def start(name: str) -> Contender | None:
        python = options.torch_python if name.startswith("hugging_face") else sys.executable
        try:
            return Contender(name, Job.of(options, name), python)
        except OSError as error:
            print(f"left out: {name}: {error}", file=sys.stderr)
            return None

    every = dict.fromkeys(names + limits)
    with ThreadPoolExecutor(len(every) if options.start_together else 1) as threads:
        contenders = [contender for contender in threads.map(start, every) if contender]
    if not contenders:
        sys.exit("error: no contender could be started")
    seconds = turns({one.name: lambda one=one: one.turn(options.steps) for one in contenders}, options.rounds)  # type: ignore[misc]
    print(f"{options.what}, {options.model_size}, batch {options.batch_size}, length {options.max_seq_length}")
    print(processor())
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    slowest = max(medians.values())
    for contender in contenders:
        name, median = contender.name, medians[contender.name]
        rate, best = options.batch_size / median, options.batch_size / min(seconds[name])
        flops, limit = product_flops(contender.job), medians.get(f"products_{contender.job.precision}")
        print(
            f"{name:30} {rate:8.2f} examples/s (best {best:.2f})  {slowest / median:5.2f}x"
            f"  {flops / median / 1e9:6.0f} GFLOP/s"
            + (f", {limit / median:4.0%} of its products alone" if limit else "")
            + f"  {contender.processor_seconds:.2f} s of processor time a step  {contender.memory / 1e9:.2f} GB"
            + f"  warm after {contender.startup:.0f} s"
        )
        contender.end()


if __name__ == "__main__":
    main()
