"""Term frequency, as the configuration knows it (pretrain.objectives.term_frequency computes it)."""

from model.flops import state_classes
from pretrain.objectives.spec import ObjectiveSpec

SPECS = tuple(
    ObjectiveSpec(
        flag="",
        task=task,
        role="beside",
        objectives=(f"pretrain.objectives.term_frequency:{name}",),
        parts=lambda c: [state_classes("term frequency", c.architecture, c.max_seq_length, 1)],
        without_main=True,
    )
    for task, name in (("tf", "TermFrequency"), ("tf_idf", "TermFrequencyInverse"))
)
