"""The objectives that a configuration asks for, and how checkpoints know their layers."""

from collections.abc import Sequence

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.layers import Layer
from electra_tf2.pretrain.objectives.ablations import AdversarialGenerator, AllTokensMLM, ReplaceMLM
from electra_tf2.pretrain.objectives.bert import MaskedLM
from electra_tf2.pretrain.objectives.coco_lm import CopyDetection, CorrectiveLM
from electra_tf2.pretrain.objectives.electra import ReplacedTokenDetection
from electra_tf2.pretrain.objectives.electric import ClozeLM, NoiseContrastive
from electra_tf2.pretrain.objectives.objective import Networks, Objective


def generator_objective(config: PretrainingConfig, networks: Networks, main: Sequence[Objective]) -> Objective:
    """The loss term of the generator, or of BERT's only network."""
    if config.adversarial_generator:
        detection = next(objective for objective in main if isinstance(objective, ReplacedTokenDetection))
        return AdversarialGenerator(config, networks, detection)
    return (ClozeLM if config.two_tower_generator else MaskedLM)(config, networks)


def main_objectives(config: PretrainingConfig, networks: Networks) -> list[Objective]:
    """The loss terms of the main network; none for BERT."""
    if config.electra_objective:
        return [ReplacedTokenDetection(config, networks)]
    if config.electric_objective:
        return [NoiseContrastive(config, networks)]
    if config.replace_mlm_objective or config.all_tokens_mlm_objective:
        return [(ReplaceMLM if config.replace_mlm_objective else AllTokensMLM)(config, networks)]
    if config.corrective_lm_objective:
        copy = CopyDetection(config, networks)
        return [copy, CorrectiveLM(config, networks, copy)]
    return []


def layers_of(objectives: Sequence[Objective]) -> list[Layer]:
    """A layer for each objective, which holds its layers and variables under the names of its attributes.

    Objectives are plain objects, in which Keras finds no variables. One that another uses is tracked once.
    """
    layers: dict[int, Layer] = {}  # by id of the objective

    def layer_of(objective: Objective) -> Layer:
        if id(objective) not in layers:
            layers[id(objective)] = layer = Layer("")
            for name, value in vars(objective).items():
                if isinstance(value, Objective):
                    setattr(layer, name, layer_of(value))
                elif any(isinstance(part, tf.Module | tf.Variable) for part in tf.nest.flatten(value)):
                    setattr(layer, name, value)
        return layers[id(objective)]

    return tf.__internal__.tracking.wrap([layer_of(objective) for objective in objectives])
