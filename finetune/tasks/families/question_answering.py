"""SQuAD 1.1 and 2.0, and the datasets of MRQA. Free of TensorFlow."""

from electra_tf2.finetune.tasks.entry import Entry


def _question_answering(**options: bool) -> Entry:
    return Entry("qa", options, {"num_train_epochs": 2.0, "max_seq_length": 512})


# hparams: the original's defaults, but for "naturalqs", which it takes for a task of sentences (docs/differences.md).
ENTRIES = (
    ("squad", _question_answering(v2=True)),
    ("squadv1", _question_answering()),
    *((name, _question_answering(mrqa=True)) for name in ("newsqa", "naturalqs", "triviaqa", "searchqa")),
)
