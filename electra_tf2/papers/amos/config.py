"""AMOS's hparams, their checks and their costs (Meng et al. 2022)."""

import dataclasses
from collections.abc import Iterator

from electra_tf2.config.hparams import hparam
from electra_tf2.configure_pretraining import GeneratorKind, PretrainingConfig
from electra_tf2.model.costs import Part, language_model_head


@dataclasses.dataclass(frozen=True)
class Config(PretrainingConfig):
    """ELECTRA with a mixture of generators."""

    generator_exits: list[int] = hparam(
        [],
        "layers of the generator, from 1, after each of which it is a language model of its own, whose logits are "
        "mixed (AMOS: [4, 6, 8] of 8)",
        heading="AMOS",
    )
    mixture_temperature: float = hparam(0.3, "temperature of the straight-through softmax of samples", above=0)
    mixture_gradient: float = hparam(
        -1.0,
        "factor of the main network's gradient where it reaches the shares of generator_exits: -1: samples become "
        "harder (AMOS); 0: the shares are not trained",
    )

    @property
    def why_no_probabilities(self) -> str:
        return (
            "a model of AMOS gives no probabilities: its discriminator judges samples of a mixture of generators, of "
            "which the uppermost alone is at hand"
        )

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.generator_kind is not GeneratorKind.MASKED_LM:
            yield "generator_exits needs a masked language model of its own as generator"
            return
        exits = self.generator_exits
        layers = self.generator_architecture.num_hidden_layers
        are_integers = all(type(layer) is int for layer in exits)
        is_rising = are_integers and exits == sorted(set(exits))
        if len(exits) < 2 or not is_rising or exits[0] < 1 or exits[-1] != layers:
            yield (
                f"generator_exits must be two layers or more of the generator, from 1, rising to its uppermost, "
                f"{layers} (generator_layers), got {exits}"
            )
        if self.adversarial_generator:
            yield "generator_exits and adversarial_generator are two ways to train an adversary: choose one"
        if self.freeze_generator:
            yield "generator_exits needs a generator that is trained: freeze_generator must be false"
        if self.architecture.norm_style != "post":
            yield "generator_exits needs norm_style post: its exits read layers that are normalised"
        if self.mask_sampling != "without_replacement":
            yield "generator_exits needs mask_sampling without_replacement: a position has one sample"

    def further_parts(self) -> list[Part]:
        """Costs of all exits but the uppermost, of the shares, and of the products that train the shares."""
        generator = self.generator_architecture
        masked = self.max_predictions_per_seq
        other_exits = len(self.generator_exits) - 1  # the uppermost is counted as the core's generator
        head = language_model_head("other exits", generator.hidden_size, generator, masked * other_exits)
        # All exits share one head; of the parts added here only the shares have parameters.
        head = head._replace(parameters=generator.hidden_size)
        product = 2 * masked * self.architecture.embedding_size * self.architecture.vocab_size
        gradient = Part("mixture's gradient", 0, 2 * product, backward=False)
        return [head, gradient]
