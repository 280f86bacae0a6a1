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
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import VOCABULARY, Worker, parser_of, processor, turns

_MASK = 103


class Size(NamedTuple):
    """Size of a main network (ELECTRA, Table 6); its generator is `hidden / generator_share` wide."""

    hidden: int
    layers: int
    heads: int
    embedding: int
    generator_share: int
    vocabulary: int = VOCABULARY

    @property
    def encoder(self) -> dict[str, int]:
        """Sizes under the names of the peers' configurations of encoders."""
        return {
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "intermediate_size": 4 * self.hidden,
            "embedding_size": self.embedding,
            "vocab_size": self.vocabulary,
        }

    @property
    def generator(self) -> "Size":
        """1/generator_share the width, with the generator's heads as the original has them."""
        share = self.generator_share
        return self._replace(hidden=self.hidden // share, heads=max(1, self.heads // share))


SIZES = {
    "small": Size(256, 12, 4, 128, 4),
    "base": Size(768, 12, 12, 768, 3),
    "large": Size(1024, 24, 16, 1024, 4),
    "mini": Size(128, 4, 4, 128, 2, 8192),  # what a laptop trains
    "electra_mini": Size(192, 4, 6, 128, 1, 8192),
}
Step = Callable[..., Any]  # returns a number that float() waits for


class Job(NamedTuple):
    """Settings that all contenders have in common."""

    what: str  # "pretraining", "evaluation" or "finetuning"
    size: Size
    batch_size: int
    length: int
    precision: str
    micro_batches: int = 1  # of ours, in one program

    @classmethod
    def read(cls, text: str) -> "Job":
        """A job from its JSON."""
        what, size, *rest = json.loads(text)
        return cls(what, Size(*size), *rest)

    @property
    def token_ids(self) -> np.ndarray:
        ids = np.random.RandomState(0).randint(1000, self.size.vocabulary, [self.batch_size, self.length])
        ids[:, 0], ids[:, -1] = 101, 102
        return ids

    @property
    def masked_tokens(self) -> int:
        """Number of masked tokens of a sequence."""
        return int((0.15 + 0.005) * self.length)

    @property
    def labels(self) -> np.ndarray:
        """int [B], of two classes."""
        return np.random.RandomState(1).randint(0, 2, [self.batch_size])

    @property
    def masked_batch(self) -> dict[str, np.ndarray]:
        """Inputs masked beforehand, as the peers' pipelines do it."""
        ids, count = self.token_ids, self.masked_tokens
        rows = range(self.batch_size)
        places = np.stack([1 + np.random.RandomState(i).permutation(self.length - 2)[:count] for i in rows])
        masked = ids.copy()
        np.put_along_axis(masked, places, _MASK, 1)
        return {"ids": ids, "masked": masked, "places": places, "labels": np.take_along_axis(ids, places, 1)}


def product_shapes(job: Job) -> Counter[tuple[int, int, int, int]]:
    """(batch, m, k, n) of each product [m, k] x [k, n] of a step's forward passes -> how often it is taken."""
    shapes = Counter[tuple[int, int, int, int]]()
    tokens, masked = job.batch_size * job.length, job.batch_size * job.masked_tokens
    networks = [job.size] if job.what == "finetuning" else [job.size, job.size.generator]
    for size in networks:
        width, embedding = size.hidden, size.embedding
        if width != embedding:
            shapes[1, tokens, embedding, width] += 1
        for inputs, outputs in ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)):
            shapes[1, tokens, inputs, outputs] += size.layers
        rows, head = job.batch_size * size.heads, width // size.heads
        shapes[rows, job.length, head, job.length] += size.layers
        shapes[rows, job.length, job.length, head] += size.layers
    for generator in networks[1:]:
        shapes[1, masked, generator.hidden, generator.embedding] += 1
        shapes[1, masked, generator.embedding, generator.vocabulary] += 1
        shapes[1, tokens, job.size.hidden, job.size.hidden] += 1
    return shapes


def product_flops(job: Job) -> float:
    """FLOPs of a step, with its gradient unless it is an evaluation: 2 per multiply-add."""
    forward = sum(2.0 * batch * m * k * n * times for (batch, m, k, n), times in product_shapes(job).items())
    return forward * (1 if job.what == "evaluation" else 3)


class Contender(Worker):
    """A process that runs steps of a job (benchmarks/step_contenders.py). Raises OSError if it does not start.

    Args:
      torch_python: Python of Hugging Face's.
    """

    def __init__(self, program: str, job: Job, torch_python: str, environment: Mapping[str, str] | None = None) -> None:
        self.job = job
        python = torch_python if program.startswith("hugging_face") else sys.executable
        super().__init__([python, "-m", "benchmarks.step_contenders", program, json.dumps(job)], environment)
        self.startup = self.ask(steps=0)["startup"]
        self.processor_seconds, self.memory = float("inf"), 0.0  # of a step, the least; in bytes, the most

    def turn(self, steps: int, per_call: int = 1) -> float:
        """Seconds of a step, so many of which are one call of the device."""
        found = self.ask(steps=steps, per_call=per_call)
        self.memory = found["memory"]
        self.processor_seconds = min(self.processor_seconds, found["processor_seconds"] / steps)
        return found["seconds"] / steps


def main() -> None:
    flags = {"contenders": "ours_float32,ours_bfloat16,tf_models_float32", "rounds": 7, "steps": 4}
    flags |= {"what": ("pretraining", "evaluation", "finetuning"), "model_size": tuple(SIZES), "batch_size": 32}
    flags |= {"max_seq_length": 128, "torch_python": sys.executable, "start_together": False}
    options = parser_of(__doc__, **flags).parse_args()
    names = options.contenders.split(",")
    limits = [f"products_{precision}" for precision in ("float32", "bfloat16") if any(precision in n for n in names)]
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")  # all that a GPU has is no one contender's

    def start(name: str) -> Contender | None:
        program, precision = name.rsplit("_", 1)
        sizes = SIZES[options.model_size], options.batch_size, options.max_seq_length
        try:
            return Contender(program, Job(options.what, *sizes, precision), options.torch_python)
        except OSError as error:
            print(f"left out: {name}: {error}", file=sys.stderr)
            return None

    every = dict.fromkeys(names + limits)
    with ThreadPoolExecutor(len(every) if options.start_together else 1) as threads:
        contenders = {name: one for name, one in zip(every, threads.map(start, every), strict=True) if one}
    if not contenders:
        sys.exit("error: no contender could be started")
    seconds = turns({name: partial(one.turn, options.steps) for name, one in contenders.items()}, options.rounds)
    print(f"{options.what}, {options.model_size}, batch {options.batch_size}, length {options.max_seq_length}")
    print(processor())
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    slowest = max(medians.values())
    for name, contender in contenders.items():
        median = medians[name]
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
