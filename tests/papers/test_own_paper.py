"""The objective of one's own that docs/architecture.md shows, trained from a folder outside of the repository."""

import json
import re
import subprocess
import sys
import time

import pytest
from electra_tf2.pretrain.objectives.catalogue import _extended, own_objective

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.util.errors import UserError
from tests.support import training as support

NAME = "swaps:SwappedNeighbours"
DOCUMENT = (support.ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def example() -> str:
    """The block of code of "Adding an objective"."""
    section = DOCUMENT[DOCUMENT.index("## Adding an objective") :]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1]


def start(folder, *flags, **settings):
    """run_pretraining.py, started in a folder; settings as --hparams."""
    hparams = support.hparams(folder / "data", objectives=[NAME], swap_objective=True, **settings)
    hparams["model_dir"] = str(folder / "model")
    command = [sys.executable, str(support.ROOT / "run_pretraining.py"), "--hparams", json.dumps(hparams), *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)


def run(folder, *flags, **settings):
    """The same to its end: (exit code, standard output, standard error)."""
    process = start(folder, *flags, **settings)
    out, err = process.communicate()
    return process.returncode, out, err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "swaps.py").write_text(example())
    support.write_records(folder / "data" / "pretrain_tfrecords")
    return folder


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """A folder on the path for modules of a test's own, which are forgotten after it."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        if not name.startswith(("electra_tf2", "tests", "tensorflow", "tf_keras")):
            del sys.modules[name]
    own_objective.cache_clear()
    _extended.clear()


def test_the_example_is_short():
    assert len(example().splitlines()) < 60


def test_it_is_trained_killed_resumed_and_evaluated(folder):
    whole, parts = folder / "whole", folder / "parts"
    for each in (whole, parts):
        each.mkdir()
        (each / "swaps.py").write_text(example())
        (each / "data").symlink_to(folder / "data")
    code, out, err = run(whole, num_train_steps=60, do_eval=True)
    assert code == 0 and "10 x swap_loss" in out, err
    process = start(parts, num_train_steps=60, do_eval=True)
    while process.poll() is None and not list((parts / "model").glob("*.index")):
        time.sleep(0.02)
    process.kill()
    process.communicate()
    code, out, err = run(parts, num_train_steps=60, do_eval=True)
    assert code == 0, err
    assert "resuming" in out
    lines = support.logged(whole / "model")
    assert lines == support.logged(parts / "model") and len(lines) == 60
    assert all("disc_loss" in line for line in lines) and lines[-1]["swap_loss"] < lines[0]["swap_loss"] < 1
    results = [json.loads((each / "model" / "results" / "unsup_results.json").read_text()) for each in (whole, parts)]
    assert results[0] == results[1] and {"swap_loss", "swap_recall", "disc_auc"} <= results[0].keys()
    saved = json.loads((whole / "model" / "config.json").read_text())
    assert (saved["objectives"], saved["swap_weight"], saved["swap_share"]) == ([NAME], 10.0, 0.1)
    code, _, err = run(parts, "--swap-share", "0.2", num_train_steps=60)
    assert code == 2 and "swap_share was 0.1, is 0.2" in err


def test_help_lists_its_flags_and_stays_without_tensorflow(folder):
    for flags in (["--objectives", NAME], ["--hparams", json.dumps({"objectives": [NAME]})]):
        program = (
            "import runpy, sys; sys.modules['tensorflow'] = None; sys.argv = sys.argv[1:]; "
            f"sys.path.insert(0, {str(support.ROOT)!r}); runpy.run_path(sys.argv[0], run_name='__main__')"
        )
        words = [str(support.ROOT / "run_pretraining.py"), *flags, "--help"]
        found = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, cwd=folder)
        assert found.returncode == 0, found.stderr
        assert "Swapped neighbours\n  --[no-]swap-objective" in found.stdout and "--swap-share" in found.stdout


def test_its_cost_and_its_problems_count(folder):
    words = ["--objectives", NAME, "--swap-objective", "--recipe", "electra_small"]
    command = [sys.executable, str(support.ROOT / "flops_computation.py"), *words]
    assert "swap head" in subprocess.run(command, capture_output=True, text=True, cwd=folder, check=True).stdout
    code, _, err = run(folder, "--mask-unit", "span", "--mask-sampling", "without_replacement")
    assert code == 2
    assert err == "error: hparams: swap_objective tears words apart: mask_unit must be token, got span\n"


OTHER = """
import dataclasses
from electra_tf2.pretrain.hparams import PretrainingHparams
from electra_tf2.pretrain.objectives.objective import Objective
from electra_tf2.util.hparams import hparam

@dataclasses.dataclass(frozen=True)
class Hparams(PretrainingHparams):
    {field}

class Other(Objective[Hparams]):
    loss_name = "{loss}"
"""


@pytest.mark.parametrize(
    ("name", "field", "loss", "message"),
    [
        ("nowhere.at_all:Other", "", "", r"objectives: nowhere.at_all:Other: .*No module named 'nowhere'"),
        ("other", "x: int = hparam(1, 'x')", "x_loss", "a class is named as package.module:Class"),
        ("other:Othr", "x: int = hparam(1, 'x')", "x_loss", r"has no Othr; did you mean 'Other'\?"),
        ("other:Hparams", "x: int = hparam(1, 'x')", "x_loss", "is no subclass of .*Objective"),
        (
            "other:Other",
            "mask_prob: float = hparam(0.5, 'x')",
            "x_loss",
            "there is an hparam mask_prob already: rename it",
        ),
        ("other:Other", "recipe: str = hparam('', 'x')", "x_loss", "there is an hparam recipe already: rename it"),
        ("other:Other", "x: int = 1", "x_loss", r"x must be an hparam\(default, help\)"),
        ("other:Other", "x: int = hparam(1, 'x')", "disc_loss", "another objective with loss_name disc_loss"),
        ("other:Other", "x: int = = 1", "x_loss", r"SyntaxError: .*\(while importing it\)"),
    ],
)
def test_what_is_wrong_with_one_is_one_line(modules, name, field, loss, message):
    (modules / "other.py").write_text(OTHER.format(field=field, loss=loss))
    with pytest.raises(UserError, match=message) as error:
        PretrainingConfig.from_dict(support.hparams(modules, objectives=[name]))
    assert "\n" not in " ".join(str(error.value).split("\n"))


def test_objectives_must_be_a_list_of_names():
    with pytest.raises(UserError, match=r"objectives must be a list of package.module:Class, got 'x:Y'"):
        PretrainingConfig.from_dict({"objectives": "x:Y"})
