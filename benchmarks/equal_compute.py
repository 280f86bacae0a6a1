"""Objectives at equal compute: pre-trains each as long as a budget of FLOPs allows, fine-tunes, and compares.

  python benchmarks/equal_compute.py --data-dir data --flops 2e14 --seeds 3

A small model learns by masked language modelling, Replace MLM, ELECTRA 15 %, All-Tokens MLM, ELECTRA and COCO-LM
(ELECTRA, section 3.5 and Table 4; COCO-LM), once for each seed, on <data-dir>/pretrain_tfrecords, and each model is
fine-tuned on every task in <data-dir>/finetuning_data. FLOPs are those of flops_computation.py. Stopped, the same
command goes on. Results: <data-dir>/equal_compute.json, and a table of mean and standard deviation over the seeds.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from configure_pretraining import PretrainingConfig
from flops_computation import training_flops_per_example
from util.errors import UserError
from util.files import write_json
from util.flags import read_recipe

ROOT = Path(__file__).resolve().parent.parent
OBJECTIVES = {
    "BERT MLM": "bert_small",
    "Replace MLM": "electra_small_replace_mlm",
    "ELECTRA 15 %": "electra_small_15",
    "All-Tokens MLM": "electra_small_all_tokens_mlm",
    "ELECTRA": "electra_small",
    "COCO-LM": "coco_lm_small",
}
TASKS = {"cola": "mcc", "sst": "accuracy", "mrpc": "accuracy", "rte": "accuracy", "sts": "spearman"}
FINETUNING = {"learning_rate": 5e-4, "layerwise_lr_decay": 0.9, "train_batch_size": 32, "num_train_epochs": 3.0}
SHOWN = ("masked_lm_accuracy", "disc_auc", "copy_accuracy_replaced", "copy_accuracy_original")


def pretraining_hparams(recipe: str, options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """The recipe at the benchmark's size; its number of steps follows from the budget."""
    given = read_recipe(recipe)
    coco = given.get("corrective_lm_objective", False)
    sizes = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 512}
    given |= {
        "data_dir": options.data_dir,
        "model_name": f"equal_compute_{recipe}_{seed}",
        "model_hparam_overrides": given.get("model_hparam_overrides", {}) | sizes,
        "embedding_size": 128,
        "vocab_size": options.vocab_size,
        "max_seq_length": options.max_seq_length,
        "train_batch_size": 64,
        "eval_batch_size": 64,
        "generator_hidden_size": 1.0 if coco else 0.5,
        "generator_layers": 0.25 if coco else 1.0,
        "learning_rate": options.learning_rate,
        "seed": seed,
        "iterations_per_loop": 50,
        "save_checkpoints_steps": 500,
        "keep_checkpoint_max": 1,
        "precision": options.precision,
    }
    flops = training_flops_per_example(PretrainingConfig.from_dict(given))
    steps = math.ceil(options.flops / (flops * given["train_batch_size"]))
    return given | {"num_train_steps": steps, "num_warmup_steps": steps // 10}


def run(*words: str) -> None:
    result = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"{' '.join(words)}\nfailed with exit code {result.returncode}:\n{result.stdout}{result.stderr}")


def measured(recipe: str, options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Pre-trains and fine-tunes one model where that was not done before: held-out metrics and scores."""
    hparams = pretraining_hparams(recipe, options, seed)
    folder = Path(options.data_dir) / "models" / hparams["model_name"]
    held_out = folder / "results" / "unsup_results.json"
    if not held_out.exists():
        run("run_pretraining.py", "--do-eval", "--hparams", json.dumps(hparams))
    scores = {}
    for task, metric in TASKS.items():
        finetuning = FINETUNING | {
            "data_dir": options.data_dir,
            "model_name": hparams["model_name"],
            "task_names": [task],
            "max_seq_length": options.max_seq_length,
            "keep_all_models": False,
            "seed": seed,
        }
        if options.debug_examples:
            finetuning["debug_examples"] = options.debug_examples
        results = folder / "results" / f"{task}_results.json"
        if not results.exists():
            run("run_finetuning.py", "--hparams", json.dumps(finetuning))
        trial = json.loads(results.read_text(encoding="utf-8"))["trials"][0]
        scores[task] = next(iter(trial["scores"][task].values()))[metric]
    metrics = json.loads(held_out.read_text(encoding="utf-8"))
    return {"steps": hparams["num_train_steps"], "held_out": metrics, "scores": scores}


def table(results: dict[str, list[dict[str, Any]]]) -> str:
    """Mean and standard deviation of every column, a line for each objective."""
    lines = [f"{'':16}{'steps':>7}" + "".join(f"{task:>15}" for task in [*TASKS, "mean"])]
    for name, runs in results.items():
        cells = []
        for task in [*TASKS, None]:
            values = [one["scores"][task] if task else statistics.mean(one["scores"].values()) for one in runs]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            cells.append(f"{statistics.mean(values):8.1f} ± {spread:4.1f}")
        lines.append(f"{name:16}{runs[0]['steps']:7,}" + "".join(cells))
    lines.append("")
    for name, runs in results.items():
        shown = {
            metric: statistics.mean([one["held_out"][metric] for one in runs])
            for metric in SHOWN
            if metric in runs[0]["held_out"]
        }
        lines.append(f"{name:16}" + ", ".join(f"{metric} {value:.3f}" for metric, value in shown.items()))
    return "\n".join(lines)


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default="data")
    parser.add_argument("--flops", type=float, default=2e14, help="of pre-training a model")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--max-seq-length", type=int, default=64, help="of the records")
    parser.add_argument("--vocab-size", type=int, default=30522)
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--debug-examples", type=int, default=0, help="examples of a task, at most; 0: all")
    options = parser.parse_args()
    results: dict[str, list[dict[str, Any]]] = {}
    try:
        for seed in range(options.seeds):
            for name, recipe in OBJECTIVES.items():
                results.setdefault(name, []).append(measured(recipe, options, seed))
                write_json(Path(options.data_dir) / "equal_compute.json", results)
                print(f"{name}, seed {seed}: {results[name][-1]['scores']}", flush=True)
    except UserError as error:
        sys.exit(f"error: {error}")
    print(table(results))


if __name__ == "__main__":
    main()
