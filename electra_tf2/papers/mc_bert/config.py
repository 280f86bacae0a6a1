"""MC-BERT's hparams, their checks and their costs (Xu et al. 2020)."""

import dataclasses
from collections.abc import Iterable
from typing import ClassVar

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.flops import Part, language_model_head, table_width
from electra_tf2.util.hparams import hparam


@dataclasses.dataclass(frozen=True)
class Config(PretrainingConfig):
    """Multiple choice; disc_weight is the weight of its loss."""

    electra_objective: bool = hparam(False, "replaced-token detection", heading="ELECTRA")
    multiple_choice_objective: bool = hparam(
        True, "every token is rejected as original or answered by one of a few candidates (MC-BERT)", heading="MC-BERT"
    )
    choice_candidates: int = hparam(10, "classes: the rejection, and words that the generator samples", at_least=2)

    MAIN_OBJECTIVES: ClassVar[tuple[str, ...]] = (*PretrainingConfig.MAIN_OBJECTIVES, "multiple_choice_objective")

    @property
    def no_probabilities(self) -> str:
        return "a model of MC-BERT gives no probabilities: it chooses among a few words that it is offered"

    def objective_problems(self) -> Iterable[str]:
        yield from super().objective_problems()
        if not self.multiple_choice_objective:
            return
        if self.uniform_generator or self.two_tower_generator or self.adversarial_generator:
            yield "multiple_choice_objective draws its candidates from one masked language model as generator"
        if self.disallow_correct:
            yield (
                "multiple_choice_objective offers what the generator says, right or not: disallow_correct must be false"
            )

    def further_parts(self) -> list[Part]:
        if not self.multiple_choice_objective:
            return []
        sizes, generator, length = self.architecture, self.generator_architecture, self.max_seq_length
        drawn = language_model_head("candidates", generator.hidden_size, generator, length)
        head, size = language_model_head("choice head", sizes.hidden_size, sizes, length), table_width(sizes)
        flops = head.forward_flops + 2 * length * size * (self.choice_candidates - sizes.vocab_size)
        choice = Part("choice head", head.parameters + size + 1, flops)
        return [drawn._replace(parameters=0, backward=False), choice]
