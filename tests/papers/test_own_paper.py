"""The paper of one's own that docs/architecture.md shows, trained from a folder outside of the repository."""

import json
import re
import subprocess
import sys

import pytest

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.pretraining_model import make_model
from electra_tf2.util.errors import UserError
from electra_tf2.util.papers import load_paper
from tests.support import training as support

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
    def make_main_objectives(self, networks):
        return 2 * super().make_main_objectives(networks)
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


def run(folder, *flags, program="run_pretraining.py"):
    """A program, started in a folder."""
    command = [sys.executable, str(support.ROOT / program), "--paper", NAME, *flags]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


def train(folder, model, *flags, **settings):
    """Runs run_pretraining.py in a folder, with small settings."""
    hparams = support.hparams(folder / "data", model_dir=str(folder / model), **settings)
    return run(folder, "--hparams", json.dumps(hparams), *flags)


def test_it_is_trained_resumed_and_evaluated(folder):
    done = train(folder, "whole", num_train_steps=24, do_eval=True)
    assert done.returncode == 0 and "10 x swap_loss" in done.stdout, done.stderr
    for _ in range(2):
        part = train(folder, "parts", num_train_steps=24, do_eval=True)
        assert part.returncode == 0, part.stderr
        for step in (12, 16, 20, 24):  # as if killed after step 8
            for path in () if "resuming" in part.stdout else (folder / "parts").glob(f"model.ckpt-{step}.*"):
                path.unlink()
    assert "resuming" in part.stdout
    lines = support.logged(folder / "whole")
    assert lines == support.logged(folder / "parts") and len(lines) == 24
    assert all("disc_loss" in line for line in lines) and lines[-1]["swap_loss"] < lines[0]["swap_loss"] < 1
    results = [json.loads((folder / one / "results" / "unsup_results.json").read_text()) for one in ("whole", "parts")]
    assert results[0] == results[1] and {"swap_loss", "swap_recall", "disc_auc"} <= results[0].keys()
    saved = json.loads((folder / "whole" / "config.json").read_text())
    assert (saved["paper"], saved["swap_weight"], saved["swap_share"]) == (NAME, 10.0, 0.1)
    other = train(folder, "parts", "--swap-share", "0.2", num_train_steps=24)
    assert other.returncode == 2 and "swap_share was 0.1, is 0.2" in other.stderr


def test_help_lists_its_flags_its_cost_counts_and_wrong_hparams_are_refused(folder):
    found = run(folder, "--help")
    assert found.returncode == 0, found.stderr
    assert "Swapped neighbours\n  --swap-weight" in found.stdout and "--swap-share" in found.stdout
    assert "swap head" in run(folder, "--recipe", "electra_small", program="flops_computation.py").stdout
    for flags, message in (
        (["--mask-unit", "span", "--mask-sampling", "without_replacement"], "mask_unit must be token"),
        (["--swap-share", "1.5"], "swap_share must be below 1, got 1.5"),
        (["--swap-shar", "0.5"], "did you mean"),
    ):
        done = train(folder, "wrong", *flags)
        assert done.returncode == 2 and message in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize(
    ("name", "source", "message"),
    [
        ("nowhere.at_all", None, "there is no nowhere.at_all .*one of .*, or a module of yours in"),
        ("moa", None, r"there is no moa; did you mean 'm"),
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
