"""`make demo`: corpus, vocabulary, records, pre-training, evaluation, fine-tuning, in minutes on two processor cores.

Runs the public scripts one after the other, showing each command, and ends with two tables: the held-out metrics of
pre-training before and after it, and the scores of a labelled task, putting the commas and full stops back into 400
paragraphs after 600 to learn from. It is learned from the model trained here in minutes, from the one that comes with
this repository (pretrained/electra_mini, which took hours: docs/small_budgets.md) and from random weights of the same
network; beside them stands logistic regression on the neighbouring words. Everything is under demo_data/; running it
again resumes what is unfinished.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from demo.make_task import baselines

DATA = Path("demo_data")
RECIPE = "electra_tiny"  # trained by the demo
RELEASED = "electra_mini"  # comes with this repository
TASK = "punctuation"
FINETUNING = {
    "task_names": [TASK],
    "tasks": {TASK: {"type": "tagging"}},
    "num_train_epochs": 5,
    "num_trials": 2,
    "max_seq_length": 80,
    "learning_rate": 5e-4,
    "layerwise_lr_decay": 1.0,
    "hidden_dropout_prob": 0.1,
    "precision": "bfloat16",
}
BEFORE = "results_untrained"  # folder of what is compared with
SHOWN = (
    *("masked_lm_loss", "masked_lm_accuracy", "sampled_masked_lm_accuracy", "disc_loss", "disc_auc", "disc_accuracy"),
    *("majority_baseline", "disc_precision", "disc_recall", "replaced_rate"),
)


def run(*words: str) -> None:
    """Shows and runs one command; stops the demo if it fails."""
    print(f"\n$ python {' '.join(words)}", flush=True)
    start = time.monotonic()
    result = subprocess.run([sys.executable, *words], check=False)
    if result.returncode:
        sys.exit(f"demo: this command failed with exit code {result.returncode}")
    print(f"[{time.monotonic() - start:.0f} s]", flush=True)


def results(model: str, folder: str, name: str) -> dict[str, Any]:
    path = DATA / "models" / model / folder / f"{name}_results.json"
    return json.loads(path.read_text(encoding="utf-8"))


def scores(model: str, folder: str) -> str:
    """F1 of each trial of the task."""
    trials = results(model, folder, TASK)["trials"]
    return "  ".join(f"{trial['scores'][TASK]['dev']['f1']:.1f}" for trial in trials)


def main() -> None:
    start = time.monotonic()
    print(__doc__)
    recipe = json.loads((Path(__file__).parent.parent / "recipes" / f"{RECIPE}.json").read_text(encoding="utf-8"))
    vocab, records = str(DATA / "vocab.txt"), str(DATA / "pretrain_tfrecords")
    corpus = str(DATA / "corpus")
    run("-m", "demo.extract_corpus", "--output-dir", corpus)
    if not Path(vocab).exists():
        run("build_vocab.py", "--corpus-dir", corpus, "--vocab-file", vocab, "--vocab-size", str(recipe["vocab_size"]))
    run(
        *("build_pretraining_dataset.py", "--corpus-dir", corpus, "--vocab-file", vocab, "--output-dir", records),
        *("--max-seq-length", str(recipe["max_seq_length"]), "--dev-fraction", "0.05", "--num-processes", "2"),
    )
    pretrain = ("run_pretraining.py", "--data-dir", str(DATA), "--recipe", RECIPE)
    untrained = ("--model-name", f"{RECIPE}_untrained", "--no-do-train", "--results-dir", folder(RECIPE, BEFORE))
    run(*pretrain, *untrained, "--do-eval")
    run(*pretrain, "--model-name", RECIPE, "--do-eval")

    run("-m", "demo.make_task", "--output-dir", str(DATA / "finetuning_data" / TASK))
    hparams = json.dumps(FINETUNING)
    random = ("--model-dir", folder(RELEASED, "random_init"), "--results-dir", folder(RELEASED, BEFORE))
    for name, options in ((RECIPE, ()), (RELEASED, ("--random-init", *random)), (RELEASED, ())):
        run("run_finetuning.py", "--data-dir", str(DATA), "--model-name", name, "--hparams", hparams, *options)

    before, after = results(RECIPE, BEFORE, "unsup"), results(RECIPE, "results", "unsup")
    print(f"\nHeld-out records, {RECIPE} after {int(after['step']):,} steps:\n")
    print(f"{'':28}{'initialisation':>16}{'trained':>12}")
    for name in SHOWN:
        print(f"{name:28}{before[name]:16.4f}{after[name]:12.4f}")
    print("\nWhere do commas and full stops belong? F1 of each trial:\n")
    rows = {name: f"{score:.1f}" for name, score in baselines(DATA / "finetuning_data" / TASK).items()}
    rows |= {
        f"{RELEASED}'s network, random": scores(RELEASED, BEFORE),
        f"{RECIPE}, trained just now": scores(RECIPE, "results"),
        f"{RELEASED}, which comes along": scores(RELEASED, "results"),
    }
    for name, score in rows.items():
        print(f"{name:32}{score}")
    print(f"\nThe demo took {(time.monotonic() - start) / 60:.1f} minutes. Everything is in {DATA}/.")


def folder(model: str, name: str) -> str:
    return str(DATA / "models" / model / name)


if __name__ == "__main__":
    main()
