"""Recipes and hyperparameters side by side: pre-trains each at equal compute or equal steps, fine-tunes, and compares.

  python -m benchmarks.compare_objectives --data-dir data --start pretrained/bert_mini --flops 5e13 --seeds 3 \\
      --recipes electra_small,electra_small_whole_word,electra_small+uniform_generator=true --tasks sts
  python -m benchmarks.compare_objectives --data-dir data --build --steps-of-first 600 --tasks chunk,sts \\
      --recipes benchmarks/minutes.json,+norm_style=post,+num_hidden_layers=2,+vocab_size=4096,+random_init=true

A contender is RECIPE or RECIPE+hparam=value+..., or +hparam=value+... with the first one's recipe. A path of a .json
file means all that it says. A recipe's name gives its objective and generator alone: with --start all go on from one
young masked language model, whose weights are the first of generator and main network, and network and optimizer are
those of its recipe. (From random weights, models of these sizes stay where they know how frequent tokens are.) The
default is ELECTRA's question where its efficiency comes from, with COCO-LM beside it (ELECTRA, section 3.5 and Table
4). Each contender is trained once for each seed, evaluated on held-out records and fine-tuned on tasks in
<data-dir>/finetuning_data. FLOPs are those of flops_computation.py. The records of <data-dir> must fit in vocabulary
and length; --build makes what each contender needs. Stopped, the same command goes on. Results:
<data-dir>/compare_objectives.json, and tables.
"""

import argparse
import dataclasses
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, parser_of
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.flops import training_flops_per_example
from electra_tf2.pretrain.hparams import GeneratorHparams, MaskingHparams, PretrainingHparams
from electra_tf2.pretrain.objectives.catalogue import ObjectiveHparams
from electra_tf2.util.environment import cores
from electra_tf2.util.errors import UserError
from electra_tf2.util.files import write_json
from electra_tf2.util.flags import read_recipe
from electra_tf2.util.hparams import all_hparams, layered

RECIPES = (
    "bert_small,electra_small_replace_mlm,electra_small_15,electra_small_all_tokens_mlm,electra_small,coco_lm_small"
)
METRICS = {"chunk": "f1", "cola": "mcc", "sts": "spearman"} | dict.fromkeys(
    ("sst", "mrpc", "rte", "qnli", "qqp", "mnli"), "accuracy"
)


def _names(group: type) -> set[str]:
    return {field.name for field in dataclasses.fields(group)}


# Hparams by which recipes differ in objective and generator, apart from sizes and from how much is masked.
_OBJECTIVE = sorted(
    (_names(ObjectiveHparams) - _names(PretrainingHparams) | _names(GeneratorHparams) - _names(MaskingHparams))
    - {"generator_layers", "generator_hidden_size", "clm_head", "cooccurrence_file", "document_frequency_file"}
    | {"mask_unit", "temperature_decay", "stack_layers"}
)
SHOWN = (
    *("hidden_masked_lm_loss", "masked_lm_accuracy", "disc_auc", "copy_accuracy_replaced", "copy_accuracy_original"),
    *("clm_accuracy_replaced", "clm_accuracy_original", "positive_cosine", "negative_cosine"),
)
_CURVE = ("step", "masked_lm_loss", "disc_loss")


def from_start(recipe: str, start: Path) -> dict[str, Any]:
    """The recipe's objective, from a masked language model and by its recipe."""
    of_recipe = read_recipe(recipe)
    objective = {name: of_recipe[name] for name in _OBJECTIVE if name in of_recipe}
    given = read_recipe(start.name) | {"recipe": start.name, "electra_objective": True} | objective
    return given | {"generator_layers": 1.0, "generator_hidden_size": 1.0, "init_checkpoint": str(start)}


