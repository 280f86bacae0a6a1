"""What makes minutes of pre-training pay: one factor at a time at equal compute; behind docs/small_budgets.md.

  python benchmarks/small_budgets.py --data-dir data --work-dir small_budgets --rows base,post_norm --seeds 1
  python benchmarks/small_budgets.py --data-dir data --work-dir small_budgets --rows base --tasks chunk,sst,sts,qnli

<data-dir> holds corpus/, heldout/ and finetuning_data/. Every row is `BASE` with one change; it is pre-trained for as
many FLOPs (flops_computation.py) as --steps of `BASE`, evaluated on the records of heldout/, and fine-tuned on --tasks.
`random` is BASE's network without pre-training; benchmarks/bag_of_words.py scores linear models of words on the same
tasks. Stopped, the same command goes on. Results: <work-dir>/small_budgets.json, one entry for
each row and seed, with the training curve and the seconds of processor time.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.flops import training_flops_per_example
from electra_tf2.util.files import write_json

ROOT = Path(__file__).resolve().parent.parent
BASE: dict[str, Any] = {
    "electra_objective": False,
    "model_hparam_overrides": {
        "num_hidden_layers": 4,
        "hidden_size": 128,
        "num_attention_heads": 4,
        "norm_style": "pre",
        "relative_positions": "t5",
        "relative_position_start": "local",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.05,
    },
    "embedding_size": 128,
    "vocab_size": 8192,
    "max_seq_length": 64,
    "train_batch_size": 64,
    "eval_batch_size": 128,
    "num_eval_steps": 20,
    "mask_prob": 0.25,
    "mask_rates": [1.0, 0.0, 0.0],
    "mask_sampling": "without_replacement",
    "learning_rate": 2e-3,
    "num_warmup_steps": 150,
    "lr_schedule": "separate",
    "adam_beta2": 0.98,
    "precision": "bfloat16",
    "iterations_per_loop": 25,
    "save_checkpoints_steps": 500,
    "keep_checkpoint_max": 1,
}
_ELECTRA = {"electra_objective": True, "generator_layers": 0.5, "generator_hidden_size": 1.0}
_PAPERS: dict[str, Any] = {
    "norm_style": "post",
    "relative_positions": "none",
    "relative_position_start": "random",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "adam_beta2": 0.999,
    "learning_rate": 5e-4,
    "mask_prob": 0.15,
    "mask_rates": [0.85, 0.15, 0.0],
    "mask_sampling": "with_replacement",
    "lr_schedule": "multiply",
}
_OTHER_POSITIONS = {"relative_position_start": "random"}  # a local start is of T5's and COCO-LM's buckets
ROWS: dict[str, dict[str, Any]] = {
    "base": {},
    "random_start": {"relative_position_start": "random"},
    "post_norm": {"norm_style": "post"},
    "learned_positions": {"relative_positions": "none", "relative_position_start": "random"},
    "coco_positions": {"relative_positions": "coco"},
    "rotary_positions": _OTHER_POSITIONS | {"relative_positions": "rotary"},
    "alibi_positions": _OTHER_POSITIONS | {"relative_positions": "alibi"},
    "xl_positions": _OTHER_POSITIONS | {"relative_positions": "xl"},
    "dropout": {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1},
    "initial_scale_0.02": {"initializer_range": 0.02},
    "beta2_0.999": {"adam_beta2": 0.999},
    "rate_5e-4": {"learning_rate": 5e-4},
    "rate_4e-3": {"learning_rate": 4e-3},
    "mask_prob_0.15": {"mask_prob": 0.15},
    "mask_prob_0.4": {"mask_prob": 0.4},
    "kept_positions": {"mask_rates": [0.85, 0.15, 0.0], "mask_sampling": "with_replacement"},
    "warmup_50": {"num_warmup_steps": 50},
    "batch_32": {"train_batch_size": 32},
    "batch_128": {"train_batch_size": 128},
    "vocab_4096": {"vocab_size": 4096},
    "length_32": {"max_seq_length": 32},
    "width_192": {"hidden_size": 192, "learning_rate": 1.5e-3},
    "layers_2": {"num_hidden_layers": 2},
    "scaled_residuals": {"scaled_residual_init": True},
    "shared_layers": {"share_layers": "all"},
    "whole_words": {"mask_unit": "whole_word"},
    "spans": {"mask_unit": "span"},
    "heads_2": {"num_attention_heads": 2},
    "papers_settings": _PAPERS,
    "papers_and_local_start": _PAPERS | {"relative_positions": "t5", "relative_position_start": "local"},
    "electra": _ELECTRA,
    "electra_no_detector": _ELECTRA | {"disc_weight": 0.0},
}
FINETUNING: dict[str, dict[str, Any]] = {
    "chunk": {"num_train_epochs": 4, "learning_rate": 5e-4, "max_seq_length": 128},
    "sst": {"num_train_epochs": 2, "learning_rate": 1e-3, "max_seq_length": 64},
    "sts": {"num_train_epochs": 6, "learning_rate": 5e-4, "max_seq_length": 64},
    "qnli": {"num_train_epochs": 4, "learning_rate": 6e-4, "max_seq_length": 128},
    "cola": {"num_train_epochs": 6, "learning_rate": 3e-4, "max_seq_length": 64},
    "mrpc": {"num_train_epochs": 4, "learning_rate": 3e-4, "max_seq_length": 128},
    "rte": {"num_train_epochs": 4, "learning_rate": 3e-4, "max_seq_length": 128},
    "qqp": {"num_train_epochs": 2, "learning_rate": 3e-4, "max_seq_length": 64},
    "mnli": {"num_train_epochs": 4, "learning_rate": 3e-4, "max_seq_length": 128},
}
METRICS = {"chunk": "f1", "sts": "spearman", "cola": "mcc", "mrpc": "f1"}
_KEPT = ("step", "masked_lm_loss", "disc_loss")


def hparams_of(row: str, seed: int, steps: int, work: Path) -> dict[str, Any]:
    """The row's hyperparameters; its number of steps follows from the budget."""
    changes = dict(ROWS[row])
    given = BASE | {name: value for name, value in changes.items() if name in PretrainingConfig.__dataclass_fields__}
    sizes = {name: value for name, value in changes.items() if name not in given}
    given["model_hparam_overrides"] = BASE["model_hparam_overrides"] | sizes
    vocab, length = given["vocab_size"], given["max_seq_length"]
    records = work / f"v{vocab}_l{length}"
    budget = steps * BASE["train_batch_size"] * flops_per_example(BASE)
    given["num_train_steps"] = round(budget / (given["train_batch_size"] * flops_per_example(given)))
    return given | {
        "model_name": f"{row}_{steps}_{seed}",
        "data_dir": str(work),
        "seed": seed,
        "vocab_file": str(work / f"vocab{vocab}.txt"),
        "pretrain_tfrecords": f"{records}/pretrain_data*",
        "eval_tfrecords": f"{records}_dev/pretrain_data*",
    }


