"""Random input at every door, seeded: nothing comes back but the program's own errors (UserError).

Configurations go through `from_dict`, as every recipe, --hparams and flag does; what it takes must also say what it
is (sizes, notes, JSON that gives it back).
"""

import dataclasses
import json
import random
from typing import Any

import pytest

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.architecture import Architecture
from electra_tf2.util.errors import UserError
from electra_tf2.util.hparams import value_type

CONFIGURATIONS = 1500  # of each class
_STRANGE: list[Any] = [
    None, True, False, 0, -1, 1, 2, 7, 2**31, -(2**63), 2**63, 10**25, 10**400, 10**5000,
    0.0, -0.5, 0.3, 1e-12, 1.5, 1e300, float("nan"), float("inf"), float("-inf"),
    "", "a", "0", "true", "{}", "électra", "\0", "a\0b", "\ud800", "x" * 5000, "../..", "a/b", "{0", "%s", "\n",
    [], [1], ["a"], [None], [[]], ["cola", "cola"], ["cola", 3], [{}], [float("nan")] * 3, [0.5, 0.25, 0.25],
    {}, {"a": 1}, {"a": None}, {1: 2}, {"": {}}, {"a": {"type": []}}, {"a": {"type": "classification"}},
]  # fmt: skip


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def some_value(rng: random.Random, config_class: type, field: dataclasses.Field) -> Any:
    """Mostly of the field's type, often legal."""
    kind, _ = value_type(config_class, field)
    choices = field.metadata["choices"]
    draw = rng.random()
    if draw < 0.15:
        return rng.choice([*_STRANGE, deep(50)])
    if choices and draw < 0.9:
        return rng.choice(choices)
    if kind is bool:
        return rng.random() < 0.5
    if kind is int:
        return rng.choice([0, 1, 2, 3, 5, 8, 64, 100, 128, 512, 1000, 10**6, rng.randrange(10**4), -1])
    if kind is float:
        return rng.choice([0.0, 0.1, 0.25, 0.5, 0.9, 1.0, 2.0, 50.0, 1e-6, rng.random(), 10 * rng.random()])
    if kind is str:
        return rng.choice(["", "a", "data", "cola", "electra_small", "{0} [MASK] {1}", "/tmp/x/y"])
    if kind is list:
        return rng.choice([["cola"], ["mine"], ["squad", "sst"], [0.8, 0.1, 0.1], [1, 0, 0], rng.choice(_STRANGE)])
    overrides = [*Architecture.__dataclass_fields__, "mine", rng.choice(["", 1, None])]
    values = [1, 2, 4, 64, 128, 0.1, True, "gelu", "t5", {"type": "qa"}, {"type": "classification"}]
    return {rng.choice(overrides): rng.choice([*values, rng.choice(_STRANGE)]) for _ in range(rng.randrange(4))}


def some_hparams(rng: random.Random, config_class: type) -> dict[Any, Any]:
    fields = rng.sample(dataclasses.fields(config_class), rng.choice([1, 1, 2, 3, 5, 12]))
    hparams = {field.name: some_value(rng, config_class, field) for field in fields}
    if rng.random() < 0.05:
        strange: Any = rng.choice(["", "learning_rat", "\0", 3, None])
        hparams[strange] = 1
    return hparams


@pytest.mark.parametrize("config_class", [PretrainingConfig, FinetuningConfig])
def test_configurations_are_taken_or_refused_in_one_line(config_class: Any) -> None:
    rng = random.Random(7)
    taken = 0
    for number in range(CONFIGURATIONS):
        hparams = some_hparams(rng, config_class)
        try:
            config = config_class.from_dict(hparams)
            config.notes()
            again = config_class.from_dict(json.loads(config.to_json()))
            taken += 1
        except UserError as error:
            assert 0 < len(str(error)) < 5000, (number, hparams)
            str(error).encode()
        except Exception as error:
            raise AssertionError(f"configuration {number}, {hparams!r}: {error!r}") from error
        else:
            assert again == config, (number, hparams)
    assert CONFIGURATIONS / 10 < taken < CONFIGURATIONS * 9 / 10
