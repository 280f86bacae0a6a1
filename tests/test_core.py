"""The core: what runs of the program between a batch of records and the update of electra_small's weights."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "electra_tf2"
KERNELS = "model/kernels/"  # each beside the plain formula that it equals
MOST_FILES, MOST_LINES = 14, 2900
# Traces a training step and prints the files whose functions run meanwhile.
PROGRAM = """
import json, os, sys
from pathlib import Path
root, data = map(os.path.realpath, sys.argv[1:])
sys.path.insert(0, root)
from electra_tf2.util.environment import quiet_tensorflow
quiet_tensorflow()
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.task import PretrainingTask
from electra_tf2.util.recipes import read_recipe
from electra_tf2.util.lazy import tf
tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(995))]
Path(data, "vocab.txt").write_text("\\n".join(tokens) + "\\n")
sizes = {"num_hidden_layers": 2, "hidden_size": 64}
own = {"model_name": "core", "data_dir": data, "train_batch_size": 4, "vocab_size": 1000}
hparams = read_recipe("electra_small") | own | {"model_hparam_overrides": sizes}
task = PretrainingTask(PretrainingConfig.from_dict(hparams), tf.distribute.get_strategy())
batch = {name: tf.ones([4, 128], tf.int32) for name in ("input_ids", "input_mask", "segment_ids")}
seen = set()
sys.setprofile(lambda frame, event, argument: seen.add(frame.f_code.co_filename))
tf.function(task.train_step, autograph=False).get_concrete_function(batch, tf.constant(0, tf.int64))
sys.setprofile(None)
package, files = os.path.join(root, "electra_tf2"), map(os.path.realpath, filter(os.path.isfile, seen))
ours = {os.path.relpath(path, package) for path in files}
print(json.dumps(sorted(path for path in ours if not path.startswith("."))))
"""


def documented() -> dict[str, int]:
    """File -> lines, of the tables in docs/architecture.md."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = text[text.index("## The core, in reading order") :].split("\n## ")[0]
    rows = re.findall(r"^\| `([\w/]+\.py)` \| (\d+) \|", section, re.MULTILINE)
    return {path: int(lines) for path, lines in rows}


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    data = tmp_path_factory.mktemp("core")
    command = [sys.executable, "-c", PROGRAM, str(ROOT), str(data)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(json.loads(found.stdout.splitlines()[-1]))


def lines_of(path: str) -> int:
    return len((PACKAGE / path).read_text(encoding="utf-8").splitlines())


def test_the_document_lists_the_files_that_run(core: set[str]) -> None:
    kernels = {path.relative_to(PACKAGE).as_posix() for path in (PACKAGE / KERNELS).glob("[!_]*.py")}
    assert {path for path in core if not path.startswith(KERNELS)} | kernels == documented().keys()


def test_the_document_knows_their_lines() -> None:
    """To a tenth, so that a small change does not have to touch it."""
    wrong = {path: (lines, lines_of(path)) for path, lines in documented().items()}
    assert not {path: pair for path, pair in wrong.items() if abs(pair[0] - pair[1]) > 0.1 * pair[1]}


def test_the_core_is_an_afternoons_reading(core: set[str]) -> None:
    read = [path for path in core if not path.startswith(KERNELS)]
    assert len(read) <= MOST_FILES and sum(map(lines_of, read)) <= MOST_LINES


def test_of_the_objectives_only_those_of_electra_run(core: set[str]) -> None:
    objectives = {path for path in core if path.startswith("pretrain/objectives/")}
    assert objectives == {f"pretrain/objectives/{name}.py" for name in ("objective", "electra", "bert")}
    others = ("configure_", "formats/", "inference/", "convert/", "pretrain/hparams")
    assert not any(path.startswith(others) for path in core)
