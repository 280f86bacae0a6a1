"""Converts models from and to Hugging Face, the original's TF1 checkpoints, tf-models-official and our own folders.

  electra convert --from data/models/electra_small --to hf --format huggingface

--from takes a run, a self-contained folder, the name of a shipped model, a Hugging Face directory (ELECTRA or BERT), a
TF1 checkpoint of the original or a checkpoint of tf-models' encoder, and finds out which it is. --format is what --to
becomes:

  electra      a self-contained folder: configuration, weights (safetensors),
               vocabulary; --part main: without the generator
  huggingface  a directory for transformers: the main network with its head, or
               --part generator, --part body
  tf1          a checkpoint for google-research/electra
  tf_models    a checkpoint of official.nlp.modeling's encoder
  saved_model  a SavedModel that takes strings, with the tokenizer inside
  sentence_transformers
               a folder for SentenceTransformer(path): encoder, pooling,
               normalisation
  onnx         any of our networks for ONNX Runtime and others, with its
               tokenizer's files; --quantize int8; --part body: states and a
               vector of the whole text, --part generator
  tflite       the same for LiteRT (TensorFlow Lite)

Every conversion is checked: fixed sentences go through our network and through what was written, read back from the
disk, and the largest difference is printed; above 1e-5 in float32 the command fails.
"""

import importlib.util
import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from electra_tf2.corpus.vocabulary import TOKENIZER_FILE
from electra_tf2.util import flags as util_flags
from electra_tf2.util.environment import quiet_tensorflow
from electra_tf2.util.errors import UserError
from electra_tf2.util.files import remove_left_over, write_atomically

if TYPE_CHECKING:
    from electra_tf2.convert.network_file import Exportable
    from electra_tf2.formats.stored_model import StoredModel


FORMATS = ["electra", "huggingface", "tf1", "tf_models", "saved_model", "sentence_transformers", "onnx", "tflite"]
_OF_TRANSFORMERS = ("huggingface", "sentence_transformers")
_INT8 = ("onnx", "tflite")
_WORDPIECE = ("tf1", "tf_models", "saved_model")
PARTS = {
    "huggingface": ("main", "generator", "body"),
    "onnx": ("main", "generator", "body"),
    "tflite": ("main", "generator", "body"),
    "electra": ("main",),
}


def main() -> int:
    values = flags.FLAGS
    if not values["from"].value or not values.to:
        raise UserError("--from and --to are needed: the model to read and the folder to write")
    target = Path(values.to)
    if target.exists() and (not target.is_dir() or any(target.iterdir())) and not values.overwrite:
        raise UserError(f"--to: {target} is not empty: give another folder, or --overwrite to write into it")
    parts = PARTS.get(values.format, ())
    if values.part is not None and values.part not in parts:
        offered = f"offers --part {', '.join(parts)}" if parts else "holds the whole model"
        raise UserError(f"--part {values.part}: --format {values.format} {offered}")
    if values.quantize != "none" and values.format not in _INT8:
        raise UserError(f"--quantize {values.quantize}: for --format {' and '.join(_INT8)}")
    if values.dtype != "float32" and values.format not in ("electra", *_OF_TRANSFORMERS):
        raise UserError(f"--dtype {values.dtype}: {values.format} stores float32")
    if (values.step or values.adam_slots) and values.format != "tf1":
        raise UserError("--step and --adam-slots are for --format tf1")

    quiet_tensorflow()  # whose products of float32 are not precise enough for the check on many GPUs (TF32)

    from electra_tf2.convert import self_check as check
    from electra_tf2.formats.folders import located
    from electra_tf2.formats.readers import check_given, read_model
    from electra_tf2.formats.stored_model import Given
    from electra_tf2.inference.configured import with_own_layers

    source = located(values["from"].value)
    given = Given(values.vocab_file, values.num_attention_heads, values.do_lower_case, values.pairs)
    check_given(source, given)
    model = read_model(source, given)
    count = sum(value.size for value in model.weights.values())
    sizes = model.architecture
    print(
        f"read {model.origin}: {sizes.num_hidden_layers} layers of {sizes.hidden_size} with "
        f"{sizes.num_attention_heads} heads, {count:,} parameters, {len(model.tokens):,} tokens"
    )
    for name in model.left_out:
        print(f"  left out, as our networks have no such part: {name}")
    if values.format in _WORDPIECE and model.tokenizer_file:
        raise UserError(
            f"--format {values.format} holds a WordPiece vocabulary, {model.tokenizer_file} is of another tokenizer: "
            "--format huggingface, onnx and electra keep it as it is"
        )
    if values.format in ("tf1", "tf_models", *_OF_TRANSFORMERS) and model.architecture.share_layers != "none":
        print(f"share_layers {model.architecture.share_layers}: the weights that layers share are written for each")
        model = with_own_layers(model)
    write = {"electra": to_folder, "huggingface": to_huggingface, "tf1": to_tf1, "tf_models": to_tf_models,
             "saved_model": to_saved_model, "sentence_transformers": to_sentence_transformers,
             "onnx": to_onnx, "tflite": to_litert}  # fmt: skip
    made = not target.exists()
    remove_unfinished(target)
    try:
        written, difference, compared = write[values.format](model, target)
        print(f"wrote {written}")
        print(check.report(difference, values.dtype, f"our network and {compared}"))
    except BaseException:
        if made:
            shutil.rmtree(target, ignore_errors=True)
        raise
    return 0


