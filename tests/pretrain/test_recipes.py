"""The recipes: every one is a legal configuration, with the papers' hyperparameters."""

import json
from typing import Any

import pytest

from electra_tf2.config.recipes import RECIPES, read_recipe, recipe_names
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.finetune.starts import configuration
from electra_tf2.util.errors import UserError

_ELECTRA_ABLATIONS = ("15", "replace_mlm", "all_tokens_mlm", "adversarial", "two_stage")
_COCO_LM_TABLE_3 = (
    "rtd_only",
    "clm_only",
    "scl_rtd",
    "no_relative_positions",
    "electra_auxiliary",
    "random_replacements",
    "converged_auxiliary",
    "all_tokens_lm",
    "clm_no_copy",
    "no_stop_gradient",
)


def recipe(name: str) -> PretrainingConfig:
    return PretrainingConfig.from_dict({"model_name": name} | read_recipe(name))


def test_all_named_models_are_there() -> None:
    sizes = {"electra_small", "electra_small_pp", "electra_base", "electra_large", "electra_large_pp", "electra_tiny"}
    sizes |= {"bert_mini", "electra_mini", "bert_small", "bert_base", "bert_large", "electric_base"}
    sizes |= {"coco_lm_small", "coco_lm_base", "coco_lm_base_pp", "coco_lm_large_pp"}
    ablations = {f"electra_small_{name}" for name in _ELECTRA_ABLATIONS}
    ablations |= {f"coco_lm_base_{row}" for row in _COCO_LM_TABLE_3}
    assert sizes | ablations <= set(recipe_names())


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_is_legal_and_says_where_it_comes_from(name: str) -> None:
    text = json.loads((RECIPES / f"{name}.json").read_text())
    assert text["description"] and text["source"]
    needs_a_generator = read_recipe(name).get("freeze_generator")
    c = PretrainingConfig.from_dict(
        {"model_name": name} | read_recipe(name) | ({"init_generator_checkpoint": "x"} if needs_a_generator else {})
    )
    assert not list(c.notes())
    assert c.compat == "none"


@pytest.mark.parametrize(
    ("name", "expected"),
    [  # ELECTRA, Table 6: layers, hidden, embedding, generator hidden, masked %, length, batch, steps, learning rate
        ("electra_small", (12, 256, 128, 64, 0.15, 128, 128, 1000000, 5e-4)),
        ("electra_base", (12, 768, 768, 256, 0.15, 512, 256, 766000, 2e-4)),
        ("electra_large", (24, 1024, 1024, 256, 0.25, 512, 2048, 400000, 2e-4)),
        ("electra_large_pp", (24, 1024, 1024, 256, 0.25, 512, 2048, 1750000, 2e-4)),
        ("electra_small_pp", (12, 256, 128, 256, 0.15, 512, 128, 4000000, 5e-4)),
        ("electric_base", (12, 768, 768, 192, 0.15, 512, 256, 700000, 5e-4)),
    ],
)
def test_the_papers_hyperparameters(name: str, expected: tuple[Any, ...]) -> None:
    c = recipe(name)
    main, generator = c.architecture, c.generator_architecture
    assert (main.num_hidden_layers, main.hidden_size, main.embedding_size, generator.hidden_size) == expected[:4]
    assert (c.mask_prob, c.max_seq_length, c.train_batch_size, c.num_train_steps, c.learning_rate) == expected[4:]
    assert (c.gen_weight, c.disc_weight, c.num_warmup_steps, c.weight_decay_rate) == (1.0, 50.0, 10000, 0.01)
    assert (c.adam_beta1, c.adam_beta2, c.adam_epsilon, c.clip_norm) == (0.9, 0.999, 1e-6, 1.0)


@pytest.mark.parametrize("size", ["small", "base", "large"])
def test_a_bert_baseline_differs_from_its_electra_in_objective_masking_and_steps(size: str) -> None:
    bert, electra = recipe(f"bert_{size}"), recipe(f"electra_{size}")
    assert not bert.electra_objective and not bert.electric_objective
    assert bert.mask_rates == [0.8, 0.1, 0.1]
    assert bert.architecture == electra.architecture == bert.generator_architecture
    assert (bert.max_seq_length, bert.train_batch_size) == (electra.max_seq_length, electra.train_batch_size)


def test_an_unknown_recipe_is_answered_with_the_closest() -> None:
    with pytest.raises(UserError, match="did you mean 'electra_base'"):
        read_recipe("electra_bse")


@pytest.mark.parametrize(
    ("name", "task", "expected"),
    [  # ELECTRA, Table 7: learning rate, layer-wise decay, epochs, weight decay, length
        ("electra_small", "cola", (3e-4, 0.8, 3, 0, 128)),
        ("electra_small_pp", "rte", (3e-4, 0.8, 10, 0, 128)),
        ("electra_base", "sts", (1e-4, 0.8, 10, 0, 128)),
        ("electra_base", "mnli", (1e-4, 0.8, 3, 0, 128)),
        ("electra_large", "squad", (5e-5, 0.9, 2, 0, 512)),
        ("electra_large_pp", "squadv1", (5e-5, 0.9, 2, 0, 512)),
    ],
)
def test_fine_tuning_as_in_the_paper(name: str, task: str, expected: tuple[Any, ...]) -> None:
    section = read_recipe(name, "finetuning")
    per_task = section.pop("per_task")
    c = configuration(section | per_task.get(task, {}) | {"model_name": name, "task_names": [task]})
    shown = (c.learning_rate, c.layerwise_lr_decay, c.num_train_epochs, c.weight_decay_rate, c.max_seq_length)
    assert shown == expected
    assert (c.train_batch_size, c.warmup_proportion) == (32, 0.1)


def test_a_recipe_without_fine_tuning_says_so() -> None:
    with pytest.raises(UserError, match=r"bert_small\.json has no section 'finetuning'"):
        read_recipe("bert_small", "finetuning")


@pytest.mark.parametrize(
    ("name", "expected"),
    [  # layers, hidden, auxiliary layers and width, buckets, distance, batch, steps, learning rate (COCO-LM, appendix)
        ("coco_lm_base", (12, 768, 4, 768, 32, 128, 2048, 125000, 5e-4)),
        ("coco_lm_base_pp", (12, 768, 4, 768, 64, 128, 2048, 1950000, 2e-4)),
        ("coco_lm_large_pp", (24, 1024, 6, 1024, 128, 256, 2048, 1950000, 1e-4)),
        ("coco_lm_small", (12, 256, 2, 256, 32, 128, 128, 1000000, 5e-4)),
    ],
)
def test_coco_lms_hyperparameters(name: str, expected: tuple[Any, ...]) -> None:
    c = recipe(name)
    main, auxiliary = c.architecture, c.generator_architecture
    sizes = [size for a in (main, auxiliary) for size in (a.num_hidden_layers, a.hidden_size)]
    assert (*sizes, main.relative_position_buckets, main.relative_position_max_distance) == expected[:6]
    assert (c.train_batch_size, c.num_train_steps, c.learning_rate) == expected[6:]
    assert (c.copy_weight, c.adam_beta2, c.clip_norm) == (50, 0.98, 2.0)
    assert (c.clm_loss, c.generator_sample_mode) == ("mixture", "eval")
    assert main.type_vocab_size == 0 and main.embedding_size == main.hidden_size
    per_task = read_recipe(name, "finetuning")["per_task"]
    assert per_task["rte"]["learning_rate"] == 2e-5 and per_task["cola"]["num_train_epochs"] == 10
