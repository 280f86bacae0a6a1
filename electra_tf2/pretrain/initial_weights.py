"""Initial weights of a new run: a checkpoint for all of it, one for its generator."""

import re
from collections.abc import Callable

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.formats.readers import open_model
from electra_tf2.formats.stored_model import MASKED_LM, StoredModel
from electra_tf2.formats.weights import copy_encoder, generator_names, warm_start
from electra_tf2.model.heads import LanguageModelHead
from electra_tf2.model.other_heads import TiedHead
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import say

_LAYER = re.compile(r"(.+/encoder/layer_)(\d+)(/.+)")


def _but_other_shapes(
    names: Callable[[str], list[str]], start: StoredModel, part: tf.Module
) -> Callable[[str], list[str]]:
    """`names`, but for variables of a part of the model that the checkpoint has in another shape."""
    shapes = {variable.name.split(":")[0]: tuple(variable.shape) for variable in part.trainable_variables}

    def fits(name: str, there: str) -> bool:
        value = start.weights.get(there) if name in shapes else None
        return value is None or tuple(value.shape) == shapes[name]

    return lambda name: [there for there in names(name) if fits(name, there)]


def load_initial_weights(model: PretrainingModel, config: PretrainingConfig) -> None:
    """Loads init_checkpoint, then init_generator_checkpoint, then copies between the networks; prints what was loaded.

    Raises:
      UserError: no checkpoint there, one of other sizes, or one that lacks what is needed.
    """
    of_generator = {variable.name.split(":")[0] for variable in model.generator.trainable_variables}
    lacking: list[str] = []  # of the generator, in the checkpoint that it starts from
    model.load_own_start()
    if config.init_checkpoint:
        start = open_model(config.init_checkpoint)
        names = main_network_names(model, start)
        if config.stack_layers:
            # Layers of two are used 0, 1, 0, 1, ... (Gong et al. 2019, "Efficient Training of BERT by Progressively
            # Stacking", section 4).
            names = from_other_depth(model, start, names, lambda number, here, there: number % there)
        if config.init_generator_checkpoint:  # this one's generator is not needed, so it may be of another size
            names = _but_other_shapes(names, start, model.generator)
        report = warm_start(model, start, names)
        lacking = [name for name in report.missing if name in of_generator]
        if config.init_generator_checkpoint:  # which fills the generator, or is refused
            report = report._replace(missing=[name for name in report.missing if name not in of_generator])
        say(str(report))
    if config.init_generator_checkpoint:
        of_start = open_model(config.init_generator_checkpoint)
        report = warm_start(model.generator, of_start, names_of_generator(of_start))
        say(f"generator: loaded {len(report.loaded)} variables, {len(report.missing)} missing")
        heads = [name for name in report.missing if "_predictions/" in name]
        lacking = report.missing
        if len(heads) < len(lacking):
            other = [name for name in lacking if name not in heads]
            raise UserError(f"init_generator_checkpoint lacks {', '.join(other[:5])}")
        if heads:
            say(f"  an encoder alone: random values for {', '.join(heads)}")
    if config.freeze_generator and lacking:
        raise UserError(
            f"freeze_generator: {config.init_generator_checkpoint or config.init_checkpoint} lacks "
            f"{', '.join(lacking[:5])}, which would stay random: give a masked language model, or a generator with its "
            "embeddings, as --init-generator-checkpoint"
        )
    if config.init_encoder_from_generator:
        copy_encoder(model.generator.encoder, model.encoder)
        copied = copy_language_model(model)
        say(f"the main network starts as a copy of the generator{', its language model too' if copied else ''}")


def names_of_generator(start: StoredModel) -> Callable[[str], list[str]]:
    """Where a checkpoint may hold a variable of the generator, as `warm_start` asks. Of a generator and a main network
    only embeddings are shared: a layer that the one lacks is none of the other's."""
    if not start.has_generator:
        return generator_names
    return lambda name: generator_names(name) if name.startswith("generator/embeddings/") else [name]


def copy_language_model(model: PretrainingModel) -> list[str]:
    """Gives language models of the main network, whose states are a copy of the generator's, the generator's head.

    Returns:
      Names of the variables that were assigned: those that a head of the same kind and size has in the generator.
    """
    of_generator = {variable.name: variable for variable in model.generator.trainable_variables}
    heads, copied = _heads_of_main_network(model), []
    for variable in model.trainable_variables:
        scope, _, rest = variable.name.partition("/")
        source = of_generator.get(f"{MASKED_LM}/{rest}")
        if scope in heads and source is not None and source.shape == variable.shape:
            variable.assign(source)
            copied.append(variable.name)
    return copied


def _heads_of_main_network(model: PretrainingModel) -> set[str]:
    """Scopes of its language models."""
    of_generator = {id(variable) for variable in model.generator.trainable_variables}
    return {
        module.scope
        for module in model.submodules
        if isinstance(module, LanguageModelHead | TiedHead) and id(module.output_bias) not in of_generator
    }


def main_network_names(model: PretrainingModel, start: StoredModel) -> Callable[[str], list[str]]:
    """Where a checkpoint may hold a variable of the main network, as `warm_start` asks.

    A language model of the main network may go on as another's, whatever the head is called. A generator of its own has
    other states, so its head goes on as that of a generator only.
    """
    heads = _heads_of_main_network(model)
    language_model = start.language_model
    of_other_states = model.config.generator_kind.has_own_network and not start.has_generator

    def names(name: str) -> list[str]:
        scope, _, rest = name.partition("/")
        if scope in heads and language_model is not None:
            return [name, f"{language_model}/{rest}"]
        return [] if scope == MASKED_LM and of_other_states else [name]

    return names


def from_other_depth(
    model: PretrainingModel,
    start: StoredModel,
    names: Callable[[str], list[str]],
    layer: Callable[[int, int, int], int],
) -> Callable[[str], list[str]]:
    """`names`, but for layers of an encoder that the checkpoint has in another depth.

    Args:
      layer: number of the checkpoint's layer for a layer's number here, of the depth here, of the depth there.
    """
    here = _depths([variable.name for variable in model.trainable_variables])
    there = _depths(list(start.weights))

    def names_of(name: str) -> list[str]:
        found = _LAYER.fullmatch(name)
        if found is None or found[1] not in there:
            return names(name)
        scope, number, rest = found.groups()
        return names(f"{scope}{layer(int(number), here[scope], there[scope])}{rest}")

    return names_of


def _depths(names: list[str]) -> dict[str, int]:
    """Prefix such as "electra/encoder/layer_" -> number of layers that the variables' names count."""
    depths: dict[str, int] = {}
    for name in names:
        found = _LAYER.fullmatch(name)
        if found is not None:
            depths[found[1]] = max(depths.get(found[1], 0), int(found[2]) + 1)
    return depths
