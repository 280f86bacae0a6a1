"""DistilBERT's hparams, their checks and their costs (Sanh et al. 2019)."""

import dataclasses
from collections.abc import Iterable
from typing import Any

from electra_tf2.config.hparams import hparam
from electra_tf2.configure_pretraining import GeneratorKind, PretrainingConfig
from electra_tf2.formats.readers import find_model
from electra_tf2.model.architecture import Architecture, make_architecture
from electra_tf2.model.flops import Part, encoder, language_model_head
from electra_tf2.util.errors import UserError


@dataclasses.dataclass(frozen=True)
class Config(PretrainingConfig):
    """The teacher, and what is learned from it."""

    teacher: str | None = hparam(
        None,
        "folder of a model to learn from, beside ELECTRA's or BERT's objective (DistilBERT); any that "
        "init_checkpoint takes",
        place="read",
        heading="Distillation",
    )
    distill_temperature: float = hparam(2.0, "temperature of teacher and student when they are compared", above=0)
    distill_token_weight: float = hparam(5.0, "weight of the teacher's distribution at masked tokens", at_least=0)
    distill_detection_weight: float = hparam(50.0, "weight of the teacher's verdict on replacements (ours)", at_least=0)
    distill_hidden_weight: float = hparam(1.0, "weight of the cosine of last states and the teacher's", at_least=0)
    init_from_teacher: bool = hparam(False, "start from the teacher's weights; layers 0, 2, 4, ... of twice as many")

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
    def teacher_hparams(self) -> dict[str, Any]:
        """Hparams of the teacher's network and its input. Raises UserError: it has no configuration."""
        hparams = find_model(self.teacher or "").network
        if not hparams:
            raise UserError(f"teacher: {self.teacher!r} holds no configuration of a model, which a teacher needs")
        return hparams

    @property
    def teacher_architecture(self) -> Architecture:
        hparams = self.teacher_hparams
        return make_architecture(
            hparams["model_size"], hparams["model_hparam_overrides"], hparams["vocab_size"], hparams["embedding_size"]
        )

    @property
    def starts_from_weights(self) -> bool:
        return super().starts_from_weights or self.init_from_teacher

    def lacking(self) -> Iterable[str]:
        yield from super().lacking()
        if self.init_from_teacher and not self.teacher:
            yield "init_from_teacher needs --teacher: the folder of the model to learn from"

    def objective_problems(self) -> Iterable[str]:
        yield from super().objective_problems()
        if not self.teacher:
            return
        if self.generator_kind is not GeneratorKind.NONE and not self.electra_objective:
            yield "teacher needs electra_objective, or BERT's masked language model"
        if not find_model(self.teacher).network:
            yield f"teacher: {self.teacher} holds no configuration of a model"
            return
        theirs, ours = self.teacher_architecture, self.architecture
        if theirs.hidden_size != ours.hidden_size and self.compares_states:
            yield (
                f"distill_hidden_weight compares states: the teacher's are {theirs.hidden_size} wide, here it is "
                f"{ours.hidden_size}; set it to 0"
            )
        if self.init_from_teacher and ours.num_hidden_layers > theirs.num_hidden_layers:
            yield (
                f"init_from_teacher: there are {ours.num_hidden_layers} layers, and {theirs.num_hidden_layers} to take"
            )
        if self.max_seq_length > theirs.max_position_embeddings and theirs.positions.embedded:
            yield f"the teacher reads {theirs.max_position_embeddings} tokens, max_seq_length is {self.max_seq_length}"

    def further_parts(self) -> list[Part]:
        if not self.teacher:  # recipes leave that to the user
            return []
        sizes, parts = self.teacher_architecture, []
        if self.compares_tokens:
            masked = self.max_predictions_per_seq
            parts.append(language_model_head("teacher's masked-LM head", sizes.hidden_size, sizes, masked))
        parts.append(encoder("teacher", sizes, self.max_seq_length))
        return [part._replace(parameters=0, backward=False) for part in parts]
