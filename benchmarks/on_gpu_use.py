"""Fine-tuning and inference on a GPU, beside Hugging Face's: the part `use` of benchmarks/on_gpu.py."""

import json
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.common import ROOT, made_up_texts
from benchmarks.on_gpu_results import Part
from benchmarks.on_gpu_steps import Steps, started


def use(part: Part) -> None:
    """Times steps of fine-tuning beside Hugging Face's, run_finetuning.py on 2,000 sentences, and `states`."""
    job = part.job("small", 32, 64, "finetuning")
    names = ["ours_xla", "hugging_face", "hugging_face_compiled"]
    rounds = 3
    steps = 100
    if part.tiny:
        names = names[:1]
        rounds = 1
        steps = 2
    for contender in list(started(part, {name: partial(Steps, part, name, job) for name in names})):
        contender.report(f"fine-tuning steps, {contender.name}", contender.turns(rounds, steps))
        contender.end()
    finetune(part)
    states(part)


def finetune(part: Part) -> None:
    """Times run_finetuning.py on made-up sentences, from a shipped model."""
    sizes = {"train": 2000, "dev": 500}
    model = "electra_deep"
    if part.tiny:
        sizes = {"train": 40, "dev": 10}
        model = "bert_mini"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / "finetuning_data" / "mine"
        data.mkdir(parents=True)
        for split, size in sizes.items():
            rows = [{"text": text, "label": str(index % 2)} for index, text in enumerate(made_up_texts(size, 60))]
            (data / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        hparams = {
            "data_dir": name,
            "task_names": ["mine"],
            "tasks": {"mine": {"type": "classification", "text_columns": ["text"]}},
            "num_train_epochs": 1.0,
            "train_batch_size": 32,
            "init_checkpoint": str(ROOT / "electra_tf2" / "pretrained" / model),
            "pretrained_model_dir": str(folder / "run"),
            "precision": "bfloat16",
        }
        command = [sys.executable, "run_finetuning.py", "--hparams", json.dumps(hparams)]
        began = time.perf_counter()
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        took = time.perf_counter() - began
        if done.returncode:
            part.record_failure("run_finetuning.py", done.stderr.strip().rpartition("\n")[2])
            return
        scores = json.loads(next(folder.rglob("scores.json")).read_text())
    training = scores["training"]["examples_per_second"]
    evaluation = scores["evaluation"]["examples_per_second"]
    note = f"{model}, {sizes['train']:,} examples, then {sizes['dev']}"
    note += f": {training:,.0f} and {evaluation:,.0f} examples/s"
    part.record("run_finetuning.py, from start to end", took, "s", note)


def states(part: Part) -> None:
    """Times `states` of a shipped model."""
    import electra_tf2 as electra

    model = "bert_mini" if part.tiny else "electra_deep"
    texts = sorted(made_up_texts(16 if part.tiny else 4096), key=len)
    with part.recording_failure("states"):
        loaded = electra.load(model)
        times = []
        for _ in range(3):
            began = time.perf_counter()
            np.stack([states.vectors.mean(0) for states in loaded.states(texts)])
            times.append(time.perf_counter() - began)
        fastest = min(times[1:])  # the first call builds the network
        part.record("states", len(texts) / fastest, "texts/s", f"{model}, {len(texts):,} texts")
