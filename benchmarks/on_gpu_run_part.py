"""Runs one part of benchmarks/on_gpu.py in this process. It appends its results to OUT/results.jsonl.

python -m benchmarks.on_gpu_run_part PART OUT [--tiny] [--torch-python PYTHON]
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.common import ArgumentParser
from benchmarks.on_gpu_correctness import PIECES, correctness
from benchmarks.on_gpu_machine import data, machine
from benchmarks.on_gpu_results import Part
from benchmarks.on_gpu_steps import base, small
from benchmarks.on_gpu_use import use
from electra_tf2.util.environment import before_tensorflow

# The most important first.
PARTS: dict[str, Callable[[Part], None]] = {
    "machine": machine,
    "small": small,
    "base": base,
    "correctness": correctness,
    "use": use,
    "data": data,
}


def main() -> None:
    parser = ArgumentParser(__doc__)
    parser.add_argument("part", choices=[*PARTS, *PIECES], help="a part, or a piece of correctness")
    parser.add_argument("out", type=Path)
    parser.add_switch("--tiny", "sizes for a trial on any machine")
    parser.add_flag("--torch-python", sys.executable, "a Python that has torch and transformers")
    options = parser.parse_args()
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")  # several processes share a GPU's memory
    before_tensorflow()
    name = options.part
    if name in PIECES:
        PIECES[name](Part("correctness", options.out, options.tiny, options.torch_python))
    else:
        PARTS[name](Part(name, options.out, options.tiny, options.torch_python))


if __name__ == "__main__":
    main()
