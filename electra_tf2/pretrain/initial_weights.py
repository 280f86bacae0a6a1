"""Initial weights of a new run: from init_checkpoint, from init_generator_checkpoint, copied between its networks."""

import enum
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
from electra_tf2.util.progress import counted, say, warn

_LAYER = re.compile(r"(.+/encoder/layer_)(\d+)(/.+)")

# Name of a variable of the model -> its possible names in a checkpoint, best first (formats.warm_start).
NamesInCheckpoint: TypeAlias = Callable[[str], list[str]]


class Start(enum.IntEnum):
    """How many of a new run's weights were loaded."""

    RANDOM = 0
    PARTLY = 1
    WHOLE = 2


def load_initial_weights(model: PretrainingModel, config: PretrainingConfig) -> Start:
    """Loads init_checkpoint, then init_generator_checkpoint, then copies between the networks; prints what was loaded.

    Raises:
      UserError: there is no checkpoint, or one of other sizes, or one that lacks what is needed.
    """
    missing: list[str] = []  # variables of the generator that its checkpoint lacks
    missing_in_main: list[str] = []  # variables of all else that init_checkpoint lacks
    if config.init_checkpoint:
        missing, missing_in_main = _load_checkpoint(model, config, config.init_checkpoint)
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
        too = ", its language model too" if copied else ""
        say(f"the main network starts as a copy of the generator{too}")
    if not (config.init_checkpoint or config.init_generator_checkpoint):
        return Start.RANDOM
    is_whole = config.init_checkpoint and not (missing or missing_in_main)
    return Start.WHOLE if is_whole else Start.PARTLY


def _load_checkpoint(model: PretrainingModel, config: PretrainingConfig, path: str) -> tuple[list[str], list[str]]:
    """Loads init_checkpoint. Returns those of the generator's variables that it lacks, and those of all else."""
    start = open_model(path)
    names = main_network_names(model, start)
    if config.stack_layers:
        # Two layers are used in the order 0, 1, 0, 1, ... (Gong et al. 2019, "Efficient Training of BERT by
        # Progressively Stacking", section 4).
        names = from_other_depth(model, start, names, lambda layer, depth, stored_depth: layer % stored_depth)
    if config.init_generator_checkpoint:
        # The generator comes from there, so that of init_checkpoint may have another size.
        names = _without_other_shapes(names, start, model.generator)
    report = warm_start(model, start, names)

    generator = {_name(variable) for variable in model.generator.trainable_variables}
    missing = [name for name in report.missing if name in generator]
    missing_in_main = [name for name in report.missing if name not in generator]
    if config.init_generator_checkpoint:
        # Not reported: init_generator_checkpoint has the generator's variables, or the run is refused.
        report = report._replace(missing=missing_in_main)
    say("\n".join(report.lines(path)))
    if len(missing) == len(generator) > 0 and not config.init_generator_checkpoint:
        say("  --init-generator-checkpoint gives the generator a start, too")
    holes = report.holes()
    if holes:
        warn(f"{path} lacks {counted(len(holes), 'variable')} of its network, which stay random: {_some(holes)}")
    return missing, missing_in_main


def _load_generator(model: PretrainingModel, path: str) -> list[str]:
    """Loads init_generator_checkpoint. Returns the variables that it lacks, which can only be those of the head."""
    start = open_model(path)
    report = warm_start(model.generator, start, generator_checkpoint_names(start))
    say(f"the generator, from {path}: loaded {counted(len(report.loaded), 'variable')}")
    missing_in_encoder = [name for name in report.missing if "_predictions/" not in name]
    if missing_in_encoder:
        raise UserError(f"init_generator_checkpoint lacks {', '.join(missing_in_encoder[:5])}")
    if report.missing:
        say("  new here, from random values: the masked language model's head, which an encoder alone lacks")
    return report.missing


