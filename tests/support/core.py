"""Prints the files that run from a batch of records to the update of electra_small's weights, and their lines.

python -m tests.support.core
"""

import sys
import tempfile
from pathlib import Path

from electra_tf2.util.environment import use_processor_only

use_processor_only()
import tensorflow as tf  # noqa: E402

from electra_tf2.config.flags import read_recipe  # noqa: E402
from electra_tf2.configure_pretraining import PretrainingConfig  # noqa: E402
from electra_tf2.pretrain.pretraining_task import PretrainingTask  # noqa: E402

PACKAGE = Path(__file__).resolve().parents[2] / "electra_tf2"
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(995))]


SIZES = {
    "train_batch_size": 4,
    "vocab_size": len(TOKENS),
    "model_hparam_overrides": {"num_hidden_layers": 2, "hidden_size": 64},
}


def main() -> None:
    lines = {}
    for path in sorted(files_of_a_step()):
        lines[path.relative_to(PACKAGE).as_posix()] = len(path.read_text().splitlines())
    for name, count in lines.items():
        print(f"{count:6,} {name}")
    plain = [count for name, count in lines.items() if not name.startswith("model/kernels/")]
    print(f"{len(plain)} files, {sum(plain):,} lines; with kernels {len(lines)} and {sum(lines.values()):,}")


def files_of_a_step() -> set[Path]:
    """The files of the package in which something runs while a training step is traced."""
    names: set[str] = set()
    with tempfile.TemporaryDirectory() as data:
        Path(data, "vocab.txt").write_text("\n".join(TOKENS) + "\n")
        hparams = read_recipe("electra_small") | SIZES | {"model_name": "core", "data_dir": data}
        config = PretrainingConfig.from_dict(hparams)
        task = PretrainingTask(config, tf.distribute.get_strategy())
        batch = {name: tf.ones([4, 128], tf.int32) for name in ("input_ids", "input_mask", "segment_ids")}
        step = tf.function(task.train_step, autograph=False)
        sys.setprofile(lambda frame, event, argument: names.add(frame.f_code.co_filename))
        step.get_concrete_function(batch, tf.constant(0, tf.int64))
        sys.setprofile(None)
    paths = {Path(name).resolve() for name in names}
    return {path for path in paths if path.is_relative_to(PACKAGE)}


if __name__ == "__main__":
    main()
