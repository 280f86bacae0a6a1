"""Recipes and hyperparameters side by side: pre-trains each at equal compute or equal steps, fine-tunes, and compares.

  python -m benchmarks.compare_objectives --data-dir data --start pretrained/bert_mini --flops 5e13 --seeds 3 \\
      --recipes electra_small,electra_small_whole_word,electra_small+uniform_generator=true --tasks sts
  python -m benchmarks.compare_objectives --data-dir data --build --steps-of-first 600 --tasks chunk,sts \\
      --recipes benchmarks/minutes.json,+norm_style=post,+num_hidden_layers=2,+vocab_size=4096,+random_init=true

A contender is RECIPE or RECIPE+hparam=value+..., or +hparam=value+... with the first one's recipe. A path of a .json
file means all that it says. A recipe's name gives its objective and generator alone: with --start, the folder of a
masked language model that is named like its recipe, all go on from that young model, whose weights are the first of
generator and main network, and network and optimizer are those of its recipe. (From random weights, models of these
sizes stay where they know how frequent tokens are.) The default is ELECTRA's question where its efficiency comes from,
with COCO-LM beside it (ELECTRA, section 3.5 and Table 4).

Each contender is trained once for each seed, by --flops, those of --steps-of-first steps of the first contender, or for
--steps; evaluated on held-out records; and fine-tuned on --tasks (none: '') in <data-dir>/finetuning_data. FLOPs are
those of flops_computation.py. The records of <data-dir> must fit in vocabulary and length; --build makes what each
contender needs of <data-dir>/corpus and heldout. --jobs models are trained side by side, each with its share of the
cores. Stopped, the same command goes on. Results: <data-dir>/compare_objectives.json, and tables.
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.common import ONE_THREAD, ROOT, parser_of
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
SHOWN = (
    *("hidden_masked_lm_loss", "masked_lm_accuracy", "disc_auc", "copy_accuracy_replaced", "copy_accuracy_original"),
    *("clm_accuracy_replaced", "clm_accuracy_original", "positive_cosine", "negative_cosine"),
)
_CURVE = ("step", "masked_lm_loss", "disc_loss")


def _names(group: type) -> set[str]:
    return {field.name for field in dataclasses.fields(group)}


# Hparams by which recipes differ in objective and generator, apart from sizes and from how much is masked.
_OBJECTIVE = sorted(
    (_names(ObjectiveHparams) - _names(PretrainingHparams) | _names(GeneratorHparams) - _names(MaskingHparams))
    - {"generator_layers", "generator_hidden_size", "clm_head", "cooccurrence_file", "document_frequency_file"}
    | {"mask_unit", "temperature_decay", "stack_layers"}
)


class Contender:
    """RECIPE+hparam=value+... of the command line.

    pretraining, finetuning: its hyperparameters, those of fine-tuning alone apart. file: its recipe, where that is a
    file, which says everything: the schedule, and how to fine-tune.
    """

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self.name, self.options = name, options
        recipe, *changes = re.split(r"\+(?=\w+=)", name)
        recipe = recipe or options.recipes[0].split("+")[0]
        self.file = recipe if recipe.endswith(".json") else ""
        if not self.file and not options.start:
            raise UserError("--recipes: recipes by name need --start")
        changed = dict(self._parsed(change) for change in changes)
        known = {field.name for _, field in all_hparams(PretrainingConfig)}
        self.finetuning = {name: value for name, value in changed.items() if name not in known}
        own = {name: value for name, value in changed.items() if name in known}
        of_recipe = read_recipe(recipe)
        if not self.file:
            objective = {name: of_recipe[name] for name in _OBJECTIVE if name in of_recipe}
            start = {"generator_layers": 1.0, "generator_hidden_size": 1.0, "init_checkpoint": str(options.start)}
            named = {"recipe": options.start.name, "electra_objective": True}
            of_recipe = read_recipe(options.start.name) | named | objective | start
        self.pretraining = layered(PretrainingConfig, of_recipe, own)
        config = self.config
        if options.start and config.has_masked_lm_generator:
            self.pretraining["init_generator_checkpoint"] = str(options.start)

    def _parsed(self, change: str) -> tuple[str, Any]:
        name, _, value = change.partition("=")
        try:
            return name, json.loads(value if value[:1] in '["{-0123456789tfn' else f'"{value}"')
        except ValueError as error:
            raise UserError(f"--recipes: {self.name}: {change!r} is not hparam=value ({error})") from None

    @property
    def config(self) -> PretrainingConfig:
        return PretrainingConfig.from_dict({"num_warmup_steps": 0} | self.pretraining)

    @property
    def flops(self) -> float:
        """FLOPs of a step."""
        return self.config.train_batch_size * training_flops_per_example(self.config)

    @property
    def plain_name(self) -> str:
        """Its name as that of a folder."""
        return re.sub(r"[^\w.=-]+", "_", self.name.replace(".json", ""))

    def run(self, seed: int) -> dict[str, Any]:
        """The hyperparameters of a run; its number of steps follows from the budget."""
        options, given = self.options, {"iterations_per_loop": 50, "save_checkpoints_steps": 500} | self.pretraining
        given |= {"data_dir": options.data_dir, "seed": seed, "keep_checkpoint_max": 1, "num_eval_steps": 20}
        flops = options.flops
        if options.steps_of_first:
            flops = options.steps_of_first * Contender(options.recipes[0], options).flops
        steps = options.steps or math.ceil(flops / self.flops - 0.5)
        if given.get("lr_schedule") == "trapezoid":
            given["lr_decay_steps"] = steps // 4
        if options.build:
            given |= built(options, given["vocab_size"], given["max_seq_length"])
        if not self.file:
            given["num_warmup_steps"] = steps // 10
        name = f"{'continued' if options.start else 'compared'}_{self.plain_name}_{steps}_{seed}"
        return given | {"model_name": name, "num_train_steps": steps}


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


def run(options: argparse.Namespace, *words: str) -> None:
    """Runs a program. A failure ends this program, too."""
    environment = os.environ | dict.fromkeys(ONE_THREAD, str(max(1, cores() // options.jobs)))
    done = subprocess.run(
        [sys.executable, "-m", f"electra_tf2.{words[0].removesuffix('.py')}", *words[1:]],
        cwd=ROOT,
        env=environment,
        stdout=-1,
        stderr=-2,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{' '.join(words)}\nfailed with exit code {done.returncode}:\n{done.stdout}")


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def measured(contender: Contender, seed: int) -> dict[str, Any]:
    """Pre-trains and fine-tunes one model where that was not done before: held-out metrics and scores, of several
    trials the median; also the training curve."""
    options = contender.options
    name = re.sub(r"\+random_init=[^+]*", "", contender.name) or options.recipes[0]
    pretrained = Contender(name, options)
    hparams = pretrained.run(seed)
    folder = Path(options.data_dir) / "models" / hparams["model_name"]
    held_out = folder / "results" / "unsup_results.json"
    if not held_out.exists():
        run(options, "run_pretraining.py", "--do-eval", "--hparams", json.dumps(hparams))
    metrics = _read(held_out)
    if options.contrast and "positive_cosine" not in metrics:  # of models without the objective too, to compare with
        contrast = folder / "analysis" / "contrast.json"
        if not contrast.exists():
            names = ["--data-dir", options.data_dir, "--model-names", hparams["model_name"]]
            run(options, "run_analysis.py", "--analysis", "contrast", *names, "--output-dir", str(contrast.parent))
        metrics |= _read(contrast)[hparams["model_name"]]["trained"]
    results = folder / ("results" if name == contender.name else f"results_{contender.plain_name}")
    finetuning = {name: hparams[name] for name in ("data_dir", "model_name", "precision", "seed")}
    finetuning |= {"vocab_file": _read(folder / "config.json")["vocab_file"], "results_dir": str(results)}
    finetuning |= {"keep_all_models": False} | contender.finetuning
    if contender.file:
        finetuning["recipe"] = contender.file
    scores = {}
    for task in options.tasks:
        done = results / f"{task}_results.json"
        if not done.exists():
            of_task = {"task_names": [task], "model_dir": str(results / f"{task}_model")}
            run(options, "run_finetuning.py", "--hparams", json.dumps(finetuning | of_task))
        trials = [one["scores"][task] for one in _read(done)["trials"]]
        scores[task] = statistics.median(next(iter(splits.values()))[METRICS[task]] for splits in trials)
    lines = map(json.loads, (folder / "train_metrics.jsonl").read_text(encoding="utf-8").splitlines())
    curve = [[round(line[name], 4) for name in _CURVE if name in line] for line in lines if line["step"] % 50 == 0]
    return {"steps": hparams["num_train_steps"], "held_out": metrics, "scores": scores, "curve": curve}


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
    flags = {"data_dir": "data", "seeds": 3, "recipes": RECIPES, "tasks": "chunk,cola,sst,mrpc,rte,sts", "jobs": 1}
    parser = parser_of(__doc__, **flags, flops=2e14, steps=0, steps_of_first=0, build=False)
    parser.add_argument("--start", type=Path)
    options = parser.parse_args()
    options.data_dir = os.path.abspath(options.data_dir)
    options.tasks = [task for task in options.tasks.split(",") if task]
    options.recipes = re.split(r",(?![^\[]*\])", options.recipes.strip())  # not at the commas of a value
    results: dict[str, list[dict[str, Any]]] = {}
    try:
        if unknown := set(options.tasks) - set(METRICS):
            raise UserError(f"--tasks: {', '.join(sorted(unknown))}: choose from {', '.join(METRICS)}")
        every = [Contender(name, options) for name in options.recipes]
        given = [(one.pretraining, one.finetuning) for one in every]
        if alike := [one.name for one, hparams in zip(every, given, strict=True) if given.count(hparams) > 1]:
            raise UserError(f"--recipes: {', '.join(alike)} are the same run: --start decides what the network is")
        options.contrast = any(one.pretraining.get("sequence_contrast_objective") for one in every)
        runs = [(contender, seed) for seed in range(options.seeds) for contender in every]
        with ThreadPoolExecutor(options.jobs) as pool:
            for (contender, seed), found in zip(runs, pool.map(lambda one: measured(*one), runs), strict=True):
                results.setdefault(contender.name, []).append(found)
                write_json(Path(options.data_dir) / "compare_objectives.json", results)
                print(f"{contender.name}, seed {seed}: {found['scores']}", flush=True)
    except UserError as error:
        sys.exit(f"error: {error}")
    print(table(results, options.tasks))


if __name__ == "__main__":
    main()
