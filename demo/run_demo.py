"""`make demo`: corpus, vocabulary, records, pre-training, evaluation, fine-tuning, in minutes on two processor cores.

Runs the public scripts one after the other, showing each command, and ends with two tables: the held-out metrics of
pre-training before and after it, and the scores of a labelled task, fine-tuned from the pre-trained model and from
random weights. Everything is under demo_data/; running it again resumes what is unfinished.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

DATA = Path("demo_data")
RECIPE = "electra_tiny"
TASK = "package"
FINETUNING = {
    "task_names": [TASK],
    "tasks": {TASK: {"type": "classification", "metric": "accuracy"}},
    "num_train_epochs": 6,
    "num_trials": 2,
    "max_seq_length": 64,
}
BEFORE = "results_untrained"  # folder of what is compared with
NUM_LABELS = 6
SHOWN = (
    "masked_lm_loss",
    "masked_lm_accuracy",
    "sampled_masked_lm_accuracy",
    "disc_loss",
    "disc_auc",
    "disc_accuracy",
    "majority_baseline",
    "disc_precision",
    "disc_recall",
    "replaced_rate",
)


def run(*words: str) -> None:
    """Shows and runs one command; stops the demo if it fails."""
    print(f"\n$ python {' '.join(words)}", flush=True)
    start = time.monotonic()
    result = subprocess.run([sys.executable, *words], check=False)
    if result.returncode:
        sys.exit(f"demo: this command failed with exit code {result.returncode}")
    print(f"[{time.monotonic() - start:.0f} s]", flush=True)


def results(folder: str, name: str) -> dict[str, Any]:
    path = DATA / "models" / RECIPE / folder / f"{name}_results.json"
    return json.loads(path.read_text(encoding="utf-8"))


def main() -> None:
    start = time.monotonic()
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
    run(*pretrain, "--model-name", f"{RECIPE}_untrained", "--no-do-train", "--do-eval", "--results-dir", folder(BEFORE))
    run(*pretrain, "--model-name", RECIPE, "--do-eval")

    run("-m", "demo.make_task", "--output-dir", str(DATA / "finetuning_data" / TASK), "--num-labels", str(NUM_LABELS))
    hparams = json.dumps(FINETUNING)
    finetune = ("run_finetuning.py", "--data-dir", str(DATA), "--model-name", RECIPE, "--hparams", hparams)
    run(*finetune)
    run(*finetune, "--random-init", "--model-dir", folder("random_init"), "--results-dir", folder(BEFORE))

    before, after = results(BEFORE, "unsup"), results("results", "unsup")
    print(f"\nHeld-out records, {RECIPE} after {int(after['step']):,} steps:\n")
    print(f"{'':28}{'initialisation':>16}{'trained':>12}")
    for name in SHOWN:
        print(f"{name:28}{before[name]:16.4f}{after[name]:12.4f}")
    scores = [
        [trial["scores"][TASK]["dev"]["accuracy"] for trial in results(name, TASK)["trials"]]
        for name in (BEFORE, "results")
    ]
    print(f"\nWhich package is a sentence from? Accuracy of each trial (chance: {100 / NUM_LABELS:.1f} %):\n")
    print(f"{'from random weights':28}{'  '.join(f'{score:.1f}' for score in scores[0])}")
    print(f"{'from the pre-trained model':28}{'  '.join(f'{score:.1f}' for score in scores[1])}")
    if max(scores[1]) < min(scores[0]):
        print("So few steps of pre-training make a worse start than random weights: README, What to expect.")
    print(f"\nThe demo took {(time.monotonic() - start) / 60:.1f} minutes. Everything is in {DATA}/.")


def folder(name: str) -> str:
    return str(DATA / "models" / RECIPE / name)


if __name__ == "__main__":
    main()
