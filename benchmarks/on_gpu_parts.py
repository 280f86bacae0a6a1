"""The parts of benchmarks/on_gpu.py, each a process of its own that appends what it finds to OUT/results.jsonl.

python -m benchmarks.on_gpu_parts PART OUT [--tiny] [--torch-python PYTHON]
"""

import contextlib
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import ROOT, parser_of, seconds, texts_of, write_vocabulary
from benchmarks.step import SIZES, Contender, Job, Size, product_flops
from benchmarks.step_contenders import ONE_PROGRAM as FORMS
from electra_tf2.files.writing import append_json_line
from electra_tf2.util.environment import before_tensorflow

_TINY = Size(32, 2, 2, 32, 2, 1200)
# What one H100's compiler said of our step (benchmarks/RESULTS.md): steps/s at most, and GB of memory.
COMPILED = {("small", 128, 128): (155.0, 2.3), ("base", 256, 128): (24.8, 14.6), ("base", 256, 512): (4.08, 35.9)}
NO_COMMAND_BUFFERS = ", no command buffers"
_EXACT = {"NVIDIA_TF32_OVERRIDE": "0"}
_LOSS_TOLERANCE = 1e-4


class Part(NamedTuple):
    """Place of what a part finds, and its settings."""

    name: str
    out: Path
    tiny: bool
    torch_python: str

    def found(self, what: str, value: float | str, unit: str = "", note: str = "") -> None:
        """Writes a result at once."""
        value = float(f"{value:.4g}") if isinstance(value, float) else value
        row = {"part": self.name, "what": what, "value": value, "unit": unit, "note": note}
        append_json_line(self.out / "results.jsonl", row)

    def missing(self, what: str, error: Exception | str) -> None:
        """Writes that something failed, or that this machine lacks what it needs."""
        lacks = isinstance(error, ImportError) or "No module named" in str(error)
        self.found(what, "skipped" if lacks else "failed", note=str(error)[-300:])

    @contextlib.contextmanager
    def trying(self, what: str) -> Iterator[None]:
        """Goes on where a contender ends."""
        try:
            yield
        except OSError as error:
            self.missing(what, error)

    def earlier(self, what: str) -> float | None:
        """A number that this or another part found."""
        values = [row["value"] for row in read_rows(self.out) if row["what"] == what]
        return next((value for value in reversed(values) if isinstance(value, float)), None)

    def command(self, part: str) -> list[str]:
        words = ["--tiny"] * self.tiny + ["--torch-python", self.torch_python]
        return [sys.executable, "-m", "benchmarks.on_gpu_parts", part, str(self.out), *words]


def read_rows(out: Path) -> list[dict[str, Any]]:
    path = out / "results.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


# ---- the machine ----


def machine(part: Part) -> None:
    """Versions, devices, and the speed of the largest products and of memory."""
    import importlib.metadata

    import tensorflow as tf

    versions = [f"Python {sys.version.split()[0]}"]
    for name in ("tensorflow", "tf-keras", "torch", "transformers", "numpy"):
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"no {name}")
    part.found("versions", ", ".join(versions))
    gpus = tf.config.list_physical_devices("GPU")
    details = [tf.config.experimental.get_device_details(gpu).get("device_name", "?") for gpu in gpus]
    part.found("devices", ", ".join(details) or "no GPU: the processor", note=f"{len(os.sched_getaffinity(0))} cores")
    size, calls = (128, 2) if part.tiny else (8192, 30)
    for name, dtype, tf32 in (
        ("bfloat16", tf.bfloat16, True),
        ("TF32", tf.float32, True),
        ("float32", tf.float32, False),
    ):
        tf.config.experimental.enable_tensor_float_32_execution(tf32)
        x = tf.cast(tf.random.normal([size, size]), dtype)

        def products(x: tf.Tensor = x) -> None:
            for _ in range(calls):
                y = tf.matmul(x, x)
            float(y[0, 0])

        products()
        took = min(seconds(products) for _ in range(3))
        part.found(f"products, {name}", 2 * size**3 * calls / took / 1e12, "TFLOP/s", f"{size} x {size}")
    x = tf.zeros([1 << (16 if part.tiny else 28)])
    add = tf.function(lambda x: x + 1.0, jit_compile=True)

    def sums() -> None:
        for _ in range(calls):
            y = add(x)
        float(y[0])

    sums()
    took = min(seconds(sums) for _ in range(3))
    part.found("memory", 8 * len(x) * calls / took / 1e9, "GB/s", "read and written")


