"""`make demo`: a shipped model against a bag of words within two minutes, then pre-training of one's own.

The task, putting commas and full stops back into 400 paragraphs of docstrings after 600 to learn from, labels itself.
First electra_deep learns it, which comes with this repository. Then a small model is pre-trained on the
same text from nothing, and learns the task too. Every command is shown; they are the public ones. Everything is
under demo_data/, and running it again goes on where it was stopped.
"""

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from demo.make_data import bag_of_words
from electra_tf2.finetune.tasks.conll import read_sentences
from electra_tf2.util.recipes import read_recipe

DATA = Path("demo_data")
MODELS = DATA / "models"
RECIPE = "electra_tiny"  # trained by the demo
RELEASED = "electra_deep"  # comes with this repository
TASK = "punctuation"
FINETUNING = {
    "task_names": [TASK],
    "tasks": {TASK: {"type": "tagging"}},
    "num_train_epochs": 10,
    "max_seq_length": 80,
    "layerwise_lr_decay": 1.0,
    "hidden_dropout_prob": 0.1,
    "precision": "bfloat16",
}
YOUNG = {"optimizer": "adamw", "learning_rate": 5e-4}  # of fine-tuning what has learned little or nothing
BEFORE = "results_untrained"  # folder of what is compared with
METRICS = ("masked_lm_loss", "masked_lm_accuracy", "disc_auc", "disc_recall")
MARKS = {"B-comma": ",", "B-period": "."}


def run(*words: str, module: str = "electra_tf2") -> None:
    """Shows and runs one command of electra, or of another module; stops the demo if it fails."""
    command = f"electra {shlex.join(words)}" if module == "electra_tf2" else f"python -m {module} {shlex.join(words)}"
    print(f"$ {command}", flush=True)
    result = subprocess.run([sys.executable, "-m", module, *words], check=False)
    if result.returncode:
        sys.exit(f"demo: this command failed with exit code {result.returncode}")


def results(model: str, folder: str, name: str) -> dict[str, Any]:
    return json.loads((MODELS / model / folder / f"{name}_results.json").read_text(encoding="utf-8"))


def show_scores(models: dict[str, tuple[str, str]]) -> None:
    """F1 of the task: of the baseline, and of (model, folder of results) by their descriptions."""
    rows = {"a bag of neighbouring words": bag_of_words(DATA / "finetuning_data" / TASK)}
    for name, (model, folder) in models.items():
        rows[name] = results(model, folder, TASK)["trials"][0]["scores"][TASK]["dev"]["f1"]
    print("\nWhere do commas and full stops belong? F1 of the marks, in percent:\n")
    for name, value in rows.items():
        print(f"  {name:48}{value:5.1f}  {'#' * round(value / 2)}")


def finetune(model: str, *options: str, **hparams: Any) -> None:
    words = ("--data-dir", str(DATA), "--model-name", model, "--hparams", json.dumps(FINETUNING | hparams))
    run("finetune", *words, *options)


def finetune_released() -> None:
    finetune(RELEASED, optimizer="muon", learning_rate=1e-3)
    (predicted, *_) = read_sentences(MODELS / RELEASED / "results" / f"{TASK}_outputs" / f"{TASK}_dev.txt")
    (truth, *_) = read_sentences(DATA / "finetuning_data" / TASK / "dev.txt")
    print()
    for name, tags in (("read", ["O"] * len(truth.words)), ("model", predicted.tags), ("original", truth.tags)):
        marked = (word + MARKS.get(tag, "") for word, tag in zip(truth.words, tags, strict=True))
        print(f"{name + ':':10}{' '.join(marked)}")
    show_scores({f"{RELEASED}, which comes along": (RELEASED, "results")})


def build() -> None:
    recipe = read_recipe(RECIPE)
    words = ("--corpus-dir", str(DATA / "corpus"), "--vocab-file", str(DATA / "vocab.txt"))
    if not (DATA / "vocab.txt").exists():
        run("build-vocab", *words, "--vocab-size", str(recipe["vocab_size"]))
    run(
        *("build-data", *words, "--output-dir", str(DATA / "pretrain_tfrecords")),
        *("--max-seq-length", str(recipe["max_seq_length"]), "--dev-fraction", "0.05", "--num-processes", "2"),
    )


def pretrain(name: str, *options: str) -> None:
    run(*("pretrain", "--data-dir", str(DATA), "--recipe", RECIPE, "--model-name", name, "--do-eval"), *options)


def evaluate_untrained() -> None:
    pretrain(f"{RECIPE}_untrained", "--no-do-train", "--results-dir", str(MODELS / RECIPE / BEFORE))


def pretrain_tiny() -> None:
    pretrain(RECIPE)
    before, after = results(RECIPE, BEFORE, "unsup"), results(RECIPE, "results", "unsup")
    print(f"\n{RECIPE} on records that it has not seen:\n\n  {'':48}{'before':>8}{'after':>8}")
    for name in METRICS:
        print(f"  {name:48}{before[name]:8.3f}{after[name]:8.3f}")
    print(f"  {'a model of token frequencies: masked_lm_loss':48}{after['unigram_entropy']:16.3f}")


def finetune_random() -> None:
    random = ("--model-dir", str(MODELS / RELEASED / "random"), "--results-dir", str(MODELS / RELEASED / BEFORE))
    finetune(RELEASED, "--random-init", *random, **YOUNG)


# What they do, the seconds that they take on two quiet cores of an AMD EPYC (Zen 5), and how.
STAGES: tuple[tuple[str, int, Callable[[], None]], ...] = (
    (
        "text and a task from the docstrings of this Python installation",
        25,
        lambda: run("--data-dir", str(DATA), module="demo.make_data"),
    ),
    (f"the shipped model {RELEASED} learns the task", 45, finetune_released),
    ("a vocabulary and records to pre-train on", 10, build),
    (f"{RECIPE} before its training", 10, evaluate_untrained),
    (f"{RECIPE} is pre-trained from nothing", 150, pretrain_tiny),
    (f"{RECIPE} learns the task", 25, lambda: finetune(RECIPE, **YOUNG)),
    (f"the network of {RELEASED} learns it from random weights", 45, finetune_random),
)


def main() -> None:
    start = time.monotonic()
    print(__doc__)
    for number, (title, seconds, run_stage) in enumerate(STAGES, 1):
        print(f"\n== {number}/{len(STAGES)} {title} (about {seconds} s) ==\n", flush=True)
        run_stage()
    show_scores(
        {
            f"{RELEASED}'s network from random weights": (RELEASED, BEFORE),
            f"{RECIPE}, pre-trained just now": (RECIPE, "results"),
            f"{RELEASED}, which comes along": (RELEASED, "results"),
        }
    )
    print(f"\nThe demo took {(time.monotonic() - start) / 60:.1f} minutes. Everything is in {DATA}/; try:\n")
    print(f"  .venv/bin/electra predict my.txt --model-dir {MODELS}/{RELEASED}/finetuning_models/{TASK}_model_1")


if __name__ == "__main__":
    main()
