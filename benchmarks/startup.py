"""Start-up time of run_pretraining.py, beside what TensorFlow alone needs.

  python -m benchmarks.startup
  python -m benchmarks.startup --model-size base

Each round measures, in processes of their own: importing TensorFlow; tracing the training step of the same model (after
the import, timed inside); `--help`; a hyperparameter that does not exist; and run_pretraining.py from its launch until
its first step is done. The medians count. The target is a first step within 1.5 times import plus tracing.
"""

import functools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.common import ROOT, parser_of, turns, write_records, write_vocabulary

_TRACE = """
import json, sys, time
from electra_tf2.util.environment import before_tensorflow
before_tensorflow()
import tensorflow as tf
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.task import PretrainingTask
config = PretrainingConfig.from_dict(json.loads(sys.argv[1]))
task = PretrainingTask(config, tf.distribute.get_strategy())
spec = tf.TensorSpec([config.train_batch_size, config.max_seq_length], tf.int32)
batch = {name: spec for name in ("input_ids", "input_mask", "segment_ids")}
start = time.perf_counter()
step = tf.function(task.train_step, autograph=False).get_concrete_function(batch, tf.TensorSpec([], tf.int64))
print("seconds", time.perf_counter() - start)
"""


def seconds(*words: str, until: str = "") -> float:
    """Seconds until a command ends, or prints a line that a regular expression matches: those that it names, if any."""
    start = time.perf_counter()
    command = [sys.executable, *words]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if until and (match := re.match(until, line)):
                process.kill()
                return float(match["seconds"]) if "seconds" in match.groupdict() else time.perf_counter() - start
    if until:
        sys.exit(f"{' '.join(words)}\nended with exit code {process.returncode} before it printed {until!r}")
    return time.perf_counter() - start


def main() -> None:
    options = parser_of(
        __doc__, batch_size=32, max_seq_length=128, rounds=3, model_size=("small", "base", "large")
    ).parse_args()
    # Nothing of util.environment: the import that is measured is TensorFlow's as it comes.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with tempfile.TemporaryDirectory() as folder:
        write_records(Path(folder) / "pretrain_tfrecords", options.max_seq_length, 2000, 1)
        write_vocabulary(Path(folder) / "vocab.txt")
        hparams = {"model_name": "startup", "model_size": options.model_size, "data_dir": folder}
        hparams |= {"train_batch_size": options.batch_size, "max_seq_length": options.max_seq_length}
        given = json.dumps(hparams | {"iterations_per_loop": 1})
        run = functools.partial(seconds, "run_pretraining.py")
        cases = {
            "import tensorflow": lambda: seconds("-c", "import tensorflow"),
            "--help": lambda: run("--help"),
            "an unknown hyperparameter": lambda: run("--hparams", '{"num_train_stepz": 5}'),
            "first step": lambda: run("--overwrite", "--hparams", given, until=r"initial loss +\d"),
            "tracing the step": lambda: seconds("-c", _TRACE, given, until=r"seconds (?P<seconds>\S+)"),
        }
        medians = {name: statistics.median(values) for name, values in turns(cases, options.rounds).items()}
    for name, value in medians.items():
        print(f"{name:28} {value:7.2f} s")
    least = medians["import tensorflow"] + medians["tracing the step"]
    print(f"first step / (import + tracing) = {medians['first step'] / least:.2f}")


if __name__ == "__main__":
    main()
