"""DistilBERT's hparams, their checks and their costs (Sanh et al. 2019)."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from electra_tf2.config.hparams import checked, hparam
from electra_tf2.configure_pretraining import GeneratorKind, PretrainingConfig
from electra_tf2.model.architecture import Architecture
from electra_tf2.model.costs import Part, encoder, language_model_head


@dataclasses.dataclass(frozen=True)
class Config(PretrainingConfig):
    """ELECTRA or BERT with a teacher."""

    teacher: str | None = hparam(
        None,
        "folder of a model to learn from, beside ELECTRA's or BERT's objective (DistilBERT); any that "
        "init_checkpoint takes",
        place="read",
        heading="Distillation",
    )
    teacher_sizes: dict[str, Any] = hparam(
        {}, "sizes of the teacher's network, which are read from its folder (papers/distilbert/implied_hparams.py)"
    )
    distill_temperature: float = hparam(2.0, "temperature of teacher and student when they are compared", above=0)
    distill_token_weight: float = hparam(5.0, "weight of the teacher's distribution at masked tokens", at_least=0)
    distill_detection_weight: float = hparam(50.0, "weight of the teacher's verdict on replacements (ours)", at_least=0)
    distill_hidden_weight: float = hparam(1.0, "weight of the cosine of last states and the teacher's", at_least=0)
    init_from_teacher: bool = hparam(
        False,
        "start from the teacher's weights; layers 0, 2, 4, ... of twice as many",
        needs=("teacher", "the folder of the model to learn from"),
    )

    @property
    def compares_tokens(self) -> bool:
        """True if BERT learns the teacher's distribution at masked positions."""
        return bool(self.teacher and self.distill_token_weight and self.generator_kind is GeneratorKind.NONE)

    @property
    def compares_detection(self) -> bool:
        """True if ELECTRA learns the teacher's opinion of replacements."""
        return bool(self.teacher and self.distill_detection_weight and self.electra_objective)

    @property
    def compares_states(self) -> bool:
        return bool(self.teacher and self.distill_hidden_weight)

    @property
    def teacher_architecture(self) -> Architecture:
        """Sizes of the teacher's network. Raises UserError: one of teacher_sizes is wrong."""
        return Architecture(**checked(Architecture, self.teacher_sizes))

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if not self.teacher:
            return
        if self.generator_kind is not GeneratorKind.NONE and not self.electra_objective:
            yield "teacher needs electra_objective, or BERT's masked language model"
        if self.teacher_sizes.keys() != {field.name for field in dataclasses.fields(Architecture)}:
            yield "teacher needs teacher_sizes, all that pretrain.implied_hparams.implied_hparams reads from its folder"
            return
        teacher = self.teacher_architecture
        student = self.architecture
        if teacher.hidden_size != student.hidden_size and self.compares_states:
            yield (
                f"distill_hidden_weight compares states: the teacher's are {teacher.hidden_size} wide, here it is "
                f"{student.hidden_size}; set it to 0"
            )
        layers = student.num_hidden_layers
        if self.init_from_teacher and layers > teacher.num_hidden_layers:
            yield f"init_from_teacher: there are {layers} layers, and {teacher.num_hidden_layers} to take"
        longest = teacher.max_position_embeddings
        if self.max_seq_length > longest and teacher.positions.embedded:
            yield f"the teacher reads {longest} tokens, max_seq_length is {self.max_seq_length}"

    def further_parts(self) -> list[Part]:
        if not self.teacher:  # recipes leave that to the user
            return []
        sizes = self.teacher_architecture
        parts = [encoder("teacher", sizes, self.max_seq_length)]
        if self.compares_tokens:
            masked = self.max_predictions_per_seq
            parts.append(language_model_head("teacher's masked-LM head", sizes.hidden_size, sizes, masked))
        return [part._replace(parameters=0, backward=False) for part in parts]
