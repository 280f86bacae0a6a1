"""Programs that accelerators compile, without one: of every recipe the training step and the evaluation's, of every
kind of fine-tuning task the training step and a batch's predictions, as XLA programs of tiny networks.

Each has static shapes, no array of constants above 1 MB (what depends on shapes alone must not be computed by the
compiler: at the papers' sizes that takes tens of GB), no call of the host, no float64, and no more operations than
lowered_steps.json allows. After a change that needs more of them,

  python -m tests.test_lowered_steps

counts anew and writes the file; with names of recipes and kinds, those alone. Recipes that differ in numbers only are
one program and counted once.
"""

import dataclasses
import functools
import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from benchmarks import compiled_step as lowering
from benchmarks.compiled_program import Program
from benchmarks.compiled_step import lowered
from electra_tf2.config.recipes import recipe_names
from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.kernels.compilation import one_program
from electra_tf2.pretrain.flops import training_flops_per_example
from tests.support import finetuning, recipes
from tests.support.finetuning import write_lines
from tests.support.lowered_finetuning import Lowering

BOUNDS = Path(__file__).with_suffix(".json").with_name("lowered_steps.json")
HEADROOM = 1.02  # other versions of TensorFlow count a little otherwise
CONSTANT_BYTES = 1_000_000
# Large enough that every array of a number for each score, state or byte of the hash is above the bound.
BATCH, LENGTH = 64, 128
# What a program does not depend on, or only in numbers that stand in it.
_NUMBERS = """
    model_name recipe data_dir model_dir results_dir results_txt results_json pretrain_tfrecords eval_tfrecords
    learning_rate num_train_steps num_warmup_steps lr_decay_steps weight_decay_rate iterations_per_loop phases
    save_checkpoints_steps gen_weight disc_weight clm_weight scl_weight aux_weight clip_norm adam_beta2 mask_rates
    mask_prob max_predictions_per_seq model_size init_from_teacher init_generator_checkpoint stack_layers precision
    init_encoder_from_generator generator_hidden_size generator_embedding_size generator_layers initializer_range
    relative_position_buckets relative_position_max_distance
"""
# Always run; the others are slow. Steps of tasks on segments are compiled by tests/papers/test_on_losses_segments.py.
_CHOSEN = ("electra_small", "coco_lm_small")
CHOSEN = [name for name in _CHOSEN if name in recipe_names()]
PRICED = ("electra_small", "coco_lm_small")  # whose matrix products are counted


@functools.cache
def folder() -> Path:
    """The tables that recipes read, for the golden vocabulary, and trained teachers."""
    path = Path(tempfile.mkdtemp(prefix="lowered_steps"))
    recipes.write_files(path, LENGTH)
    return path


def config_of(recipe: str, path: Path, teacher: bool = True) -> PretrainingConfig:
    numbers = {"max_seq_length": LENGTH, "train_batch_size": BATCH, "eval_batch_size": BATCH, "precision": "bfloat16"}
    return recipes.config_of(recipe, path, teacher, numbers)


@functools.cache
def programs_of_recipes() -> dict[str, str]:
    """Recipe -> the first recipe that is the same program at these sizes; the chosen ones first."""
    programs: dict[str, str] = {}
    first: dict[str, str] = {}  # what a program depends on -> the first recipe with it
    for recipe in dict.fromkeys([*CHOSEN, *recipe_names()]):
        config = config_of(recipe, Path("."), teacher=False)
        values = without_numbers(dataclasses.asdict(config))
        values["model_hparam_overrides"] = without_numbers(values["model_hparam_overrides"])
        values["teacher"] = recipes.is_taught(recipe)
        program = json.dumps(values, sort_keys=True, default=str)
        programs[recipe] = first.setdefault(program, recipe)
    return programs


def without_numbers(hparams: dict[str, Any]) -> dict[str, Any]:
    """The hparams that a program depends on."""
    return {name: value for name, value in hparams.items() if name not in _NUMBERS.split()}


def distinct() -> list[str]:
    return sorted(set(programs_of_recipes().values()))


@functools.cache
def steps_of_recipe(recipe: str) -> dict[str, Program]:
    config = config_of(recipe, folder())
    task = lowering.task_to_lower(config)
    training = Program(lowering.training_program(config, task))
    batch = lowering.empty_batch(config, config.eval_batch_size)
    evaluation = Program(lowered(one_program(task.eval_step), batch, tf.constant(0, tf.int64)))
    return {"training": training, "evaluation": evaluation}


# Fine-tuning: a task of each kind.

KINDS = {"classification": "cola", "regression": "sts", "qa": "squad", "tagging": "chunk", "choice": "copa"}
KINDS |= {"spans": "wic", "prompt": "sst"}
_TEXT = "the file is open"
# Of the tasks whose golden files hold what is wrong on purpose, or that have none.
_ROWS: dict[str, dict[str, Any]] = {
    "cola": {"sentence": _TEXT, "label": "1"},
    "sst": {"sentence": _TEXT, "label": "1"},
    "sts": {"sentence1": _TEXT, "sentence2": _TEXT, "score": 1.0},
    "copa": {"premise": _TEXT, "choice1": "the list", "choice2": "all", "question": "effect", "label": 1, "idx": 0},
    "wic": {"sentence1": _TEXT, "start1": 4, "end1": 8, "sentence2": "open the file", "start2": 9, "end2": 13}
    | {"word": "file", "label": True, "idx": 0},
}


