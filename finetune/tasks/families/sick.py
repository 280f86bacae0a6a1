"""SICK: whether one sentence follows from another, and how related they are. Free of TensorFlow."""

from typing import Any

from electra_tf2.finetune.tasks.entry import Entry
from electra_tf2.finetune.tasks.spec import Columns, TextTaskSpec

_TEXTS = (("sentence_A", "sentence1"), ("sentence_B", "sentence2"))
_MAKER = "electra_tf2.finetune.classification.sick:SickTask"


def _spec(label_columns: tuple[str, ...], **fields: Any) -> dict[str, Any]:
    columns = Columns(_TEXTS, label_columns)
    return {"spec": TextTaskSpec(columns, columns, folders=("sick", "SICK"), **fields)}


ENTRIES = (
    (
        "sick_entailment",
        Entry(
            "classification",
            _spec(
                ("entailment_label", "entailment_judgment", "label"),
                labels=("CONTRADICTION", "ENTAILMENT", "NEUTRAL"),
                numbered_labels=False,
            ),
            maker=_MAKER,
        ),
    ),
    (
        "sick_relatedness",
        Entry(
            "regression",
            _spec(
                ("relatedness_score", "score"),
                metrics=("pearson", "spearman"),
                value_range=(1.0, 5.0),
                double_unordered=True,
            ),
            {"num_train_epochs": 10.0},
            _MAKER,
        ),
    ),
)
