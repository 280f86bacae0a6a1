"""`make demo`: a shipped model against a bag of words, then pre-training of one's own, within about six minutes.

The task, putting commas and full stops back into 400 paragraphs of docstrings after 600 to learn from, labels itself.
First electra_deep learns it, which comes with this repository. Then a small model is pre-trained on the
same text from nothing, and learns the task too. How long each is trained depends on this machine, whose speed is
measured first. Every command is shown; they are the public ones. Everything is under demo_data/, and running it again
goes on where it was stopped.
"""

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from demo import plan
from demo.make_data import bag_of_words
from electra_tf2.config.recipes import read_recipe
from electra_tf2.finetune.tasks.conll import read_sentences
from electra_tf2.util.machine import this_processor

DATA = Path("demo_data")
MODELS = DATA / "models"
RECIPE = "electra_tiny"  # trained by the demo
RELEASED = "electra_deep"  # comes with this repository
TASK = "punctuation"
FINETUNING = {
    "task_names": [TASK],
    "tasks": {TASK: {"type": "tagging"}},
    "max_seq_length": 80,
    "layerwise_lr_decay": 1.0,
    "hidden_dropout_prob": 0.1,
    "precision": "bfloat16" if this_processor().has_bfloat16 else "float32",
}
YOUNG = {"optimizer": "adamw", "learning_rate": 5e-4}  # of fine-tuning what has learned little or nothing
PLAN = DATA / "plan.json"
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


def finetune(model: str, epochs: int, *options: str, **hparams: Any) -> None:
    hparams = FINETUNING | {"num_train_epochs": epochs} | hparams
    run("finetune", "--data-dir", str(DATA), "--model-name", model, "--hparams", json.dumps(hparams), *options)


def finetune_released(epochs: int) -> None:
    finetune(RELEASED, epochs, optimizer="muon", learning_rate=1e-3)
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


def pretrain_tiny(steps: int) -> None:
    pretrain(RECIPE, "--num-train-steps", str(steps), "--num-warmup-steps", str(steps // 10))
    before, after = results(RECIPE, BEFORE, "unsup"), results(RECIPE, "results", "unsup")
    print(f"\n{RECIPE} on records that it has not seen, {steps} steps:\n\n  {'':48}{'before':>8}{'after':>8}")
    for name in METRICS:
        print(f"  {name:48}{before[name]:8.3f}{after[name]:8.3f}")
    print(f"  {'a model of token frequencies: masked_lm_loss':48}{after['unigram_entropy']:16.3f}")


def finetune_random(epochs: int) -> None:
    random = ("--model-dir", str(MODELS / RELEASED / "random"), "--results-dir", str(MODELS / RELEASED / BEFORE))
    finetune(RELEASED, epochs, "--random-init", *random, **YOUNG)


def title(number: int, text: str) -> None:
    print(f"\n== {number} {text} ==\n", flush=True)


def main() -> None:
    start = time.monotonic()
    print(__doc__)
    speed = plan.measured_speed()
    print(f"processor: {this_processor()}; {speed:,.0f} GFLOP/s in products of float32")
    begun = plan.read_plan(PLAN)
    chosen = begun or plan.what_fits(speed)
    print(f"In about {plan.MINUTES:g} minutes fits {chosen}.", flush=True)
    plan.write_plan(PLAN, chosen)

    title(1, "text and a task from the docstrings of this Python installation")
    run("--data-dir", str(DATA), "--max-bytes", str(chosen.text), module="demo.make_data")
    title(2, f"the shipped model {RELEASED} learns the task")
    before = time.monotonic()
    finetune_released(chosen.epochs)
    if begun is None:
        # Its time says more than products of matrices do.
        speed = (plan.START + plan.EPOCH * chosen.epochs) / (time.monotonic() - before)
        seconds_left = 60 * plan.MINUTES - (time.monotonic() - start)
        chosen = plan.with_steps_for(chosen, speed, seconds_left)
        plan.write_plan(PLAN, chosen)
        print(f"\nIn the time that is left fit {chosen.steps} of {plan.MOST_STEPS} steps of pre-training.")
    title(3, "a vocabulary and records to pre-train on")
    build()
    title(4, f"{RECIPE} before its training")
    evaluate_untrained()
    title(5, f"{RECIPE} is pre-trained from nothing, {chosen.steps} steps")
    pretrain_tiny(chosen.steps)
    title(6, f"{RECIPE} learns the task")
    finetune(RECIPE, chosen.epochs, **YOUNG)
    compared_models = {
        f"{RECIPE}, pre-trained just now": (RECIPE, "results"),
        f"{RELEASED}, which comes along": (RELEASED, "results"),
    }
    if chosen.random_weights:
        title(7, f"the network of {RELEASED} learns it from random weights")
        finetune_random(chosen.epochs)
        compared_models[f"{RELEASED}'s network from random weights"] = (RELEASED, BEFORE)
    show_scores(compared_models)
    compared = f"All learned the task for {chosen.epochs} epochs; {RECIPE} was pre-trained for {chosen.steps} steps"
    if chosen.steps < plan.MOST_STEPS:
        compared += f" ({plan.MOST_STEPS} where the machine is fast enough)"
    print(f"\n{compared}.")
    print(f"The demo took {(time.monotonic() - start) / 60:.1f} minutes. Everything is in {DATA}/; try:\n")
    print(f"  .venv/bin/electra predict my.txt --model {MODELS}/{RELEASED}/finetuning_models/{TASK}_model_1")


if __name__ == "__main__":
    main()