def copy_language_model(model: PretrainingModel) -> list[str]:
    """Copies the generator's head to language models of the main network, where kind and size of the heads are equal.

    For a main network whose encoder is a copy of the generator's.

    Returns:
      Names of the variables that were assigned.
    """
    generator = {variable.name: variable for variable in model.generator.trainable_variables}
    heads = _main_language_models(model)
    copied = []
    for variable in model.trainable_variables:
        scope, _, rest = variable.name.partition("/")
        source = generator.get(f"{MASKED_LM}/{rest}")
        if scope in heads and source is not None and source.shape == variable.shape:
            variable.assign(source)
            copied.append(variable.name)
    return copied


def _main_language_models(model: PretrainingModel) -> set[str]:
    """Scopes of the main network's language models."""
    generator = {id(variable) for variable in model.generator.trainable_variables}
    scopes = set()
    for module in model.submodules:
        is_language_model = isinstance(module, LanguageModelHead | TiedHead)
        if is_language_model and id(module.output_bias) not in generator:
            scopes.add(module.scope)
    return scopes


# Names in checkpoints.


def main_network_names(model: PretrainingModel, start: StoredModel) -> NamesInCheckpoint:
    """Names that a variable of the model may have in init_checkpoint.

    A language model of the main network starts from any language model, whatever the head is called. The head of a
    generator with a network of its own starts from that of a generator only, since its states are others.
    """
    heads = _main_language_models(model)
    language_model = start.language_model
    generator_head_is_new = model.config.generator_kind.has_own_network and not start.has_generator

    def names(name: str) -> list[str]:
        scope, _, rest = name.partition("/")
        if scope in heads and language_model is not None:
            return [name, f"{language_model}/{rest}"]
        if scope == MASKED_LM and generator_head_is_new:
            return []
        return [name]

    return names


def generator_checkpoint_names(start: StoredModel) -> NamesInCheckpoint:
    """Names that a variable of the generator may have in init_generator_checkpoint.

    Where the checkpoint is of a generator and a main network, only embeddings may be the main network's.
    """

    def names(name: str) -> list[str]:
        may_be_shared = name.startswith("generator/embeddings/")
        if start.has_generator and not may_be_shared:
            return [name]
        return generator_names(name)

    return names


def from_other_depth(
    model: PretrainingModel,
    start: StoredModel,
    names: NamesInCheckpoint,
    layer: Callable[[int, int, int], int],
) -> NamesInCheckpoint:
    """`names` with other indices of layers, for encoders that are stored with another depth.

    Args:
      layer: (index of a layer of the model, depth of the model, stored depth) -> index of a stored layer.
    """
    depths = _depths([variable.name for variable in model.trainable_variables])
    stored_depths = _depths(list(start.weights))

    def names_of_other_layer(name: str) -> list[str]:
        match = _LAYER.fullmatch(name)
        if match is None or match[1] not in stored_depths:
            return names(name)
        prefix, index, rest = match.groups()
        stored_index = layer(int(index), depths[prefix], stored_depths[prefix])
        return names(f"{prefix}{stored_index}{rest}")

    return names_of_other_layer


def _depths(names: list[str]) -> dict[str, int]:
    """Prefix such as "electra/encoder/layer_" -> depth: one more than the highest index in the variables' names."""
    depths: dict[str, int] = {}
    for name in names:
        match = _LAYER.fullmatch(name)
        if match is not None:
            prefix = match[1]
            depths[prefix] = max(depths.get(prefix, 0), int(match[2]) + 1)
    return depths


def _without_other_shapes(names: NamesInCheckpoint, start: StoredModel, part: tf.Module) -> NamesInCheckpoint:
    """`names` without those of variables of a part of the model that are stored in another shape."""
    shapes = {_name(variable): tuple(variable.shape) for variable in part.trainable_variables}

    def names_of_same_shape(name: str) -> list[str]:
        if name not in shapes:
            return names(name)
        fitting = []
        for stored_name in names(name):
            value = start.weights.get(stored_name)
            if value is None or tuple(value.shape) == shapes[name]:
                fitting.append(stored_name)
        return fitting

    return names_of_same_shape


def _some(names: list[str]) -> str:
    """The first of many names."""
    if len(names) <= 5:
        return ", ".join(names)
    return f"{', '.join(names[:5])} and {len(names) - 5} more"


def _name(variable: tf.Variable) -> str:
    """The variable's name without TensorFlow's ":0"."""
    return variable.name.split(":")[0]
