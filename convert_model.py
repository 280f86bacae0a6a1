"""Converts models between formats.

  python convert_model.py --from data/models/electra_small --to electra_small

makes a self-contained folder of a run: configuration, weights as safetensors, vocabulary. It can be moved anywhere and
is a start for fine-tuning and pre-training: --init-checkpoint electra_small.
"""

from pathlib import Path

from absl import flags

from util import flags as util_flags
from util.errors import UserError


def main() -> int:
    values = flags.FLAGS
    if not values["from"].value or not values.to:
        raise UserError("--from and --to are needed: the model to read and the folder to write")
    source, target = Path(values["from"].value), Path(values.to)
    if target.exists() and any(target.iterdir()) and not values.overwrite:
        raise UserError(f"--to: {target} is not empty: give another folder, or --overwrite to write into it")

    from exchange.checkpoints import CheckpointVariables
    from exchange.folders import read_config, vocabulary_of
    from exchange.own import write_folder

    config = read_config(source)
    if config is None:
        raise UserError(f"--from: {source} has no config.json")
    config["vocab_file"] = values.vocab_file or vocabulary_of(source, config)
    weights = CheckpointVariables(str(source)).weights()
    write_folder(target, config, weights, values.dtype)
    count = sum(value.size for value in weights.values())
    print(f"wrote {target}: {len(weights)} arrays, {count:,} parameters, {values.dtype}")
    return 0


flags.DEFINE_string("from", None, "model to read: a folder")
flags.DEFINE_string("to", None, "folder to write")
flags.DEFINE_enum("dtype", "float32", ["float32", "bfloat16", "float16"], "type of the stored weights")
flags.DEFINE_string("vocab_file", None, "its vocabulary; default: the model's own")
flags.DEFINE_bool("overwrite", False, "write into a folder that is not empty")

if __name__ == "__main__":
    util_flags.run(main, __doc__)
