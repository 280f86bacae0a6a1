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
from electra_tf2.files.writing import remove_left_over
from electra_tf2.util.environment import use_processor_only
from electra_tf2.util.errors import UserError, how_to_install
from electra_tf2.util.progress import counted

if TYPE_CHECKING:
    from electra_tf2.formats.stored_model import StoredModel

_OF_TRANSFORMERS = ("huggingface", "sentence_transformers")
_OTHER_RUNTIMES = ("onnx", "tflite")
_WITHOUT_SHARED_LAYERS = ("tf1", "tf_models", *_OF_TRANSFORMERS)
_WORDPIECE = ("tf1", "tf_models")
# Formats, and the function that writes each: a module of exports/ and its name there.
WRITERS = {
    "electra": ("conversions", "to_electra"),
    "huggingface": ("conversions", "to_huggingface"),
    "tf1": ("conversions", "to_original"),
    "tf_models": ("conversions", "to_tf_models"),
    "saved_model": ("saved_model", "convert"),
    "sentence_transformers": ("sentence_transformers", "convert"),
    "onnx": ("onnx", "convert"),
    "tflite": ("litert", "convert"),
}
_OF_ONNX = ("onnx", "onnxruntime", "tf2onnx")  # packages that --format onnx needs
PARTS = dict.fromkeys(("huggingface", *_OTHER_RUNTIMES), ("main", "generator", "body")) | {"electra": ("main",)}


def main() -> int:
    values = flags.FLAGS
    source = values.model or values["from"].value
    check_flags(source)
    target = Path(values.to)

    use_processor_only()  # whose products of float32 are not precise enough for the check on many GPUs (TF32)

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
    for name in model.left_out:
        print(f"  left out, as our networks have no such part: {name}")
    if values.format in _WORDPIECE and model.tokenizer_file:
        raise UserError(
            f"--format {values.format} holds a WordPiece vocabulary, {model.tokenizer_file} is of another tokenizer: "
            "--format huggingface, onnx, saved_model and electra keep it as it is"
        )
    if values.format in _WITHOUT_SHARED_LAYERS and sizes.share_layers != "none":
        from electra_tf2.formats.joining import with_unshared_layers
        from electra_tf2.inference.configured import described

        print(f"share_layers {sizes.share_layers}: the weights that layers share are written for each")
        model = with_unshared_layers(described(model))
    missing = [name for name in _OF_ONNX if values.format == "onnx" and importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"{' and '.join(missing)} missing: {how_to_install('onnx')}")
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
      source: the model to read.
    """
    values = flags.FLAGS
    if not source or not values.to:
        raise UserError("--model and --to are needed: the model to read and the folder to write")
    target = Path(values.to)
    is_empty = not target.exists() or (target.is_dir() and not any(target.iterdir()))
    if not is_empty and not values.overwrite:
        raise UserError(f"--to: {target} is not empty: give another folder, or --overwrite to write into it")
    parts = PARTS.get(values.format, ())
    if values.part is not None and values.part not in parts:
        offered = f"offers --part {', '.join(parts)}" if parts else "holds the whole model"
        raise UserError(f"--part {values.part}: --format {values.format} {offered}")
    if values.dtype != "float32" and values.format not in ("electra", *_OF_TRANSFORMERS):
        raise UserError(f"--dtype {values.dtype}: {values.format} stores float32")
    if (values.step or values.adam_slots) and values.format != "tf1":
        raise UserError("--step and --adam-slots are for --format tf1")


def write(model: "StoredModel", target: Path) -> None:
    """Writes a model in the format of --format, and prints what was written and how far it is from our network."""
    from electra_tf2.exports.exportable import Options, report

    values = flags.FLAGS
    default_part = "" if values.format == "electra" else "main"  # a folder of ours holds the generator, too
    options = Options(values.part or default_part, values.dtype, values.step, values.adam_slots)
    module, function = WRITERS[values.format]
    convert = getattr(importlib.import_module(f"electra_tf2.exports.{module}"), function)
    written = convert(target, model, options)
    print(f"wrote {written.what}")
    print(report(written.difference, values.dtype, f"our network and {written.compared}"))


def remove_unfinished(target: Path) -> None:
    """Removes what conversions that were killed left unfinished in a folder, under temporary names."""
    remove_left_over(target)
    for path in target.glob("*.tmp"):
        if re.fullmatch(r"model\.ckpt-\d+\.tmp", path.name) and path.is_dir():
            shutil.rmtree(path)


flags.DEFINE_string("model", None, "model to read: a folder, a directory, a checkpoint, or the name of a shipped model")
flags.DEFINE_string("from", None, "the same as --model")
util_flags.hide("from")
flags.DEFINE_string("to", None, "folder to write")
flags.DEFINE_enum("format", "electra", [*WRITERS], "format to write")
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
