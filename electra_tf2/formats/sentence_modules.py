"""Reads the files that sentence-transformers adds to a Hugging Face directory: how states become a text's vector.

    modules.json                         the modules in order: encoder, pooling, normalisation
    1_Pooling/config.json                mean of the states, the state of [CLS], ...
    sentence_bert_config.json            the longest input
    config_sentence_transformers.json    prompts

exports.sentence_transformers writes them.
"""

from pathlib import Path

from electra_tf2.files.reading import field, read_json
from electra_tf2.util.errors import UserError, shown

MODULES_FILE = "modules.json"
LENGTH_FILE = "sentence_bert_config.json"
_PROMPTS_FILE = "config_sentence_transformers.json"
# Fields of a pooling module's configuration, behind "pooling_mode_". Exactly one must be true.
_MODES = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
_POOLINGS = {"cls_token": "cls", "mean_tokens": "mean"}  # the modes that can be read -> our name
_NEWER_NAMES = {"cls": "cls_token", "mean": "mean_tokens"}  # newer versions have one field `pooling_mode` instead
_HARMLESS_MODULES = ("Transformer", "Normalize")  # `embed` gives vectors of length 1 in any case


def pooling_in(folder: Path) -> str:
    """The pooling of a sentence-transformers folder, "mean" or "cls"; "" if the folder is none.

    Raises:
      UserError: the folder has a module, pooling or prompt that would be ignored; names it.
    """
    path = folder / MODULES_FILE
    if not path.is_file():
        return ""
    pooling = "mean"
    for module in read_json(path, "modules", list):
        kind = field(module, "type", str, str(path)).rpartition(".")[2]
        module_folder = folder / field(module, "path", str, str(path))
        if kind == "Pooling":
            pooling = _pooling_of_module(module_folder / "config.json")
        elif kind not in _HARMLESS_MODULES:
            raise UserError(
                f"{path}: a module of the kind {kind} is not read ({module_folder}), so vectors would be others"
            )
    _check_prompts(folder / _PROMPTS_FILE)
    return pooling


def _pooling_of_module(path: Path) -> str:
    config = read_json(path, "pooling")
    modes = [mode for mode in _MODES if config.get(f"pooling_mode_{mode}")]
    if "pooling_mode" in config:
        mode = str(config["pooling_mode"])
        modes = [_NEWER_NAMES.get(mode, mode)]
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        raise UserError(f"{path}: pooling by {' and '.join(modes) or 'nothing'} is not read, by mean or cls alone")
    return _POOLINGS[modes[0]]


def _check_prompts(path: Path) -> None:
    """Raises UserError if the folder's model expects a prompt before every text: our programs add none."""
    if not path.is_file():
        return
    config = read_json(path, "configuration")
    name = config.get("default_prompt_name")
    prompts = config.get("prompts") or {}
    if name and prompts.get(name):
        raise UserError(f"{path}: the prompt {shown(name)} before every text is not read, so vectors would be others")


def longest_in(folder: Path) -> int | None:
    """Number of tokens at which sentence-transformers cuts texts; None if the folder does not tell."""
    path = folder / LENGTH_FILE
    if not path.is_file():
        return None
    longest = read_json(path, "configuration").get("max_seq_length")
    has_room_for_text = type(longest) is int and longest > 2  # beside [CLS] and [SEP]
    return longest if has_room_for_text else None