def with_changes(contender: str, options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """The hyperparameters of RECIPE+hparam=value+...: of pre-training, and those that fine-tuning alone has."""
    recipe, *changes = re.split(r"\+(?=\w+=)", contender)
    changed = {}
    for change in changes:
        name, _, value = change.partition("=")
        try:
            changed[name] = json.loads(value if value[:1] in '["{-0123456789tfn' else f'"{value}"')
        except ValueError as error:
            raise UserError(f"--recipes: {contender}: {change!r} is not hparam=value ({error})") from None
    known = {field.name for _, field in all_hparams(PretrainingConfig)}
    finetuning = {name: value for name, value in changed.items() if name not in known}
    changed = {name: value for name, value in changed.items() if name in known}
    recipe = recipe or options.recipes[0]
    of_recipe = read_recipe(recipe) if recipe.endswith(".json") else from_start(recipe, options.start)
    given = layered(PretrainingConfig, of_recipe, changed)
    config = PretrainingConfig.from_dict({"num_warmup_steps": 0} | given)
    if options.start and config.has_own_generator and not config.uniform_generator and not config.two_tower_generator:
        given["init_generator_checkpoint"] = str(options.start)
    return given, finetuning


def flops_of(given: dict[str, Any]) -> float:
    """FLOPs of a step."""
    config = PretrainingConfig.from_dict(given | {"num_warmup_steps": 0})
    return config.train_batch_size * training_flops_per_example(config)


def pretraining_hparams(contender: str, options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """The run's hyperparameters; its number of steps follows from the budget."""
    given, _ = with_changes(contender, options)
    given |= {"data_dir": options.data_dir, "seed": seed, "keep_checkpoint_max": 1, "num_eval_steps": 20}
    given = {"iterations_per_loop": 50, "save_checkpoints_steps": 500} | given
    flops = options.flops
    if options.steps_of_first:
        flops = options.steps_of_first * flops_of(with_changes(options.recipes[0], options)[0])
    steps = options.steps or math.ceil(flops / flops_of(given) - 0.5)
    if given.get("lr_schedule") == "trapezoid":
        given["lr_decay_steps"] = steps // 4
    if options.build:
        given |= built(options, given["vocab_size"], given["max_seq_length"])
    name = f"{'continued' if options.start else 'compared'}_{_plain(contender)}_{steps}_{seed}"
    if not _is_file(contender, options):
        given["num_warmup_steps"] = steps // 10
    return given | {"model_name": name, "num_train_steps": steps}


def _is_file(contender: str, options: argparse.Namespace) -> bool:
    """True if its recipe is a file, which says everything: the schedule, and how to fine-tune."""
    return (contender if contender[0] != "+" else options.recipes[0]).split("+")[0].endswith(".json")


def _plain(contender: str) -> str:
    """Name of a folder for a contender."""
    return re.sub(r"[^\w.=-]+", "_", contender.replace(".json", ""))


def built(options: argparse.Namespace, vocab: int, length: int) -> dict[str, str]:
    """Builds vocabulary, records and held-out records of <data-dir>/corpus and heldout; returns where they are."""
    data = Path(options.data_dir)
    vocab_file, records = data / f"vocab{vocab}.txt", data / f"v{vocab}_l{length}"
    if not vocab_file.exists():
        sizes = ("--vocab-size", str(vocab), "--limit-alphabet", "400")
        run(options, "build_vocab.py", "--corpus-dir", str(data / "corpus"), "--vocab-file", str(vocab_file), *sizes)
    for corpus, folder in (("corpus", str(records)), ("heldout", f"{records}_dev")):
        if not (Path(folder) / "metadata.json").exists():
            files = ("--corpus-dir", str(data / corpus), "--vocab-file", str(vocab_file), "--output-dir", folder)
            run(options, "build_pretraining_dataset.py", *files, "--max-seq-length", str(length), "--seed", "1")
    found = {"pretrain_tfrecords": f"{records}/pretrain_data*", "eval_tfrecords": f"{records}_dev/pretrain_data*"}
    return found | {"vocab_file": str(vocab_file)}


def run(options: argparse.Namespace, *words: str) -> tuple[str, float]:
    """Runs a program; returns its output and its seconds of processor time. A failure ends this program, too."""
    threads = str(max(1, cores() // options.jobs))
    environment = os.environ | {"TF_NUM_INTRAOP_THREADS": threads, "TF_NUM_INTEROP_THREADS": threads}
    with tempfile.TemporaryFile("w+") as printed:
        process = subprocess.Popen([sys.executable, *words], cwd=ROOT, env=environment, stdout=printed, stderr=printed)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        printed.seek(0)
        text = printed.read()
    if process.returncode:
        sys.exit(f"{' '.join(words)}\nfailed with exit code {process.returncode}:\n{text}")
    return text, used.ru_utime + used.ru_stime


def measured(contender: str, options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Pre-trains and fine-tunes one model where that was not done before: held-out metrics and scores, of several
    trials the median; also the training curve, and seconds of processor time where it was trained now."""
    pretrained = re.sub(r"\+random_init=[^+]*", "", contender) or options.recipes[0]
    hparams = pretraining_hparams(pretrained, options, seed)
    folder = Path(options.data_dir) / "models" / hparams["model_name"]
    held_out, seconds = folder / "results" / "unsup_results.json", None
    if not held_out.exists():
        _, seconds = run(options, "run_pretraining.py", "--do-eval", "--hparams", json.dumps(hparams))
    metrics = json.loads(held_out.read_text(encoding="utf-8"))
    if options.contrast and "positive_cosine" not in metrics:  # of models without the objective too, to compare with
        contrast = folder / "analysis" / "contrast.json"
        if not contrast.exists():
            names = ["--data-dir", options.data_dir, "--model-names", hparams["model_name"]]
            run(options, "run_analysis.py", "--analysis", "contrast", *names, "--output-dir", str(contrast.parent))
        metrics |= json.loads(contrast.read_text(encoding="utf-8"))[hparams["model_name"]]["trained"]
    file = _is_file(contender, options)
    results = folder / ("results" if pretrained == contender else f"results_{_plain(contender)}")
    scores = {}
    for task in options.tasks:
        finetuning = {
            "data_dir": options.data_dir,
            "model_name": hparams["model_name"],
            "vocab_file": json.loads((folder / "config.json").read_text(encoding="utf-8"))["vocab_file"],
            "task_names": [task],
            "model_dir": str(results / f"{task}_model"),
            "results_dir": str(results),
            "keep_all_models": False,
            "precision": hparams["precision"],
            "seed": seed,
        }
        finetuning |= with_changes(contender, options)[1] | options.finetuning_hparams
        if file:
            finetuning["recipe"] = contender.split("+")[0] or options.recipes[0]
        if options.debug_examples:
            finetuning["debug_examples"] = options.debug_examples
        done = results / f"{task}_results.json"
        if not done.exists():
            run(options, "run_finetuning.py", "--hparams", json.dumps(finetuning))
        trials = [one["scores"][task] for one in json.loads(done.read_text(encoding="utf-8"))["trials"]]
        scores[task] = statistics.median(next(iter(splits.values()))[METRICS[task]] for splits in trials)
    lines = map(json.loads, (folder / "train_metrics.jsonl").read_text(encoding="utf-8").splitlines())
    curve = [[round(line[name], 4) for name in _CURVE if name in line] for line in lines if line["step"] % 50 == 0]
    found = {"steps": hparams["num_train_steps"], "held_out": metrics, "scores": scores, "curve": curve}
    return found | {"processor_seconds": seconds}


def table(results: dict[str, list[dict[str, Any]]], tasks: list[str]) -> str:
    """Mean and standard deviation over the seeds: scores, then held-out metrics, a line for each contender."""

    def line(name: str, runs: list[dict[str, Any]], columns: list[list[float | None]]) -> str:
        cells = ""
        for values in columns:
            found = [value for value in values if value is not None]
            spread = f" ± {statistics.stdev(found):5.3g}" if len(found) > 1 else ""
            cells += f"{statistics.mean(found):13.4g}{spread}" if found else f"{'-':>13}"
        return f"{name:36}{runs[0]['steps']:7,}{cells}"

    lines = []
    if tasks:
        lines.append(f"{'':36}{'steps':>7}" + "".join(f"{task:>21}" for task in [*tasks, "mean"]))
        for name, runs in results.items():
            columns = [[one["scores"][task] for one in runs] for task in tasks]
            lines.append(line(name, runs, [*columns, [statistics.mean(one["scores"].values()) for one in runs]]))
        lines.append("")
    lines.append(f"{'':36}{'steps':>7}  " + ", ".join(SHOWN))
    for name, runs in results.items():
        lines.append(line(name, runs, [[one["held_out"].get(metric) for one in runs] for metric in SHOWN]))
    return "\n".join(lines)


def main() -> None:
    parser = parser_of(__doc__, data_dir="data", seeds=3)
    parser.add_argument("--recipes", default=RECIPES, help="contenders, by commas")
    parser.add_argument("--start", type=Path, help="folder of a masked language model, named like its recipe")
    parser.add_argument("--flops", type=float, default=2e14, help="of pre-training a model")
    parser.add_argument("--steps", type=int, default=0, help="the same for all recipes, instead of --flops")
    parser.add_argument("--steps-of-first", type=int, default=0, help="whose FLOPs all get, instead of --flops")
    parser.add_argument("--build", action="store_true", help="vocabularies and records of <data-dir>/corpus, heldout")
    parser.add_argument("--tasks", default="chunk,cola,sst,mrpc,rte,sts", help="to fine-tune on; '' for none")
    parser.add_argument("--finetuning-hparams", type=json.loads, default={}, help="JSON, over those of the recipe")
    parser.add_argument("--debug-examples", type=int, default=0, help="examples of a task, at most; 0: all")
    parser.add_argument("--jobs", type=int, default=1, help="models trained side by side, each with its share of cores")
    options = parser.parse_args()
    options.data_dir = os.path.abspath(options.data_dir)
    options.tasks = [task for task in options.tasks.split(",") if task]
    options.recipes = re.split(r",(?![^\[]*\])", options.recipes.strip())  # not at the commas of a value
    unknown = set(options.tasks) - set(METRICS)
    if unknown:
        parser.error(f"--tasks: {', '.join(sorted(unknown))}: choose from {', '.join(METRICS)}")
    if not options.start and not all(_is_file(contender, options) for contender in options.recipes):
        parser.error("--recipes: recipes by name need --start")
    runs = [(recipe, seed) for seed in range(options.seeds) for recipe in options.recipes]
    results: dict[str, list[dict[str, Any]]] = {}
    try:
        every = {contender: with_changes(contender, options) for contender in options.recipes}
        alike = [name for name, given in every.items() if list(every.values()).count(given) > 1]
        if alike:
            raise UserError(f"--recipes: {', '.join(alike)} are the same run: --start decides what the network is")
        options.contrast = any(given.get("sequence_contrast_objective") for given, _ in every.values())
        with ThreadPoolExecutor(options.jobs) as pool:
            for (recipe, seed), found in zip(
                runs, pool.map(lambda one: measured(one[0], options, one[1]), runs), strict=True
            ):
                results.setdefault(recipe, []).append(found)
                write_json(Path(options.data_dir) / "compare_objectives.json", results)
                print(f"{recipe}, seed {seed}: {found['scores']}", flush=True)
    except UserError as error:
        sys.exit(f"error: {error}")
    print(table(results, options.tasks))


if __name__ == "__main__":
    main()