def remove_unfinished(target: Path) -> None:
    """Removes what conversions that were killed left unfinished in a folder, under temporary names."""
    remove_left_over(target)
    for path in target.glob("*.tmp"):
        if re.fullmatch(r"model\.ckpt-\d+\.tmp", path.name) and path.is_dir():
            shutil.rmtree(path)


# Each writes a model to a folder and returns what it wrote, the largest difference, and what was compared with.
Written = tuple[str, float, str]


def to_folder(model: "StoredModel", target: Path) -> Written:
    from electra_tf2.convert import self_check as check
    from electra_tf2.convert.own_folder import write_folder
    from electra_tf2.formats.readers import read_model
    from electra_tf2.inference.configured import without_generator

    if flags.FLAGS.part == "main":
        model = without_generator(model)
    write_folder(target, model, flags.FLAGS.dtype)
    difference = check.read_back_difference(model, read_model(str(target)))
    vocabulary = TOKENIZER_FILE if model.tokenizer_file else "vocab.txt"
    return f"{target}: config.json, model.safetensors, {vocabulary}", difference, "that of the folder"


def to_huggingface(model: "StoredModel", target: Path) -> Written:
    from electra_tf2.convert import self_check as check
    from electra_tf2.convert.huggingface import to_huggingface, write_huggingface

    part = flags.FLAGS.part or "main"
    exported = to_huggingface(model, part)
    name = exported.class_name
    write_huggingface(target, model, exported, flags.FLAGS.dtype)
    left_out = [f"\n  left out, as {name} has no such part: {what}" for what in exported.left_out]
    difference = check.huggingface_difference(model, exported, str(target), part)
    return f"{target}: {name} with tokenizer and model card{''.join(left_out)}", difference, name


def to_sentence_transformers(model: "StoredModel", target: Path) -> Written:
    from electra_tf2.convert import sentence_transformers

    exported = sentence_transformers.write_sentence_transformer(target, model, flags.FLAGS.dtype)
    difference = sentence_transformers.difference(model, target)
    return f"{target}: {exported.class_name}, pooling and normalisation", difference, "the folder's, vectors included"


