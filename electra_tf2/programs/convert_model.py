"""Converts models from and to Hugging Face, the original's TF1 checkpoints, tf-models-official and our own folders.

  electra convert --model data/models/electra_small --to hf --format huggingface

--model takes a run, a self-contained folder, the name of a shipped model, a Hugging Face directory (ELECTRA or BERT), a
TF1 checkpoint of the original or a checkpoint of tf-models' encoder, and finds out which it is. --format is what --to
becomes:

  electra      a self-contained folder: configuration, weights (safetensors),
               vocabulary; --part main: without the generator
  huggingface  a directory for transformers: the main network with its head, or
               --part generator, --part body
  tf1          a checkpoint for google-research/electra
  tf_models    a checkpoint of official.nlp.modeling's encoder
  saved_model  a SavedModel: of an encoder or a classifier one that takes
               strings, with the tokenizer inside
  sentence_transformers
               a folder for SentenceTransformer(path): encoder, pooling,
               normalisation
  onnx         any of our networks for ONNX Runtime and others, with its
               tokenizer's files; --part body: states and a vector of the whole
               text, --part generator
  tflite       the same for LiteRT (TensorFlow Lite)

Every conversion is checked: fixed sentences go through our network and through what was written, read back from the
disk, and the largest difference is printed; above 1e-5 in float32 the command fails.
"""

import importlib
import importlib.util
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from electra_tf2.config import flags as util_flags
from electra_tf2.exports.output_formats import OUTPUT_FORMATS
from electra_tf2.files.writing import remove_left_over
from electra_tf2.util.environment import use_processor_only
from electra_tf2.util.errors import UserError, how_to_install
from electra_tf2.util.progress import counted

if TYPE_CHECKING:
    from electra_tf2.formats.stored_model import StoredModel


def main() -> int:
    values = flags.FLAGS
    source = values.model or values["from"].value
    check_flags(source)
    target = Path(values.to)
    output_format = OUTPUT_FORMATS[values.format]

    # Products of float32 on many GPUs (TF32) are not precise enough for the self-check.
    use_processor_only()

    from electra_tf2.formats.folders import locate_model
    from electra_tf2.formats.readers import read_model
    from electra_tf2.formats.stored_model import Hints

    given = Hints(values.vocab_file, values.num_attention_heads, values.do_lower_case, values.pairs)
    model = read_model(locate_model(source), given)
    parameters = sum(value.size for value in model.weights.values())
    sizes = model.architecture
    print(
        f"read {model.origin}: {counted(sizes.num_hidden_layers, 'layer')} of {sizes.hidden_size} with "
        f"{counted(sizes.num_attention_heads, 'head')}, {parameters:,} parameters, {len(model.tokens):,} tokens"
    )
    if model.progress:
        print(f"note: {model.path} was trained for {model.progress}")
    for name in model.left_out:
        print(f"  left out, as our networks have no such part: {name}")
    if model.tokenizer_file and not output_format.holds_any_tokenizer:
        raise UserError(
            f"--format {values.format} holds a WordPiece vocabulary, {model.tokenizer_file} is of another tokenizer: "
            "--format huggingface, onnx, saved_model and electra keep it as it is"
        )
    if sizes.share_layers != "none" and not output_format.holds_shared_layers:  # the writer unshares them
        print(f"share_layers {sizes.share_layers}: the weights that layers share are written for each")
    missing = [name for name in output_format.packages if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"{' and '.join(missing)} missing: {how_to_install(values.format)}")
    is_new = not target.exists()
    remove_unfinished(target)
    try:
        write(model, target)
    except BaseException:
        if is_new:
            shutil.rmtree(target, ignore_errors=True)
        raise
    return 0


def check_flags(source: str | None) -> None:
    """Raises UserError for flags that are missing or do not go together.

    Args:
      source: value of --model.
    """
    values = flags.FLAGS
    output_format = OUTPUT_FORMATS[values.format]
    if not source or not values.to:
        raise UserError("--model and --to are needed: the model to read and the folder to write")
    target = Path(values.to)
    is_empty = not target.exists() or (target.is_dir() and not any(target.iterdir()))
    if not is_empty and not values.overwrite:
        raise UserError(f"--to: {target} is not empty: give another folder, or --overwrite to write into it")
    if values.part is not None and values.part not in output_format.parts:
        offered = "offers no choice of a part"
        if output_format.parts:
            offered = f"offers --part {', '.join(output_format.parts)}"
        raise UserError(f"--part {values.part}: --format {values.format} {offered}")
    if values.dtype != "float32" and not output_format.holds_half_precision:
        raise UserError(f"--dtype {values.dtype}: {values.format} stores float32")
    if (values.step or values.adam_slots) and values.format != "tf1":
        raise UserError("--step and --adam-slots are for --format tf1")


def write(model: "StoredModel", target: Path) -> None:
    """Writes a model in the format of --format, and prints what was written and the result of the self-check."""
    from electra_tf2.exports.exportable import Options
    from electra_tf2.exports.self_check import report

    values = flags.FLAGS
    output_format = OUTPUT_FORMATS[values.format]
    part = values.part or output_format.default_part
    options = Options(part, values.dtype, values.step, values.adam_slots)
    module = importlib.import_module(f"electra_tf2.exports.{output_format.module}")
    convert = getattr(module, output_format.function)
    written = convert(target, model, options)
    print(f"wrote {written.summary}")
    print(report(written.difference, values.dtype, f"our network and {written.compared_with}"))


def remove_unfinished(target: Path) -> None:
    """Removes temporary files that killed conversions left in a folder."""
    remove_left_over(target)
    for path in target.glob("*.tmp"):
        if re.fullmatch(r"model\.ckpt-\d+\.tmp", path.name) and path.is_dir():
            shutil.rmtree(path)


flags.DEFINE_string("model", None, "model to read: a folder, a directory, a checkpoint, or the name of a shipped model")
flags.DEFINE_string("from", None, "the same as --model")
util_flags.hide("from")
flags.DEFINE_string("to", None, "folder to write")
flags.DEFINE_enum("format", "electra", [*OUTPUT_FORMATS], "format to write")
flags.DEFINE_enum(
    "part",
    None,
    ["main", "generator", "body"],
    "part of the model to write; default: the main network, or where there is no choice the whole model",
)
flags.DEFINE_enum("dtype", "float32", ["float32", "bfloat16", "float16"], "type of the stored weights")
flags.DEFINE_string("vocab_file", None, "vocabulary; default: the model's own, or vocab.txt beside the checkpoint")
flags.DEFINE_integer(
    "num_attention_heads", None, "heads of a TF1 checkpoint; default: those of hparams.json beside it, or width / 64"
)
flags.DEFINE_bool("do_lower_case", None, "casing of a TF1 checkpoint; default: as in hparams.json, or the vocabulary's")
flags.DEFINE_bool("pairs", False, "read a classifier of Hugging Face as one of pairs of texts; its files do not say so")
flags.DEFINE_integer("step", 0, "step to give a TF1 checkpoint", lower_bound=0)
flags.DEFINE_bool("adam_slots", False, "write Adam's slots, as zeros, into a TF1 checkpoint; its trainer needs them")
flags.DEFINE_bool("overwrite", False, "write into a folder that is not empty")


def command() -> None:
    util_flags.run(main, __doc__, goes_on=True)


if __name__ == "__main__":
    command()
