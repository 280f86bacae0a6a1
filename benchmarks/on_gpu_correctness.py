"""Compares what a GPU computes with what a processor does: the part `correctness` of benchmarks/on_gpu.py."""

import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import ROOT, write_vocabulary
from benchmarks.on_gpu_part import Part

_EXACT = {"NVIDIA_TF32_OVERRIDE": "0"}
_GOLDEN_TESTS = ["tests/training/test_golden_optimizer.py", "tests/model/test_golden_model.py"]
_LOSS_TOLERANCE = 1e-4


def correctness(part: Part) -> None:
    """The golden arrays, ten steps beside the processor's, a run that is killed, float16; all at the same time."""
    tests = _GOLDEN_TESTS
    pieces = list(PIECES)
    if part.tiny:
        tests = tests[:1]
        pieces = pieces[:2]
    commands = {"golden arrays": [sys.executable, "-m", "pytest", "-q", "-n", "0", *tests]}
    for name in pieces:
        commands[name] = part.command(name)
    processes = {}
    for name, command in commands.items():
        processes[name] = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | _EXACT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    for name, process in processes.items():
        output = process.communicate()[0].strip()
        last_line = output.rpartition("\n")[2]
        if process.returncode:
            print(output)
            part.missing(name, last_line)
        elif name == "golden arrays":  # the others write their results themselves
            part.found(name, "passed", note=last_line)


def ten_steps(part: Part, recipe: str) -> None:
    """Ten steps of a recipe in float32 from the same weights, one program on the GPU, kernels on the processor."""
    import tensorflow as tf

    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    with tempfile.TemporaryDirectory() as folder:
        config = config_of(part, recipe, folder)
        on_processor, weights = losses_of(config, part, "CPU:0", is_compiled=False)
        compiled, _ = losses_of(config, part, "GPU:0" if has_gpu else "CPU:0", is_compiled=True, weights=weights)
    differences = [abs(a - b) / abs(a) for a, b in zip(on_processor, compiled, strict=True)]
    verdict = "passed" if max(differences) <= _LOSS_TOLERANCE else "failed"
    note = f"losses differ by {max(differences):.1e} at most, {differences[0]:.1e} at the first"
    part.found(f"ten steps of {recipe} beside the processor's", verdict, note=f"{note}; {'GPU' if has_gpu else 'XLA'}")


def config_of(part: Part, recipe: str, folder: str) -> Any:
    """A PretrainingConfig of a recipe for ten steps, with a vocabulary in the folder."""
    from electra_tf2.config.recipes import read_recipe
    from electra_tf2.configure_pretraining import PretrainingConfig

    job = part.job("small", 16, 128)
    write_vocabulary(Path(folder, "vocab.txt"), job.size.vocabulary)
    hparams = read_recipe(recipe)
    hparams |= {"model_name": recipe, "data_dir": folder, "train_batch_size": job.batch_size}
    hparams |= {"max_seq_length": job.length, "vocab_size": job.size.vocabulary, "num_warmup_steps": 5}
    if part.tiny:
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
        hparams["model_hparam_overrides"] = hparams.get("model_hparam_overrides", {}) | sizes
    return PretrainingConfig.from_dict(hparams)


def losses_of(
    config: Any, part: Part, device: str, is_compiled: bool, weights: list[np.ndarray] | None = None
) -> tuple[list[float], list[np.ndarray]]:
    """Losses of ten steps on a device, from these weights or from initial ones, and the weights at the start."""
    import tensorflow as tf

    from electra_tf2.pretrain.pretraining_task import make_task

    strategy = tf.distribute.OneDeviceStrategy(device)
    with strategy.scope():
        task = make_task(config, strategy, is_compiled)
        variables = task.model.variables
        if weights is None:
            weights = [variable.numpy() for variable in variables]
        for variable, value in zip(variables, weights, strict=True):
            variable.assign(value)
        ids = tf.constant(part.job("small", 16, 128).token_ids, tf.int32)
    batch = {"input_ids": ids, "input_mask": tf.ones_like(ids), "segment_ids": tf.zeros_like(ids)}

    def step() -> Any:
        return strategy.run(task.train_step, args=(batch, task.optimizer.step))

    graph = tf.function(step, autograph=False)
    losses = [float(graph()["losses"]["loss"]) for _ in range(10)]
    return losses, weights


def kill_and_resume(part: Part) -> None:
    """A run that is killed goes on with the same losses, bit for bit; float16 with loss scaling learns."""
    from tests.support.training import hparams, logged, start, write_records

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        total = 60 if part.tiny else 400
        write_records(folder / "pretrain_tfrecords")
        settings = hparams(folder, num_train_steps=total, save_checkpoints_steps=20)
        settings["precision"] = "float32" if part.tiny else "bfloat16"
        runs = {run: settings | {"model_dir": str(folder / run)} for run in ("whole", "killed", "float16")}
        runs["float16"]["precision"] = "float16"
        processes = {run: start(**hparams_of_run) for run, hparams_of_run in runs.items()}

        killed = kill_after(processes["killed"], folder / "killed" / "train_metrics.jsonl", lines=total // 4)
        processes["killed"] = start(**runs["killed"])
        failed = set()
        for run, process in processes.items():
            _, errors = process.communicate()
            if process.returncode:
                failed.add(run)
                part.missing(f"run of electra_tf2, {run}", errors.strip().rpartition("\n")[2])
        if not failed & {"whole", "killed"}:
            title = "killed and resumed, bit for bit"
            if killed:
                verdict, note = compared(logged(folder / "whole"), logged(folder / "killed"), total)
                part.found(title, verdict, note=note)
            else:
                part.found(title, "skipped", note="it ended before")
        if "float16" not in failed:
            losses = [line["loss"] for line in logged(folder / "float16")]
            first = statistics.mean(losses[:10])
            last = statistics.mean(losses[-10:])
            verdict = "passed" if math.isfinite(last) and last < first else "failed"
            note = f"loss {first:.2f}, after {len(losses)} steps {last:.2f}"
            part.found("float16 with loss scaling", verdict, note=note)


def kill_after(process: Any, metrics: Path, lines: int) -> bool:
    """Kills a run when it has written more lines of metrics than these; tells whether it was still running."""
    while process.poll() is None:
        if metrics.exists() and metrics.read_bytes().count(b"\n") > lines:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.001)
    return bool(process.wait() == -signal.SIGKILL)


def compared(whole: list[dict[str, Any]], killed: list[dict[str, Any]], total: int) -> tuple[str, str]:
    """A verdict on the metrics of two runs of so many steps, and a note."""
    pairs = list(zip(whole, killed, strict=False))
    note = f"{len(pairs)} steps"
    for line, other in pairs:
        if line != other:
            return "failed", f"{note}, the first that differs is {line['step']}"
    return ("passed" if len(pairs) == total else "failed"), note


# What runs beside the golden arrays, each in a process of its own.
PIECES: dict[str, Callable[[Part], None]] = {
    "kill_and_resume": kill_and_resume,
    "ten_electra_small": lambda part: ten_steps(part, "electra_small"),
    "ten_coco_lm_small": lambda part: ten_steps(part, "coco_lm_small"),
}
