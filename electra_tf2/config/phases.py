"""Phases of a run: from some step on, hparams of input and dropout change (the hparam phases).

Most runs have one phase. Wherever it stands here, `config` is a PretrainingConfig, whose module imports this one.
"""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from electra_tf2.util.errors import UserError, closest, shown

_DROPOUT = ("hidden_dropout_prob", "attention_probs_dropout_prob")  # entries of model_hparam_overrides


class Phase(NamedTuple):
    """Steps [start, end) of a run, with the values of all hparams that may change between phases.

    examples_before: how many examples earlier phases read.
    """

    start: int
    end: int
    examples_before: int
    max_seq_length: int
    max_predictions_per_seq: int
    train_batch_size: int
    eval_batch_size: int
    gradient_accumulation_steps: int
    pretrain_tfrecords: str
    eval_tfrecords: str
    hidden_dropout_prob: float
    attention_probs_dropout_prob: float


# Phases may change these hparams, because no variable depends on them.
_MAY_CHANGE = Phase._fields[3:]


def phases_of(config: Any) -> list[Phase]:
    """Lists the phases of a run, one if nothing changes.

    Short sequences first (Devlin et al. 2019, appendix A.2): `[{"from": 0.9, "max_seq_length": 512}]`. Falling dropout
    (mBART): `[{"from": 0.5, "hidden_dropout_prob": 0.05}, {"from": 0.8, "hidden_dropout_prob": 0.0}]`.

    A phase begins at a share of num_train_steps and keeps the changes of earlier phases. So a run with phases keeps its
    num_train_steps when it is resumed.

    Raises:
      UserError: an entry is no object; shares do not rise; an hparam cannot change or has a wrong value.
    """
    values: dict[str, Any] = {}
    for name in _MAY_CHANGE:
        owner = config.architecture if name in _DROPOUT else config
        values[name] = getattr(owner, name)
    # Where max_predictions_per_seq follows from the length, it does so in each phase.
    follows_length = config.max_predictions_per_seq == config.default_predictions

    phases = [Phase(0, config.num_train_steps, 0, **values)]
    for entry in config.phases:
        if not isinstance(entry, dict) or not isinstance(entry.get("from"), (int, float)):
            raise UserError(f'phases must be objects with a share "from" and hparams, got {shown(entry)}')
        changes = _checked_changes(config, entry)
        last = phases[-1]
        start = round(entry["from"] * config.num_train_steps)
        if not last.start < start < config.num_train_steps:
            raise UserError(f'phases: "from" must rise between 0 and 1, got {shown(entry["from"])}')

        if "max_predictions_per_seq" in changes:
            follows_length = changes["max_predictions_per_seq"] == 0
        values |= changes
        if follows_length:
            longer = dataclasses.replace(config, max_seq_length=values["max_seq_length"])
            values["max_predictions_per_seq"] = longer.default_predictions
        examples = last.examples_before + (start - last.start) * last.train_batch_size
        phases[-1] = last._replace(end=start)
        phases.append(Phase(start, config.num_train_steps, examples, **values))
    return phases


def _checked_changes(config: Any, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Checks the changes of an entry of `phases`. Raises UserError: an hparam cannot change or has a wrong value."""
    changes = dict(entry)
    del changes["from"]
    for name in changes:
        if name not in _MAY_CHANGE:
            hint = closest(name, _MAY_CHANGE)
            raise UserError(f"phases: {name} cannot change{hint} (one of {', '.join(_MAY_CHANGE)})")
    changes = type(config).checked(changes)
    dropout = changes.pop("model_hparam_overrides", {})
    return changes | dropout


def config_in_phase(config: Any, phase: Phase) -> Any:
    """The configuration of a run with the input and dropout of one of its phases."""
    changes = {name: getattr(phase, name) for name in _MAY_CHANGE}
    sizes = dict(config.model_hparam_overrides)
    for name in _DROPOUT:
        rate = changes.pop(name)
        if rate != getattr(config.architecture, name):
            sizes[name] = rate
    return dataclasses.replace(config, model_hparam_overrides=sizes, **changes)


def later_phase_problems(config: Any, known: Collection[str]) -> list[str]:
    """Problems of the phases after the first, without those that are `known`."""
    try:
        phases = phases_of(config)
    except UserError as error:
        return [str(error).removeprefix("hparams: ")]
    problems: list[str] = []
    for phase in phases[1:]:
        for problem in config_in_phase(config, phase).problems():
            if problem not in known and problem not in problems:
                problems.append(problem)
    return problems
