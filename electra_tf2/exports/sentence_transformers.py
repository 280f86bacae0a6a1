"""Folders that `SentenceTransformer(path)` opens: a Hugging Face directory of the encoder and the modules after it.

config.json, model.safetensors, tokenizer.json, ...   the encoder, for transformers
modules.json               the modules in order: encoder, pooling, projection if there is one, normalisation
1_Pooling/config.json      mean or [CLS]
2_Dense/                   config.json, model.safetensors of the projection
sentence_bert_config.json  the longest input
"""

from pathlib import Path

import numpy as np

from electra_tf2.convert.huggingface import Exported, to_huggingface, write_huggingface
from electra_tf2.corpus.encoding import Encoded
from electra_tf2.exports import self_check as check
from electra_tf2.exports.cards import FOLDER, card, sizes_of
from electra_tf2.exports.network_file import INPUTS, SENTENCE, pretrained
from electra_tf2.files.reading import read_json
from electra_tf2.files.writing import write_atomically, write_json
from electra_tf2.formats.folders import read_config
from electra_tf2.formats.huggingface import load_tensors
from electra_tf2.formats.readers import read_model
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.formats.tensor_file import FILE_NAME, write_tensors
from electra_tf2.inference.configured import make_network, pooling_of
from electra_tf2.inference.network import STATES

_MODULES = "sentence_transformers.models."  # the classes of all versions so far
_MODES = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}


def convert(folder: Path, model: StoredModel, options: check.Options) -> check.Written:
    """Writes a folder as `write_sentence_transformer`."""
    exported = write_sentence_transformer(folder, model, options.dtype)
    what = f"{folder}: {exported.class_name}, pooling and normalisation"
    return check.Written(what, difference(model, folder), "the folder's, vectors included")


def write_sentence_transformer(folder: Path, model: StoredModel, dtype: str = "float32") -> Exported:
    """Writes the folder; modules.json last, so that one which has it is complete.

    Raises:
      UserError: transformers has no class for the encoder.
    """
    exported, pooling, network = to_huggingface(model, "body"), pooling_of(model), make_network(model)
    write_huggingface(folder, model, exported, dtype)
    longest = min(512, model.architecture.max_position_embeddings)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": longest, "do_lower_case": False})
    hidden, width = model.architecture.hidden_size, network.width
    said = {name: mode == pooling for mode, name in _MODES.items()}
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": hidden} | said)
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    if network.projection is not None:
        modules.append(("2_Dense", "Dense"))
        identity = "torch.nn.modules.linear.Identity"
        sizes = {"in_features": hidden, "out_features": width, "bias": True, "activation_function": identity}
        write_json(folder / "2_Dense" / "config.json", sizes)
        kernel, bias = network.projection.kernel.numpy(), network.projection.bias.numpy()
        write_tensors(folder / "2_Dense" / FILE_NAME, {"linear.weight": kernel.T, "linear.bias": bias}, dtype)
    modules.append((f"{len(modules)}_Normalize", "Normalize"))
    (folder / modules[-1][0]).mkdir(exist_ok=True)
    write_atomically(folder / "README.md", _card(model, width, pooling))
    listed = [{"idx": number, "name": str(number), "path": path, "type": f"{_MODULES}{kind}"}
              for number, (path, kind) in enumerate(modules)]  # fmt: skip
    write_json(folder / "modules.json", listed)
    return exported


def difference(model: StoredModel, folder: Path) -> float:
    """The largest difference between our states and vectors on the fixed sentences and those that the files say."""
    rows, theirs = check.check_inputs(model), check.outputs(read_model(folder), "body")
    theirs[SENTENCE] = _vectors(folder, theirs[STATES], rows)
    ours = pretrained(model, "body").run(dict(zip(INPUTS, rows, strict=True)))
    return check.largest_at_tokens(ours, theirs, rows)


def _vectors(folder: Path, states: np.ndarray, rows: Encoded) -> np.ndarray:
    """Result of the modules after the encoder, of its states [B, L, H]."""
    found = states
    for module in read_json(folder / "modules.json", "modules", list)[1:]:
        path, kind = folder / module["path"], module["type"].removeprefix(_MODULES)
        if kind == "Pooling":
            averages = (read_config(path) or {})[_MODES["mean"]]
            marks = rows.input_mask[:, :, np.newaxis]
            found = (states * marks).sum(1) / marks.sum(1) if averages else states[:, 0]
        elif kind == "Dense":
            tensors = load_tensors(path)
            found = found @ tensors["linear.weight"].T + tensors["linear.bias"]
        else:
            found = found / np.linalg.norm(found, axis=-1, keepdims=True)
    return found


def _card(model: StoredModel, width: int, mode: str) -> str:
    pooled = {"mean": "the mean of all tokens' states", "cls": "the state of [CLS]"}[mode]
    header = ["library_name: sentence-transformers", "pipeline_tag: sentence-similarity"]
    about = [
        f"Vectors of {width} numbers and length 1 for sentences: {pooled}. Converted from {model.origin}.",
        sizes_of(model),
    ]
    usage = f"""
from sentence_transformers import SentenceTransformer

vectors = SentenceTransformer("{FOLDER}").encode(["A sentence."])
"""
    return card(model, header, about, usage)
