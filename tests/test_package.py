"""The wheel holds one name, and works in a folder whose files are called like ours."""

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.support import training as support

ROOT = Path(__file__).parent.parent
# Names of a user's own project, which stood in site-packages once.
NEIGHBOURS = [
    *("model", "util", "tests", "training", "finetune", "pretrain", "corpus", "analysis", "recipes"),
    *("formats", "inference", "convert"),
    *("tasks.py", "configure_pretraining.py", "configure_finetuning.py", "run_pretraining.py", "formats.py"),
]


def test_setuptools_finds_one_name() -> None:
    found = pytest.importorskip("setuptools").find_packages(str(ROOT), include=["electra_tf2*"])
    assert {name.partition(".")[0] for name in found} == {"electra_tf2"}


def test_the_originals_paths_lead_into_the_package() -> None:
    """Its folders are links; its scripts are files, since Python resolves a link before it looks for modules."""
    for name in ("model", "finetune", "pretrain", "util"):
        assert (ROOT / name).readlink() == Path("electra_tf2") / name
    for name in ("run_pretraining", "run_finetuning", "build_pretraining_dataset", "flops_computation"):
        assert not (ROOT / f"{name}.py").is_symlink() and (ROOT / "electra_tf2" / "programs" / f"{name}.py").exists()


def test_importing_the_package_loads_no_tensorflow() -> None:
    code = (
        "import sys, electra_tf2 as e; assert e.__version__ and 'electra_mini' in e.models() and 'load' in dir(e);"
        "assert not {'tensorflow', 'numpy', 'tf_keras'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy without what git does not know."""
    pytest.importorskip("setuptools")
    pytest.importorskip("wheel")
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True)
    names = [name for name in listed.stdout.decode().splitlines() if (ROOT / name).exists() and name != ".venv"]
    subprocess.run(["tar", "-cf", source / "all.tar", *names], cwd=ROOT, check=True)
    subprocess.run(["tar", "-xf", "all.tar"], cwd=source, check=True)
    build = f"from setuptools.build_meta import build_wheel; build_wheel({str(target)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    (found,) = target.glob("*.whl")
    return found


@pytest.mark.slow
def test_the_wheel_holds_one_name_with_recipes_models_and_types(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"electra_tf2"}
    package = ROOT / "electra_tf2"
    data = [f"recipes/{path.name}" for path in (package / "recipes").glob("*.json")]
    data += [str(path.relative_to(package)) for path in (package / "pretrained").glob("*/*")]
    assert {f"electra_tf2/{name}" for name in [*data, "py.typed"]} <= set(names)


@pytest.mark.slow
def test_it_works_beside_files_that_are_called_like_ours(wheel: Path, tmp_path: Path) -> None:
    """Installed into a new environment, which sees the dependencies of this one."""
    environment, project = tmp_path / "environment", tmp_path / "project"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    zipfile.ZipFile(wheel).extractall(site)  # what installing a wheel of pure Python does, but for the commands
    assert {path.name for path in site.iterdir() if path.suffix not in (".dist-info", ".pth")} == {"electra_tf2"}
    for name in NEIGHBOURS:
        path = project / name if name.endswith(".py") else project / name / "__init__.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"raise ImportError('{name} of the project was imported')\n")
    data = tmp_path / "data"
    support.write_records(data / "pretrain_tfrecords")
    hparams = support.hparams(data, num_train_steps=10, save_checkpoints_steps=10)
    (tmp_path / "hparams.json").write_text(json.dumps(hparams))
    load = (
        "import electra_tf2, sys; assert not {'tensorflow', 'model', 'util'} & set(sys.modules);"
        "assert electra_tf2.__file__.startswith(sys.prefix);"
        "print(len(electra_tf2.load('electra_mini').states(['A text.'])[0].tokens))"
    )
    train = [f"--data-dir={data}", "--model-name=ten", f"--hparams={tmp_path}/hparams.json"]
    ran = []
    for words in (
        ["-m", "electra_tf2", "pretrain", "--help", "all"],
        ["-m", "electra_tf2.programs.run_pretraining", "--help", "all"],
        ["-c", load],
        ["-m", "electra_tf2.programs.run_pretraining", *train],
    ):
        done = subprocess.run(
            [str(environment / "bin" / "python"), *words],
            cwd=project,
            capture_output=True,
            text=True,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )
        assert done.returncode == 0, done.stderr
        ran.append(done.stdout)
    assert "--train-batch-size" in ran[0] and ran[0].partition("\nFlags\n")[2] == ran[1].partition("\nFlags\n")[2]
    assert "python -m electra_tf2 pretrain --data-dir data" in ran[0] and "python run_pretraining.py" in ran[1]
    assert ran[2] == "5\n"
    assert (data / "models" / "ten" / "model.ckpt-10.index").exists()
