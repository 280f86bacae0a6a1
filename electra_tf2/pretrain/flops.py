"""Costs of a pre-training run: parameters and floating-point operations of its parts. Imports no TensorFlow.

The costs of generator, main network and heads are counted here, those of a paper's parts in its
`PretrainingConfig.further_parts`. run_pretraining prints them at start, flops_computation.py in tables.
"""

import dataclasses

from electra_tf2.config.phases import phases_of
from electra_tf2.configure_pretraining import GeneratorKind, PretrainingConfig
from electra_tf2.model.architecture import Architecture
from electra_tf2.model.costs import (
    Part,
    contrast_head,
    embedding_parameters,
    encoder,
    language_model_head,
    newton_schulz,
    norm_parameters,
    token_unit,
)


def model_parts(config: PretrainingConfig) -> list[Part]:
    """Parts of a step in the order in which they run. Shared parameters are counted once, with the first part."""
    parts = [Part("embeddings", embedding_parameters(config.architecture), 0)]
    if config.generator_kind is GeneratorKind.NONE:
        parts.append(_main_network(config))
        parts.append(_masked_lm_head(config.architecture, config.max_predictions_per_seq))
        return parts + config.further_parts()

    passes = _generator_passes(config) + _main_network_passes(config)
    parts += passes
    if config.gradient_accumulation_steps > 1 and config.needs_whole_batch:
        again = sum(part.forward_flops for part in passes)
        parts.append(Part("first pass, for the whole batch", 0, again, backward=False))
    return parts + _heads(config) + config.further_parts()


def _main_network(config: PretrainingConfig) -> Part:
    return encoder("main network", config.architecture, config.max_seq_length)


def _generator_passes(config: PretrainingConfig) -> list[Part]:
    """Passes of the generator; none if replacements are uniform draws."""
    kind = config.generator_kind
    if kind is GeneratorKind.UNIFORM:
        return []
    generator = config.generator_architecture
    masked = config.max_predictions_per_seq
    width = generator.hidden_size  # of the states that its language model reads
    if kind is GeneratorKind.SHARED:
        parts = [_main_network(config)._replace(name="generator"), _masked_lm_head(config.architecture, masked)]
    elif kind is GeneratorKind.TWO_TOWERS:
        width *= 2
        parts = _two_towers(config)
    else:
        network = encoder("generator", generator, config.max_seq_length, _own_tables(config))
        parts = [network, _masked_lm_head(generator, masked)]
        parts = [part._replace(backward=not config.freeze_generator) for part in parts]
    if config.generator_sample_mode == "eval":
        second_head = language_model_head("", width, generator, masked)
        again = sum(part.forward_flops for part in [*parts[:-1], second_head])
        parts.append(Part("generator, sampled without dropout", 0, again, backward=False))
    return parts


def _two_towers(config: PretrainingConfig) -> list[Part]:
    generator = config.generator_architecture
    length = config.max_seq_length
    tables = _own_tables(config)
    tables_of_second = 0
    if config.untied_generator_embeddings:
        tables_of_second = tables
    return [
        encoder("generator, left to right", generator, length, tables),
        encoder("generator, right to left", generator, length, tables_of_second),
        language_model_head("cloze head", 2 * generator.hidden_size, generator, length),
    ]


def _own_tables(config: PretrainingConfig) -> int:
    """Parameters of the generator's embeddings that the main network does not share."""
    generator = config.generator_architecture
    if config.untied_generator_embeddings:
        return embedding_parameters(generator)
    if config.generator_sample_mode == "zero_dropout":  # all but the word table
        return embedding_parameters(dataclasses.replace(generator, vocab_size=0))
    return 0


def _main_network_passes(config: PretrainingConfig) -> list[Part]:
    """Passes of the main network: on the corrupted text, and on crops for sequence contrast."""
    main_network = _main_network(config)
    if config.generator_kind is GeneratorKind.SHARED:
        main_network = main_network._replace(parameters=0)  # counted with the generator
    passes = [main_network]
    if config.sequence_contrast_objective:
        on_crops = encoder(f"main network on {config.crop_length} tokens", config.architecture, config.crop_length)
        passes.append(on_crops._replace(parameters=0))
    return passes


def _heads(config: PretrainingConfig) -> list[Part]:
    """Heads of the objectives (pretrain.objectives), apart from the generator's language model."""
    sizes = config.architecture
    hidden = sizes.hidden_size
    length = config.max_seq_length
    masked = config.max_predictions_per_seq
    parts = []
    if config.adversarial_generator:
        width = config.generator_architecture.hidden_size
        parts.append(Part("generator's baseline", width + 1, 2 * masked * width))
    if config.corrective_lm_objective:
        parts += [token_unit("copy head", sizes, length), _language_model(config, masked)]
    if config.electra_objective or config.electric_objective:
        parameters = hidden * hidden + hidden + hidden + 1
        if sizes.head_style == "modernbert":
            parameters += norm_parameters(sizes, hidden)
        parts.append(Part("detection head", parameters, 2 * length * (hidden * hidden + hidden)))
    if config.replace_mlm_objective:
        parts.append(_language_model(config, masked))
    if config.all_tokens_mlm_objective:
        head = _language_model(config, length)
        # The gradient computes the logits a second time.
        again = head._replace(name="language-model head, recomputed", parameters=0, backward=False)
        parts += [token_unit("copy head", sizes, length), head, again]
    if config.sequence_contrast_objective and config.scl_head == "mlp_ln":
        parts.append(contrast_head("contrast head", sizes))
    return parts


def _language_model(config: PretrainingConfig, positions: int) -> Part:
    """The main network's language model, at so many positions of a sequence."""
    sizes = config.architecture
    if config.clm_head == "tied":
        return Part("language-model head", sizes.vocab_size, 2 * positions * sizes.hidden_size * sizes.vocab_size)
    return language_model_head("language-model head", sizes.hidden_size, sizes, positions)


def _masked_lm_head(sizes: Architecture, positions: int) -> Part:
    return language_model_head("masked-LM head", sizes.hidden_size, sizes, positions)


def parameter_count(config: PretrainingConfig) -> int:
    """Counts the trained parameters of generator, main network and heads."""
    return sum(part.parameters for part in model_parts(config))


def training_flops_per_example(config: PretrainingConfig) -> int:
    """FLOPs of the forward and backward pass on one sequence."""
    return sum(part.training_flops for part in model_parts(config))


def update_flops(config: PretrainingConfig) -> int:
    """FLOPs of the matrix products of an update: those of Muon's iteration; AdamW has none."""
    if config.optimizer != "muon":
        return 0
    networks = [config.architecture]
    if config.generator_kind is GeneratorKind.TWO_TOWERS:
        networks += [config.generator_architecture] * 2
    elif config.generator_kind is GeneratorKind.MASKED_LM and not config.freeze_generator:
        networks.append(config.generator_architecture)
    return sum(newton_schulz(network, config.muon_ns_steps) for network in networks)


def step_flops(config: PretrainingConfig) -> int:
    """FLOPs of a training step: passes on a batch, and the update."""
    return config.train_batch_size * training_flops_per_example(config) + update_flops(config)


def training_flops(config: PretrainingConfig) -> int:
    """FLOPs of the whole run."""
    flops = config.num_train_steps * update_flops(config)
    for phase in phases_of(config):
        examples = (phase.end - phase.start) * phase.train_batch_size
        flops += examples * training_flops_per_example(config.in_phase(phase))
    return flops