# ---- steps ----


class Steps(Contender):
    """A contender of a part; its name is its program's and, maybe, `NO_COMMAND_BUFFERS`."""

    def __init__(self, part: Part, name: str, job: Job) -> None:
        self.part, self.name = part, name
        self.is_form = name.startswith(FORMS[0])
        environment = dict(os.environ)
        if name.endswith(NO_COMMAND_BUFFERS):
            environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} --xla_gpu_enable_command_buffer=".strip()
        super().__init__(name.partition(",")[0], job, part.torch_python, environment)

    def turns(self, number: int, steps: int, per_call: int | None = None) -> list[float]:
        """Seconds of a step, in some turns; those of our programs are one call unless `per_call` says else."""
        is_loop = self.is_form and self.job.what == "pretraining"
        return [self.turn(steps, (per_call or steps) if is_loop else 1) for _ in range(number)]

    def report(self, title: str, times: list[float], size: str = "") -> None:
        """Writes examples/s of the median turn, and what they are of the peak and of the compiled program's limit."""
        job, median, peak = self.job, statistics.median(times), self.part.earlier("products, bfloat16")
        notes = [f"{job.batch_size} x {job.length}", f"{1 / median:.2f} steps/s"]
        if peak:
            notes.append(f"{product_flops(job) / median / peak / 1e12:.1%} of the products' peak (MFU)")
        if self.is_form and (size, job.batch_size, job.length) in COMPILED:
            limit, memory = COMPILED[size, job.batch_size, job.length]
            notes.append(f"{1 / median / limit:.0%} of an H100's limit, {memory} GB by its compiler")
        if job.micro_batches > 1:
            notes.append(f"{job.micro_batches} micro-batches")
        notes += [f"{self.memory / 1e9:.1f} GB", f"warm after {self.startup:.0f} s"]
        self.part.found(title, job.batch_size / median, "examples/s", ", ".join(notes))


def started(part: Part, makers: Mapping[str, Callable[[], Steps]]) -> Iterator[Steps]:
    """Contenders that compile at the same time, each when it is there; of others it is written why not."""
    with ThreadPoolExecutor(len(makers)) as threads:
        futures = {threads.submit(make): name for name, make in makers.items()}
        for future in as_completed(futures):
            try:
                yield future.result()
            except OSError as error:
                part.missing(futures[future], error)


def job_of(part: Part, size: str, batch: int, length: int, what: str = "pretraining") -> Job:
    return Job(what, *((_TINY, 4, 16) if part.tiny else (SIZES[size], batch, length)), "bfloat16")


