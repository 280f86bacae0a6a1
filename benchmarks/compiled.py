"""Training steps compiled for accelerators that are not there: memory, kernels, bytes, FLOPs, and what follows of them.

  python -m benchmarks.compiled electra_small --devices h100,v5e --peer
  python -m benchmarks.compiled electra_base --devices h100 --set train_batch_size=256 --set max_seq_length=128
  python -m benchmarks.compiled --table --devices h100,v5e
  python -m benchmarks.compiled --markdown

Every recipe is lowered in a process of its own, whose time and memory are printed, then compiled for each device by
that device's compiler (the extra `accelerators`; ACCELERATORS_PYTHON names a Python that has it). Times are a
processor's, so that other work on the machine does not count. `--peer` compiles the same step written plainly in JAX
(benchmarks/compiled_peer.py), for recipes of ELECTRA, and with `--set precision=float32` that of tf-models (the extra
`bench`), which in bfloat16 is no program: its sampler adds float32 noise to bfloat16 logits. `--table` does the papers'
recipes at their batch and length in bfloat16, looks for the micro-batch that fits where the batch does not, and keeps
what it finds in benchmarks/compiled.json, from which it goes on when it is run again; `--markdown` prints that file as
the table of docs/devices.md.
"""

import argparse
import dataclasses
import functools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, parser_of, write_vocabulary
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.training.accelerators.devices import Device, find_devices
from electra_tf2.util.environment import quiet_tensorflow
from electra_tf2.util.errors import UserError
from electra_tf2.util.recipes import read_recipe

RESULTS = Path(__file__).with_suffix(".json")
PAPERS = (
    *("electra_small", "electra_base", "electra_large", "electra_small_pp", "electra_large_pp"),
    *("coco_lm_base", "coco_lm_base_pp", "coco_lm_large_pp", "amos_base", "mc_bert_base", "electric_base"),
    *("bert_small", "bert_base", "bert_large", "bert_small_mpa"),
)
_MPA_NEIGHBOURS = 64


def write_inputs(folder: Path, config: PretrainingConfig) -> None:
    """The files that a configuration reads while its step is built: a vocabulary, and MPA's table."""
    import numpy as np

    from electra_tf2.papers.mpa.cooccurrence import CooccurrenceTable, write_cooccurrence

    write_vocabulary(folder / "vocab.txt", config.vocab_size)
    if getattr(config, "mpa_objective", False):
        near = np.random.RandomState(0).randint(0, config.vocab_size, [config.vocab_size, _MPA_NEIGHBOURS])
        table = CooccurrenceTable(np.sort(near).astype(np.int32), np.ones(near.shape, np.float16))
        write_cooccurrence(str(folder / "cooccurrence.npz"), table, str(folder / "vocab.txt"))


def config_of(recipe: str, folder: Path, changes: dict[str, Any]) -> PretrainingConfig:
    given = {"model_name": recipe, "data_dir": str(folder), "precision": "bfloat16"} | changes
    return PretrainingConfig.from_dict(read_recipe(recipe) | given)


def keras_program(config: PretrainingConfig) -> bytes:
    """tf-models' step at the sizes of a configuration."""
    from benchmarks.step_job import Job, Size
    from benchmarks.step_peers import tf_models_function, tf_models_pretrainer
    from electra_tf2.training.accelerators.compiling import lowered

    main = config.architecture
    share = main.hidden_size // config.generator_architecture.hidden_size
    sizes = (main.hidden_size, main.num_hidden_layers, main.num_attention_heads, main.embedding_size, share)
    size = Size(*sizes, config.vocab_size)
    job = Job("pretraining", size, config.train_batch_size, config.max_seq_length, config.precision)
    model, loss_of = tf_models_pretrainer(job)
    return lowered(tf_models_function(job, model, loss_of, jit_compile=True))


def lower_here(recipe: str, changes: dict[str, Any], out: Path, keras: bool) -> None:
    """Writes the program of a recipe's training step, or of tf-models' at its sizes. Prints seconds and the most memory
    of this process as JSON."""
    quiet_tensorflow()
    from electra_tf2.pretrain.lowering import training_program

    with tempfile.TemporaryDirectory() as folder:
        config = config_of(recipe, Path(folder), changes)
        write_inputs(Path(folder), config)
        start = time.process_time()
        out.write_bytes(keras_program(config) if keras else training_program(config))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": time.process_time() - start, "host_bytes": peak}), flush=True)
    os._exit(0)  # without taking gigabytes of graphs apart


