"""Tagging: chunks, named entities, parts of speech. Free of TensorFlow."""

from electra_tf2.finetune.tasks.entry import Entry

ENTRIES = (
    ("chunk", Entry("tagging", {"spans": True}, {"max_seq_length": 256})),
    ("ner", Entry("tagging", {"spans": True})),
    ("pos", Entry("tagging", {"spans": False})),
)
