"""The folder of a training run: its configuration beside its checkpoints, and no mixing of two runs."""

import json
import shutil
from collections.abc import Collection
from pathlib import Path

from util.errors import UserError
from util.files import write_atomically
from util.reading import read_json


def check_run_folder(folder: Path, config_json: str, free: Collection[str], advice: str) -> None:
    """Raises UserError if the folder holds a run with another configuration.

    Args:
      config_json: of the run that is to go on there.
      free: names of the hparams that may differ when a run is resumed.
      advice: what the user can do about it.
    """
    saved = folder / "config.json"
    if not saved.exists():
        return
    before, now = read_json(saved, "the configuration of the run"), json.loads(config_json)
    changed = [
        f"{name} was {before[name]!r}, is {now[name]!r}"
        for name in sorted(before.keys() & now.keys() - set(free))
        if before[name] != now[name]
    ]
    if changed:
        raise UserError(f"{folder} holds a run with other hparams: {'; '.join(changed)}. {advice}")


def delete_run_folder(folder: Path) -> None:
    """For --overwrite. Raises UserError if the folder holds something else than a run."""
    if not folder.exists():
        return
    if not (folder / "config.json").exists() and any(folder.iterdir()):
        raise UserError(f"--overwrite: {folder} holds no config.json, so it is no model of ours; delete it yourself")
    shutil.rmtree(folder)


def write_config(folder: Path, config_json: str) -> None:
    write_atomically(folder / "config.json", config_json)