class Lowerer:
    """Lowers steps of one recipe, each in a process of its own.

    Args:
      changes: hparams other than the recipe's.
      work: folder where programs are kept, so that every device compiles the same.
      keras: tf-models' step in place of ours.
    """

    def __init__(self, recipe: str, changes: dict[str, Any], work: Path, keras: bool = False) -> None:
        self.recipe, self.changes, self.work, self.keras = recipe, changes, work, keras
        self.seconds, self.host_bytes = 0.0, 0

    def __call__(self, config: PretrainingConfig) -> bytes:
        varied = ("train_batch_size", "gradient_accumulation_steps", "recompute", "precision")
        changes = self.changes | {name: getattr(config, name) for name in varied}
        words = "-".join(f"{name}_{value}" for name, value in sorted(changes.items()))
        out = self.work / f"{self.recipe}-{words}{'-keras' if self.keras else ''}.hlo"
        said = out.with_suffix(".json")
        if not said.exists():
            command = [sys.executable, "-m", "benchmarks.compiled", self.recipe, "--lower", str(out.resolve())]
            command += [word for name, value in changes.items() for word in ("--set", f"{name}={json.dumps(value)}")]
            command += ["--keras"] if self.keras else []
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
            said.write_text(done.stdout.splitlines()[-1])
        measured = json.loads(said.read_text())
        self.seconds = measured["seconds"]
        self.host_bytes = max(self.host_bytes, measured["host_bytes"])
        return out.read_bytes()


def peer_program(config: PretrainingConfig, device: Device, work: Path) -> bytes:
    """benchmarks/compiled_peer.py at the sizes of a configuration."""
    main, generator = config.architecture, config.generator_architecture
    sizes = {
        "batch": config.train_batch_size,
        "length": config.max_seq_length,
        "masked": config.max_predictions_per_seq,
        "vocabulary": config.vocab_size,
        "embedding": main.embedding_size,
        "layers": main.num_hidden_layers,
        "hidden": main.hidden_size,
        "heads": main.num_attention_heads,
        "inner": main.intermediate_size,
        "generator_hidden": generator.hidden_size,
        "generator_heads": generator.num_attention_heads,
        "generator_inner": generator.intermediate_size,
        "precision": config.precision,
    }
    (work / "sizes.json").write_text(json.dumps(sizes))
    python = os.environ.get("ACCELERATORS_PYTHON", sys.executable)
    script, described, out = Path(__file__).with_name("compiled_peer.py"), work / "sizes.json", work / "peer.hlo"
    words = [str(script), str(described), "tpu" if device.is_tpu else "cuda", str(out)]
    subprocess.run([python, *words], check=True, stderr=subprocess.DEVNULL)
    return out.read_bytes()


def compare(recipes: list[str], devices: list[Device], changes: dict[str, Any], peer: bool, work: Path) -> None:
    """Prints each recipe's step on each device, and the peer's below it."""
    from electra_tf2.training.accelerators.compiling import ASSUMPTIONS, compile_for
    from electra_tf2.training.accelerators.fitting import Fitting, Row, headings, show

    for recipe in recipes:
        config = config_of(recipe, work, changes)
        lowerer = Lowerer(recipe, changes, work)
        lowerer(config)
        print(
            f"{recipe}: {config.train_batch_size} x {config.max_seq_length}, {config.precision}; lowered in "
            f"{lowerer.seconds:.0f} s with {lowerer.host_bytes / 1e9:.1f} GB\n{headings()}",
            flush=True,
        )
        for device in devices:
            fitting = Fitting(device, lowerer, functools.partial(show, device))
            row = fitting.try_out(config, f"{device.name}: {recipe}")
            _print_operations(row.compiled)
            if peer:
                found = compile_for(device, peer_program(config, device, work), config.precision)
                show(device, Row(f"{device.name}: plain JAX", config.train_batch_size, found))
            if peer and config.precision == "float32":
                keras = Lowerer(recipe, changes, work, keras=True)
                Fitting(device, keras, functools.partial(show, device)).try_out(config, f"{device.name}: tf-models")
    print(ASSUMPTIONS)


def _print_operations(compiled: Any) -> None:
    """Where the kernels and bytes come from, the most of them."""
    small = sum(kernel.times for kernel in compiled.all_kernels if kernel.bytes < 1e6)
    products = [kernel for kernel in compiled.all_kernels if kernel.is_product]
    moved = sum(kernel.times * kernel.bytes for kernel in products)
    print(
        f"    {sum(kernel.times for kernel in products)} kernels with products move {moved / 1e9:.1f} GB; {small} "
        "kernels touch less than 1 MB"
    )