def small(part: Part) -> None:
    """electra_small: ours in its forms, command buffers, steps a call, Hugging Face's, and a profile."""
    job, count, rounds = job_of(part, "small", 128, 128), *((2, 1) if part.tiny else (50, 3))
    names = [FORMS[0], f"{FORMS[0]}{NO_COMMAND_BUFFERS}", *FORMS[1:], "hugging_face", "hugging_face_compiled"]
    names = [names[0], names[2], names[-2]] if part.tiny else names
    contenders = []
    for one in started(part, {name: partial(Steps, part, name, job) for name in names}):
        contenders.append(one)
        one.report(one.name, one.turns(1, count), "small")  # while others compile
    times: dict[str, list[float]] = {one.name: [] for one in contenders}
    for _ in range(rounds):
        for one in contenders:
            times[one.name] += one.turns(1, count)
            one.report(one.name, times[one.name], "small")
    for one in sorted(contenders, key=lambda one: one.name):
        for per_call in (1, count // 5 or 2, 2 * count) if one.name == FORMS[0] else ():
            one.report(f"{one.name}, {per_call} steps a call", one.turns(rounds, 2 * count, per_call), "small")
        if one.name.partition(",")[0] == FORMS[0]:
            steps = 2 if part.tiny else 20
            with tempfile.TemporaryDirectory() as folder, part.trying(f"profile of {one.name}"):
                for title, text in one.ask(steps=steps, per_call=steps, profile=folder)["rows"]:
                    part.found(f"{one.name}: {title}", text)
        one.end()


def base(part: Part) -> None:
    """electra_base at both lengths: ours in as few micro-batches as fit, Hugging Face's."""

    def fitting(name: str, job: Job) -> Steps:
        parts = 1
        while True:
            try:
                return Steps(part, name, job._replace(micro_batches=parts))
            except OSError as error:
                parts *= 2
                memory = any(word in str(error).lower() for word in ("memory", "exhausted"))
                if parts > 8 or not memory or name != FORMS[0]:
                    raise

    for name in (FORMS[0], "hugging_face_compiled"):
        # Hugging Face's at full length is not sure to fit with 256 sequences.
        jobs = [job_of(part, "base", 256, 128), job_of(part, "base", 256 if name == FORMS[0] else 64, 512)]
        makers = {f"{name}, {job.batch_size} x {job.length}": partial(fitting, name, job) for job in jobs}
        for one in list(started(part, makers)):
            title = f"{name}, {one.job.batch_size} x {one.job.length}"
            with part.trying(title):
                one.report(title, one.turns(*((1, 2) if part.tiny else (3, 17))), "base")
            one.end()


# ---- correctness ----


def correctness(part: Part) -> None:
    """The golden arrays, ten steps beside the processor's, a run that is killed, float16; all at the same time."""
    golden = ["tests/training/test_golden_optimizer.py", "tests/model/test_golden_model.py"][: 1 if part.tiny else 2]
    commands = {"golden arrays": [sys.executable, "-m", "pytest", "-q", "-n", "0", *golden]}
    commands |= {name: part.command(name) for name in list(_WITHIN)[: 2 if part.tiny else None]}
    processes = {
        name: subprocess.Popen(command, cwd=ROOT, env=os.environ | _EXACT, stdout=-1, stderr=-2, text=True)
        for name, command in commands.items()
    }
    for name, process in processes.items():
        output = process.communicate()[0].strip()
        last = output.rpartition("\n")[2]
        if process.returncode:
            print(output)
            part.missing(name, last)
        elif name == "golden arrays":
            part.found(name, "passed", note=last)


def ten_steps(part: Part, recipe: str) -> None:
    """Ten steps of a recipe in float32 from the same weights, one program on the GPU, kernels on the processor."""
    import tensorflow as tf

    from electra_tf2.config.recipes import read_recipe
    from electra_tf2.configure_pretraining import PretrainingConfig
    from electra_tf2.pretrain.task import make_task

    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    job = job_of(part, "small", 16, 128)
    with tempfile.TemporaryDirectory() as folder:
        hparams = {"model_name": recipe, "data_dir": folder, "train_batch_size": job.batch_size}
        hparams |= {"max_seq_length": job.length, "vocab_size": job.size.vocabulary, "num_warmup_steps": 5}
        if part.tiny:
            sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
            hparams["model_hparam_overrides"] = read_recipe(recipe).get("model_hparam_overrides", {}) | sizes
        write_vocabulary(Path(folder, "vocab.txt"), job.size.vocabulary)
        config = PretrainingConfig.from_dict(read_recipe(recipe) | hparams)
        losses, weights = list[list[float]](), list[np.ndarray]()
        for device, is_compiled in (("CPU:0", False), ("GPU:0" if has_gpu else "CPU:0", True)):
            strategy = tf.distribute.OneDeviceStrategy(device)
            with strategy.scope():
                task = make_task(config, strategy, is_compiled)
                for variable, value in zip(task.model.variables, weights, strict=False):
                    variable.assign(value)
                weights = weights or [variable.numpy() for variable in task.model.variables]
                ids = tf.constant(job.token_ids, tf.int32)
            batch = {"input_ids": ids, "input_mask": tf.ones_like(ids), "segment_ids": tf.zeros_like(ids)}
            step = tf.function(lambda task=task, strategy=strategy, batch=batch: strategy.run(
                task.train_step, args=(batch, task.optimizer.step)), autograph=False)  # fmt: skip
            losses.append([float(step()["losses"]["loss"]) for _ in range(10)])
    here, there = losses
    differences = [abs(a - b) / abs(a) for a, b in zip(here, there, strict=True)]
    verdict = "passed" if max(differences) <= _LOSS_TOLERANCE else "failed"
    note = f"losses differ by {max(differences):.1e} at most, {differences[0]:.1e} at the first"
    part.found(f"ten steps of {recipe} beside the processor's", verdict, note=f"{note}; {'GPU' if has_gpu else 'XLA'}")


def kill_and_resume(part: Part) -> None:
    """A run that is killed goes on with the same losses, bit for bit; float16 with loss scaling learns."""
    from tests.support.training import hparams, logged, start, write_records

    with tempfile.TemporaryDirectory() as name:
        folder, total = Path(name), 60 if part.tiny else 400
        write_records(folder / "pretrain_tfrecords")
        settings = hparams(folder, num_train_steps=total, save_checkpoints_steps=20)
        settings |= {"precision": "float32" if part.tiny else "bfloat16"}
        runs = {run: settings | {"model_dir": str(folder / run)} for run in ("whole", "killed", "float16")}
        runs["float16"] |= {"precision": "float16"}
        processes = {run: start(**of_run) for run, of_run in runs.items()}
        metrics = folder / "killed" / "train_metrics.jsonl"
        while processes["killed"].poll() is None:
            if metrics.exists() and metrics.read_bytes().count(b"\n") > total // 4:
                processes["killed"].send_signal(signal.SIGKILL)
                break
            time.sleep(0.001)
        killed = processes["killed"].wait() == -signal.SIGKILL
        processes["killed"] = start(**runs["killed"])
        ended = {run: (*process.communicate(), process.returncode) for run, process in processes.items()}
        for run, (_, errors, code) in ended.items():
            if code:
                part.missing(f"run of electra_tf2, {run}", errors.strip().rpartition("\n")[2])
        if not any(ended[run][2] for run in ("whole", "killed")):
            pairs = list(zip(logged(folder / "whole"), logged(folder / "killed"), strict=False))
            steps = [one["step"] for one, other in pairs if one != other]
            same = len(pairs) == total and not steps
            note = f"{len(pairs)} steps" + (f", the first that differs is {steps[0]}" if steps else "")
            verdict = ("passed" if same else "failed") if killed else "skipped"
            part.found("killed and resumed, bit for bit", verdict, note=note if killed else "it ended before")
        if not ended["float16"][2]:
            losses = [line["loss"] for line in logged(folder / "float16")]
            first, last = (statistics.mean(some) for some in (losses[:10], losses[-10:]))
            verdict = "passed" if math.isfinite(last) and last < first else "failed"
            part.found(
                "float16 with loss scaling", verdict, note=f"loss {first:.2f}, after {len(losses)} steps {last:.2f}"
            )


# ---- fine-tuning and inference ----


def use(part: Part) -> None:
    """Steps of fine-tuning, the whole program on 2,000 sentences, and texts to states; beside Hugging Face's."""
    job = job_of(part, "small", 32, 64, "finetuning")
    names = ["ours_xla", "hugging_face", "hugging_face_compiled"][: 1 if part.tiny else 3]
    for one in list(started(part, {name: partial(Steps, part, name, job) for name in names})):
        one.report(f"fine-tuning steps, {one.name}", one.turns(*((1, 2) if part.tiny else (3, 100))))
        one.end()
    finetune(part)
    states(part)


def finetune(part: Part) -> None:
    """run_finetuning.py on made-up sentences, from a shipped model."""
    sizes, model = ((40, 10), "bert_mini") if part.tiny else ((2000, 500), "electra_deep")
    with tempfile.TemporaryDirectory() as name:
        folder, data = Path(name), Path(name, "finetuning_data", "mine")
        data.mkdir(parents=True)
        for split, size in zip(("train", "dev"), sizes, strict=True):
            lines = [json.dumps({"text": text, "label": str(i % 2)}) for i, text in enumerate(texts_of(size, 60))]
            (data / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
        hparams = {"data_dir": name, "task_names": ["mine"], "num_train_epochs": 1.0, "train_batch_size": 32}
        hparams |= {"tasks": {"mine": {"type": "classification", "text_columns": ["text"]}}}
        hparams |= {
            "init_checkpoint": str(ROOT / "electra_tf2" / "pretrained" / model),
            "pretrained_model_dir": str(folder / "run"),
            "precision": "bfloat16",
        }
        command = [sys.executable, "run_finetuning.py", "--hparams", json.dumps(hparams)]
        began = time.perf_counter()
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        took = time.perf_counter() - began
        if done.returncode:
            part.missing("run_finetuning.py", done.stderr.strip().rpartition("\n")[2])
            return
        scores = json.loads(next(folder.rglob("scores.json")).read_text())
        rates = [scores[phase]["examples_per_second"] for phase in ("training", "evaluation")]
        note = f"{model}, {sizes[0]:,} examples, then {sizes[1]}: {rates[0]:,.0f} and {rates[1]:,.0f} examples/s"
        part.found("run_finetuning.py, from start to end", took, "s", note)


def states(part: Part) -> None:
    """Texts to vectors with a shipped model."""
    import electra_tf2 as electra

    model, texts = ("bert_mini", texts_of(16)) if part.tiny else ("electra_deep", texts_of(4096))
    texts = sorted(texts, key=len)
    with part.trying("states"):
        loaded = electra.load(model)
        times = []
        for _ in range(3):
            began = time.perf_counter()
            np.stack([states.vectors.mean(0) for states in loaded.states(texts)])
            times.append(time.perf_counter() - began)
        fastest = min(times[1:])  # the first call builds the network
        part.found("states", len(texts) / fastest, "texts/s", f"{model}, {len(texts):,} texts")


# ---- the input ----


def data(part: Part) -> None:
    """Examples that the records' reader gives, beside those that a step of electra_small takes."""
    import tensorflow as tf

    from electra_tf2.corpus.packing import Examples
    from electra_tf2.corpus.records import RecordEncoder, RecordFormat
    from electra_tf2.pretrain.pretrain_data import Records, training_batches

    job, shards, rows = job_of(part, "small", 128, 128), 8, 64 if part.tiny else 16_384
    record_format = RecordFormat(job.length, job.size.vocabulary)
    with tempfile.TemporaryDirectory() as folder:
        files = [f"{folder}/{shard}.tfrecord" for shard in range(shards)]
        encoder = RecordEncoder(record_format)
        ids = np.random.RandomState(0).randint(5, job.size.vocabulary, [rows, job.length]).astype(np.int32)
        ones = np.ones(ids.shape, np.uint8)
        encoded = encoder.encode(Examples(ids, ones, ones))
        for file in files:
            with tf.io.TFRecordWriter(file) as writer:
                for record in encoded:
                    writer.write(record)
        records = Records(files, [rows] * shards, record_format)
        batches = iter(training_batches(records, job.batch_size, 0, 0, None))
        next(batches)
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < (0.2 if part.tiny else 5):
            next(batches)
            count += job.batch_size
        rate, taken = count / (time.perf_counter() - began), part.earlier(FORMS[0])
        note = f"{rate / taken:.1f} times what a step takes" if taken else "of the steps nothing is known"
        part.found("records read", rate, "examples/s", note)


PARTS: dict[str, Callable[[Part], None]] = {
    "machine": machine,
    "small": small,
    "base": base,
    "correctness": correctness,
    "use": use,
    "data": data,
}
_WITHIN: dict[str, Callable[[Part], None]] = {
    "kill_and_resume": kill_and_resume,
    "ten_electra_small": lambda part: ten_steps(part, "electra_small"),
    "ten_coco_lm_small": lambda part: ten_steps(part, "coco_lm_small"),
}


def main() -> None:
    parser = parser_of(__doc__, tiny=False, torch_python=sys.executable)
    parser.add_argument("part", choices=[*PARTS, *_WITHIN])
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")  # all that a GPU has is no one process's
    before_tensorflow()
    name = "correctness" if given.part in _WITHIN else given.part
    (PARTS | _WITHIN)[given.part](Part(name, given.out, given.tiny, given.torch_python))


if __name__ == "__main__":
    main()
