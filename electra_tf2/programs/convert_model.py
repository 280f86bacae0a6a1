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

from pathlib import Path

from absl import flags

from electra_tf2.config import flags as util_flags
from electra_tf2.exports.convert import DTYPES, check_target, write_model
from electra_tf2.exports.output_formats import OUTPUT_FORMATS
from electra_tf2.util.environment import use_processor_only
from electra_tf2.util.errors import UserError


def main() -> int:
    values = flags.FLAGS
    source = values.model or values["from"].value
    if not source or not values.to:
        raise UserError("--model and --to are needed: the model to read and the folder to write")
    target = Path(values.to)
    check_target(target, values.format, values.part, values.dtype, values.overwrite)
    if (values.step or values.adam_slots) and values.format != "tf1":
        raise UserError("--step and --adam-slots are for --format tf1")

    # Products of float32 on many GPUs (TF32) are not precise enough for the self-check.
    use_processor_only()

    from electra_tf2.exports.exportable import Options
    from electra_tf2.formats.folders import locate_model
    from electra_tf2.formats.readers import read_model
    from electra_tf2.formats.stored_model import Hints

    given = Hints(values.vocab_file, values.num_attention_heads, values.do_lower_case, values.pairs)
    model = read_model(locate_model(source), given)
    part = values.part or OUTPUT_FORMATS[values.format].default_part
    write_model(model, target, values.format, Options(part, values.dtype, values.step, values.adam_slots))
    return 0


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
flags.DEFINE_enum("dtype", "float32", DTYPES, "type of the stored weights")
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
