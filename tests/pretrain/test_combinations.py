"""Acceptance of the seams: whatever combination of objective, generator, unit, positions, norm and precision is legal
trains with finite losses, and what is not is refused with a reason before anything is built."""

import functools
import random
from pathlib import Path
from typing import Any

import pytest

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.architecture import PRESETS
from electra_tf2.model.position_schemes import SCHEMES
from electra_tf2.util.errors import UserError
from tests.support import training as support

OFF = {"electra_objective": False}
MAIN: list[dict[str, Any]] = [
    {},
    OFF,
    {"disc_tokens": "masked"},
    OFF | {"electric_objective": True},
    OFF | {"corrective_lm_objective": True},
    OFF | {"corrective_lm_objective": True, "clm_loss": "weighted_ce"},
    OFF | {"replace_mlm_objective": True},
    OFF | {"all_tokens_mlm_objective": True},
    {"adversarial_generator": True},
]
BESIDE: list[dict[str, Any]] = [{}, {"sequence_contrast_objective": True}]
GENERATOR: list[dict[str, Any]] = [
    {},
    {"uniform_generator": True},
    {"two_tower_generator": True},
    {"untied_generator": False},
    {"untied_generator_embeddings": True},
    {"generator_sample_mode": "eval"},
    {"generator_sample_mode": "zero_dropout"},
    {"untied_generator_embeddings": True, "freeze_generator": True},
]
WITHOUT = {"mask_sampling": "without_replacement"}
NEVER: dict[str, Any] = {"mask_unit": "span"}  # with replacement
UNITS: list[dict[str, Any]] = [
    {},
    WITHOUT,
    WITHOUT | {"mask_unit": "whole_word"},
    WITHOUT | {"mask_unit": "span"},
    NEVER,
]
POSITIONS: list[dict[str, Any]] = [{"relative_positions": name} for name in SCHEMES]
NORMS: list[dict[str, Any]] = [{"norm_style": "post"}, {"norm_style": "pre"}]
PRECISIONS: list[dict[str, Any]] = [{"precision": name} for name in ("float32", "bfloat16", "float16")]
ARCHITECTURES: list[dict[str, Any]] = [{"architecture": name} for name in PRESETS]
AXES = (MAIN, BESIDE, GENERATOR, UNITS, POSITIONS, NORMS, ARCHITECTURES, PRECISIONS)
WANTED, WANTED_ALWAYS = 120, 12


def settings_of(**given: Any) -> dict[str, Any]:
    switches = ("relative_positions", "norm_style", "architecture")
    sizes: dict[str, Any] = {name: given.pop(name) for name in switches if name in given}
    sizes |= {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    return support.hparams(Path(), sizes=sizes, mask_prob=0.3, num_train_steps=10, num_warmup_steps=0, **given)


@functools.cache
def drawn() -> tuple[dict[tuple[int, ...], dict[str, Any]], list[str]]:
    """Legal combinations, different ones, by places on the axes; and the reasons why others are none."""
    draw = random.Random(0)
    legal: dict[tuple[int, ...], dict[str, Any]] = {}
    refused: list[str] = []
    while len(legal) < WANTED:
        places = tuple(draw.randrange(len(axis)) for axis in AXES)
        given: dict[str, Any] = {}
        for axis, place in zip(AXES, places, strict=True):
            given |= axis[place]
        try:
            PretrainingConfig.from_dict(settings_of(**given))
            legal[places] = given
        except UserError as error:
            refused.append(str(error))
    return legal, refused


def check(numbers: range, graph: bool = False) -> None:
    for given in [list(drawn()[0].values())[number] for number in numbers]:
        try:
            support.train_two_steps(PretrainingConfig.from_dict(settings_of(**given)), graph)
        except Exception as error:
            raise AssertionError(f"{given}: {error}") from error


def test_some_combinations_train() -> None:
    check(range(0, WANTED, WANTED // WANTED_ALWAYS))


@pytest.mark.slow
def test_all_combinations_train() -> None:
    check(range(WANTED), graph=True)


def test_what_is_refused_has_its_reason_and_all_there_is_is_drawn() -> None:
    legal, refused = drawn()
    assert len(refused) > WANTED / 4
    assert all(reason.startswith("hparams: ") for reason in refused)
    options = {(number, place) for number, axis in enumerate(AXES) for place in range(len(axis))}
    taken = {option for places in legal for option in enumerate(places)}
    assert [AXES[number][place] for number, place in options - taken] == [NEVER]
