"""RACE: multiple choice about articles. Free of TensorFlow."""

from tasks.entry import Entry

ENTRIES = (("race", Entry("choice", {"folders": ("RACE",)}, {"max_seq_length": 512}, "finetune.choice.race:Race")),)
