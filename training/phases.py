"""Phases of a run: hparams that change in its course, while weights, optimizer and learning-rate schedule go on.

    "phases": [{"from": 0.9, "max_seq_length": 512, "pretrain_tfrecords": "data/records_512/pretrain_data*"}]

is BERT's training on short sequences first (Devlin et al. 2019, appendix A.2), and
`[{"from": 0.5, "hidden_dropout_prob": 0.05}, {"from": 0.8, "hidden_dropout_prob": 0.0}]` mBART's falling dropout. A
phase begins at a share of num_train_steps, at a checkpoint, and keeps the changes of those before it; so a run with
phases keeps its num_train_steps when it is resumed. TensorFlow-free; configure_pretraining checks phases with all other
hparams, and run_pretraining.py runs one after the other in the same folder.
"""

import dataclasses
from typing import Any, NamedTuple

from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.hparams import closest, layered

# What may change: the input and the dropout, which no variable depends on.
_CHANGES = (
    "max_seq_length",
    "max_predictions_per_seq",
    "train_batch_size",
    "eval_batch_size",
    "gradient_accumulation_steps",
    "pretrain_tfrecords",
    "eval_tfrecords",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
)


class Phase(NamedTuple):
    """Steps [start, end) of a run and their configuration, a PretrainingConfig; examples that were read before."""

    start: int
    end: int
    config: Any
    examples_before: int


def phases_of(config: Any) -> list[Phase]:
    """The phases of a run, one if nothing changes.

    Raises:
      UserError: no object, shares that do not rise, hparams that cannot change or do not fit.
    """
    starts, configs = [0], [config]
    changes: dict[str, Any] = {}
    for described in config.phases:
        if not isinstance(described, dict) or not isinstance(described.get("from"), (int, float)):
            raise UserError(f'phases must be objects with a share "from" and hparams, got {shown(described)}')
        new = {name: value for name, value in described.items() if name != "from"}
        for name in new:
            if name not in _CHANGES:
                raise UserError(f"phases: {name} cannot change{closest(name, _CHANGES)} (one of {', '.join(_CHANGES)})")
        starts.append(round(described["from"] * config.num_train_steps))
        if not starts[-2] < starts[-1] < config.num_train_steps:
            raise UserError(f'phases: "from" must rise between 0 and 1, got {shown(described["from"])}')
        changes |= new
        # A number that follows from the length follows from the new one.
        follows = "max_seq_length" in changes and config.max_predictions_per_seq == config.default_predictions
        own = {"max_predictions_per_seq": 0} if follows else {}
        values = layered(type(config), dataclasses.asdict(config), own | changes | {"phases": []})
        configs.append(type(config).from_dict(values))
    phases, examples = [], 0
    for start, end, of_phase in zip(starts, [*starts[1:], config.num_train_steps], configs, strict=True):
        phases.append(Phase(start, end, of_phase, examples))
        examples += (end - start) * of_phase.train_batch_size
    return phases
