"""Hparams that follow from files, as a vocabulary's size and the sizes of a model to start from, and from `debug`.

They win over the recipe's and yield to the user's (config.flags). The configuration itself reads no files. Imports no
TensorFlow.
"""

import os
from collections.abc import Mapping
from typing import Any

from electra_tf2.config.hparams import layered
from electra_tf2.config.papers import paper_or_core
from electra_tf2.configure_pretraining import MAIN_OBJECTIVES, PretrainingConfig
from electra_tf2.formats.folders import vocabulary_hparams
from electra_tf2.formats.readers import find_model
from electra_tf2.formats.stored_model import StoredModel, check_shared_vocabulary
from electra_tf2.model.architecture import HEAD_SIZE, inner_width, make_architecture
from electra_tf2.training.run_folder import holds_debug_run
from electra_tf2.util.errors import UserError

# Hparams that `debug` implies.
DEBUG: dict[str, Any] = {
    "num_train_steps": 20,
    "num_warmup_steps": 2,
    "save_checkpoints_steps": 5,
    "iterations_per_loop": 1,
    "num_eval_steps": 2,
    "train_batch_size": 32,
    "embedding_size": None,
    "model_hparam_overrides": {
        "num_hidden_layers": 3, "hidden_size": 144, "intermediate_size": 576, "num_attention_heads": 4,
    },
}  # fmt: skip


def implied_hparams(hparams: Mapping[str, Any]) -> dict[str, Any]:
    """Hparams that files imply for a run, by the function of its paper if that has one, else by the core's.

    Arguments and errors are those of `implied_by_core`.
    """
    paper = hparams.get("paper")
    if not isinstance(paper, str):
        paper = ""  # refused later, with all wrong values
    return paper_or_core(paper, "implied_hparams", "implied_hparams", implied_by_core)(hparams)


def implied_by_core(hparams: Mapping[str, Any]) -> dict[str, Any]:
    """Hparams that files imply for any run.

    vocab_file implies vocab_size; init_checkpoint and init_generator_checkpoint imply sizes, vocabulary and casing.
    With `debug` the sizes are those of the small model; with stack_layers the number of layers stays the recipe's.

    Args:
      hparams: from recipe and user.

    Raises:
      UserError: wrong hparams; a folder holds a network that this toolkit cannot build; generator and main network do
        not fit.
    """
    config_class = PretrainingConfig.extended(hparams)
    hparams = config_class.checked(hparams)
    vocab_file = hparams.get("vocab_file") or _default_vocab_file(hparams)
    implied: dict[str, Any] = dict(vocabulary_hparams(vocab_file))
    if hparams.get("debug"):
        implied |= DEBUG
    elif _evaluates_debug_run(hparams):
        implied |= DEBUG | {"debug": True}
    model = find_model(hparams.get("init_checkpoint") or "")
    implied |= model.network
    implied |= model.generator_hparams

    # A stacked network is deeper than the model that it starts from.
    depth = hparams.get("model_hparam_overrides", {}).get("num_hidden_layers")
    if hparams.get("stack_layers") and depth and "model_hparam_overrides" in implied:
        implied = layered(config_class, implied, {"num_hidden_layers": depth}, by_entry=True)

    generator_path = hparams.get("init_generator_checkpoint") or ""
    if not generator_path and _is_pair(model):
        generator_path = model.path  # both networks start from it
    generator = find_model(generator_path)
    if generator.network:
        together = layered(config_class, hparams, implied)
        _check_generator_vocabulary(generator_path, generator, together)
        # With init_encoder_from_generator it is as large as the main network.
        if not hparams.get("init_encoder_from_generator"):
            implied |= _generator_sizes(generator_path, generator, together)
    return implied


def _is_pair(model: StoredModel) -> bool:
    """True if a model is a run of pre-training with a main network and a generator."""
    return model.is_run and any(model.hparams.get(objective) for objective in MAIN_OBJECTIVES)


def _evaluates_debug_run(hparams: Mapping[str, Any]) -> bool:
    """True if the folder that is only evaluated holds a run of `debug`: it is evaluated as what it is."""
    if "debug" in hparams or hparams.get("do_train", True):
        return False
    return holds_debug_run(PretrainingConfig.from_dict(_places(hparams)).model_dir)


def _places(hparams: Mapping[str, Any]) -> dict[str, Any]:
    """The hparams from which the path of a run's folder follows."""
    return {name: hparams[name] for name in ("data_dir", "model_name", "model_dir") if name in hparams}


def _default_vocab_file(hparams: Mapping[str, Any]) -> str:
    return os.path.join(hparams.get("data_dir", PretrainingConfig.data_dir), "vocab.txt")


def _check_generator_vocabulary(path: str, model: StoredModel, hparams: Mapping[str, Any]) -> None:
    """Raises UserError if the generator at `path` has another vocabulary than the run."""
    run_vocabulary = {
        "vocab_size": hparams.get("vocab_size", PretrainingConfig.vocab_size),
        "vocab_file": hparams.get("vocab_file") or _default_vocab_file(hparams),
        "do_lower_case": hparams.get("do_lower_case", PretrainingConfig.do_lower_case),
    }
    check_shared_vocabulary(f"init_generator_checkpoint {path}", model.network, run_vocabulary)


def _generator_sizes(path: str, model: StoredModel, hparams: Mapping[str, Any]) -> dict[str, Any]:
    """Hparams that give a run's generator the sizes of the stored model at `path`."""
    network = model.network
    is_pair = _is_pair(model)  # then `network` has the sizes of the main network

    sizes: dict[str, Any] = {}
    if hparams.get("untied_generator_embeddings"):
        sizes["generator_embedding_size"] = network["embedding_size"]
        if is_pair and model.hparams.get("untied_generator_embeddings"):
            sizes["generator_embedding_size"] = model.hparams.get("generator_embedding_size")
    if is_pair:
        return sizes

    vocab_size = network["vocab_size"]
    overrides = hparams.get("model_hparam_overrides", {})
    main = make_architecture(hparams.get("model_size", "small"), overrides, vocab_size, None)
    stored = make_architecture(network["model_size"], network["model_hparam_overrides"], vocab_size, None)
    if stored.hidden_size != main.hidden_size:
        # A generator of another width has heads and inner width by rule, unless generator_hparam_overrides has others.
        generator_overrides = hparams.get("generator_hparam_overrides", {})
        gated = generator_overrides.get("gated_mlp", main.gated_mlp)
        heads = generator_overrides.get("num_attention_heads", max(1, stored.hidden_size // HEAD_SIZE))
        inner = generator_overrides.get("intermediate_size", inner_width(stored.hidden_size, gated))
        if (stored.num_attention_heads, stored.intermediate_size) != (heads, inner):
            raise UserError(
                f"init_generator_checkpoint: {path} has {stored.num_attention_heads} heads and intermediate_size "
                f"{stored.intermediate_size}, but here a generator of width {stored.hidden_size} has {heads} and "
                f"{inner}: set both in generator_hparam_overrides"
            )
    sizes["generator_hidden_size"] = stored.hidden_size / main.hidden_size
    sizes["generator_layers"] = stored.num_hidden_layers / main.num_hidden_layers
    return sizes
