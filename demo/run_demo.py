"""`make demo`: what pre-training brings, shown in about six minutes.

The task is to put commas and full stops back into paragraphs of docstrings: 200 to learn from, 400 to be scored on.
electra_deep, which comes with this repository, learns it, and so does the same network from random weights. The
difference is the worth of pre-training when labels are few. Then a small model is pre-trained from scratch on the same
text, for as many steps as this machine has time for, and learns the task, too. A bag of words is the baseline.

Every command is shown; all are public ones. Files are under demo_data/. Running the demo again resumes it.
"""

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from demo import plan
from demo.make_data import bag_of_words
from electra_tf2.config.recipes import read_recipe
from electra_tf2.finetune.tasks.tagged_files import read_sentences
from electra_tf2.util.machine import this_processor

DATA = Path("demo_data")
MODELS = DATA / "models"
PLAN = DATA / "plan.json"
RECIPE = "electra_tiny"  # the model that the demo pre-trains
SHIPPED = "electra_deep"  # comes with this repository
TASK = "punctuation"
MARKS = {"B-comma": ",", "B-period": "."}
EPOCHS = 12
FINETUNING = {
    "task_names": [TASK],
    "tasks": {TASK: {"type": "tagging"}},
    "num_train_epochs": EPOCHS,
    "train_batch_size": 16,
    "max_seq_length": 80,
    "layerwise_lr_decay": 1.0,
    "hidden_dropout_prob": 0.1,
    # Muon, with which recipes pre-train, takes longer here and scores less after as many epochs.
    "optimizer": "adamw",
    "learning_rate": 5e-4,
    "precision": "bfloat16" if this_processor().has_bfloat16 else "float32",
}
# A quarter of the recipe's. With few sequences in all, many small steps get further than few large ones.
PRETRAINING_BATCH = 16
METRICS = ("masked_lm_loss", "masked_lm_accuracy", "disc_auc", "disc_recall")


class Learner(NamedTuple):
    """A model that has learned the task. results: its folder of scores, below the model's folder."""

    description: str
    model: str
    results: str = "results"


def main() -> None:
    start = time.monotonic()
    print(__doc__)
    print(f"processor: {this_processor()}", flush=True)

    title(1, "text and a task from the docstrings of this Python installation")
    run("--data-dir", str(DATA), module="demo.make_data")
    title(2, f"{SHIPPED}, which comes along, learns the task")
    before = time.monotonic()
    finetune(SHIPPED)
    seconds_of_finetuning = time.monotonic() - before
    show_an_answer(SHIPPED)

    # A resumed demo uses the steps chosen before: its fine-tuning is already done, and takes no time.
    steps = plan.read_steps(PLAN)
    if steps is None:
        seconds_left = 60 * plan.MINUTES - (time.monotonic() - start)
        steps = plan.steps_that_fit(seconds_left, seconds_of_finetuning)
        plan.write_steps(PLAN, steps)
    print(f"\nAt this speed {steps} steps of pre-training (of {plan.MOST_STEPS}) make a demo of about six minutes.")

    title(3, "the same network learns it from random weights")
    random = Learner(f"{SHIPPED}'s network from random weights", SHIPPED, "results_random")
    finetune_from_random_weights(random)
    title(4, "a vocabulary and records to pre-train on")
    build()
    title(5, f"{RECIPE} before its training")
    evaluate_untrained()
    title(6, f"{RECIPE} is pre-trained from nothing, {steps} steps")
    pretrain(steps)
    title(7, f"{RECIPE} learns the task")
    finetune(RECIPE)

    show_pretraining(steps)
    show_scores(
        random,
        Learner(f"{RECIPE}, pre-trained just now", RECIPE),
        Learner(f"{SHIPPED}, pre-trained on 551 MB of text", SHIPPED),
    )
    print(f"\nAll learned from the same 200 paragraphs, the networks for {EPOCHS} epochs.")
    print("The second row and the last are one network: what lies between them is pre-training.")
    print("More text and an hour: `electra plan` writes the script, docs/small_budgets.md has what to expect.")
    print(f"\nThe demo took {(time.monotonic() - start) / 60:.1f} minutes. Everything is in {DATA}/; try:\n")
    print(f"  .venv/bin/electra predict my.txt --model {MODELS}/{SHIPPED}/finetuning_models/{TASK}_model_1")


