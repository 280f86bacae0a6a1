"""Loss scaling for float16, in which small gradients would become 0 otherwise."""

import tensorflow as tf


class LossScale(tf.Module):
    """Dynamic loss scaling for float16 (Micikevicius et al. 2018): halve on overflow, double after 2,000 good steps."""

    def __init__(self, initial: float = 2.0**15, growth_steps: int = 2000) -> None:
        super().__init__(name="loss_scale")
        self.growth_steps = growth_steps
        aggregation = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.scale = tf.Variable(initial, trainable=False, aggregation=aggregation, name="loss_scale")
        self.good_steps = tf.Variable(0, trainable=False, aggregation=aggregation, name="loss_scale_good_steps")

    def update(self, finite: tf.Tensor) -> None:
        """Adjusts the scale after a step whose gradients were all finite, or not."""
        good_steps = tf.where(finite, self.good_steps + 1, 0)
        grows = good_steps >= self.growth_steps
        kept_or_doubled = tf.where(grows, self.scale * 2.0, self.scale)
        halved = tf.maximum(self.scale / 2.0, 1.0)
        self.scale.assign(tf.where(finite, kept_or_doubled, halved))
        self.good_steps.assign(tf.where(grows, 0, good_steps))
