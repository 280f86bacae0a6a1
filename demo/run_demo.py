"""`make demo`: corpus, vocabulary, records, pre-training, evaluation, in a few minutes on two processor cores.

Runs the public scripts one after the other, showing each command, and ends with a table of the held-out metrics before
and after training. Everything is under demo_data/; running it again resumes what is unfinished.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

DATA = Path("demo_data")
RECIPE = "electra_tiny"
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


def results(model: str) -> dict[str, float]:
    path = DATA / "models" / model / "results" / "unsup_results.json"
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
    untrained = f"{RECIPE}_untrained"
    run(*pretrain, "--model-name", untrained, "--no-do-train", "--do-eval")
    run(*pretrain, "--model-name", RECIPE, "--do-eval")

    before, after = results(untrained), results(RECIPE)
    print(f"\nHeld-out records, {RECIPE} after {int(after['step']):,} steps:\n")
    print(f"{'':28}{'initialisation':>16}{'trained':>12}")
    for name in SHOWN:
        print(f"{name:28}{before[name]:16.4f}{after[name]:12.4f}")
    print(f"\nThe demo took {(time.monotonic() - start) / 60:.1f} minutes. Everything is in {DATA}/.")


if __name__ == "__main__":
    main()
