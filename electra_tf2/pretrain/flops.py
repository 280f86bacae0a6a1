"""Cost of a pre-training run: parameters and floating-point operations of its parts; free of TensorFlow.

Generator, main network and heads are priced here; a paper prices its own (`PretrainingConfig.further_parts`).
run_pretraining prints the figures at start, flops_computation.py tables of them.
"""

import dataclasses

from electra_tf2.config.phases import phases_of
from electra_tf2.configure_pretraining import GeneratorKind, PretrainingConfig
from electra_tf2.model.architecture import Architecture
from electra_tf2.model.flops import (
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
    """The parts of a step, in the order in which it runs them; shared parameters are counted once, where first used."""
    main, generator = config.architecture, config.generator_architecture
    length, masked = config.max_seq_length, config.max_predictions_per_seq
    embeddings = Part("embeddings", embedding_parameters(main), 0)
    kind = config.generator_kind
    if kind is GeneratorKind.NONE:
        parts = [encoder("main network", main, length), _masked_lm_head(main, masked)]
        return [embeddings, *parts, *config.further_parts()]

    own_tables = 0
    if config.untied_generator_embeddings:
        own_tables = embedding_parameters(generator)
    elif config.generator_sample_mode == "zero_dropout":  # all but the word table
        own_tables = embedding_parameters(dataclasses.replace(generator, vocab_size=0))
    main_network = encoder("main network", main, length)
    if kind is GeneratorKind.UNIFORM:
        parts = []
    elif kind is GeneratorKind.SHARED:
        parts = [main_network._replace(name="generator"), _masked_lm_head(main, masked)]
        main_network = main_network._replace(parameters=0)
    elif kind is GeneratorKind.TWO_TOWERS:
        towers = [f"generator, {direction}" for direction in ("left to right", "right to left")]
        parts = [encoder(tower, generator, length, own_tables) for tower in towers]
        if not config.untied_generator_embeddings:  # else each tower has its tables
            parts[1] = encoder(towers[1], generator, length)
        parts.append(language_model_head("cloze head", 2 * generator.hidden_size, generator, length))
    else:
        trained = not config.freeze_generator
        parts = [encoder("generator", generator, length, own_tables), _masked_lm_head(generator, masked)]
        parts = [part._replace(backward=trained) for part in parts]
    if parts and config.generator_sample_mode == "eval":
        width = generator.hidden_size * (2 if kind is GeneratorKind.TWO_TOWERS else 1)
        second = [*parts[:-1], language_model_head("", width, generator, masked)]
        again = sum(part.forward_flops for part in second)
        parts.append(Part("generator, sampled without dropout", 0, again, backward=False))
    parts.append(main_network)
    if config.sequence_contrast_objective:
        parts.append(encoder(f"main network on {config.crop_length} tokens", main, config.crop_length))
        parts[-1] = parts[-1]._replace(parameters=0)
    if config.gradient_accumulation_steps > 1 and config.needs_whole_batch:
        again = sum(part.forward_flops for part in parts)
        parts.append(Part("first pass, for the whole batch", 0, again, backward=False))
    return [embeddings, *parts, *_heads(config), *config.further_parts()]


def _heads(config: PretrainingConfig) -> list[Part]:
    """Heads of the objectives (pretrain.objectives), but for the generator's language model."""
    sizes, length, masked = config.architecture, config.max_seq_length, config.max_predictions_per_seq
    hidden, parts = sizes.hidden_size, []
    if config.adversarial_generator:
        width = config.generator_architecture.hidden_size
        parts.append(Part("generator's baseline", width + 1, 2 * masked * width))
    if config.corrective_lm_objective:
        parts += [token_unit("copy head", sizes, length), _language_model(config, masked)]
    if config.electra_objective or config.electric_objective:
        norm = norm_parameters(sizes, hidden) if sizes.head_style == "modernbert" else 0
        parameters = hidden * hidden + hidden + norm + hidden + 1
        parts.append(Part("detection head", parameters, 2 * length * (hidden * hidden + hidden)))
    if config.replace_mlm_objective:
        parts.append(_language_model(config, masked))
    if config.all_tokens_mlm_objective:
        head = _language_model(config, length)  # its logits are computed a second time for the gradient
        again = head._replace(name="language-model head, recomputed", parameters=0, backward=False)
        parts += [token_unit("copy head", sizes, length), head, again]
    if config.sequence_contrast_objective and config.scl_head == "mlp_ln":
        parts.append(contrast_head("contrast head", sizes))
    return parts


def _language_model(config: PretrainingConfig, positions: int) -> Part:
    """The main network's head over the vocabulary, at so many positions of a sequence."""
    sizes = config.architecture
    if config.clm_head == "tied":
        return Part("language-model head", sizes.vocab_size, 2 * positions * sizes.hidden_size * sizes.vocab_size)
    return language_model_head("language-model head", sizes.hidden_size, sizes, positions)


def _masked_lm_head(a: Architecture, positions: int) -> Part:
    return language_model_head("masked-LM head", a.hidden_size, a, positions)


def parameter_count(config: PretrainingConfig) -> int:
    """Trained parameters of generator, main network and heads."""
    return sum(part.parameters for part in model_parts(config))


def training_flops_per_example(config: PretrainingConfig) -> int:
    """FLOPs of forward and backward pass on one sequence."""
    return sum(part.training_flops for part in model_parts(config))


def update_flops(config: PretrainingConfig) -> int:
    """FLOPs of an update's matrix products: Muon's iteration; AdamW has none."""
    if config.optimizer != "muon":
        return 0
    networks = [config.architecture]
    if config.generator_kind is GeneratorKind.TWO_TOWERS:
        networks += [config.generator_architecture] * 2
    elif config.generator_kind is GeneratorKind.MASKED_LM and not config.freeze_generator:
        networks.append(config.generator_architecture)
    return sum(newton_schulz(network, config.muon_ns_steps) for network in networks)


def step_flops(config: PretrainingConfig) -> int:
    """FLOPs of a training step: of its batch and of the update."""
    return config.train_batch_size * training_flops_per_example(config) + update_flops(config)


def training_flops(config: PretrainingConfig) -> int:
    """FLOPs of the whole run."""
    flops = config.num_train_steps * update_flops(config)
    for phase in phases_of(config):
        examples = (phase.end - phase.start) * phase.train_batch_size
        flops += examples * training_flops_per_example(config.in_phase(phase))
    return flops