def title(number: int, text: str) -> None:
    print(f"\n== {number} {text} ==\n", flush=True)


def run(*words: str, module: str = "electra_tf2") -> None:
    """Shows and runs one command of electra, or of another module; stops the demo if it fails."""
    name = "electra" if module == "electra_tf2" else f"python -m {module}"
    print(f"$ {name} {shlex.join(words)}", flush=True)
    result = subprocess.run([sys.executable, "-m", module, *words], check=False)
    if result.returncode:
        sys.exit(f"demo: this command failed with exit code {result.returncode}")


# The commands.


def finetune(model: str, *options: str) -> None:
    hparams = json.dumps(FINETUNING)
    run("finetune", "--data-dir", str(DATA), "--model-name", model, "--hparams", hparams, *options)


def finetune_from_random_weights(learner: Learner) -> None:
    folder = MODELS / learner.model
    places = ("--model-dir", str(folder / "random"), "--results-dir", str(folder / learner.results))
    finetune(learner.model, "--random-init", *places)


def build() -> None:
    recipe = read_recipe(RECIPE)
    vocab = DATA / "vocab.txt"
    text = ("--corpus-dir", str(DATA / "corpus"), "--vocab-file", str(vocab))
    if not vocab.exists():
        run("build-vocab", *text, "--vocab-size", str(recipe["vocab_size"]))
    records = ("--output-dir", str(DATA / "pretrain_tfrecords"), "--max-seq-length", str(recipe["max_seq_length"]))
    run("build-data", *text, *records, "--dev-fraction", "0.05", "--num-processes", "2")


def evaluate_untrained() -> None:
    results = ("--results-dir", str(MODELS / RECIPE / "results_untrained"))
    run_pretraining(f"{RECIPE}_untrained", "--no-do-train", "--num-train-steps", "0", *results)


def pretrain(steps: int) -> None:
    length = ("--num-train-steps", str(steps), "--num-warmup-steps", str(steps // 10))
    run_pretraining(RECIPE, "--train-batch-size", str(PRETRAINING_BATCH), *length)


def run_pretraining(name: str, *options: str) -> None:
    run("pretrain", "--data-dir", str(DATA), "--recipe", RECIPE, "--model-name", name, "--do-eval", *options)


# Results.


def read_results(model: str, folder: str, name: str) -> dict[str, Any]:
    path = MODELS / model / folder / f"{name}_results.json"
    return json.loads(path.read_text(encoding="utf-8"))


def show_an_answer(model: str) -> None:
    """Prints the first development paragraph: as the model reads it, with the model's marks, and as it was."""
    predicted = next(iter(read_sentences(MODELS / model / "results" / f"{TASK}_outputs" / f"{TASK}_dev.txt")))
    original = next(iter(read_sentences(DATA / "finetuning_data" / TASK / "dev.txt")))
    no_tags = ["O"] * len(original.words)
    print()
    for name, tags in (("read", no_tags), ("model", predicted.tags), ("original", original.tags)):
        marked = [word + MARKS.get(tag, "") for word, tag in zip(original.words, tags, strict=True)]
        print(f"{name + ':':10}{' '.join(marked)}")


def show_pretraining(steps: int) -> None:
    before = read_results(RECIPE, "results_untrained", "unsup")
    after = read_results(RECIPE, "results", "unsup")
    print(f"\n{RECIPE} on records that it has not seen, after {steps} steps of {PRETRAINING_BATCH} sequences:\n")
    print(f"  {'':48}{'before':>8}{'after':>8}")
    for name in METRICS:
        print(f"  {name:48}{before[name]:8.3f}{after[name]:8.3f}")
    print(f"  {'a model of token frequencies: masked_lm_loss':48}{after['unigram_entropy']:16.3f}")


def show_scores(*learners: Learner) -> None:
    """Prints a table of the task's scores."""
    rows = {"a bag of neighbouring words": bag_of_words(DATA / "finetuning_data" / TASK)}
    for learner in learners:
        trial = read_results(learner.model, learner.results, TASK)["trials"][0]
        rows[learner.description] = trial["scores"][TASK]["dev"]["f1"]
    print("\nWhere do commas and full stops belong? F1 of the marks in 400 new paragraphs, in percent:\n")
    for description, f1 in rows.items():
        print(f"  {description:48}{f1:5.1f}  {'#' * round(f1 / 2)}")


if __name__ == "__main__":
    main()
