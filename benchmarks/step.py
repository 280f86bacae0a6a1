"""Speed of a step of ELECTRA, ours beside its peers', in one interleaved run.

  python -m benchmarks.step --contenders ours_float32,ours_bfloat16,tf_models_float32
  python -m benchmarks.step --what evaluation
  python -m benchmarks.step --model-size mini --batch-size 64 --max-seq-length 64
  python -m benchmarks.step --what finetuning --max-seq-length 32
  python -m benchmarks.step --contenders ours_bfloat16,ours_whole_bfloat16,ours_recompute_bfloat16 --batch-size 8 \\
      --max-seq-length 512

Every contender is a process that keeps its model in memory (benchmarks/step_contenders.py); they take turns of a few
steps, so that what else the machine does hits all of them alike. The median of the turns counts. Among them are the
matrix products of our step and nothing else, by TensorFlow's own kernels: the limit, of which our share is printed. A
step of pre-training is masking (where the program does it in the step), both networks, dropout, the gradient and
AdamW's update on random tokens; of evaluation, the forward passes without dropout; of fine-tuning, one network,
dropout, the gradient and the update for a classifier of sequences without padding. Beside the rate stand the processor
time of a step (of all threads; the least of the turns, which other work disturbs little) and the most memory that the
process ever had.
"""

import statistics
import subprocess
import sys

from benchmarks.common import ROOT, parser_of, processor
from benchmarks.step_job import add_job_flags, job_arguments, make_job, product_flops


class Contender:
    """A worker process: `turn` runs some steps in it."""

    def __init__(self, name: str, python: str, arguments: list[str]) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [python, "-m", "benchmarks.step_contenders", name, *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        (self.startup,) = self._answer("ready")
        self.processor_seconds, self.memory = float("inf"), 0.0  # of a step, the least; in bytes, the most

    def _answer(self, word: str) -> list[float]:
        """The numbers behind a word that the worker prints when it is done."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(word):
                return [float(number) for number in line.split()[1:]]
        raise RuntimeError(f"{self.name} ended with exit code {self.process.wait()}")

    def turn(self, steps: int) -> float:
        """Seconds of a step."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        seconds, processor_seconds, self.memory = self._answer("seconds")
        self.processor_seconds = min(self.processor_seconds, processor_seconds / steps)
        return seconds / steps

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def main() -> None:
    parser = parser_of(__doc__, rounds=7)
    parser.add_argument("--contenders", default="ours_float32,ours_bfloat16,tf_models_float32")
    add_job_flags(parser)
    parser.add_argument("--steps", type=int, default=4, help="of a turn")
    parser.add_argument("--torch-python", default=sys.executable, help="interpreter that has torch and transformers")
    options = parser.parse_args()
    arguments = job_arguments(options)
    contenders = []
    names = options.contenders.split(",")
    limits = [f"products_{precision}" for precision in ("float32", "bfloat16") if any(precision in n for n in names)]
    for name in dict.fromkeys(names + limits):
        python = options.torch_python if name.startswith("hugging_face") else sys.executable
        try:
            contenders.append(Contender(name, python, arguments))
        except RuntimeError as error:
            print(f"left out: {error}", file=sys.stderr)
    if not contenders:
        sys.exit("error: no contender could be started")
    seconds: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for _ in range(options.rounds):
        for contender in contenders:
            seconds[contender.name].append(contender.turn(options.steps))
    print(f"{options.what}, {options.model_size}, batch {options.batch_size}, length {options.max_seq_length}")
    print(processor())
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    slowest = max(medians.values())
    for contender in contenders:
        name, median = contender.name, medians[contender.name]
        rate, best = options.batch_size / median, options.batch_size / min(seconds[name])
        flops, limit = product_flops(make_job(name, *arguments)), medians.get(f"products_{name.rsplit('_', 1)[1]}")
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
