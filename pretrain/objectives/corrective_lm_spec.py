"""COCO-LM's corrective language modelling, as the configuration knows it (pretrain.objectives.corrective_lm)."""

from collections.abc import Iterator

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.flops import Part, language_model_head, token_unit
from electra_tf2.pretrain.objectives.spec import ObjectiveSpec


def head_problems(c: PretrainingConfig) -> Iterator[str]:
    """Of the main network's head over the vocabulary."""
    a = c.architecture
    if c.clm_head == "tied" and a.embedding_size != a.hidden_size:
        yield f"clm_head tied needs embedding_size {a.hidden_size}, the hidden size"


def head_part(c: PretrainingConfig, positions: int) -> Part:
    """The main network's head over the vocabulary, at so many positions of a sequence."""
    a = c.architecture
    if c.clm_head == "tied":
        flops = 2 * positions * a.hidden_size * a.vocab_size
        return Part("language-model head", a.vocab_size, flops, positions * a.vocab_size)
    return language_model_head("language-model head", a.hidden_size, a, positions)


SPECS = (
    ObjectiveSpec(
        flag="corrective_lm_objective",
        title="corrective language modelling (COCO-LM)",
        role="main",
        objectives=(
            "electra_tf2.pretrain.objectives.corrective_lm:CopyDetection",
            "electra_tf2.pretrain.objectives.corrective_lm:CorrectiveLM",
        ),
        problems=head_problems,
        parts=lambda c: [
            token_unit("copy head", c.architecture, c.max_seq_length),
            head_part(c, c.max_predictions_per_seq),
        ],
    ),
)
