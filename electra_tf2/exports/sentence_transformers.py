"""Writes folders that `SentenceTransformer(path)` opens: the encoder for transformers, and the modules after it.

config.json, model.safetensors, tokenizer.json, ...   the encoder, for transformers
modules.json               the modules in order: encoder, pooling, projection if there is one, normalisation
1_Pooling/config.json      mean or [CLS]
2_Dense/                   config.json, model.safetensors of the projection
sentence_bert_config.json  the longest input

formats.sentence_modules reads the pooling and the length of such folders.
"""

from pathlib import Path

import numpy as np

from electra_tf2.corpus.encoding import Encoded
from electra_tf2.exports.card_programs import FOLDER
from electra_tf2.exports.cards import card, sizes_of
from electra_tf2.exports.conversions import outputs
from electra_tf2.exports.exportable import INPUTS, SENTENCE, Options, Written, make_exportable_network
from electra_tf2.exports.self_check import fixed_inputs, largest_at_tokens
from electra_tf2.files.reading import read_json
from electra_tf2.files.writing import write_json
from electra_tf2.formats.folders import read_config
from electra_tf2.formats.huggingface_export import Exported, to_huggingface, write_directory
from electra_tf2.formats.huggingface_tensors import load_tensors
from electra_tf2.formats.joining import with_unshared_layers
from electra_tf2.formats.readers import read_model
from electra_tf2.formats.sentence_modules import LENGTH_FILE, MODULES_FILE
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.formats.tensor_file import FILE_NAME, write_tensors
from electra_tf2.inference.model_config import make_network, pooling_in_files, pooling_of, with_config
from electra_tf2.inference.network import STATES
from electra_tf2.model.layers import Dense

_CLASSES = "sentence_transformers.models."  # of the modules, in all versions so far
_MODES = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}
_UNTRAINED = (
    "Nothing says that this encoder was trained to give vectors of sentences. A detector or a language model was not, "
    "and finds all texts alike: `electra finetune --task-names sentence_embedding` trains it for that"
)
_POOLING_FOLDER = "1_Pooling"
_DENSE_FOLDER = "2_Dense"


def convert(folder: Path, model: StoredModel, options: Options) -> Written:
    """Writes a folder and checks it."""
    exported = write_sentence_transformer(folder, model, options.dtype)
    summary = f"{folder}: {exported.class_name}, pooling and normalisation"
    if not pooling_in_files(model):
        summary += f". {_UNTRAINED}"
    return Written(summary, difference(model, folder), "the folder's, vectors included")


def write_sentence_transformer(folder: Path, model: StoredModel, dtype: str = "float32") -> Exported:
    """Writes a folder. modules.json comes last: a folder that has it is complete.

    Raises:
      UserError: transformers has no class for the encoder.
    """
    model = with_unshared_layers(with_config(model))
    exported = to_huggingface(model, "body")
    pooling = pooling_of(model)
    network = make_network(model)
    write_directory(folder, model, exported, dtype, _card(model, network.width, pooling))
    write_json(folder / LENGTH_FILE, {"max_seq_length": model.max_length, "do_lower_case": False})
    modes = {field: mode == pooling for mode, field in _MODES.items()}
    config = {"word_embedding_dimension": model.architecture.hidden_size} | modes
    write_json(folder / _POOLING_FOLDER / "config.json", config)
    modules = [("", "Transformer"), (_POOLING_FOLDER, "Pooling")]
    if network.projection is not None:
        _write_projection(folder / _DENSE_FOLDER, network.projection, dtype)
        modules.append((_DENSE_FOLDER, "Dense"))
    normalisation = f"{len(modules)}_Normalize"
    (folder / normalisation).mkdir(exist_ok=True)
    modules.append((normalisation, "Normalize"))
    entries = []
    for index, (path, class_name) in enumerate(modules):
        entries.append({"idx": index, "name": str(index), "path": path, "type": f"{_CLASSES}{class_name}"})
    write_json(folder / MODULES_FILE, entries)
    return exported


def _write_projection(folder: Path, projection: Dense, dtype: str) -> None:
    kernel = projection.kernel.numpy()
    inputs, outputs = kernel.shape
    config = {
        "in_features": inputs,
        "out_features": outputs,
        "bias": True,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    write_json(folder / "config.json", config)
    tensors = {"linear.weight": kernel.T, "linear.bias": projection.bias.numpy()}
    write_tensors(folder / FILE_NAME, tensors, dtype)


def difference(model: StoredModel, folder: Path) -> float:
    """The largest difference of states and vectors of the fixed sentences between our network and the folder."""
    rows = fixed_inputs(model)
    theirs = outputs(read_model(folder), "body", rows)
    theirs[SENTENCE] = _vectors(folder, theirs[STATES], rows)
    ours = make_exportable_network(model, "body").run(dict(zip(INPUTS, rows, strict=True)))
    return largest_at_tokens(ours, theirs, rows)


def _vectors(folder: Path, states: np.ndarray, rows: Encoded) -> np.ndarray:
    """Runs the modules after the encoder as sentence-transformers does.

    Args:
      states: [B, L, H], the encoder's.

    Returns:
      [B, width], the vectors.
    """
    values = states
    modules = read_json(folder / MODULES_FILE, "modules", list)
    for module in modules[1:]:  # the first is the encoder
        path = folder / module["path"]
        class_name = module["type"].removeprefix(_CLASSES)
        if class_name == "Pooling":
            config = read_config(path) or {}
            if config[_MODES["mean"]]:
                mask = rows.input_mask[:, :, np.newaxis]
                values = (states * mask).sum(1) / mask.sum(1)
            else:
                values = states[:, 0]
        elif class_name == "Dense":
            tensors = load_tensors(path)
            values = values @ tensors["linear.weight"].T + tensors["linear.bias"]
        else:  # Normalize
            values = values / np.linalg.norm(values, axis=-1, keepdims=True)
    return values


def _card(model: StoredModel, width: int, pooling: str) -> str:
    pooled = {"mean": "the mean of all tokens' states", "cls": "the state of [CLS]"}[pooling]
    header = ["library_name: sentence-transformers", "pipeline_tag: sentence-similarity"]
    about = [
        f"Vectors of {width} numbers and length 1 for sentences: {pooled}. Converted from {model.origin}.",
        sizes_of(model),
    ]
    if not pooling_in_files(model):
        about.insert(0, f"**{_UNTRAINED}.**")
    usage = f"""
from sentence_transformers import SentenceTransformer

vectors = SentenceTransformer("{FOLDER}").encode(["The old man bought a house.", "An elderly man got a home."])
print("similarity:", vectors[0] @ vectors[1])
"""
    return card(model, header, about, usage)
