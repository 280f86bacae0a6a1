"""The precision of a run on this machine: a recipe's bfloat16 becomes float32 on processors that cannot multiply it.

There products of bfloat16 are computed in float32 and rounded: slower than float32 and less exact.
"""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from electra_tf2.config.hparams import dashed
from electra_tf2.training.shared_hparams import DeviceHparams
from electra_tf2.util import machine

Config = TypeVar("Config", bound=Any)  # a dataclass that inherits OptimizerHparams and DeviceHparams


def fitted_to_machine(config: Config, chosen: Collection[str], began: Mapping[str, Any]) -> tuple[Config, list[str]]:
    """Sets the precision that suits this machine.

    A precision that the user chose stays, and a resumed run keeps the one that it began with, perhaps on another
    machine. A recipe's or default bfloat16 becomes float32 if the processor computes the steps and has no units for it.

    Args:
      chosen: names of the hparams that the user gave.
      began: hparams of the run that is resumed; {} for a new run.

    Returns:
      The configuration, and a line for the user on each change that matters.
    """
    changes: dict[str, str] = {}
    notes = []
    for name in ("precision", "muon_precision"):
        wanted = getattr(config, name)
        if name in chosen:
            continue
        matters = name == "precision" or config.optimizer == "muon"
        flag = f"{dashed(name)} {wanted}"
        if name in began:
            fitting = began[name]
            note = f"{name} {fitting}, as the run began; {flag} changes it"
        else:
            fitting = fitting_precision(wanted, config)
            note = (
                f"{name} {fitting} in place of {wanted}, for which this processor has no units "
                f"({machine.this_processor().name}); {flag} computes in it all the same"
            )
        if fitting != wanted:
            changes[name] = fitting
            if matters:
                notes.append(note)
    return dataclasses.replace(config, **changes), notes


def fitting_precision(precision: str, config: DeviceHparams) -> str:
    """Replaces bfloat16 by float32 if the processor computes the steps and has no units for bfloat16."""
    if precision == "bfloat16" and uses_processor(config) and not machine.this_processor().has_bfloat16:
        return "float32"
    return precision


def uses_processor(config: DeviceHparams) -> bool:
    """True if the processor computes the steps: no TPU is asked for, and there is no GPU. Needs no TensorFlow."""
    if config.use_tpu or config.strategy == "tpu":
        return False
    if config.num_gpus == 0 or machine.hides_gpus():
        return True
    return not machine.has_nvidia_driver()
