"""The table of formats that `electra convert` writes, and what each can hold. Imports nothing, so --help is fast."""

from typing import NamedTuple

_PARTS = ("main", "generator", "body")


class OutputFormat(NamedTuple):
    """A row of the table.

    module, function: the writer, a function (folder, model, options) -> Written of a module of exports/.
    parts: values of --part that it offers; (): there is no choice.
    default_part: --part if the user gives none; "": everything, with the generator.
    holds_half_precision: True if --dtype may be bfloat16 or float16.
    holds_any_tokenizer: False if it has a place for WordPiece's vocabulary only.
    holds_shared_layers: False if every layer gets a copy of the weights that layers share.
    packages: optional packages that the writer imports.
    """

    module: str
    function: str
    parts: tuple[str, ...] = ()
    default_part: str = "main"
    holds_half_precision: bool = False
    holds_any_tokenizer: bool = True
    holds_shared_layers: bool = True
    packages: tuple[str, ...] = ()


OUTPUT_FORMATS = {
    "electra": OutputFormat("conversions", "to_electra", parts=("main",), default_part="", holds_half_precision=True),
    "huggingface": OutputFormat(
        "conversions", "to_huggingface", parts=_PARTS, holds_half_precision=True, holds_shared_layers=False
    ),
    "tf1": OutputFormat("conversions", "to_original", holds_any_tokenizer=False, holds_shared_layers=False),
    "tf_models": OutputFormat("conversions", "to_tf_models", holds_any_tokenizer=False, holds_shared_layers=False),
    "saved_model": OutputFormat("saved_model", "convert"),
    "sentence_transformers": OutputFormat(
        "sentence_transformers", "convert", holds_half_precision=True, holds_shared_layers=False
    ),
    "onnx": OutputFormat("onnx", "convert", parts=_PARTS, packages=("onnx", "onnxruntime", "tf2onnx")),
    "tflite": OutputFormat("litert", "convert", parts=_PARTS),
}
