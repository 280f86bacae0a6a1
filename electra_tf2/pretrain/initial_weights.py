"""Initial weights of a new run: a checkpoint for all of it, one for its generator, copies between the networks."""

import re
from collections.abc import Callable
from typing import TypeAlias

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.formats.readers import open_model
from electra_tf2.formats.stored_model import MASKED_LM, StoredModel
from electra_tf2.formats.warm_start import copy_encoder, generator_names, warm_start
from electra_tf2.model.coco_lm_heads import TiedHead
from electra_tf2.model.heads import LanguageModelHead
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import say

_LAYER = re.compile(r"(.+/encoder/layer_)(\d+)(/.+)")

# From a variable of the model to its possible names in a checkpoint, best first, as `warm_start` asks.
NamesInCheckpoint: TypeAlias = Callable[[str], list[str]]


def load_initial_weights(model: PretrainingModel, config: PretrainingConfig) -> bool:
    """Loads init_checkpoint, then init_generator_checkpoint, then copies between the networks; prints what was loaded.

    Returns:
      False if there is neither: all weights stay random.

    Raises:
      UserError: no checkpoint there, one of other sizes, or one that lacks what is needed.
    """
    missing: list[str] = []  # variables of the generator that the checkpoint it starts from does not have
    if config.init_checkpoint:
        missing = _load_checkpoint(model, config, config.init_checkpoint)
    if config.init_generator_checkpoint:
        missing = _load_generator(model, config.init_generator_checkpoint)
    if config.freeze_generator and missing:
        raise UserError(
            f"freeze_generator: {config.init_generator_checkpoint or config.init_checkpoint} lacks "
            f"{', '.join(missing[:5])}, which would stay random: give a masked language model, or a generator with its "
            "embeddings, as --init-generator-checkpoint"
        )
    if config.init_encoder_from_generator:
        copy_encoder(model.generator.encoder, model.encoder)
        copied = copy_language_model(model)
        say(f"the main network starts as a copy of the generator{', its language model too' if copied else ''}")
    return bool(config.init_checkpoint or config.init_generator_checkpoint)


def _load_checkpoint(model: PretrainingModel, config: PretrainingConfig, path: str) -> list[str]:
    """Loads init_checkpoint. Returns the generator's variables that it lacks."""
    start = open_model(path)
    names = main_network_names(model, start)
    if config.stack_layers:
        # Layers of two are used 0, 1, 0, 1, ... (Gong et al. 2019, "Efficient Training of BERT by Progressively
        # Stacking", section 4).
        names = from_other_depth(model, start, names, lambda number, here, there: number % there)
    if config.init_generator_checkpoint:
        # This one's generator is not needed, so it may be of another size.
        names = _but_other_shapes(names, start, model.generator)
    report = warm_start(model, start, names)

    generator = {_name(variable) for variable in model.generator.trainable_variables}
    missing = [name for name in report.missing if name in generator]
    if config.init_generator_checkpoint:
        # The generator is filled from there, or the run is refused: no word of what is missing here.
        report = report._replace(missing=[name for name in report.missing if name not in generator])
    say(str(report))
    return missing


def _load_generator(model: PretrainingModel, path: str) -> list[str]:
    """Loads init_generator_checkpoint. Returns the variables that it lacks, of a head alone."""
    start = open_model(path)
    report = warm_start(model.generator, start, names_of_generator(start))
    say(f"generator: loaded {len(report.loaded)} variables, {len(report.missing)} missing")
    missing_of_encoder = [name for name in report.missing if "_predictions/" not in name]
    if missing_of_encoder:
        raise UserError(f"init_generator_checkpoint lacks {', '.join(missing_of_encoder[:5])}")
    if report.missing:
        say(f"  an encoder alone: random values for {', '.join(report.missing)}")
    return report.missing