def to_tf1(model: "StoredModel", target: Path) -> Written:
    from electra_tf2.convert import original
    from electra_tf2.convert import self_check as check
    from electra_tf2.formats import original_config
    from electra_tf2.formats.readers import read_model
    from electra_tf2.inference.configured import config_of

    step, adam_slots = flags.FLAGS.step, flags.FLAGS.adam_slots
    prefix = original.write_checkpoint(target, model.weights, model.architecture, step, adam_slots)
    write_atomically(target / "vocab.txt", "".join(f"{token}\n" for token in model.tokens))
    hparams = json.dumps(original.original_hparams(config_of(model)), indent=2)
    write_atomically(target / original_config.HPARAMS, f"{hparams}\n")
    difference = check.read_back_difference(model, read_model(str(target)))
    return f"{prefix}; hparams.json holds the --hparams that the original needs with it", difference, "the checkpoint's"


def to_tf_models(model: "StoredModel", target: Path) -> Written:
    from electra_tf2.convert import self_check as check
    from electra_tf2.convert import tf_models

    prefix = tf_models.write_checkpoint(target, model.weights, model.architecture)
    write_atomically(target / "vocab.txt", "".join(f"{token}\n" for token in model.tokens))
    difference = check.tf_models_difference(model, prefix)
    return f"{prefix}: the encoder, without heads; its pooler has random weights", difference, "tf-models'"


def to_saved_model(model: "StoredModel", target: Path) -> Written:
    from electra_tf2.convert import saved_model
    from electra_tf2.convert import self_check as check
    from electra_tf2.inference.configured import make_network

    if model.is_fine_tuned:
        from electra_tf2.inference.predictor import Predictor

        tokenizer = saved_model.tokenizer_of(model, model.hparams["max_seq_length"])
        predictor = Predictor(model, model.tokenizer())
        signatures = saved_model.task_signatures(predictor, tokenizer)
        written = saved_model.write_saved_model(target, signatures, predictor.model.trainable_variables, tokenizer)
        difference = saved_model.difference_from_strings(predictor, tokenizer, written)
    else:
        network = make_network(model)
        tokenizer = saved_model.tokenizer_of(model)
        signatures = saved_model.pretrained_signatures(network, tokenizer)
        written = saved_model.write_saved_model(target, signatures, network.trainable_variables, tokenizer)
        difference = check.saved_model_difference(model, written)
    return f"{written} with signatures {', '.join(signatures)}", difference, "the SavedModel, from strings"


def to_onnx(model: "StoredModel", target: Path) -> Written:
    needed("onnx", "onnx", "onnxruntime", "tf2onnx")
    from electra_tf2.convert.onnx import write_onnx

    return *write_onnx(target, model, exportable(model), flags.FLAGS.quantize == "int8"), "that of ONNX Runtime"


def to_litert(model: "StoredModel", target: Path) -> Written:
    from electra_tf2.convert.litert import write_litert

    return *write_litert(target, model, exportable(model), flags.FLAGS.quantize == "int8"), "that of LiteRT"


def exportable(model: "StoredModel") -> "Exportable":
    """The network of --part, with the heads of a fine-tuned model."""
    from electra_tf2.convert import network_file
    from electra_tf2.inference.configured import embeds
    from electra_tf2.inference.predictor import Predictor

    part = flags.FLAGS.part or "main"
    if not model.is_fine_tuned or part != "main" or embeds(model):
        return network_file.pretrained(model, part)
    return network_file.fine_tuned(Predictor(model, model.tokenizer()))


def needed(extra: str, *modules: str) -> None:
    """Raises UserError if modules that an extra installs are not there."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f'{" and ".join(missing)} missing: pip install "electra-tf2[{extra}]"')


flags.DEFINE_string("from", None, "model to read: a folder, a directory, a checkpoint, or the name of a shipped model")
flags.DEFINE_string("to", None, "folder to write")
flags.DEFINE_enum("format", "electra", FORMATS, "format to write")
flags.DEFINE_enum(
    "part",
    None,
    ["main", "generator", "body"],
    "part of the model to write; default: the main network, or where there is no choice the whole model",
)
flags.DEFINE_enum("quantize", "none", ["none", "int8"], "int8 weights and matrix products, for onnx and tflite")
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
