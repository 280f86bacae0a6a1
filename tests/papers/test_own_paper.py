"""The paper of one's own that docs/architecture.md shows, trained from a folder outside of the repository."""

import json
import re
import shutil
import subprocess
import sys

import pytest

from electra_tf2.config.papers import load_paper, paper_names
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model import kernels
from electra_tf2.pretrain.pretraining_model import make_model
from electra_tf2.util.errors import UserError
from tests.support import training as support
from tests.support.programs import run_program

NAME = "swapped_neighbours"
DATACLASS = "@dataclasses.dataclass(frozen=True)"
CONFIG = """
import dataclasses
from electra_tf2.configure_pretraining import PretrainingConfig
{decorator}
class Config(PretrainingConfig):
    speed: int = 3
"""
TWICE = f"""
import dataclasses
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.pretraining_model import PretrainingModel
{DATACLASS}
class Config(PretrainingConfig):
    pass
class Model(PretrainingModel):
    def make_objectives(self, networks):
        return 2 * super().make_objectives(networks)
"""


def example() -> str:
    """The block of code of "Adding a paper"."""
    text = (support.ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```", text[text.index("## Adding a paper") :], re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / f"{NAME}.py").write_text(example())
    support.write_records(folder / "data" / "pretrain_tfrecords")
    return folder


@pytest.fixture
def run(folder, monkeypatch):
    """A function from flags to what a program says that is started in that folder."""
    monkeypatch.chdir(folder)

    def start(*flags, program="run_pretraining.py", **settings):
        hparams = support.hparams(folder / "data", num_train_steps=12, learning_rate=5e-3, **settings)
        given = ["--hparams", json.dumps(hparams)] if settings else []
        with kernels.off():
            return run_program(program, "--paper", NAME, *given, *flags)

    yield start
    sys.path[:] = [path for path in sys.path if path != str(folder)]


def test_it_is_trained_resumed_and_evaluated(folder, run):
    done = run(model_dir=str(folder / "whole"), do_eval=True)
    assert done.returncode == 0 and "10 x swap_loss" in " ".join(done.stdout.split()), done.stderr
    parts = shutil.copytree(folder / "whole", folder / "parts")
    for step in (8, 12):  # as if killed after step 4
        for path in parts.glob(f"model.ckpt-{step}.*"):
            path.unlink()
    part = run(model_dir=str(parts))
    assert part.returncode == 0 and "resuming" in part.stdout, part.stderr
    lines = support.logged(folder / "whole")
    assert lines == support.logged(parts) and len(lines) == 12
    assert all("disc_loss" in line for line in lines) and lines[-1]["swap_loss"] < lines[0]["swap_loss"] < 1
    results = json.loads((folder / "whole" / "results" / "unsup_results.json").read_text())
    assert {"swap_loss", "swap_recall", "disc_auc"} <= results.keys()
    saved = json.loads((folder / "whole" / "config.json").read_text())
    assert (saved["paper"], saved["swap_weight"], saved["swap_share"]) == (NAME, 10.0, 0.1)
    other = run("--swap-share", "0.2", model_dir=str(parts))
    assert other.returncode == 2 and "swap_share was 0.1, is 0.2" in other.stderr


def test_help_lists_its_flags_its_cost_counts_and_wrong_hparams_are_refused(folder, run):
    command = [sys.executable, str(support.ROOT / "run_pretraining.py"), "--paper", NAME, "--help"]
    found = subprocess.run(command, capture_output=True, text=True, cwd=folder)  # where nothing has imported it
    assert found.returncode == 0, found.stderr
    assert "Swapped neighbours\n  --swap-weight" in found.stdout and "--swap-share" in found.stdout
    assert "swap head" in run("--recipe", "electra_small", program="flops_computation.py").stdout
    for flags, message in (
        (["--mask-unit", "span", "--mask-sampling", "without_replacement"], "mask_unit must be token"),
        (["--swap-share", "1.5"], "swap_share must be below 1, got 1.5"),
        (["--swap-shar", "0.5"], "did you mean"),
    ):
        done = run(*flags, model_dir=str(folder / "wrong"))
        assert done.returncode == 2 and message in done.stderr and len(done.errors) == 1, done.stderr


@pytest.mark.parametrize(
    ("name", "source", "message"),
    [
        ("nowhere.at_all", None, "there is no nowhere.at_all .*one of .*, or a module of yours in"),
        *((f"{paper}x", None, f"there is no {paper}x; did you mean '{paper}'") for paper in paper_names()[:1]),
        ("x-y", None, "paper must be the name of a paper or of a Python module, got 'x-y'"),
        ("own_empty", "", "paper own_empty has no Config, a subclass of PretrainingConfig"),
        ("own_syntax", "x = = 1", "paper own_syntax: SyntaxError: .*, while importing it"),
        ("own_import", "import nothing_of_this_name", "No module named 'nothing_of_this_name', while importing it"),
        ("own_class", CONFIG.format(decorator=""), "Config must be a @dataclasses.dataclass"),
        ("own_field", CONFIG.format(decorator=DATACLASS), "own_field: speed of Config must be declared as hparam"),
    ],
)
def test_what_is_wrong_with_one_is_one_line(tmp_path, monkeypatch, name, source, message):
    monkeypatch.syspath_prepend(tmp_path)
    if source is not None:
        (tmp_path / f"{name}.py").write_text(source)
    try:
        with pytest.raises(UserError, match=message) as error:
            PretrainingConfig.from_dict({"paper": name})
        assert "\n" not in str(error.value)
    finally:
        load_paper.cache_clear()
        sys.modules.pop(name, None)


def test_two_losses_of_one_name_are_refused(folder, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_twice.py").write_text(TWICE)
    config = PretrainingConfig.from_dict(support.hparams(folder / "data", paper="own_twice"))
    with pytest.raises(UserError, match=r"paper own_twice: two objectives have the same loss_name: .*disc_loss"):
        make_model(config)
