"""Term frequency, as the configuration knows it (pretrain.objectives.term_frequency computes it)."""

from electra_tf2.model.flops import state_classes
from electra_tf2.pretrain.objectives.spec import auxiliary_task

SPECS = tuple(
    auxiliary_task(
        task=task,
        objectives=(f"electra_tf2.pretrain.objectives.term_frequency:{name}",),
        parts=lambda c: [state_classes("term frequency", c.architecture, c.max_seq_length, 1)],
    )
    for task, name in (("tf", "TermFrequency"), ("tf_idf", "TermFrequencyInverse"))
)