def fill_table(recipes: list[str], devices: list[Device], work: Path) -> None:
    """Adds to `RESULTS` what it does not hold: each recipe as it is, or the micro-batch that fits."""
    from electra_tf2.training.accelerators.fitting import Fitting, show

    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for device in devices:
        for recipe in recipes:
            key = f"{recipe} {device.name}"
            if key in results:
                continue
            print(key, flush=True)
            lowerer = Lowerer(recipe, {}, work)
            config = config_of(recipe, work, {})
            fitting = Fitting(device, lowerer, functools.partial(show, device))
            rows = fitting.as_it_is(config, "as it is")
            if rows[0].compiled.fits:
                rows = rows[:1]
            else:
                rows += fitting.largest_micro_batch(config, rows, "")
            if not rows[-1].compiled.fits:
                changed = dataclasses.replace(config, recompute="layers")
                rows += fitting.largest_micro_batch(changed, rows[:1], "recompute layers, ")
            results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            results[key] = {"lowering_host_bytes": lowerer.host_bytes, "rows": [_without_kernels(row) for row in rows]}
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def _without_kernels(row: Any) -> dict[str, Any]:
    compiled = row.compiled._replace(all_kernels=())._asdict()
    return {"name": row.name, "micro_batch": row.micro_batch} | compiled


def markdown() -> str:
    """`RESULTS` as a table."""
    from electra_tf2.training.accelerators.compiling import Compiled
    from electra_tf2.training.accelerators.fitting import Row, cells

    headings = ("recipe", "batch x length", "device", "as it is", "fits with", "kernels", "bytes", "products")
    lines = [f"| {' | '.join([*headings, 'steps/s at most', 'compiled in'])} |", "|" + "---|" * 10]
    results: dict[str, Any] = json.loads(RESULTS.read_text())
    for recipe, name in sorted((key.split() for key in results), key=lambda key: (PAPERS.index(key[0]), key[1])):
        found = results[f"{recipe} {name}"]
        (device,), config = find_devices(name), config_of(recipe, Path("."), {})
        rows = [Row(row.pop("name"), row.pop("micro_batch"), Compiled(**row)) for row in found["rows"]]
        first, last = (cells(rows[place], device) for place in (0, -1))
        answer = "" if rows[0].compiled.fits else "nothing"
        if rows[-1].compiled.fits and not rows[0].compiled.fits:
            answer = f"{rows[-1].name}: {rows[-1].micro_batch} sequences, {last[3]}"
        shape = f"{config.train_batch_size:,} x {config.max_seq_length}"
        whole = ", ".join([first[1], first[3], *rows[0].name.split(", ")[1:]])
        columns = [recipe, shape, device.name, whole, answer, *last[4:9]]
        lines.append(f"| {' | '.join(columns)} |")
    return "\n".join(lines)


def main() -> None:
    parser = parser_of(__doc__, devices="h100,v5e")
    parser.add_argument("recipes", nargs="*")
    parser.add_argument("--set", action="append", default=[], metavar="HPARAM=VALUE", help="other than the recipe's")
    parser.add_argument("--peer", action="store_true", help="plain JAX, and in float32 tf-models, beside ours")
    parser.add_argument("--table", action="store_true", help="the papers' recipes, into benchmarks/compiled.json")
    parser.add_argument("--markdown", action="store_true", help="print benchmarks/compiled.json as a table")
    parser.add_argument("--lower", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--keras", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--work-dir", type=Path, help="folder that keeps lowered programs")
    given = parser.parse_args()
    changes: dict[str, Any] = {}
    for pair in given.set:
        name, _, value = pair.partition("=")
        try:
            changes[name] = json.loads(value)
        except ValueError:
            changes[name] = value
    if given.lower:
        lower_here(given.recipes[0], changes, given.lower, given.keras)
    if given.markdown:
        print(markdown())
        return
    quiet_tensorflow()
    from electra_tf2.training.accelerators.compiling import check_compiler

    try:
        devices = find_devices(given.devices)
        for device in devices:
            check_compiler(device)
        with tempfile.TemporaryDirectory() as temporary:
            work = given.work_dir or Path(temporary)
            work.mkdir(parents=True, exist_ok=True)
            if given.table:
                fill_table(given.recipes or list(PAPERS), devices, work)
            else:
                compare(given.recipes or ["electra_small"], devices, changes, given.peer, work)
    except UserError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
