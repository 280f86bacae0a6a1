"""The command `electra`: help on one screen, every program behind its name, no TensorFlow before it is needed."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from electra_tf2.__main__ import COMMANDS
from electra_tf2.config.recipes import recipe_names
from electra_tf2.util.environment import program_called
from tests.support import finetuning as support
from tests.support.programs import run_command as electra

ROOT = Path(__file__).parent.parent


def without_tensorflow(*words: str) -> tuple[int, str, str]:
    """Exit code, output and errors in an interpreter in which TensorFlow cannot be imported."""
    code = "import sys; sys.modules['tensorflow'] = None; sys.argv[0] = 'electra'\n"
    code += "from electra_tf2.__main__ import command; command()"
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(("words", "called"), [([], "/bin/electra"), (["--help"], "electra_tf2/__main__.py")])
def test_help_is_one_screen(words: list[str], called: str) -> None:
    code, out, err = electra(*words, called=called)
    assert (code, err) == (0, "") and all(f"\n  {name} " in out for name in COMMANDS)
    assert len(out.splitlines()) <= 24 and max(map(len, out.splitlines())) <= 80
    assert ("python -m electra_tf2 COMMAND" in out) == called.endswith(".py") and "/bin" not in out


@pytest.mark.parametrize(
    ("run", "words", "expected"),
    [
        (without_tensorflow, "pretrain --help", ["  electra pretrain --data-dir data", "--train-batch-size"]),
        (
            without_tensorflow,
            "flops --recipe electra_tiny --tflops=100",
            ["electra_tiny: sequences of 64", "at 100 TFLOP/s"],
        ),
        (without_tensorflow, "models", ["electra_deep (12 MB): A detector"]),
        (electra, "finetune -h", ["  electra finetune --data-dir data", "--num-train-epochs"]),
        (electra, "predict --help", ["  electra predict FILE --model FOLDER", "--task-names"]),
        (electra, "recipes", recipe_names()),
        (electra, "--version", ["."]),
    ],
)
def test_commands_answer(run: Callable[..., tuple[int, str, str]], words: str, expected: list[str]) -> None:
    code, out, err = run(*words.split())
    assert (code, err) == (0, "") and [text for text in expected if text not in out] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pretrian"], "there is no command 'pretrian'; did you mean 'pretrain'? See --help"),
        (["zzz"], "there is no command 'zzz', but plan, build-vocab, "),
        (["pretrain", "--train-batch-siz=3"], "unknown flag --train-batch-siz; did you mean '--train-batch-size'?"),
        (["predict", "new.csv"], "new.csv"),
        (["predict", "new.csv", "--output=-", "--mdel-dir=x"], "unknown flag --mdel-dir"),
        (["predict", "--model-dir", "nowhere", "README.md"], "unexpected argument 'README.md'"),
        (["predict", "README.md", "--model-dir", "nowhere"], "nowhere"),
        (["predict", "README.md", "--model", "nowhere"], "nowhere"),
        (["models", "3"], "unrecognized arguments: 3"),
        (["recipes", "--all"], "unrecognized arguments: --all"),
    ],
)
def test_what_it_does_not_know_is_said_in_one_line(words: list[str], message: str) -> None:
    code, out, err = electra(*words)
    assert (code, out) == (2, "") and message in err.splitlines()[-1] and "error: " in err and "Traceback" not in err


@pytest.mark.parametrize(
    "words",
    [
        ["models", "--data-dir", "data"],
        ["build-vocab", "--corpus-dir", "corpus", "--vocab-file", "vocab.txt", "--vocab-size", "50"],
    ],
    ids=lambda words: words[0],
)
def test_what_a_terminal_cannot_show_ends_no_program(words: list[str], tmp_path: Path) -> None:
    """Its encoding is not UTF-8; folders and texts are Chinese."""
    folder = tmp_path / "\u6570\u636e"
    support.write_lines(folder / "corpus" / "a.txt", *["\u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002"] * 50)
    support.write_lines(folder / "data" / "models" / "\u6a21\u578b" / "config.json", "{}")
    words = [str(folder / word) if Path(word).suffix or word in ("data", "corpus") else word for word in words]
    done = subprocess.run(
        [sys.executable, "-m", "electra_tf2", *words],
        env=os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "\\u6570\\u636e" in done.stdout, done.stderr


@pytest.mark.parametrize(
    "called",
    [
        "import runpy; runpy.run_path('run_pretraining.py', run_name='__main__')",
        "sys.argv[1:] = ['plan']; from electra_tf2.__main__ import command; command()",
    ],
)
def test_a_python_without_the_packages_is_told_in_one_line(called: str) -> None:
    code = f"import sys; sys.modules['absl'] = None; {called}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode and "Traceback" not in done.stderr
    assert done.stderr.startswith("error: ") and "`pip install .`" in done.stderr.splitlines()[-1]


def test_models_lists_those_of_a_data_folder(tmp_path: Path) -> None:
    renamed = ("mine.old-1", "mine.old-1/finetuning_models/cola_model_1", "mine/finetuning_models/cola_model_1.old-2")
    for folder in ("mine", "mine/finetuning_models/cola_model_1", *renamed):
        support.write_lines(tmp_path / "models" / folder / "config.json", json.dumps({}))
    out = electra("models", "--data-dir", str(tmp_path))[1]
    assert out.endswith(
        f"pre-trained, in {tmp_path}/models:\n  {tmp_path}/models/mine\n"
        f"fine-tuned, in {tmp_path}/models:\n  {tmp_path}/models/mine/finetuning_models/cola_model_1\n"
    )


@pytest.mark.parametrize(
    ("called", "words"),
    [("electra", "electra"), ("python -m electra_tf2 plan", "/p/python3 -m electra_tf2")]
    + [(f"/here/{script}.py", "/p/python3 -m electra_tf2") for script in ("run_finetuning", "run_pretraining")]
    + [("/lib/ipykernel_launcher.py", "electra")],
)
def test_commands_to_be_typed_begin_as_the_program_was_called(
    called: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [called])
    monkeypatch.setattr(sys, "orig_argv", ["/p/python3", "x"])
    assert program_called() == words
