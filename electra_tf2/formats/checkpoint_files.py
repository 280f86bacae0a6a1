"""Files of a run's checkpoints: listing, verifying, publishing and deleting them. Without TensorFlow.

  <folder>/model.ckpt-1000.{index,data-00000-of-00001}   as TensorFlow writes them
  <folder>/model.ckpt-1000.json                          their checksums
  <folder>/checkpoint                                    names the newest for TensorFlow's own tools; not needed here
  <folder>/.saving/                                      a checkpoint that is being written, or what a killed save left

The index is renamed last, after everything else is on the disk (fsync). So a checkpoint that has an index is complete.
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
BEST_FOLDER = "best"  # in a run's folder, with the best checkpoint of all evaluations
BEST = "best.json"  # there, names it
AVERAGE = "average"  # last part of the name of a variable's moving average
_STAGING = ".saving"


def prefix(folder: Path, step: int) -> Path:
    """Prefix of the files of a step's checkpoint, which is its path to TensorFlow."""
    return folder / f"{PREFIX}{step}"


def steps(folder: Path) -> list[int]:
    """Lists the steps that have at least one file of a checkpoint, newest first."""
    steps_with_files = set()
    for path in folder.glob(f"{PREFIX}*"):
        step = _step_of(path)
        if step is not None:
            steps_with_files.add(step)
    return sorted(steps_with_files, reverse=True)


def _step_of(path: Path) -> int | None:
    """Step in the name of a checkpoint's file; None if the file belongs to no checkpoint."""
    match = re.match(rf"{re.escape(PREFIX)}(\d+)\.", path.name)
    if match is None:
        return None
    return int(match[1])


def find_prefix(path: str | Path) -> str | None:
    """Finds the prefix of the checkpoint at a path, whatever program wrote it; None if there is none.

    Args:
      path: a prefix, which is returned as it is; or a folder, whose newest checkpoint is taken: the one that
        TensorFlow's file `checkpoint` names, or else the one with the largest step.
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
    """True for a checkpoint that this program saved. Those of the original have no checksums."""
    return Path(f"{prefix(folder, step)}.json").exists()


def problem(folder: Path, step: int) -> str | None:
    """Describes what is wrong with the files of a checkpoint; None if all exist and match their checksums.

    Raises:
      UserError: the disk fails to read them now. They may still be whole.
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
    """Prefix under which a step's checkpoint is written, until `publish` moves it to its own."""
    return prefix(folder / _STAGING, step)


def publish(folder: Path, step: int) -> None:
    """Adds checksums to a checkpoint in `staging`, and moves its files into the folder."""
    written = folder / _STAGING
    names = sorted(path.name for path in written.glob(f"{PREFIX}{step}.*"))
    if not names:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(staging(folder, step)))
    checksums = {name: sha256_of(written / name) for name in names}
    checksums_file = f"{PREFIX}{step}.json"
    write_json(written / checksums_file, {"step": step, "sha256": checksums})
    names.insert(0, checksums_file)
    for name in names:
        _sync(written / name)
    # The index is the last in alphabetical order. All other renames must be on the disk before its own.
    *all_but_index, index = names
    for name in all_but_index:
        os.replace(written / name, folder / name)
    _sync(folder)
    os.replace(written / index, folder / index)
    _sync(folder)
    clear_staging(folder)


def clear_staging(folder: Path) -> None:
    shutil.rmtree(folder / _STAGING, ignore_errors=True)


def keep(folder: Path, step: int, count: int) -> list[int]:
    """Deletes all checkpoints but the newest `count` up to a step. Returns the steps that are left, oldest first.

    Checkpoints after `step` are damaged, or the run would have resumed from them: they are deleted, too.
    """
    kept = [other for other in steps(folder) if other <= step][:count]
    # Indexes are deleted first. If the program is killed here, files without an index are no checkpoint.
    for path in sorted(folder.glob(f"{PREFIX}*"), key=lambda path: path.suffix != ".index"):
        step_of_file = _step_of(path)
        if step_of_file is not None and step_of_file not in kept:
            path.unlink()
    return kept[::-1]


def write_state(folder: Path, kept: list[int]) -> None:
    """Writes the file `checkpoint`, from which TensorFlow's own tools know these steps, oldest first."""
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
