"""Converts a model to one of the formats of `exports.output_formats`: `electra_tf2.convert`, and its parts.

`check_target` refuses what no model can be written as, before any is read; `write_model` writes one. `electra convert`
calls them, too. Imports no TensorFlow, so that a mistake is answered at once.
"""

import importlib
import importlib.util
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from electra_tf2.exports.output_formats import OUTPUT_FORMATS
from electra_tf2.files.writing import remove_left_over
from electra_tf2.util.environment import before_tensorflow, import_tensorflow
from electra_tf2.util.errors import UserError, closest, how_to_install, shown
from electra_tf2.util.progress import counted

if TYPE_CHECKING:
    from electra_tf2.exports.exportable import Options
    from electra_tf2.formats.stored_model import StoredModel
    from electra_tf2.inference.model import Model

DTYPES = ("float32", "bfloat16", "float16")


def convert(
    model: "Model | str | os.PathLike[str]",
    to: str | os.PathLike[str],
    format: str = "electra",
    *,
    part: str | None = None,
    dtype: str = "float32",
    overwrite: bool = False,
) -> Path:
    """Writes a model for another program, as `electra convert` does, and checks what was written.

    Args:
      model: a model, as `load` or `finetune` returns it, or what `load` reads.
      to: the folder to write.
      format: "electra" (a self-contained folder of ours), "huggingface", "saved_model", "onnx", "tflite",
        "sentence_transformers", "tf1" or "tf_models" (docs/exchange.md).
      part: "main", "generator" or "body"; default: the main network, or the whole model where the format holds it.
      dtype: of the stored weights, "float32", "bfloat16" or "float16".
      overwrite: whether the folder may hold files already.

    Returns:
      The folder.

    Raises:
      UserError: the format cannot hold the model, a package is missing, the folder is not empty, or what was written
        computes something else.
    """
    if not isinstance(to, (str, os.PathLike)):
        raise UserError(f"convert: to is the folder to write, not {shown(to)}")
    target = Path(to).expanduser()
    try:
        check_target(target, format, part, dtype, overwrite)
        before_tensorflow()
        import_tensorflow()
        import tensorflow as tf

        from electra_tf2.exports.exportable import Options
        from electra_tf2.inference.model import Model, load

        if isinstance(model, (str, os.PathLike)):
            model = load(model)
        if not isinstance(model, Model):
            raise UserError(f"model is a model, or the path or name of one, not {shown(model)}")
        # Products of float32 on many GPUs (TF32) are not precise enough for the self-check.
        with tf.device("CPU:0"):
            write_model(model.source, target, format, Options(part or OUTPUT_FORMATS[format].default_part, dtype))
    except UserError as error:
        raise UserError(f"convert: {_with_arguments(str(error))}") from None
    return target


def _with_arguments(message: str) -> str:
    """A message with arguments in the place of flags: "--part body" becomes part="body", "--to" to."""
    message = message.replace("--overwrite", "overwrite=True")
    # A flag with one value; "--format huggingface, onnx" names several.
    message = re.sub(r"--(format|part|dtype) ([a-z0-9_]+)\b(?!,)", r'\1="\2"', message)
    return re.sub(r"--(to|format|part|dtype)\b", r"\1", message)


def check_target(target: Path, format: str, part: str | None, dtype: str, overwrite: bool) -> None:
    """Raises UserError if a format has no such part or type of weights, lacks a package, or the folder is not empty.

    Args:
      part: None: the format's default.
    """
    for name, value, valid in (("format", format, OUTPUT_FORMATS), ("dtype", dtype, DTYPES)):
        if not isinstance(value, str) or value not in valid:
            raise UserError(f"--{name}: {shown(value)} is none of {', '.join(valid)}{closest(value, valid)}")
    output_format = OUTPUT_FORMATS[format]
    if target.is_file():
        raise UserError(f"--to: {target} is a file, but must be a folder")
    is_empty = not target.exists() or (target.is_dir() and not any(target.iterdir()))
    if not is_empty and not overwrite:
        raise UserError(f"--to: {target} is not empty: give another folder, or --overwrite to write into it")
    if part is not None and part not in output_format.parts:
        offered = "offers no choice of a part"
        if output_format.parts:
            offered = f"offers --part {', '.join(output_format.parts)}"
        raise UserError(f"--part {part}: --format {format} {offered}")
    if dtype != "float32" and not output_format.holds_half_precision:
        raise UserError(f"--dtype {dtype}: {format} stores float32")
    missing = [name for name in output_format.packages if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"{' and '.join(missing)} missing: {how_to_install(format)}")


def write_model(model: "StoredModel", target: Path, format: str, options: "Options") -> None:
    """Writes a model, and prints what was read and written and the result of the self-check.

    Raises:
      UserError: the format cannot hold the model, or what was written computes something else. A folder that was made
        for it is removed.
    """
    output_format = OUTPUT_FORMATS[format]
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
            f"--format {format} holds a WordPiece vocabulary, {model.tokenizer_file} is of another tokenizer: "
            "--format huggingface, onnx, saved_model and electra keep it as it is"
        )
    if sizes.share_layers != "none" and not output_format.holds_shared_layers:  # the writer unshares them
        print(f"share_layers {sizes.share_layers}: the weights that layers share are written for each")
    is_new = not target.exists()
    _remove_unfinished(target)
    try:
        _write_checked(model, target, format, options)
    except BaseException:
        if is_new:
            shutil.rmtree(target, ignore_errors=True)
        raise


def _write_checked(model: "StoredModel", target: Path, format: str, options: "Options") -> None:
    """Writes a model in a format, and prints what was written and the result of the self-check."""
    from electra_tf2.exports.self_check import report

    output_format = OUTPUT_FORMATS[format]
    module = importlib.import_module(f"electra_tf2.exports.{output_format.module}")
    written = getattr(module, output_format.function)(target, model, options)
    print(f"wrote {written.summary}")
    print(report(written.difference, options.dtype, f"our network and {written.compared_with}"))


def _remove_unfinished(target: Path) -> None:
    """Removes temporary files that killed conversions left in a folder."""
    remove_left_over(target)
    for path in target.glob("*.tmp"):
        if re.fullmatch(r"model\.ckpt-\d+\.tmp", path.name) and path.is_dir():
            shutil.rmtree(path)
