"""Hparams that follow from files (pretrain.implied_hparams): the core's, and the sizes of the teacher."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from electra_tf2.formats.folders import is_missing, no_model
from electra_tf2.formats.readers import find_model
from electra_tf2.model.architecture import make_architecture
from electra_tf2.papers.distilbert.config import Config
from electra_tf2.pretrain.implied_hparams import implied_by_core
from electra_tf2.util.errors import UserError


def implied_hparams(hparams: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what `implied_by_core` returns, and teacher_sizes.

    Raises:
      UserError: as `implied_by_core`; the teacher's folder holds no configuration of a model.
    """
    implied = implied_by_core(hparams)
    path = Config.checked(hparams).get("teacher")
    if not path:  # recipes leave that to the user
        return implied
    if is_missing(path):
        raise no_model(path, "--teacher")
    network = find_model(path).network
    if not network:
        raise UserError(f"teacher: {path} holds no configuration of a model")
    sizes = make_architecture(
        network["model_size"], network["model_hparam_overrides"], network["vocab_size"], network["embedding_size"]
    )
    return implied | {"teacher_sizes": dataclasses.asdict(sizes)}
