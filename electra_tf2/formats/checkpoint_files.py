"""Files of a run's checkpoints: which are whole, which is the newest, how they come and go. Without TensorFlow.

  <folder>/model.ckpt-1000.{index,data-00000-of-00001}   as TensorFlow writes them
  <folder>/model.ckpt-1000.json                          their checksums
  <folder>/checkpoint                                    TensorFlow's name for the newest; written, never needed
  <folder>/.saving/                                      a checkpoint that is being written, or a killed save's rest

The index gets its name last, when all is on the disk (fsync), so a checkpoint that has one is complete.
"""

import errno
import os
import re
import shutil
from pathlib import Path

from electra_tf2.files.reading import is_file, parse_json, read_text, sha256_of
from electra_tf2.files.writing import write_atomically, write_json
from electra_tf2.util.errors import UserError, reason

PREFIX = "model.ckpt-"
AVERAGE = "average"  # last part of the name of a variable's moving average
_STAGING = ".saving"


def prefix(folder: Path, step: int) -> Path:
    """Path by which TensorFlow knows the checkpoint of a step."""
    return folder / f"{PREFIX}{step}"


def steps(folder: Path) -> list[int]:
    """Lists the steps of which there is any file of a checkpoint, newest first."""
    numbers = set()
    for path in folder.glob(f"{PREFIX}*"):
        step = _step_of(path)
        if step is not None:
            numbers.add(step)
    return sorted(numbers, reverse=True)


def _step_of(path: Path) -> int | None:
    """Step of the checkpoint that a file belongs to; None if it belongs to none."""
    match = re.match(rf"{re.escape(PREFIX)}(\d+)\.", path.name)
    if match is None:
        return None
    return int(match[1])


def find_prefix(path: str | Path) -> str | None:
    """Finds the checkpoint at a path, of whatever program.

    Args:
      path: a prefix, which is returned as it is; or a folder, of which it is the one that TensorFlow's file
        `checkpoint` names, or else that of the last step.

    Returns:
      None if there is none.
    """
    folder = Path(path)
    if is_file(f"{path}.index"):
        return str(path)
    names_newest = folder / "checkpoint"
    if is_file(names_newest):
        text = read_text(names_newest, "checkpoint")
        match = re.search(r'^model_checkpoint_path: "(.*)"', text, re.MULTILINE)
        if match is not None:
            named = str(folder / match[1])  # an absolute name replaces the folder
            if is_file(f"{named}.index"):
                return named
    for step in steps(folder):
        newest = str(prefix(folder, step))
        if is_file(f"{newest}.index"):
            return newest
    return None


def has_checksums(folder: Path, step: int) -> bool:
    """True for a checkpoint that this program saved; the original's have none."""
    return Path(f"{prefix(folder, step)}.json").exists()


def problem(folder: Path, step: int) -> str | None:
    """Finds what is wrong with the files of a checkpoint; None if all are there and match their checksums.

    Raises:
      UserError: they cannot be read now, which need not mean that they are damaged.
    """
    base = prefix(folder, step)
    for suffix in (".index", ".json"):
        if not Path(f"{base}{suffix}").exists():
            return f"its {suffix} is missing"
    try:
        checksums = parse_json(Path(f"{base}.json").read_bytes(), f"{base.name}.json").get("sha256")
        if not isinstance(checksums, dict) or not checksums:
            return f"{base.name}.json has no checksums"
        differing = []
        for name, expected in checksums.items():
            if sha256_of(folder / name) != expected:
                differing.append(name)
    except (ValueError, FileNotFoundError) as error:
        return str(error)
    except OSError as error:
        raise UserError(f"cannot read the checkpoint {base} now: {reason(error)}. It was left as it is") from None
    if differing:
        return f"{' and '.join(differing)} differs from its checksum"
    return None


def staging(folder: Path, step: int) -> Path:
    """Path to which the checkpoint of a step is to be written, before `publish`."""
    return prefix(folder / _STAGING, step)


def publish(folder: Path, step: int) -> None:
    """Gives the files of a checkpoint that was written to `staging` their names, with their checksums."""
    written = folder / _STAGING
    names = sorted(path.name for path in written.glob(f"{PREFIX}{step}.*"))
    if not names:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(staging(folder, step)))
    checksums = {name: sha256_of(written / name) for name in names}
    about = f"{PREFIX}{step}.json"
    write_json(written / about, {"step": step, "sha256": checksums})
    names.insert(0, about)
    for name in names:
        _sync(written / name)
    for name in names:
        # In alphabetical order the index is the last: all other names must be on the disk before its own.
        if name == names[-1]:
            _sync(folder)
        os.replace(written / name, folder / name)
    _sync(folder)
    clear_staging(folder)


def clear_staging(folder: Path) -> None:
    shutil.rmtree(folder / _STAGING, ignore_errors=True)


def keep(folder: Path, step: int, count: int) -> list[int]:
    """Deletes all checkpoints but the newest `count` up to a step. Returns the steps of those, oldest first.

    Later ones are damaged, or the run would have gone on from them.
    """
    kept = [number for number in steps(folder) if number <= step][:count]
    # The index first: what a kill leaves without an index is no checkpoint.
    for path in sorted(folder.glob(f"{PREFIX}*"), key=lambda path: path.suffix != ".index"):
        number = _step_of(path)
        if number is not None and number not in kept:
            path.unlink()
    return kept[::-1]


def write_state(folder: Path, kept: list[int]) -> None:
    """Writes `checkpoint`, by which TensorFlow knows the newest of these steps and the others."""
    lines = [f'model_checkpoint_path: "{PREFIX}{kept[-1]}"']
    for step in kept:
        lines.append(f'all_model_checkpoint_paths: "{PREFIX}{step}"')
    write_atomically(folder / "checkpoint", "\n".join(lines) + "\n")


def _sync(path: Path) -> None:
    """Waits until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
