"""ELECTRA's ablations with a language model, as the configuration knows them (pretrain.objectives.token_lm)."""

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.flops import Part, token_unit
from electra_tf2.pretrain.objectives.corrective_lm_spec import head_part, head_problems
from electra_tf2.pretrain.objectives.spec import ObjectiveSpec


def _all_tokens_parts(c: PretrainingConfig) -> list[Part]:
    head = head_part(c, c.max_seq_length)  # its logits are computed a second time for the gradient
    again = head._replace(name="language-model head, recomputed", parameters=0, backward=False)
    return [token_unit("copy head", c.architecture, c.max_seq_length), head, again]


SPECS = (
    ObjectiveSpec(
        flag="replace_mlm_objective",
        title="Replace MLM",
        role="main",
        objectives=("electra_tf2.pretrain.objectives.token_lm:ReplaceMLM",),
        problems=head_problems,
        parts=lambda c: [head_part(c, c.max_predictions_per_seq)],
    ),
    ObjectiveSpec(
        flag="all_tokens_mlm_objective",
        title="All-Tokens MLM",
        role="main",
        objectives=("electra_tf2.pretrain.objectives.token_lm:AllTokensMLM",),
        problems=head_problems,
        parts=_all_tokens_parts,
    ),
)