def flops_per_example(hparams: dict[str, Any]) -> float:
    return training_flops_per_example(PretrainingConfig.from_dict({"num_warmup_steps": 0} | hparams))


def run(*words: str) -> float:
    """Runs a script on one thread. Returns the seconds of processor time."""
    environment = os.environ | {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if result.returncode:
        sys.exit(f"{' '.join(words)}\nfailed with exit code {result.returncode}:\n{result.stdout}{result.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def build(data: Path, work: Path, vocab: int, length: int) -> None:
    """Vocabulary, records and held-out records, where they are not there yet."""
    vocab_file, records = str(work / f"vocab{vocab}.txt"), work / f"v{vocab}_l{length}"
    if not Path(vocab_file).exists():
        sizes = ("--vocab-size", str(vocab), "--limit-alphabet", "400")
        run("build_vocab.py", "--corpus-dir", str(data / "corpus"), "--vocab-file", vocab_file, *sizes)
    for corpus, folder in (("corpus", str(records)), ("heldout", f"{records}_dev")):
        if not (Path(folder) / "metadata.json").exists():
            files = ("--corpus-dir", str(data / corpus), "--vocab-file", vocab_file, "--output-dir", folder)
            options = ("--max-seq-length", str(length), "--num-processes", "2", "--seed", "1")
            run("build_pretraining_dataset.py", *files, *options)


def pretrained(row: str, seed: int, options: argparse.Namespace, entry: dict[str, Any]) -> dict[str, Any]:
    """Pre-trains and evaluates one model: held-out metrics, curve, processor time."""
    hparams = hparams_of(row, seed, options.steps, options.work_dir)
    build(options.data_dir, options.work_dir, hparams["vocab_size"], hparams["max_seq_length"])
    folder = options.work_dir / "models" / hparams["model_name"]
    held_out = folder / "results" / "unsup_results.json"
    seconds = entry.get("cpu_seconds")
    if not held_out.exists():
        seconds = run("run_pretraining.py", "--do-eval", "--hparams", json.dumps(hparams))
    lines = [json.loads(line) for line in (folder / "train_metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    curve = [[round(line[name], 4) for name in _KEPT if name in line] for line in lines if line["step"] % 50 == 0]
    return {
        "model": hparams["model_name"],
        "changes": ROWS[row],
        "steps": hparams["num_train_steps"],
        "cpu_seconds": seconds and round(seconds, 1),
        "held_out": json.loads(held_out.read_text(encoding="utf-8")),
        "curve": curve,
    }


def score(task: str, model: str, seed: int, options: argparse.Namespace, random_init: bool) -> float:
    """Fine-tunes a model where that was not done before. Returns its dev score."""
    name = "finetuned_random" if random_init else "finetuned"
    folder = options.work_dir / "models" / model / f"{name}_{seed}"
    hparams = {
        "data_dir": str(options.work_dir),
        "raw_data_dir": str(options.data_dir / "finetuning_data"),
        "vocab_file": json.loads((folder.parent / "config.json").read_text(encoding="utf-8"))["vocab_file"],
        "model_name": model,
        "task_names": [task],
        "model_dir": str(folder / f"{task}_model"),
        "results_dir": str(folder),
        "keep_all_models": False,
        "layerwise_lr_decay": 1.0,
        "random_init": random_init,
        "seed": seed,
        "precision": "bfloat16",
        "num_trials": 1,
    }
    results = folder / f"{task}_results.json"
    if not results.exists():
        run("run_finetuning.py", "--hparams", json.dumps(hparams | FINETUNING[task]))
    scores = json.loads(results.read_text(encoding="utf-8"))["trials"][0]["scores"][task]["dev"]
    return float(scores[METRICS.get(task, "accuracy")])


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--work-dir", type=Path, default=Path("small_budgets"))
    parser.add_argument("--rows", default=",".join(ROWS), help="by commas; random: base untrained")
    parser.add_argument("--steps", type=int, default=600, help="of BASE; the others get as many FLOPs")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--tasks", default="", help="to fine-tune on, of: " + ", ".join(FINETUNING))
    options = parser.parse_args()
    options.rows = [row for row in options.rows.split(",") if row]
    options.tasks = [task for task in options.tasks.split(",") if task]
    for flag, given, known in (("rows", options.rows, [*ROWS, "random"]), ("tasks", options.tasks, FINETUNING)):
        unknown = sorted(set(given) - set(known))
        if unknown:
            parser.error(f"--{flag}: {', '.join(unknown)}: choose from {', '.join(known)}")
    options.data_dir, options.work_dir = options.data_dir.resolve(), options.work_dir.resolve()
    options.work_dir.mkdir(parents=True, exist_ok=True)
    file = options.work_dir / "small_budgets.json"
    for seed in range(options.seeds):
        for row in options.rows:
            random_init = row == "random"
            found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
            key = f"{row}, {options.steps} steps, seed {seed}"
            entry = found.get(key, {})
            entry |= pretrained("base" if random_init else row, seed, options, entry)
            for task in options.tasks:
                entry.setdefault("scores", {})[task] = score(task, entry["model"], seed, options, random_init)
            found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
            write_json(file, found | {key: entry})
            loss, scores = entry["held_out"]["masked_lm_loss"], entry.get("scores", {})
            print(f"{key}: masked-LM loss {loss:.3f}, {scores or 'not fine-tuned'}", flush=True)


if __name__ == "__main__":
    main()
