"""The choices of a command line of `electra analyze`."""

from pathlib import Path
from typing import NamedTuple

from electra_tf2.formats.folders import shipped_folder


class Request(NamedTuple):
    """Choices of a command line. names: of models or runs."""

    data_dir: Path
    names: tuple[str, ...]
    metrics: tuple[str, ...] = ()
    over: str = "steps"
    seed: int = 0

    def folder(self, name: str) -> Path:
        """Folder of a run, given by its path, by a name in <data_dir>/models, or by the name of a shipped model."""
        folder = Path(name) if "/" in name else self.data_dir / "models" / name
        if folder.is_dir():
            return folder
        return Path(shipped_folder(name) or folder)
