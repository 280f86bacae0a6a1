"""RACE: multiple choice about articles. Free of TensorFlow."""

from electra_tf2.finetune.tasks.entry import Entry

ENTRIES = (
    ("race", Entry("choice", {"folders": ("RACE",)}, {"max_seq_length": 512}, "electra_tf2.finetune.choice.race:Race")),
)
