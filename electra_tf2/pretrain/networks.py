"""The networks of a run, made from its configuration: the main network, and a generator with what the two share.

A paper with a network of its own makes it from the parts here (`PretrainingModel.make_networks`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar

from electra_tf2.configure_pretraining import GeneratorKind, PretrainingConfig
from electra_tf2.model.encoder import Embeddings, Encoder
from electra_tf2.model.generators import TwoTowerClozeModel, UniformGenerator
from electra_tf2.model.heads import MaskedLanguageModel

E = TypeVar("E", bound=Encoder)
Generator: TypeAlias = MaskedLanguageModel | TwoTowerClozeModel | UniformGenerator


class Networks(NamedTuple):
    """The networks of a run.

    encoder: the network that is pre-trained: ELECTRA's main network, or BERT's only one.
    generator: a model of its own, or a head on `encoder`.
    """

    encoder: Encoder
    generator: Generator


def make_networks(config: PretrainingConfig) -> Networks:
    """Makes the networks of a run of the core."""
    encoder = make_encoder(config)
    return Networks(encoder, make_generator(config, encoder))


def _network_arguments(config: PretrainingConfig) -> dict[str, Any]:
    """Arguments that are the same for all networks of a run."""
    return {"compute_dtype": config.precision, "seed": config.seed, "recompute": config.recompute}


def make_encoder(config: PretrainingConfig, encoder_class: Callable[..., Encoder] = Encoder) -> Encoder:
    """Makes the network that is pre-trained: ELECTRA's main network, or BERT's only one."""
    return encoder_class("electra", config.architecture, **_network_arguments(config))


def make_generator(config: PretrainingConfig, main: Encoder) -> Generator:
    """Makes the generator of a run, which may share embeddings or all weights with the main network.

    ELECTRA, section 3.2, compares these.

    Args:
      main: ELECTRA's main network, or BERT's only one.
    """
    kind = config.generator_kind
    if kind is GeneratorKind.MASKED_LM:
        return MaskedLanguageModel(make_generator_encoder(config, main, Encoder), seed=config.seed)
    if kind is GeneratorKind.TWO_TOWERS:
        embeddings = _generator_embeddings(config, main.embeddings)
        return TwoTowerClozeModel(config.generator_architecture, embeddings, **_network_arguments(config))
    if kind is GeneratorKind.UNIFORM:
        return UniformGenerator(config.vocab_size)
    # BERT, and a generator that shares all weights: a head on the main network.
    return MaskedLanguageModel(main, seed=config.seed)


def make_generator_encoder(config: PretrainingConfig, main: Encoder, encoder_class: Callable[..., E]) -> E:
    """Makes the encoder of a generator that is a masked language model of its own."""
    embeddings = _generator_embeddings(config, main.embeddings)
    return encoder_class("generator", config.generator_architecture, embeddings, **_network_arguments(config))


def _generator_embeddings(config: PretrainingConfig, main: Embeddings) -> Embeddings | None:
    """The embeddings that the generator shares with the main network; None where it makes its own."""
    if config.untied_generator_embeddings:
        return None
    if config.generator_sample_mode == "zero_dropout":
        # The generator's embeddings are dropped out at another rate, so only the word table is shared.
        return Embeddings("generator/embeddings", config.generator_architecture, config.seed, words=main)
    return main
