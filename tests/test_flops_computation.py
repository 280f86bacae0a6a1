"""FLOPs and parameters: the original's printed figures, its variables' sizes, and counting by hand."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from electra_tf2.config.recipes import read_recipe, recipe_names
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.costs import main_network_parameters
from electra_tf2.pretrain import flops
from electra_tf2.programs.flops_computation import original_table, original_training_flops
from tests.support.programs import Finished, run_program

ROOT = Path(__file__).parent.parent
GOLDEN = Path(__file__).parent / "golden"

# What google-research/electra's flops_computation.py prints.
ORIGINAL = {
    "elmo": 3.4114394716164127e18,
    "xlnet": 3.856582065028608e21,
    "gpt": 3.968752230785352e19,
    "bert_small": 1.4187399146496e18,
    "bert_base": 6.428335104e19,
    "bert_large": 1.91720905883648e20,
    "electra_small": 1.293743798272e18,
    "electra_base": 6.424541834277683e19,
    "electra_400k": 7.117606040895488e20,
    "electra_1.75M": 3.113952642891776e21,
    "roberta": 3.187221435776e21,
    "albert": 3.113923955392512e22,
    "t5_11b": 4.581900124212429e22,
}


def golden_modes() -> list[tuple[str, dict[str, Any], int]]:
    """(mode, hparams, number of parameters of the original's graph)."""
    base = json.loads((GOLDEN / "tiny_checkpoint" / "hparams.json").read_text())
    modes = []
    for name, mode in json.loads((GOLDEN / "variants.json").read_text()).items():
        sizes = base["model_hparam_overrides"] | mode["overrides"].get("model_hparam_overrides", {})
        count = sum(math.prod(shape) for _, shape in mode["variables"])
        modes.append((name, base | mode["overrides"] | {"model_hparam_overrides": sizes}, count))
    return modes


def recipe(name: str, **hparams: Any) -> PretrainingConfig:
    return PretrainingConfig.from_dict({"model_name": name} | read_recipe(name) | hparams)


def test_the_originals_table() -> None:
    table = original_table()
    assert list(table) == list(ORIGINAL)
    for name, expected in ORIGINAL.items():
        assert table[name] == pytest.approx(expected, rel=1e-12), name


@pytest.mark.parametrize(
    ("name", "original"),
    [
        ("bert_small", "bert_small"),
        ("bert_base", "bert_base"),
        ("electra_small", "electra_small"),
        ("electra_base", "electra_base"),
        ("electra_large", "electra_400k"),
        ("electra_large_pp", "electra_1.75M"),
    ],
)
def test_recipes_cost_what_the_original_says(name: str, original: str) -> None:
    assert original_training_flops(recipe(name)) == pytest.approx(ORIGINAL[original], rel=1e-12)


@pytest.mark.parametrize(
    "name",
    [
        *("electra_small", "electra_small_adversarial", "electra_small_all_tokens_mlm", "electra_small_replace_mlm"),
        *("electra_small_modernbert", "electra_small_shared_layers", "electra_small_two_stage"),
        *("electra_small_t5_positions", "electra_small_rotary_positions", "coco_lm_base", "coco_lm_base_clm_only"),
        *("coco_lm_base_all_tokens_lm", "coco_lm_base_electra_auxiliary", "coco_lm_base_rtd_only"),
    ],
)
def test_parameters_are_those_of_the_model_that_is_built(name: str) -> None:
    from electra_tf2.pretrain.pretraining_model import PretrainingModel

    sizes = read_recipe(name).get("model_hparam_overrides", {}) | {
        "num_hidden_layers": 2,
        "max_position_embeddings": 32,
    }
    small = {
        "mask_unit": "token",
        "vocab_size": 600,
        "vocab_file": str(GOLDEN / "tiny_checkpoint" / "vocab.txt"),
        "max_seq_length": 16,
        "train_batch_size": 4,
        "model_size": "small",
    }
    if read_recipe(name).get("embedding_size"):
        small["embedding_size"] = 256
    config = recipe(name, model_hparam_overrides=sizes, **small)
    model = PretrainingModel(config)
    built = sum(math.prod(variable.shape) for variable in model.trainable_variables)
    assert flops.parameter_count(config) == built


@pytest.mark.parametrize(("mode", "hparams", "count"), golden_modes(), ids=[mode[0] for mode in golden_modes()])
def test_parameters_are_those_of_the_originals_graph(mode: str, hparams: dict[str, Any], count: int) -> None:
    assert flops.parameter_count(PretrainingConfig.from_dict(hparams)) == count


@pytest.mark.parametrize(("name", "millions"), [("electra_small", 14), ("electra_base", 110), ("electra_large", 335)])
def test_main_networks_have_the_papers_sizes(name: str, millions: int) -> None:
    parameters = main_network_parameters(recipe(name).architecture)
    assert parameters == pytest.approx(millions * 1e6, rel=0.04)


def test_a_training_example_by_hand() -> None:
    """One layer, 64 wide, 8 tokens of which 1 is masked, a vocabulary of 100, generator of the same size."""
    c = PretrainingConfig.from_dict(
        {
            "model_hparam_overrides": {"hidden_size": 64, "num_hidden_layers": 1},
            "embedding_size": 64,
            "generator_hidden_size": 1.0,
            "vocab_size": 100,
            "max_seq_length": 8,
        }
    )
    assert c.max_predictions_per_seq == 1
    layer = 8 * (4 * 64 * 64 + 2 * 64 * 256) + 2 * 8 * 8 * 64
    head = 64 * 64 + 64 * 100
    detection = 8 * (64 * 64 + 64)
    assert flops.training_flops_per_example(c) == 3 * 2 * (2 * layer + head + detection)


def test_what_a_switch_costs() -> None:
    cost = flops.training_flops_per_example
    small = cost(recipe("electra_small"))
    assert cost(recipe("electra_small", uniform_generator=True)) < small
    assert cost(recipe("electra_small", untied_generator=False)) > small
    assert cost(recipe("electra_small", untied_generator_embeddings=True)) != small
    # Two towers pay for a softmax at the other 109 positions too, and for a second network.
    other_positions = 3 * 2 * (128 - 19) * 128 * 30522
    assert cost(recipe("electra_small", two_tower_generator=True)) > small + other_positions
    # A second pass to sample from, forwards only: in the tied generator of all layers and its head.
    forward = 128 * 12 * (4 * 256 * 256 + 2 * 256 * 1024) + 12 * 2 * 128 * 128 * 256
    forward += 128 * 128 * 256 + 19 * (256 * 128 + 128 * 30522)  # projection, head
    tied = cost(recipe("electra_small", untied_generator=False))
    sampled = cost(recipe("electra_small", untied_generator=False, generator_sample_mode="eval"))
    assert sampled == tied + 2 * forward
    towers = cost(recipe("electra_small", two_tower_generator=True))
    assert cost(recipe("electra_small", two_tower_generator=True, generator_sample_mode="eval")) > towers
    # Accumulating gradients and precision change no count.
    assert cost(recipe("electra_small", gradient_accumulation_steps=4, precision="bfloat16")) == small


def test_muon_costs_its_iterations() -> None:
    """Both networks are 192 wide and four layers deep; each layer has 4 kernels of [H, H] and 2 of [H, 4H]."""
    c = recipe("coco_lm_mini", optimizer="muon")
    square, longer = 2 * 192**3 * 3, 2 * 192**3 * (4 + 1 + 4)
    assert flops.update_flops(c) == 2 * 4 * 5 * (4 * square + 2 * longer)
    assert flops.training_flops(c) == flops.training_flops(recipe("coco_lm_mini")) + 3900 * flops.update_flops(c)
    frozen = recipe(
        "coco_lm_mini",
        optimizer="muon",
        freeze_generator=True,
        untied_generator_embeddings=True,
        generator_embedding_size=128,
    )
    assert flops.update_flops(frozen) == flops.update_flops(c) // 2


def run(*arguments: str) -> Finished:
    return run_program("flops_computation.py", *arguments)


def test_without_arguments_it_prices_every_recipe() -> None:
    result = run()
    assert result.returncode == 0, result.stderr
    assert "1.294e+18" in result.stdout
    assert all(name in result.stdout for name in [*ORIGINAL, *recipe_names()])


def test_one_configuration_part_by_part() -> None:
    result = run("--recipe", "electra_small", "--max-seq-length", "512", "--tflops", "100")
    assert result.returncode == 0, result.stderr
    assert "sequences of 512 tokens" in result.stdout
    assert "detection head" in result.stdout
    assert "100 TFLOP/s" in result.stdout


def test_a_rate_must_be_positive() -> None:
    result = run("--tflops", "0")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "error: --tflops must be above 0, got 0\n"
