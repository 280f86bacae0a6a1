"""How does the second segment belong to the first? ("On Losses": adjacent sentence prediction, ASP, and sentence
distance, SDP)

Records hold the text that follows, text from elsewhere in the document and text of another one (corpus.other_segments).
Which of them a record shows is drawn at every step, each with the same chance, so a row depends on no other row. A
record that lacks one of those that its task needs has no label and stays as it is.
"""

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.masking import Arranged, Draw
from electra_tf2.pretrain.objectives.auxiliary import Classification, PooledHead
from electra_tf2.pretrain.objectives.base import Built
from electra_tf2.pretrain.objectives.segment_relation_spec import TEXTS
from electra_tf2.pretrain.segments import begun_later, rearranged_segments, replaced_segment


class SegmentRelation(Classification):
    """Cross-entropy over three relations from the [CLS] state."""

    classes = 3

    def __init__(self, config: PretrainingConfig, built: Built | None = None) -> None:
        super().__init__(config, built)
        self.head = PooledHead(f"{self.task}_predictions", config, self.classes)

    def arrange(self, batch: dict[str, tf.Tensor], candidates: tf.Tensor, draw: Draw, active: tf.Tensor) -> Arranged:
        possible = active & tf.reduce_any(batch["segment_ids"] * batch["input_mask"] > 0, -1)
        for name in TEXTS[self.task]:
            possible &= batch[name][:, 0] > 0
        drawn = tf.minimum(tf.cast(draw(0, []) * self.classes, tf.int32), self.classes - 1)
        labels = tf.where(possible, drawn, -1)
        return self.rearranged(batch, candidates, draw, labels), {self.task: labels}

    def rearranged(
        self, batch: dict[str, tf.Tensor], candidates: tf.Tensor, draw: Draw, labels: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """The batch with segments of the relation that labels, int32 [B], say; -1: untouched."""
        raise NotImplementedError


class AdjacentSegments(SegmentRelation):
    """Does the second segment follow the first (0), precede it (1), or is it of another document (2)?"""

    task, loss_name = "asp", "asp_loss"

    def rearranged(
        self, batch: dict[str, tf.Tensor], candidates: tf.Tensor, draw: Draw, labels: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        other = begun_later(batch["other_document_ids"], draw(2, [1]))
        longest = tf.reduce_sum(tf.cast(other > 0, tf.int32), -1, keepdims=True)  # whatever the label
        order = tf.where(labels == 2, 0, labels)
        batch = rearranged_segments(batch, candidates, draw(1, [3]), order, longest)
        return replaced_segment(batch, other, labels == 2)


class SameDocument(SegmentRelation):
    """Does the second segment follow the first (0), is it from elsewhere in its document (1), or of another (2)?"""

    task, loss_name = "sdp", "sdp_loss"

    def rearranged(
        self, batch: dict[str, tf.Tensor], candidates: tf.Tensor, draw: Draw, labels: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        for label, name in enumerate(TEXTS[self.task], start=1):
            batch = replaced_segment(batch, batch[name], labels == label)
        return batch