def finetuning_config(kind: str) -> FinetuningConfig:
    """A task of a kind, of tiny sizes."""
    path = folder()
    name = KINDS[kind]
    settings: dict[str, Any] = {
        "train_batch_size": BATCH,
        "eval_batch_size": BATCH,
        "precision": "bfloat16",
        "model_size": "small",
        "model_hparam_overrides": recipes.SIZES,
        "embedding_size": 32,
        "max_seq_length": LENGTH,
    }
    if name in _ROWS:
        settings["raw_data_dir"] = str(path)
        first = _ROWS[name]
        second = dict(first)
        if name in ("cola", "sst"):
            second["label"] = "0"  # two classes are needed
        name_of_folder = {"copa": "COPA", "wic": "WiC"}.get(name, name)
        write_lines(path / name_of_folder / "train.jsonl", json.dumps(first), json.dumps(second))
    if kind == "prompt":
        settings["init_checkpoint"] = str(path / "bert_small")
        settings |= {"prompt": True, "prompt_demonstrations": False, "prompt_words": {"0": "the", "1": "of"}}
    return finetuning.config(name, **settings)


def steps_of_kind(kind: str) -> dict[str, Program]:
    config = finetuning_config(kind)
    steps = Lowering(config)
    task = steps.task(config)
    training = Program(steps.training_program(config, task))
    step = one_program(lambda batch: task.forward_rows(batch, 0))
    prediction = Program(lowered(step, steps.empty_batch(config, config.eval_batch_size)))
    return {"training": training, "prediction": prediction}


# What is checked.


def problems(program: Program, bound: float = math.inf) -> list[str]:
    """Lists why a program is not one for accelerators."""
    reasons = []
    if program.largest_constant > CONSTANT_BYTES:
        reasons.append(f"a constant of {program.largest_constant:,} bytes")
    if program.dynamic_shapes():
        reasons.append(f"dynamic shapes: {program.dynamic_shapes()[:3]}")
    if program.host_calls():
        reasons.append(f"calls: {program.host_calls()[:3]}")
    if "F64" in program.types:
        reasons.append("float64")
    if program.operations > bound:
        reasons.append(f"{program.operations:,} operations, more than {bound:,}")
    return reasons


def check(name: str, programs: dict[str, Program]) -> None:
    bounds = json.loads(BOUNDS.read_text())
    for step, program in programs.items():
        assert problems(program, bounds[f"{name} {step}"]) == [], f"{name}, {step}"


def product_flops(program: Program) -> int:
    """2 per multiply-add of all matrix products."""
    shapes = {instruction.id: instruction.shape.dimensions for instruction in program.instructions()}
    total = 0
    for instruction in program.instructions():
        if instruction.opcode != "dot":
            continue
        left_factor = shapes[instruction.operand_ids[0]]
        summed_axes = instruction.dot_dimension_numbers.lhs_contracting_dimensions
        multiply_adds = math.prod(instruction.shape.dimensions) * math.prod(left_factor[axis] for axis in summed_axes)
        total += 2 * multiply_adds
    return total


def marked(names: list[str], always: list[str]) -> list[Any]:
    return [name if name in always else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("recipe", marked(distinct(), CHOSEN))
def test_the_steps_of_a_recipe_are_programs_for_accelerators(recipe: str) -> None:
    check(recipe, steps_of_recipe(recipe))
    if recipe in PRICED:
        # The look-up of segments is a product with one-hot vectors, which paper leaves out.
        on_paper = BATCH * training_flops_per_example(config_of(recipe, folder()))
        assert product_flops(steps_of_recipe(recipe)["training"]) == pytest.approx(on_paper, rel=5e-3)


@pytest.mark.parametrize("kind", marked(list(KINDS), ["qa", "prompt"]))
def test_the_steps_of_a_kind_of_task_are_programs_for_accelerators(kind: str) -> None:
    check(kind, steps_of_kind(kind))


def test_every_step_has_a_bound() -> None:
    expected = {f"{recipe} {step}" for recipe in distinct() for step in ("training", "evaluation")}
    expected |= {f"{kind} {step}" for kind in KINDS for step in ("training", "prediction")}
    there = {*recipe_names(), *KINDS}
    assert {name for name in json.loads(BOUNDS.read_text()) if name.rpartition(" ")[0] in there} == expected


def test_micro_batches_are_a_loop_around_one_copy_of_the_network() -> None:
    config = config_of("electra_small", folder())
    whole = steps_of_recipe("electra_small")["training"]
    parts = Program(lowering.training_program(dataclasses.replace(config, gradient_accumulation_steps=2)))
    assert parts.operations < 1.3 * whole.operations and problems(parts) == []
    assert parts.largest_constant <= whole.largest_constant  # no zeros to add gradients to


def test_in_float32_nothing_of_pretraining_is_folded() -> None:
    config = dataclasses.replace(config_of("electra_small", folder()), precision="float32")
    assert problems(Program(lowering.training_program(config))) == []


def renew(names: list[str]) -> None:
    """Writes the bounds of some recipes and kinds, or of all: the operations of every step, and a little more."""
    known: dict[str, int] = json.loads(BOUNDS.read_text()) if names else {}
    for name in names or [*distinct(), *KINDS]:
        steps = steps_of_kind(name) if name in KINDS else steps_of_recipe(name)
        for step, program in steps.items():
            known[f"{name} {step}"] = math.ceil(HEADROOM * program.operations)
            print(name, step, known[f"{name} {step}"], problems(program), flush=True)
    BOUNDS.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")


if __name__ == "__main__":
    renew(sys.argv[1:])