def copy_language_model(model: PretrainingModel) -> list[str]:
    """Gives language models of the main network, whose states are a copy of the generator's, the generator's head.

    Returns:
      Names of the variables that were assigned: those that a head of the same kind and size has in the generator.
    """
    generator = {variable.name: variable for variable in model.generator.trainable_variables}
    heads = _heads_of_main_network(model)
    copied = []
    for variable in model.trainable_variables:
        scope, _, rest = variable.name.partition("/")
        source = generator.get(f"{MASKED_LM}/{rest}")
        if scope in heads and source is not None and source.shape == variable.shape:
            variable.assign(source)
            copied.append(variable.name)
    return copied


def _heads_of_main_network(model: PretrainingModel) -> set[str]:
    """Scopes of its language models."""
    generator = {id(variable) for variable in model.generator.trainable_variables}
    scopes = set()
    for module in model.submodules:
        is_language_model = isinstance(module, LanguageModelHead | TiedHead)
        if is_language_model and id(module.output_bias) not in generator:
            scopes.add(module.scope)
    return scopes


# Names in checkpoints.


def main_network_names(model: PretrainingModel, start: StoredModel) -> NamesInCheckpoint:
    """Names that a variable of the model may have in a checkpoint for all of it.

    A language model of the main network may go on as another's, whatever the head is called. A generator of its own has
    other states, so its head goes on as that of a generator only.
    """
    heads = _heads_of_main_network(model)
    language_model = start.language_model
    has_other_states = model.config.generator_kind.has_own_network and not start.has_generator

    def names(name: str) -> list[str]:
        scope, _, rest = name.partition("/")
        if scope in heads and language_model is not None:
            return [name, f"{language_model}/{rest}"]
        if scope == MASKED_LM and has_other_states:
            return []
        return [name]

    return names


def names_of_generator(start: StoredModel) -> NamesInCheckpoint:
    """Names that a variable of the generator may have in a checkpoint for it alone.

    Of a generator and a main network only embeddings are shared: a layer that the one lacks is none of the other's.
    """

    def names(name: str) -> list[str]:
        is_shared = name.startswith("generator/embeddings/")
        if start.has_generator and not is_shared:
            return [name]
        return generator_names(name)

    return names


def from_other_depth(
    model: PretrainingModel,
    start: StoredModel,
    names: NamesInCheckpoint,
    layer: Callable[[int, int, int], int],
) -> NamesInCheckpoint:
    """`names`, but for layers of an encoder that the checkpoint has in another depth.

    Args:
      layer: number of the checkpoint's layer for a layer's number here, of the depth here, of the depth there.
    """
    here = _depths([variable.name for variable in model.trainable_variables])
    there = _depths(list(start.weights))

    def names_of(name: str) -> list[str]:
        match = _LAYER.fullmatch(name)
        if match is None or match[1] not in there:
            return names(name)
        scope, number, rest = match.groups()
        return names(f"{scope}{layer(int(number), here[scope], there[scope])}{rest}")

    return names_of


def _depths(names: list[str]) -> dict[str, int]:
    """Prefix such as "electra/encoder/layer_" -> number of layers that the variables' names count."""
    depths: dict[str, int] = {}
    for name in names:
        match = _LAYER.fullmatch(name)
        if match is not None:
            prefix = match[1]
            depths[prefix] = max(depths.get(prefix, 0), int(match[2]) + 1)
    return depths


def _but_other_shapes(names: NamesInCheckpoint, start: StoredModel, part: tf.Module) -> NamesInCheckpoint:
    """`names`, but for variables of a part of the model that the checkpoint has in another shape."""
    shapes = {_name(variable): tuple(variable.shape) for variable in part.trainable_variables}

    def names_of(name: str) -> list[str]:
        if name not in shapes:
            return names(name)
        fitting = []
        for stored_name in names(name):
            value = start.weights.get(stored_name)
            if value is None or tuple(value.shape) == shapes[name]:
                fitting.append(stored_name)
        return fitting

    return names_of


def _name(variable: tf.Variable) -> str:
    """Its name without TensorFlow's ":0"."""
    return variable.name.split(":")[0]
