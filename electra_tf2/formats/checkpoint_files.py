"""Files of a run's checkpoints: which are whole, which is the newest, how they come and go. Without TensorFlow.

  <folder>/model.ckpt-1000.{index,data-00000-of-00001}   as TensorFlow writes them
  <folder>/model.ckpt-1000.json                          their checksums, and what the loop has to remember
  <folder>/checkpoint                                    TensorFlow's name for the newest; written, never needed
  <folder>/.saving/                                      a checkpoint on its way; what a killed save leaves behind

The index gets its name last, when all is on the disk (fsync), so a checkpoint that has one is complete. Those of older
versions lack the .json.
"""

import errno
import os
import re
import shutil
from pathlib import Path
from typing import Any

from electra_tf2.files.reading import parse_json, read_json, sha256_of
from electra_tf2.files.writing import write_atomically, write_json, writing
from electra_tf2.util.errors import UserError, reason

PREFIX = "model.ckpt-"
AVERAGE = "average"  # last part of the name of a variable's moving average
_STAGING = ".saving"


def prefix(folder: Path, step: int) -> Path:
    """Path by which TensorFlow knows the checkpoint of a step."""
    return folder / f"{PREFIX}{step}"


def steps(folder: Path) -> list[int]:
    """Lists the steps of which there is any file of a checkpoint, newest first."""
    found = (re.match(rf"{re.escape(PREFIX)}(\d+)\.", path.name) for path in folder.glob(f"{PREFIX}*"))
    return sorted({int(match[1]) for match in found if match}, reverse=True)


def has_checksums(folder: Path, step: int) -> bool:
    return Path(f"{prefix(folder, step)}.json").exists()


def problem(folder: Path, step: int) -> str | None:
    """Finds what is wrong with the files of a checkpoint; None if they are there and have their checksums, if any.
    Raises UserError: they cannot be read now, which says nothing about them."""
    base = prefix(folder, step)
    if not Path(f"{base}.index").exists():
        return "its .index is missing"
    if not has_checksums(folder, step):
        return None
    try:
        about = parse_json(Path(f"{base}.json").read_bytes(), f"{base.name}.json")
        sums = about.get("sha256")
        if not (isinstance(sums, dict) and sums and isinstance(about.get("memory", {}), dict)):
            return f"{base.name}.json is not as it was written"
        wrong = [name for name, expected in sums.items() if sha256_of(folder / name) != expected]
    except (ValueError, FileNotFoundError) as error:
        return str(error)
    except OSError as error:
        raise UserError(f"cannot read the checkpoint {base} now: {reason(error)}. It was left as it is") from None
    return f"{' and '.join(wrong)} differs from its checksum" if wrong else None


def memory(folder: Path, step: int) -> dict[str, Any]:
    """Reads what the loop wanted remembered with a good checkpoint."""
    if not has_checksums(folder, step):
        return {}
    return read_json(f"{prefix(folder, step)}.json", "checkpoint").get("memory", {})


def staging(folder: Path, step: int) -> Path:
    """Path to which the checkpoint of a step is to be written, before `publish`."""
    return prefix(folder / _STAGING, step)


def publish(folder: Path, step: int, remember: dict[str, Any]) -> None:
    """Gives the files of a checkpoint that was written to `staging` their names, with their checksums."""
    names = sorted(path.name for path in (folder / _STAGING).glob(f"{PREFIX}{step}.*"))
    if not names:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(staging(folder, step)))
    sums = {name: sha256_of(folder / _STAGING / name) for name in names}
    write_json(folder / _STAGING / f"{PREFIX}{step}.json", {"step": step, "sha256": sums, "memory": remember})
    for name in (f"{PREFIX}{step}.json", *names):
        _sync(folder / _STAGING / name)
    for name in (f"{PREFIX}{step}.json", *names):  # .data before .index
        if name == names[-1]:
            _sync(folder)
        os.replace(folder / _STAGING / name, folder / name)
    _sync(folder)
    clear_staging(folder)


def clear_staging(folder: Path) -> None:
    shutil.rmtree(folder / _STAGING, ignore_errors=True)


def keep(folder: Path, step: int, count: int) -> list[int]:
    """Deletes all checkpoints but the newest `count` up to a step. Returns the steps of those, oldest first.

    Later ones are damaged, or this run would not be at this step.
    """
    kept = [one for one in steps(folder) if one <= step][:count]
    # The index first: without it what is left is no checkpoint.
    for path in sorted(folder.glob(f"{PREFIX}*"), key=lambda path: path.suffix != ".index"):
        match = re.match(rf"{re.escape(PREFIX)}(\d+)\.", path.name)
        if match and int(match[1]) not in kept:
            path.unlink()
    return kept[::-1]


def pass_over(folder: Path, step: int) -> None:
    """Gives the files of a checkpoint names by which it is none."""
    with writing(prefix(folder, step)):
        for path in sorted(folder.glob(f"{PREFIX}{step}.*"), key=lambda path: path.suffix != ".index"):
            path.rename(folder / f"ruined-{path.name}")
    write_state(folder, steps(folder)[::-1])


def write_state(folder: Path, kept: list[int]) -> None:
    """Writes `checkpoint`, by which TensorFlow knows the newest of these steps and the others."""
    names = [f'"{PREFIX}{step}"' for step in kept]
    lines = [f"model_checkpoint_path: {names[-1]}", *(f"all_model_checkpoint_paths: {name}" for name in names)]
    write_atomically(folder / "checkpoint", "\n".join(lines) + "\n")


def _sync(path: Path) -> None:
    """Waits until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
