"""Multiple choice among candidates, as the configuration knows it (pretrain.objectives.multiple_choice computes it)."""

from collections.abc import Iterator

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.flops import Part, language_model_head
from electra_tf2.pretrain.objectives.spec import ObjectiveSpec


def _problems(c: PretrainingConfig) -> Iterator[str]:
    if c.uniform_generator or c.two_tower_generator or c.generator_exits:
        yield "multiple_choice_objective draws its candidates from one masked language model as generator"
    if c.disallow_correct:
        yield "multiple_choice_objective offers what the generator says, right or not: disallow_correct must be false"


def _parts(c: PretrainingConfig) -> list[Part]:
    a, generator, length = c.architecture, c.generator_architecture, c.max_seq_length
    drawn = language_model_head("candidates", generator.hidden_size, generator, length)
    size, kernel = a.embedding_size, a.hidden_size * a.embedding_size
    flops = 2 * length * (kernel + c.choice_candidates * size)
    states = length * (size + c.choice_candidates)
    return [
        drawn._replace(parameters=0, backward=False),
        Part("choice head", kernel + 3 * size + a.vocab_size + size + 1, flops, states),
    ]


SPECS = (
    ObjectiveSpec(
        flag="multiple_choice_objective",
        title="multiple choice among candidates (MC-BERT)",
        role="main",
        objectives=("electra_tf2.pretrain.objectives.multiple_choice:MultipleChoice",),
        problems=_problems,
        parts=_parts,
    ),
)
