"""Which generator a run has, and what it shares with the main network (ELECTRA, section 3.2; Electric; COCO-LM;
DeBERTaV3; AMOS)."""

from typing import Any

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.embeddings import Embeddings
from electra_tf2.model.encoder import Encoder
from electra_tf2.model.generator import MaskedLanguageModel
from electra_tf2.model.other_generators import (
    BlockwiseEncoder,
    MixtureOfGenerators,
    TwoTowerClozeModel,
    UniformGenerator,
)

Generator = MaskedLanguageModel | TwoTowerClozeModel | UniformGenerator


def _how(config: PretrainingConfig) -> tuple[str, int, bool]:
    """The last arguments of every encoder: compute type, seed, whether layers are recomputed."""
    return config.precision, config.seed, config.recomputes_layers


def make_main_network(config: PretrainingConfig) -> Encoder:
    embeddings = None
    if config.embedding_sharing == "gdes":
        base = Embeddings("generator/embeddings", config.generator_architecture, config.seed)
        embeddings = Embeddings("electra/embeddings", config.architecture, config.seed, base=base)
    return Encoder("electra", config.architecture, embeddings, "both", *_how(config))


def make_generator(config: PretrainingConfig, main: Encoder | None) -> Generator:
    """The original's order: uniform wins; then a generator of its own; else the main network's weights.

    Args:
      main: the main network; None where nothing needs one.
    """
    if config.uniform_generator:
        return UniformGenerator(config.vocab_size)
    assert main is not None
    if not (config.trains_main_network and config.untied_generator):
        return MaskedLanguageModel(main, seed=config.seed)
    architecture = config.generator_architecture
    shared: Embeddings | None = main.embeddings
    if config.untied_generator_embeddings:
        shared = None
    elif config.embedding_sharing == "gdes":
        shared = main.embeddings.base
    elif config.generator_sample_mode == "zero_dropout":
        shared = Embeddings("generator/embeddings", architecture, config.seed, words=main.embeddings)
    if config.two_tower_generator:
        return TwoTowerClozeModel(architecture, shared, *_how(config))
    network: tuple[Any, ...] = ("generator", architecture, shared, "both", *_how(config))
    if config.generator_exits:
        return MixtureOfGenerators(BlockwiseEncoder(config.generator_exits, *network), seed=config.seed)
    return MaskedLanguageModel(Encoder(*network), seed=config.seed)
